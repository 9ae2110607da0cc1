//! The simulator can fail: each planted defect is found within a few worlds of either kind (calls with JSON,
//! calls with typed values) by a rule that it breaks, and shrinks to a short schedule that holds every rule
//! without the defect.

use asyncgate_sim::{Failure, Mutant, STEPS_PER_WORLD, Setup, explore, replay, shrink};

const MOST_WORLDS: usize = 8;
const TRIES: usize = 1_000;
const MOST_STEPS: usize = 16;

/// The rules that may notice a defect first.
fn rules(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::AnswersBeforeCommit => &["nothing acknowledged is lost"],
        // A repeated create that is taken for a new one may find no room for its class.
        Mutant::ForgetsKeys => &["one task per key", "verdict"],
        Mutant::ForgetsClasses => &["verdict"],
        Mutant::ForgetsUsage => &["verdict", "claim order"],
        Mutant::LeasesTwice => &["claim order", "at most one lease"],
        Mutant::DropsCloses => &["obligations closed"],
        Mutant::BurnsAttempts => &["attempts only by reported failures"],
        // What a worker tells under such a lease is written with the end that the lease does not have.
        Mutant::AcceptsStaleLeases => &[
            "lease expiry",
            "renewals",
            "verdict",
            "deadlines are met",
            "state machine",
        ],
        Mutant::AcceptsLateWork => &[
            "deadlines",
            "deadlines are met",
            "the server gives up",
            "verdict",
        ],
        Mutant::EndsTwice => &[
            "verdict",
            "serializable",
            "terminal immutable",
            "discharged once",
        ],
        Mutant::TrustsWorkers => &["locatability"],
        Mutant::IgnoresPriority => &["claim order"],
        Mutant::SkipsReceipts => &["state machine", "receipts match moves"],
        Mutant::RunsTwice => &[
            "done once",
            "verdict",
            "duplicates are told",
            "acknowledged",
        ],
        Mutant::MixesTenants => &["verdict"],
        // If it is a write of the watch over deadlines, the deadline is missed.
        Mutant::LosesWrites => &[
            "deadlines are met",
            "gapless ledger",
            "tasks",
            "claim order",
            "ledger",
            "first delivery",
        ],
        Mutant::LosesWakeUps => &["no lost wake-up", "deadlines are met"],
        Mutant::ReadsStale => &[
            "truthful observability",
            "verdict",
            "tasks",
            "no lost wake-up",
        ],
        Mutant::ForgetsDeadlines => &["deadlines are met", "deadlines"],
        Mutant::ForgetsTime => &["time"],
        Mutant::ForgetsNames => &["one message per name", "verdict"],
        Mutant::ForgetsAcks => &["acknowledged by who may"],
        Mutant::DeliversTwice => &["messages are serializable", "one receiver at a time"],
        Mutant::ReusesLeases => &["every delivery has a lease of its own"],
        Mutant::AcceptsOldDeliveries => &["acknowledged by who may", "given back", "kept longer"],
        Mutant::DropsTimedOut => &["at least once"],
        Mutant::NeverGivesUp => &["given back", "deadlines of messages"],
        Mutant::IgnoresOrder => &["delivery order"],
        Mutant::BreaksChains => &["chain of messages"],
        Mutant::Overfills => &["topics are bounded"],
        Mutant::JumpsTheLine => &["sent as asked"],
        Mutant::KeepsTheTurn => &[
            "acknowledged by who may",
            "purged",
            "thrown away",
            "given back",
            "delivery order",
            "deadlines of messages",
        ],
        Mutant::PurgesHeld => &["held messages are not purged"],
        Mutant::ForgetsDelays => &["sent as asked"],
        // A message that is lost on its way is missed by the receiver that waits for it.
        Mutant::LosesMail => &[
            "messages are serializable",
            "chain of messages",
            "messages",
            "no lost wake-up",
        ],
        Mutant::Miscounts => &["messages are conserved", "topics"],
        Mutant::MixesMail => &["dead letters", "messages are shown as they are"],
        Mutant::ForgetsMessages => &["deadlines are met", "deadlines of messages"],
        // Whichever comes first: a call, or the end of a wait.
        Mutant::NeverReadsAgain => &[
            "a revoked credential is refused",
            "a suspended tenant is shut out",
            "expiry is exact",
            "a good credential is let in",
            "waits end with their credential",
        ],
        Mutant::RoundsExpiry => &["expiry is exact", "waits end with their credential"],
        Mutant::KeepsToItself => &[
            "a revoked credential is refused",
            "a suspended tenant is shut out",
            "expiry is exact",
            "a good credential is let in",
            "waits end with their credential",
        ],
        Mutant::WaitsThroughSuspension | Mutant::OutlivesCredential | Mutant::ListensOn => &[
            "waits end with their credential",
            "nothing is taken after the end",
        ],
        Mutant::RevokesAnother => &["a deed changes nothing else"],
        Mutant::KeepsQuotas => &["verdict", "claim order"],
        Mutant::TakesForAnother => &["nothing crosses a tenant line", "verdict"],
    }
}

/// The first worlds that call with typed values, or with JSON.
fn worlds(typed: bool) -> impl Iterator<Item = u64> {
    let is_of_kind = move |seed: &u64| Setup::of_seed(*seed).typed == typed;
    (1..).filter(is_of_kind).take(MOST_WORLDS)
}

/// Returns the failures that the defect causes in them.
fn failures(mutant: Mutant, typed: bool) -> impl Iterator<Item = Box<Failure>> {
    worlds(typed).filter_map(move |seed| explore(seed, STEPS_PER_WORLD, Some(mutant)).err())
}

fn caught(mutant: Mutant, typed: bool) -> Box<Failure> {
    let kind = if typed { "typed" } else { "JSON" };
    let failure = failures(mutant, typed).next();
    failure.unwrap_or_else(|| panic!("{mutant:?} was not caught in {MOST_WORLDS} {kind} worlds"))
}

#[test]
fn every_defect_is_caught_by_a_rule_that_it_breaks() {
    for mutant in Mutant::ALL {
        let failure = caught(mutant, false);
        println!("{mutant:?}: {failure}");
        let is_its_own = |failure: &Failure| rules(mutant).contains(&failure.violation.rule);
        assert!(is_its_own(&failure), "{mutant:?}: {failure}");
        // Some defects break another rule first in some worlds.
        let found = failures(mutant, true).any(|failure| is_its_own(&failure));
        assert!(found, "{mutant:?} in typed worlds");
    }
}

#[test]
fn failures_shrink_to_short_schedules_that_blame_the_defect() {
    let shrunk = [
        Mutant::AnswersBeforeCommit,
        Mutant::ForgetsKeys,
        Mutant::LeasesTwice,
        Mutant::BurnsAttempts,
        Mutant::AcceptsStaleLeases,
        Mutant::TrustsWorkers,
        Mutant::MixesTenants,
        Mutant::ForgetsTime,
        Mutant::ForgetsNames,
        Mutant::ForgetsAcks,
        Mutant::DeliversTwice,
        Mutant::ReusesLeases,
        Mutant::DropsTimedOut,
        Mutant::PurgesHeld,
        Mutant::NeverReadsAgain,
        Mutant::RoundsExpiry,
        Mutant::KeepsToItself,
        Mutant::OutlivesCredential,
        Mutant::ListensOn,
    ];
    for (n, mutant) in shrunk.into_iter().enumerate() {
        // The two kinds take turns, because shrinking does not depend on the kind.
        let failure = caught(mutant, n % 2 == 1);
        let small = shrink(&failure, Some(mutant), TRIES);
        println!("{mutant:?}:\n{small}");
        assert!(small.steps.len() <= MOST_STEPS, "{mutant:?}:\n{small}");
        let violation = replay(&small, Some(mutant)).unwrap_err();
        assert_eq!(violation.rule, failure.violation.rule);
        replay(&small, None).unwrap();
    }
}
