//! Drawing the deeds of operators.

use super::{Generator, inputs::Input, mail::TOPICS};
use crate::{
    cast::{Actor, TENANTS},
    deed::{Deed, Place},
    rng::Rng,
    schedule::Setup,
    step::{Manner, Op, Step},
    world::World,
};

/// One step in this many is a deed.
const DEED_EVERY: usize = 24;
/// One step in this many opens a stream of messages.
const STREAM_EVERY: usize = 48;
const MOST_STREAMS: usize = 2;

/// The operators. They draw numbers of their own, so that worlds without them stay the same.
#[derive(Debug)]
pub(super) struct Operators {
    rng: Rng,
    suspended: [bool; TENANTS],
    /// The actors that complained that they are shut out.
    shut_out: Vec<usize>,
}

impl Operators {
    /// Returns the operators of a world that has any.
    pub(super) fn of(setup: &Setup) -> Option<Self> {
        setup.ends.then(|| Self {
            rng: Rng::new(setup.seed ^ 0x0be7),
            suspended: [false; TENANTS],
            shut_out: Vec::new(),
        })
    }

    /// Takes note of an actor that is shut out.
    pub(super) fn hear(&mut self, actor: usize) {
        if !self.shut_out.contains(&actor) {
            self.shut_out.push(actor);
        }
    }

    fn deed(&mut self, active: &[usize], waiting: &[usize], actors: &[Actor]) -> Deed {
        let complains = (!self.shut_out.is_empty()).then(|| self.rng.below(self.shut_out.len()));
        let complains = complains.filter(|_| self.rng.below(3) > 0);
        if let Some(actor) = complains.map(|n| self.shut_out.swap_remove(n)) {
            let tenant = actors[actor].tenant;
            return match self.suspended[tenant] {
                true => self.suspend(tenant, false),
                false => Deed::Issue(actor, self.lifetime()),
            };
        }
        // Whoever waits is the most interesting.
        let from = match waiting.is_empty() || self.rng.one_in(3) {
            true => active,
            false => waiting,
        };
        let actor = *self.rng.pick(from);
        match self.rng.below(9) {
            8 => {
                let (tasks, leases) = ([-1, 4, 12], [-1, 0, 1, 3]);
                let tasks = *self.rng.pick(&tasks);
                Deed::Bound(actors[actor].tenant, tasks, *self.rng.pick(&leases))
            }
            0..=1 => self.suspend(actors[actor].tenant, true),
            2..=3 => Deed::Revoke(actor),
            4..=5 => Deed::Rotate(actor, *self.rng.pick(&[0, 1, 20, 60])),
            _ => Deed::Issue(actor, self.lifetime()),
        }
    }

    fn suspend(&mut self, tenant: usize, suspended: bool) -> Deed {
        self.suspended[tenant] = suspended;
        match suspended {
            true => Deed::Suspend(tenant),
            false => Deed::Resume(tenant),
        }
    }

    fn stream(&mut self, active: &[usize]) -> Step {
        let mut input = Input::default();
        input.text("topic", TOPICS[self.rng.below(TOPICS.len())]);
        input.number("max_messages", 1 + self.rng.below(4) as i64);
        input.number("visibility_ms", *self.rng.pick(&[300, 5_000, 60_000]));
        Step::Call {
            manner: Manner::Live,
            actor: *self.rng.pick(active),
            op: Op::RECV,
            input: input.finish(),
        }
    }

    fn lifetime(&mut self) -> i64 {
        *self.rng.pick(&[0, 1_500, 20_300, 45_678, 600_000])
    }
}

impl Generator {
    /// Draws a deed, if it is time for one, or a stream of messages: it goes on for as long as its credential.
    pub(super) fn manage(&mut self, world: &World) -> Option<Step> {
        let operators = self.operators.as_mut()?;
        if self.mail > 0 && operators.rng.one_in(STREAM_EVERY) && world.streams() < MOST_STREAMS {
            return Some(operators.stream(&self.active));
        }
        if !operators.rng.one_in(DEED_EVERY) {
            return None;
        }
        let waiting: Vec<usize> = world.waiting().collect();
        let deed = operators.deed(&self.active, &waiting, world.actors());
        let place = *operators.rng.pick(&[Place::Here, Place::Elsewhere]);
        Some(Step::Manage(deed, place))
    }
}
