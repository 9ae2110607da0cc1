//! The whole state machine as one table: every state, every call, and the outcome.

use asyncgate_core::{Rejection, TaskId, task::Hold, task::Status};

use crate::world::{World, bare, echo, failure, json, proven, worker};

const STATES: [&str; 8] = [
    "delayed",
    "ready",
    "leased",
    "running",
    "succeeded",
    "unproven",
    "failed",
    "canceled",
];

/// The effect of a call on a task in each of [`STATES`]: the status it leaves, or
/// `-` the call takes nothing and says so, `=` it answers ok and writes nothing,
/// `stale` it is refused because the lease is not current, `late` it is refused because of the state.
#[rustfmt::skip]
const TABLE: [(&str, [&str; 8]); 12] = [
    //                 delayed     ready       leased       running      succeeded    unproven     failed       canceled
    ("claim",         ["-",        "leased",   "-",         "-",         "-",         "-",         "-",         "-"]),
    ("renew",         ["stale",    "stale",    "leased",    "running",   "stale",     "stale",     "stale",     "stale"]),
    ("release",       ["stale",    "stale",    "queued",    "queued",    "stale",     "stale",     "stale",     "stale"]),
    ("start",         ["stale",    "stale",    "running",   "=",         "stale",     "stale",     "stale",     "stale"]),
    ("progress",      ["stale",    "stale",    "leased",    "running",   "stale",     "stale",     "stale",     "stale"]),
    ("complete",      ["stale",    "stale",    "succeeded", "succeeded", "=",         "succeeded", "stale",     "stale"]),
    ("complete bare", ["stale",    "stale",    "succeeded", "succeeded", "=",         "=",         "stale",     "stale"]),
    ("fail",          ["stale",    "stale",    "failed",    "failed",    "stale",     "stale",     "=",         "stale"]),
    ("fail, retry",   ["stale",    "stale",    "queued",    "queued",    "stale",     "stale",     "=",         "stale"]),
    ("cancel",        ["canceled", "canceled", "canceled",  "canceled",  "late",      "late",      "late",      "="]),
    ("sweep",         ["-",        "-",        "-",         "-",         "-",         "-",         "-",         "-"]),
    ("sweep late",    ["queued",   "-",        "queued",    "queued",    "-",         "-",         "-",         "-"]),
];

#[test]
fn every_call_in_every_state_does_what_the_state_machine_says() {
    for (call, row) in TABLE {
        for (state, expected) in STATES.into_iter().zip(row) {
            let (mut world, id, hold) = world_with(state);
            let (tasks, receipts) = (world.tasks.clone(), world.ledger.len());
            let found = make(call, &mut world, id, &hold);
            assert_eq!(found, expected, "{call} of a task that is {state}");
            if ["-", "=", "stale", "late"].contains(&expected) {
                assert_eq!(world.tasks, tasks, "{call} of a {state} task changed it");
                assert_eq!(world.ledger.len(), receipts);
            }
        }
    }
}

#[test]
fn the_terminal_states_are_succeeded_failed_and_canceled() {
    for status in Status::ALL {
        let terminal = ["succeeded", "failed", "canceled"].contains(&status.as_str());
        assert_eq!(status.is_terminal(), terminal, "{status:?}");
        assert_eq!(Status::parse(status.as_str()), Some(status));
    }
}

/// Builds a world with one task in the state, and the hold that its last worker has or had on it.
fn world_with(state: &str) -> (World, TaskId, Hold) {
    let mut world = World::new();
    let id = world.create(echo());
    let mut hold = world.lease(id);
    match state {
        "delayed" => {
            world.fail(&hold, id, failure(true)).unwrap();
        }
        "ready" => world.release(&hold, id).unwrap(),
        "leased" => {
            // The task had a lease before, so that the rule could mistake the older one for the current one.
            world.release(&hold, id).unwrap();
            hold = world.lease(id);
        }
        "running" => world.start(&hold, id).unwrap(),
        "succeeded" => {
            world.complete(&hold, id, proven()).unwrap();
        }
        "unproven" => {
            world.complete(&hold, id, bare()).unwrap();
        }
        "failed" => {
            world.fail(&hold, id, failure(false)).unwrap();
        }
        "canceled" => {
            world.cancel(id, None).unwrap();
        }
        other => panic!("no such state: {other}"),
    }
    (world, id, hold)
}

/// Makes the call and names its effect in the words of [`TABLE`].
fn make(call: &str, world: &mut World, id: TaskId, hold: &Hold) -> &'static str {
    let wrote = world.ledger.len();
    let before = world.tasks.clone();
    let answer: Result<(), Rejection> = match call {
        "claim" => {
            let claim = asyncgate_core::task::Claim {
                worker: worker("eve"),
                capabilities: Vec::new(),
                lease_ttl_ms: None,
                expected_duration_seconds: None,
            };
            let leased = world.claim(&claim, &[id]);
            return if leased.is_empty() {
                "-"
            } else {
                name(world, id)
            };
        }
        "renew" => world.renew(hold, id, None).map(drop),
        "release" => world.release(hold, id),
        "start" => world.start(hold, id),
        "progress" => world.progress(hold, id, json("1")),
        "complete" => world.complete(hold, id, proven()).map(drop),
        "complete bare" => world.complete(hold, id, bare()).map(drop),
        "fail" => world.fail(hold, id, failure(false)).map(drop),
        "fail, retry" => world.fail(hold, id, failure(true)).map(drop),
        "cancel" => world.cancel(id, None).map(drop),
        "sweep" | "sweep late" => {
            if call == "sweep late" {
                world.wait_ms(1_800_000);
            }
            let swept = world.sweep();
            let moved = swept.readied + swept.expired;
            return if moved == 0 { "-" } else { name(world, id) };
        }
        other => panic!("no such call: {other}"),
    };
    match answer {
        Ok(()) if world.ledger.len() == wrote && world.tasks == before => "=",
        Ok(()) => name(world, id),
        Err(Rejection::LeaseInvalid) => "stale",
        Err(Rejection::InvalidTransition { status }) => {
            assert_eq!(status, world.status(id), "the refusal names the state");
            "late"
        }
        Err(other) => panic!("{call}: {other}"),
    }
}

fn name(world: &World, id: TaskId) -> &'static str {
    world.status(id).as_str()
}
