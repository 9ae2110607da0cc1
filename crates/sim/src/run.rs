//! Running simulations: drawn from a seed, or replayed from a schedule.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    generate::Generator,
    mutant::Mutant,
    schedule::{Schedule, Setup},
    violation::{Checked, Violation, broken},
    world::World,
};

/// The number of steps between two comparisons of everything that changed with the store.
pub const AUDIT_EVERY: usize = 256;
/// The number of steps that a world lives, so that it stays small.
pub const STEPS_PER_WORLD: usize = 2_048;

/// A failed simulation, with the schedule that repeats it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The rule that did not hold.
    pub violation: Violation,
    /// Every step up to the failure.
    pub schedule: Schedule,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, steps) = (self.schedule.setup.seed, self.schedule.steps.len());
        write!(f, "seed {seed}, step {steps}: {}", self.violation)
    }
}

/// Runs the world of a seed, and returns the steps that were drawn.
pub fn explore(seed: u64, steps: usize, mutant: Option<Mutant>) -> Result<Schedule, Box<Failure>> {
    let mut schedule = Schedule {
        setup: Setup::of_seed(seed),
        steps: Vec::with_capacity(steps),
    };
    match caught(|| live(&mut schedule, steps, mutant)) {
        Ok(()) => Ok(schedule),
        Err(violation) => Err(Box::new(Failure {
            violation,
            schedule,
        })),
    }
}

fn live(schedule: &mut Schedule, steps: usize, mutant: Option<Mutant>) -> Checked {
    let mut world = world(&schedule.setup, mutant)?;
    let mut generator = Generator::new(&schedule.setup, world.actors());
    for n in 1..=steps {
        let label = n as u32;
        let step = generator.next(label, &world);
        schedule.steps.push((label, step));
        let (_, step) = &schedule.steps[n - 1];
        world.step(label, step)?;
        // Clients learn only from their answers, never from the model.
        generator.heed(world.outcomes());
        if n % AUDIT_EVERY == 0 && n < steps {
            world.audit(false)?;
        }
    }
    world.audit(true)
}

/// Runs a schedule. A short one is audited after every step, a long one at the same steps as when it was
/// drawn.
pub fn replay(schedule: &Schedule, mutant: Option<Mutant>) -> Checked {
    let period = if schedule.steps.len() > AUDIT_EVERY {
        AUDIT_EVERY as u32
    } else {
        1
    };
    caught(|| {
        let mut world = world(&schedule.setup, mutant)?;
        let mut last = 0;
        for (label, step) in &schedule.steps {
            // Shrinking leaves steps out but keeps their numbers, so audits stay at the same places.
            if label / period > last / period {
                world.audit(false)?;
            }
            last = *label;
            world.step(*label, step)?;
            world.outcomes();
        }
        world.audit(true)
    })
}

fn world(setup: &Setup, mutant: Option<Mutant>) -> Checked<World> {
    World::new(setup.clone(), mutant).or_else(|error| broken("world", error.to_string()))
}

/// Runs a simulation and turns a panic of the engine into a violation like any other.
fn caught(live: impl FnOnce() -> Checked) -> Checked {
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        broken("panic", text.unwrap_or_default())
    })
}
