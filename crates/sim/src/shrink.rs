//! Making a failing schedule small by leaving out steps that the failure does not need.

use std::collections::BTreeSet;

use crate::{
    mutant::Mutant,
    run::{Failure, replay},
    schedule::Schedule,
    step::Step,
};

/// The number of replays that are spent on a failure.
const TRIES: usize = 4_000;

impl Failure {
    /// Returns the regression to keep: the shortest schedule that was found, and the rule it breaks.
    pub fn shrunk(&self) -> String {
        format!("# {}\n{}", self.violation, shrink(self, None, TRIES))
    }

    /// Returns the file name of a regression of this failure.
    pub fn file_name(&self) -> String {
        let rule = self.violation.rule.replace(' ', "-");
        format!("{rule}-{}.txt", self.schedule.setup.seed)
    }
}

/// Returns a schedule that breaks the same rule, the shortest that was found in `tries` replays.
pub fn shrink(failure: &Failure, mutant: Option<Mutant>, tries: usize) -> Schedule {
    let mut search = Search {
        best: failure.schedule.clone(),
        rule: failure.violation.rule,
        mutant,
        left: tries,
    };
    if !search.still_fails(&search.best.clone()) {
        // The failure depends on the times of the audits, so all of it is kept.
        return failure.schedule.clone();
    }
    // Whole actors first: that removes most steps with the fewest replays.
    search.without_actors();
    loop {
        let before = search.best.steps.len();
        let mut chunk = before.div_ceil(2);
        while chunk > 0 {
            search.without_chunks(chunk);
            chunk /= 2;
        }
        search.with_longer_pauses();
        // A pass that removes nothing ends the search; one that does may enable further removals.
        if search.best.steps.len() == before || search.left == 0 {
            return search.best;
        }
    }
}

struct Search {
    best: Schedule,
    rule: &'static str,
    mutant: Option<Mutant>,
    left: usize,
}

impl Search {
    fn still_fails(&mut self, schedule: &Schedule) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        replay(schedule, self.mutant).is_err_and(|violation| violation.rule == self.rule)
    }

    fn try_steps(&mut self, steps: Vec<(u32, Step)>) -> bool {
        let schedule = Schedule {
            setup: self.best.setup.clone(),
            steps,
        };
        let fails = self.still_fails(&schedule);
        if fails {
            self.best = schedule;
        }
        fails
    }

    fn without_actors(&mut self) {
        let steps = self.best.steps.iter();
        let actors: BTreeSet<usize> = steps.filter_map(|(_, step)| step.actor()).collect();
        for actor in actors {
            let mut steps = self.best.steps.clone();
            steps.retain(|(_, step)| step.actor() != Some(actor));
            self.try_steps(steps);
        }
    }

    /// Makes one pause of two that follow each other.
    fn with_longer_pauses(&mut self) {
        let mut n = 1;
        while n < self.best.steps.len() && self.left > 0 {
            let pair = (&self.best.steps[n - 1].1, &self.best.steps[n].1);
            let merged = match pair {
                (Step::Advance(first), Step::Advance(second)) => Some(first + second),
                _ => None,
            };
            let shorter = merged.is_some_and(|millis| {
                let mut steps = self.best.steps.clone();
                steps.remove(n);
                steps[n - 1].1 = Step::Advance(millis);
                self.try_steps(steps)
            });
            n += usize::from(!shorter);
        }
    }

    /// Leaves out runs of `chunk` steps, from the end backwards, because later steps need earlier ones.
    fn without_chunks(&mut self, chunk: usize) {
        let mut end = self.best.steps.len();
        while end > 0 && self.left > 0 {
            let start = end.saturating_sub(chunk);
            let mut steps = self.best.steps.clone();
            steps.drain(start..end);
            self.try_steps(steps);
            end = start;
        }
    }
}
