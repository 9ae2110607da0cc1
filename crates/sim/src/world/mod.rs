//! The simulated world: the real engine over the simulated store, driven step by step.

mod door;
mod ends;
mod flight;
mod mail;
mod names;
mod operator;
mod process;

use std::{cell::RefCell, sync::Arc, task::Poll, time::Duration};

use asyncgate_api::Code;
use asyncgate_core::{
    Timestamp,
    identity::{self, Quotas, RecordKey},
};
use asyncgate_engine::{Clock, Engine, Entry, Fault, fakes::FakeClock, registry};
use asyncgate_store::{Error, Store, memory::MemoryStore};
use futures_util::FutureExt;
use tokio::runtime::Runtime;

use self::{
    door::{Door, Wallets},
    flight::{Begin, Flight, Watch},
    mail::AbandonedCall,
    process::{Parts, begin_with, tenants},
};
use crate::{
    cast::{Actor, TENANTS, cast, tenant_id},
    clock::{FakeEntropy, Machine},
    deed::Place,
    entrance::Answer,
    hash::Map,
    model::{Answered, Gains, Journal, Model, Question, Reception},
    mutant::Mutant,
    schedule::Setup,
    step::{Manner, Op, Refusal, Step},
    store::{Commit, Origin, SimStore, Wrote},
    violation::{Checked, broken, hold},
};

/// The time after which the watch looks again at a lease in its grace.
const LOOKS_AGAIN_MS: i64 = 100;

/// The outcome of a call, for the generator.
#[derive(Debug)]
pub struct Outcome {
    /// The call's number.
    pub label: u32,
    /// The actor that called.
    pub actor: usize,
    /// The things that the client learnt of; absent if it got no answer, or was told to try again.
    pub gained: Option<Gained>,
    /// True if it was told that this cannot be done.
    pub refused: bool,
    /// True if the newest credential of its actor was refused.
    pub shut_out: bool,
}

/// The number of things of each kind that an answer named.
#[derive(Debug, Clone, Copy)]
pub struct Gained {
    pub tasks: usize,
    pub leases: usize,
    pub receipts: usize,
    pub messages: usize,
    pub deliveries: usize,
}

impl From<&Gains> for Gained {
    fn from(gains: &Gains) -> Self {
        Self {
            tasks: gains.tasks.len(),
            leases: gains.leases.len(),
            receipts: gains.receipts.len(),
            messages: gains.messages.len(),
            deliveries: gains.deliveries.len(),
        }
    }
}

/// An engine, its store and its clients.
pub struct World {
    setup: Setup,
    mutant: Option<Mutant>,
    runtime: Runtime,
    actors: Vec<Actor>,
    entries: Vec<&'static Entry>,
    machine: Machine,
    clock: Arc<FakeClock>,
    entropy: Arc<FakeEntropy>,
    store: Arc<SimStore>,
    engine: Arc<Engine>,
    /// The way in; absent if nobody needs a credential.
    door: Option<Door>,
    /// The records that the operator's deed is about, while it is learnt.
    meant: Option<Vec<RecordKey>>,
    watches: Vec<Watch>,
    watch_faulted_until: Timestamp,
    flights: Vec<Flight>,
    abandoned: Vec<AbandonedCall>,
    gains: Map<u32, Gains>,
    outcomes: Vec<Outcome>,
    model: Model,
    journal: Journal,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl World {
    /// Creates a world, with a planted defect if there is a mutant.
    pub fn new(setup: Setup, mutant: Option<Mutant>) -> std::io::Result<Self> {
        // Time is paused, so that timers fire only when a step advances it.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let actors = cast();
        let (wallets, keys) = match setup.ends {
            true => Wallets::new(&actors).map(|(wallets, keys)| (Some(wallets), keys))?,
            false => (None, Vec::new()),
        };
        let changes = identity::Changes {
            put: tenants(setup.quotas()).chain(keys).collect(),
            ..identity::Changes::default()
        };
        let mut model = Model::new(setup.policy(), setup.quotas());
        model.learn_records(&changes, Place::Here, Timestamp::default());
        begin_with(memory.as_ref(), changes);
        let below = match mutant {
            Some(mutant) => mutant.below(memory),
            None => memory,
        };
        let store = Arc::new(SimStore::new(below, setup.queue, setup.repeat));
        let machine = Machine::new();
        let clock = Arc::new(FakeClock::at(machine.wall().as_millis()));
        let entropy = Arc::new(FakeEntropy::new(setup.seed));
        let parts = Parts {
            setup: &setup,
            mutant,
            store: &store,
            clock: &clock,
            entropy: &entropy,
        };
        let (engine, door) = parts.start(wallets)?;
        let mut world = Self {
            model,
            setup,
            mutant,
            runtime,
            actors,
            entries: entries()?,
            machine,
            clock,
            entropy,
            store,
            watches: Vec::new(),
            watch_faulted_until: Timestamp::default(),
            engine,
            door,
            meant: None,
            flights: Vec::new(),
            abandoned: Vec::new(),
            gains: Map::default(),
            outcomes: Vec::new(),
            journal: Journal::default(),
        };
        world.start_watching();
        Ok(world)
    }

    fn start_watching(&mut self) {
        self.watches.clear();
        if self.setup.watch {
            self.watches.push(Watch::tasks(&self.engine));
        }
        if self.setup.watch && self.has_mail() {
            self.watches.push(Watch::messages(&self.engine));
        }
    }

    /// Returns true if there are messages in this world.
    const fn has_mail(&self) -> bool {
        self.setup.mail > 0
    }

    /// Returns the actors.
    pub fn actors(&self) -> &[Actor] {
        &self.actors
    }

    /// Returns the numbers of late calls that are not answered yet.
    pub fn late(&self) -> impl Iterator<Item = u32> + '_ {
        let late = self.flights.iter();
        late.filter(|flight| flight.manner == Manner::Late)
            .map(|flight| flight.label)
    }

    /// Returns the number of streams that are open.
    pub fn streams(&self) -> usize {
        let live = |flight: &&Flight| flight.manner == Manner::Live;
        self.flights.iter().filter(live).count()
    }

    /// Returns the numbers of all calls that are not answered yet.
    pub fn in_flight(&self) -> impl Iterator<Item = u32> + '_ {
        self.flights.iter().map(|flight| flight.label)
    }

    /// Returns the outcomes of calls since the last time it was asked.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Returns the milliseconds until the next deadline.
    pub fn until_due(&self) -> Option<i64> {
        let now = self.clock.now();
        let ends = self.door.is_some().then_some(&self.model.credentials);
        let due = [
            self.model.next_due(),
            self.model.mail.next_due(),
            ends.and_then(|credentials| credentials.next_end(now)),
        ];
        let due = due.into_iter().flatten().min()?;
        Some(due.millis_since(now))
    }

    /// Takes one step and makes all checks that are possible at once.
    pub fn step(&mut self, label: u32, step: &Step) -> Checked {
        let runtime = self.runtime.handle().clone();
        // The engine's timers belong to this runtime; polling by hand needs it entered.
        let _entered = runtime.enter();
        match step {
            Step::Call {
                manner,
                actor,
                op,
                input,
            } => self.call(label, *manner, *actor, *op, input)?,
            Step::Poll(call) => self.poll(*call)?,
            Step::Drop(call) => self.drop_call(*call)?,
            Step::Commit(jobs) => self.store.commit(*jobs),
            Step::Reject(jobs) => self.store.reject(*jobs),
            Step::Sweep => self.sweep()?,
            Step::Sign(tenant) => self.sign(*tenant)?,
            Step::Advance(millis) => self.advance(*millis),
            Step::Jump(millis) => self.machine.jump(*millis),
            Step::Crash => self.crash()?,
            Step::Refuse(refusal) => self.store.refuse(match refusal {
                Refusal::Busy => Error::Busy,
                Refusal::Unavailable => Error::Unavailable("injected".to_owned()),
                Refusal::Conflict => Error::Conflict,
            }),
            Step::Blind => self.store.blind(),
            Step::Manage(deed, place) => self.manage(*deed, *place)?,
        }
        self.learn()?;
        self.settle()?;
        self.check_waits()
    }

    /// Compares everything that changed with the store; a `whole` audit compares everything.
    pub fn audit(&mut self, whole: bool) -> Checked {
        self.model.audit(self.store.below(), whole)?;
        if self.has_mail() {
            self.model.mail.audit(self.store.below(), whole)?;
        }
        if whole {
            self.journal.check(self.store.below(), &self.model.mail)?;
        }
        Ok(())
    }

    fn call(&mut self, label: u32, manner: Manner, actor: usize, op: Op, input: &str) -> Checked {
        let shown = self.shown(actor, label);
        let Some(who) = self.actors.get(actor) else {
            return broken("schedule", format!("there is no actor {actor}"));
        };
        self.flights.push(Flight::begin(Begin {
            label,
            actor,
            op,
            manner,
            entry: self.entries[op.number()],
            typed: self.setup.typed,
            who,
            engine: &self.engine,
            input: names::resolve(input, &self.gains),
            faults: self.store.faults(),
            oldest_quotas: self.model.quotas(who.tenant).oldest(self.clock.now()),
            shown,
        }));
        self.go_on(self.flights.len() - 1)
    }

    fn poll(&mut self, label: u32) -> Checked {
        match self.flights.iter().position(|flight| flight.label == label) {
            Some(n) => self.go_on(n),
            None => Ok(()),
        }
    }

    fn drop_call(&mut self, label: u32) -> Checked {
        if let Some(n) = self.flights.iter().position(|flight| flight.label == label) {
            let flight = self.flights.swap_remove(n);
            self.outcomes.push(Outcome {
                label,
                actor: flight.actor,
                gained: None,
                refused: false,
                shut_out: false,
            });
            self.abandoned.extend(AbandonedCall::of(flight));
        }
        Ok(())
    }

    /// Polls a call, hands its commits to the model, and checks the answer if there is one.
    fn go_on(&mut self, n: usize) -> Checked {
        let flight = &mut self.flights[n];
        let (label, manner) = (flight.label, flight.manner);
        let asked = self.store.asked();
        // Everything committed during the poll is recorded as this call's.
        self.store.polls(Origin::Call(label, flight.op), manner);
        let polled = flight.poll();
        self.store.polls(Origin::Server, Manner::Prompt);
        if flight.credential.is_some() {
            let asked = self.store.asked() > asked;
            self.check_credential(n, &polled, asked)?;
        }
        self.learn()?;
        let Poll::Ready(result) = polled else {
            return Ok(());
        };
        // Learning may have removed other calls, so the position is searched again.
        let n = self.flights.iter().position(|flight| flight.label == label);
        let Some(n) = n else { return Ok(()) };
        let flight = self.flights.swap_remove(n);
        self.answered(flight, result)
    }

    /// Hands every commit to the model, after asking it for the right answer to the call behind it.
    fn learn(&mut self) -> Checked {
        while let Some(commit) = self.store.next_commit() {
            match &commit.wrote {
                Wrote::Mail(_) => self.learn_mail(commit)?,
                Wrote::Tasks { .. } => self.learn_tasks(commit)?,
                Wrote::Records(changes) => {
                    self.check_deed(changes.as_ref())?;
                    self.model.learn(commit, 0, None, None)?;
                }
            }
        }
        Ok(())
    }

    fn learn_tasks(&mut self, commit: Commit) -> Checked {
        self.check_line(&commit)?;
        let mut oldest = 0;
        for flight in &mut self.flights {
            if commit.origin != Origin::Call(flight.label, flight.op) {
                flight.overtaken |= !flight.op.is_mail();
                continue;
            }
            oldest = flight.oldest_quotas;
            let actor = &self.actors[flight.actor];
            let verdict = |quotas: &Quotas| {
                self.model.verdict(&Question {
                    actor,
                    op: flight.op,
                    access: self.entries[flight.op.number()].spec.access,
                    asked: &flight.asked,
                    now: commit.now,
                    quotas: *quotas,
                })
            };
            let (newest, older) = self.model.quotas(actor.tenant).split(oldest);
            let (newest, older) = (verdict(newest), older.iter().map(verdict).collect());
            if let Wrote::Tasks { changes, .. } = &commit.wrote {
                flight.note(newest, commit.now, changes.as_ref());
                flight.otherwise = older;
            }
        }
        self.model.learn(commit, oldest, None, None)
    }

    fn answered(&mut self, flight: Flight, result: Result<Answer, Fault>) -> Checked {
        if flight.credential.is_some() && Reception::of(result.as_ref()) != Reception::LetIn {
            return self.shut_out(&flight);
        }
        if flight.op.is_mail() {
            return self.answered_mail(&flight, result);
        }
        let question = Question {
            actor: &self.actors[flight.actor],
            op: flight.op,
            access: self.entries[flight.op.number()].spec.access,
            asked: &flight.asked,
            now: flight.decided.unwrap_or_else(|| self.clock.now()),
            quotas: *self.model.quotas(self.actors[flight.actor].tenant).newest(),
        };
        let foretold = flight
            .verdict
            .unwrap_or_else(|| self.model.verdict(&question));
        // It may have been decided by quotas that were changed since it began.
        let code = result.as_ref().map(drop).map_err(|fault| fault.code);
        let foretold = match flight.otherwise.contains(&code) {
            true => code,
            false => foretold,
        };
        let told = |code: &str| format!("{} of {}: {code}", flight.op.name(), flight.label);
        let refused = result.is_err();
        let gains = match result {
            Ok(answer) => {
                hold(foretold.is_ok(), "verdict", || {
                    told(&format!("done, should be {foretold:?}"))
                })?;
                let answered = Answered {
                    question,
                    output: RefCell::new(Some(answer.output)),
                    created: answer.created,
                    tasks_made: flight.tasks_made,
                    receipts_made: flight.receipts_made,
                    leases_made: flight.leases_made,
                    exact: !flight.overtaken && self.store.faults() == flight.faults,
                    prompt: flight.manner != Manner::Late,
                };
                Some(self.model.check_answer(&answered, &mut self.journal)?)
            }
            Err(fault) if fault.code == Code::Unavailable => {
                // A refusal for lack of service must have a cause: an injected fault since the call began.
                let excused = self.store.faults() > flight.faults;
                hold(excused, "unavailable without a fault", || told("503"))?;
                // A claim may lease in one transaction and then be refused in another.
                let nothing = flight.receipts_made == 0 || flight.op == Op::LEASE;
                hold(nothing, "refused means nothing changed", || told("503"))?;
                None
            }
            Err(fault) => {
                hold(foretold == Err(fault.code), "verdict", || {
                    told(&format!("{}, should be {foretold:?}", fault.code.as_str()))
                })?;
                hold(
                    flight.receipts_made + flight.tasks_made == 0,
                    "refused means nothing changed",
                    || told(fault.code.as_str()),
                )?;
                Some(Gains::default())
            }
        };
        self.settled(&flight, gains, refused);
        Ok(())
    }

    /// Records the outcome of a call, and the things that its client learns of.
    fn settled(&mut self, flight: &Flight, gains: Option<Gains>, refused: bool) {
        let refused = refused && gains.is_some();
        // A lost answer was checked like any other, but its client never sees it.
        let gains = gains.filter(|_| flight.manner != Manner::Lost);
        self.outcomes.push(Outcome {
            label: flight.label,
            actor: flight.actor,
            gained: gains.as_ref().map(Gained::from),
            refused,
            shut_out: false,
        });
        if let Some(gains) = gains {
            self.gains.insert(flight.label, gains);
        }
    }

    /// Continues every woken call and watch, until nobody is woken.
    fn settle(&mut self) -> Checked {
        loop {
            let woken = |flight: &Flight| flight.manner != Manner::Late && flight.is_woken();
            let next = self.flights.iter().position(woken);
            let mut watched = false;
            for watch in &mut self.watches {
                let faults = self.store.faults();
                watched |= watch.poll_if_woken();
                if self.store.faults() > faults {
                    // After a failure the watch looks again a second later.
                    self.watch_faulted_until = self.clock.now().plus_millis(1_000);
                }
            }
            if watched {
                self.learn()?;
            }
            match next {
                Some(n) => self.go_on(n)?,
                None if !watched => return Ok(()),
                None => {}
            }
        }
    }

    /// Checks that nobody waits for something that is there, and that a watching server misses no deadline.
    fn check_waits(&self) -> Checked {
        // A late worker may have been woken for the work and not have been polled since. A stream may have been woken
        // while receivers hold too many messages, and looks again a little later.
        let shared = [Op::LEASE, Op::RECV];
        let mut late = [false; TENANTS];
        for flight in &self.flights {
            let slow = [Manner::Late, Manner::Live].contains(&flight.manner);
            let is_late = slow && shared.contains(&flight.op);
            late[self.actors[flight.actor].tenant] |= is_late;
        }
        for flight in &self.flights {
            let tenant = self.actors[flight.actor].tenant;
            if flight.manner == Manner::Late {
                continue;
            }
            self.check_wait(flight)?;
            if shared.contains(&flight.op) && late[tenant] {
                continue;
            }
            let missed = match flight.op {
                Op::LEASE => {
                    let reach = flight.reach.as_ref();
                    reach.is_some_and(|reach| {
                        self.model.has_work(tenant, flight.oldest_quotas, reach)
                    })
                }
                Op::GET => {
                    let id = flight.asked.text_or_empty("task_id");
                    self.model.has_ended(tenant, id)
                }
                Op::RECV => {
                    let topic = flight.asked.text_or_empty("topic");
                    self.model.mail.has_message(tenant, topic)
                }
                // It brings letters back in steps, with waits between them.
                Op::REPROCESS => false,
                _ => true,
            };
            hold(!missed, "no lost wake-up", || {
                format!("{} of {}", flight.op.name(), flight.label)
            })?;
        }
        let now = self.clock.now();
        if self.setup.watch && now > self.watch_faulted_until {
            self.model.check_deadlines_met(now, LOOKS_AGAIN_MS)?;
            self.model.mail.check_deadlines_met(now)?;
        }
        Ok(())
    }

    fn sweep(&mut self) -> Checked {
        // A transaction that was decided long ago and commits during the sweep may be due again at once.
        self.store.commit(usize::MAX);
        let swept = self.engine.act_on_deadlines().now_or_never();
        self.learn()?;
        self.swept(swept, |model, now| model.check_deadlines_met(now, 0))?;
        if self.has_mail() {
            let swept = self.engine.act_on_messages().now_or_never();
            self.learn()?;
            self.swept(swept, |model, now| model.mail.check_deadlines_met(now))?;
        }
        Ok(())
    }

    fn swept(
        &self,
        swept: Option<Result<Duration, Fault>>,
        check: impl FnOnce(&Model, Timestamp) -> Checked,
    ) -> Checked {
        match swept {
            Some(Ok(_)) => check(&self.model, self.clock.now()),
            Some(Err(fault)) => hold(fault.code == Code::Unavailable, "sweep", || {
                fault.code.as_str().to_owned()
            }),
            None => broken("sweep", "it waits"),
        }
    }

    fn sign(&mut self, tenant: usize) -> Checked {
        let tenant = tenant_id(tenant.min(TENANTS - 1));
        match self.engine.sign_ledger(tenant).now_or_never() {
            Some(Err(fault)) if fault.code != Code::Unavailable => {
                broken("sign", fault.code.as_str())
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, millis: i64) {
        let millis = millis.max(0);
        self.machine.advance(millis);
        self.clock.advance(millis);
        let passed = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        self.runtime.block_on(tokio::time::advance(passed));
    }

    /// Ends the process: everything that was not committed is gone, and so is every connection. The next
    /// process starts at the time of the wall clock, but not before the last commit.
    fn crash(&mut self) -> Checked {
        self.watches.clear();
        for flight in std::mem::take(&mut self.flights) {
            self.outcomes.push(Outcome {
                label: flight.label,
                actor: flight.actor,
                gained: None,
                refused: false,
                shut_out: false,
            });
        }
        self.abandoned.clear();
        self.store.crash();
        self.learn()?;
        self.model.restart();
        // The wall clock may have been set back while the process was down.
        let started = self.machine.wall().max(self.store.last_time());
        self.clock = Arc::new(FakeClock::at(started.as_millis()));
        let wallets = self.door.take().map(|door| door.wallets);
        let parts = Parts {
            setup: &self.setup,
            mutant: self.mutant,
            store: &self.store,
            clock: &self.clock,
            entropy: &self.entropy,
        };
        let started = parts.start(wallets);
        (self.engine, self.door) = started.or_else(|error| broken("world", error.to_string()))?;
        self.start_watching();
        self.watch_faulted_until = Timestamp::default();
        Ok(())
    }
}

/// Returns the registry's entries, in the order of [`Op::NAMES`].
fn entries() -> std::io::Result<Vec<&'static Entry>> {
    let find = |name: &&str| {
        let entry = registry().iter().find(|entry| entry.spec.name == *name);
        entry.ok_or_else(|| std::io::Error::other(format!("there is no operation {name}")))
    };
    Op::NAMES.iter().map(find).collect()
}
