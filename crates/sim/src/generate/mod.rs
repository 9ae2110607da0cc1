//! Drawing steps: clients that know only what they were told, on a network and a machine that fail.

mod inputs;
mod mail;
mod operator;

use std::collections::VecDeque;

use asyncgate_engine::Role;

use self::operator::Operators;
use crate::{
    cast::{Actor, TENANTS},
    hash::Map,
    rng::Rng,
    schedule::Setup,
    step::{Manner, Op, Refusal, Step},
    world::{Outcome, World},
};

const MOST_REMEMBERED: usize = 48;
const MOST_IN_FLIGHT: usize = 8;

/// The weight of each kind of step, before a seed changes it.
const KINDS: [(Kind, u32); 14] = [
    (Kind::Call, 560),
    (Kind::Lost, 30),
    (Kind::Late, 40),
    (Kind::Retry, 50),
    (Kind::Poll, 90),
    (Kind::Drop, 8),
    (Kind::Commit, 60),
    (Kind::Reject, 4),
    (Kind::Sweep, 50),
    (Kind::Sign, 4),
    (Kind::Advance, 220),
    (Kind::Jump, 4),
    (Kind::Crash, 3),
    (Kind::Fault, 10),
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Call,
    Lost,
    Late,
    Retry,
    Poll,
    Drop,
    Commit,
    Reject,
    Sweep,
    Sign,
    Advance,
    Jump,
    Crash,
    Fault,
}

/// The name of a thing: the call that it came from, and its place in the answer.
type Named = (u32, usize);

/// A call that could be sent again.
#[derive(Debug, Clone)]
struct Sent {
    actor: usize,
    op: Op,
    input: String,
    hold: Option<Named>,
}

/// Draws one step after another.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    /// The percentage of calls that are about messages.
    mail: usize,
    weights: [u32; KINDS.len()],
    sent: Map<u32, Sent>,
    /// Calls whose answer never came, and some whose answer did.
    again: VecDeque<Sent>,
    clients: Vec<Client>,
    /// The actors that call; those that call more often stand here more often.
    active: Vec<usize>,
    operators: Option<Operators>,
}

/// The knowledge of one client.
#[derive(Debug, Default)]
struct Client {
    tasks: VecDeque<Named>,
    holds: VecDeque<Named>,
    stale: VecDeque<Named>,
    receipts: VecDeque<Named>,
    /// Messages that it sent.
    sent: VecDeque<Named>,
    /// Messages that it received and has not settled.
    deliveries: VecDeque<Named>,
    /// Messages that it received and has settled.
    settled: VecDeque<Named>,
}

impl Generator {
    /// Creates the generator of a seed. Each seed has its own mix, so that some runs are calm, some have
    /// only crashes, and some have everything.
    pub fn new(setup: &Setup, actors: &[Actor]) -> Self {
        let mut rng = Rng::new(setup.seed ^ 0x6e4e);
        let weights = KINDS.map(|(kind, weight)| {
            if matches!(kind, Kind::Call | Kind::Poll | Kind::Sweep | Kind::Advance) {
                return weight;
            }
            weight * *rng.pick(&[0, 1, 1, 3])
        });
        let active = active(&mut rng, actors);
        Self {
            rng,
            mail: setup.mail as usize,
            weights,
            active,
            operators: Operators::of(setup),
            sent: Map::default(),
            again: VecDeque::new(),
            clients: actors.iter().map(|_| Client::default()).collect(),
        }
    }

    /// Draws the next step, which will be number `label`.
    pub fn next(&mut self, label: u32, world: &World) -> Step {
        if let Some(deed) = self.manage(world) {
            return deed;
        }
        let kind = KINDS[self.rng.weighted(&self.weights)].0;
        match kind {
            Kind::Call => self.call(label, Manner::Prompt, world),
            Kind::Lost => self.call(label, Manner::Lost, world),
            Kind::Late if world.late().count() < MOST_IN_FLIGHT => {
                self.call(label, Manner::Late, world)
            }
            Kind::Retry => self.retry(label, world),
            Kind::Late | Kind::Poll => match self.one_of(world.late().collect()) {
                Some(call) => Step::Poll(call),
                None => self.call(label, Manner::Prompt, world),
            },
            Kind::Drop => match self.one_of(world.in_flight().collect()) {
                Some(call) => Step::Drop(call),
                None => self.call(label, Manner::Lost, world),
            },
            Kind::Commit => Step::Commit(1 + self.rng.below(4)),
            Kind::Reject => Step::Reject(1 + self.rng.below(4)),
            Kind::Sweep => Step::Sweep,
            Kind::Sign => Step::Sign(self.rng.below(TENANTS)),
            Kind::Advance => Step::Advance(self.millis(world)),
            Kind::Jump => Step::Jump(*self.rng.pick(&[
                -3_600_000, -120_000, -5_000, -1, 1, 5_000, 120_000, 3_600_000,
            ])),
            Kind::Crash => Step::Crash,
            Kind::Fault => self.fault(),
        }
    }

    /// Gives clients the outcomes of their calls.
    pub fn heed(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            let sent = self.sent.remove(&outcome.label);
            if let Some(operators) = self.operators.as_mut().filter(|_| outcome.shut_out) {
                operators.hear(outcome.actor);
            }
            let Some(gained) = outcome.gained else {
                self.again.extend(sent);
                keep(&mut self.again);
                continue;
            };
            if self.rng.one_in(20) {
                self.again.extend(sent.clone());
                keep(&mut self.again);
            }
            let client = &mut self.clients[outcome.actor];
            if outcome.refused {
                // A client that is told that a lease is over stops working on it.
                let is_mail = sent.as_ref().is_some_and(|sent| sent.op.is_mail());
                let hold = sent.and_then(|sent| sent.hold);
                let (holds, stale) = if is_mail {
                    (&mut client.deliveries, &mut client.settled)
                } else {
                    (&mut client.holds, &mut client.stale)
                };
                holds.retain(|held| Some(*held) != hold);
                stale.extend(hold);
                keep(stale);
                continue;
            }
            let all = |count: usize| (0..count).map(|n| (outcome.label, n));
            client.holds.extend(all(gained.leases));
            client.tasks.extend(all(gained.tasks));
            // A list names many receipts; a few are enough to work with.
            client.receipts.extend(all(gained.receipts.min(4)));
            if gained.deliveries > 0 {
                client.deliveries.extend(all(gained.deliveries));
                keep(&mut client.deliveries);
            } else if gained.messages > 0 {
                client.sent.extend(all(gained.messages));
                keep(&mut client.sent);
            }
            keep(&mut client.holds);
            keep(&mut client.tasks);
            keep(&mut client.receipts);
        }
    }

    fn call(&mut self, label: u32, manner: Manner, world: &World) -> Step {
        let actor = *self.rng.pick(&self.active);
        let about_mail = self.mail > 0 && self.rng.below(100) < self.mail;
        let patient = world.in_flight().count() < MOST_IN_FLIGHT;
        let (op, input, hold) = if about_mail {
            let role = world.actors()[actor].caller.role;
            self.mail(actor, role, patient)
        } else {
            let op = self.operation(actor, world);
            let (input, hold) = self.input(actor, op, patient, world);
            (op, input, hold)
        };
        let sent = Sent {
            actor,
            op,
            input,
            hold,
        };
        self.send(label, manner, sent)
    }

    fn retry(&mut self, label: u32, world: &World) -> Step {
        let n = self.rng.below(self.again.len());
        match self.again.remove(n) {
            Some(sent) if world.in_flight().count() < MOST_IN_FLIGHT => {
                self.send(label, Manner::Prompt, sent)
            }
            _ => self.call(label, Manner::Prompt, world),
        }
    }

    fn send(&mut self, label: u32, manner: Manner, sent: Sent) -> Step {
        self.sent.insert(label, sent.clone());
        let Sent {
            actor, op, input, ..
        } = sent;
        Step::Call {
            manner,
            actor,
            op,
            input,
        }
    }

    fn millis(&mut self, world: &World) -> i64 {
        let due = world.until_due().filter(|millis| *millis > 0);
        match (self.rng.below(64), due) {
            // Deadlines are the interesting moments: exactly at one, and a millisecond before and after.
            (0..=2, Some(due)) => due,
            (3, Some(due)) => due - 1,
            (4, Some(due)) => due + 1,
            (5, _) => *self.rng.pick(&[60_000, 600_000, 3_600_000]),
            (6..=7, _) => 30_000,
            (8..=20, _) => *self.rng.pick(&[1_000, 1_000, 5_000]),
            _ => *self.rng.pick(&[1, 20, 100, 300]),
        }
    }

    fn fault(&mut self) -> Step {
        match self.rng.below(4) {
            0 => Step::Blind,
            1 => Step::Refuse(Refusal::Unavailable),
            2 => Step::Refuse(Refusal::Conflict),
            _ => Step::Refuse(Refusal::Busy),
        }
    }

    fn one_of(&mut self, calls: Vec<u32>) -> Option<u32> {
        (!calls.is_empty()).then(|| *self.rng.pick(&calls))
    }
}

/// Returns some of the actors, of one to all tenants; most of them are workers.
fn active(rng: &mut Rng, actors: &[Actor]) -> Vec<usize> {
    let tenants = 1 + rng.below(TENANTS);
    let mut active = Vec::new();
    for (n, actor) in actors.iter().enumerate() {
        let shares = match actor.caller.role {
            Role::Agent => 4,
            Role::Worker => *rng.pick(&[0, 4, 4, 8]),
            Role::Admin | Role::System => *rng.pick(&[0, 1, 1, 4]),
        };
        if actor.tenant < tenants {
            active.extend(std::iter::repeat_n(n, shares));
        }
    }
    active
}

fn keep<T>(list: &mut VecDeque<T>) {
    while list.len() > MOST_REMEMBERED {
        list.pop_front();
    }
}
