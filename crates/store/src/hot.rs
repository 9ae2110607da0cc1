//! The tasks that were written or read lately, as the open transaction has them. A claim, a renewal and a finish
//! find their task here and read nothing from the backend below.
//!
//! Invariant: a task that stands here is the one that its row would give. Whatever writes a task's row passes here,
//! and a rollback forgets everything.

use std::{hash::Hash, mem};

use asyncgate_core::{Placement, Task};
use foldhash::HashMap;

/// The memory that a task takes beside what callers sent with it.
const TASK_BYTES: usize = 1 << 10;

/// Hot tasks in two generations. Whatever is looked for moves to the younger one; when that is full, it becomes the
/// older one, and what stood there is forgotten. So tasks that nobody looks for leave, without a list of their order.
/// `K` is the key of a task's row.
#[derive(Debug)]
pub struct HotTasks<K> {
    young: HashMap<K, Task>,
    old: HashMap<K, Task>,
    /// The memory that the younger generation takes.
    bytes: usize,
    max_bytes: usize,
}

impl<K: Copy + Eq + Hash> HotTasks<K> {
    /// Makes room for tasks that take so much memory together.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            bytes: 0,
            max_bytes,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.max_bytes);
    }

    /// Returns the task at `key`, if it is hot.
    pub fn get(&mut self, key: K) -> Option<Task> {
        if let Some(task) = self.young.get(&key) {
            return Some(task.clone());
        }
        let task = self.old.remove(&key)?;
        self.keep(key, task.clone());
        Some(task)
    }

    /// Notes a task that was read or is being written.
    pub fn note(&mut self, key: K, task: &Task) {
        // Few ask for a task that has ended, and those read its row.
        if task.placement() == Placement::Ended {
            self.forget(key);
        } else {
            self.keep(key, task.clone());
        }
    }

    fn keep(&mut self, key: K, task: Task) {
        self.bytes += weight(&task);
        if let Some(before) = self.young.insert(key, task) {
            self.bytes -= weight(&before);
        }
        if self.bytes > self.max_bytes / 2 {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
    }

    /// Forgets a task in both generations: looking for a task may be what makes the younger one full, and then an older
    /// state of it stands in the older one.
    fn forget(&mut self, key: K) {
        if let Some(before) = self.young.remove(&key) {
            self.bytes -= weight(&before);
        }
        self.old.remove(&key);
    }
}

fn weight(task: &Task) -> usize {
    TASK_BYTES + task.weight()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        Snapshot,
        conformance::{Driver, echo, json},
        memory::MemoryStore,
    };

    use super::*;

    fn task_with_payload(bytes: usize) -> Task {
        let mut driver = Driver::new(Arc::new(MemoryStore::new()));
        let mut new = echo();
        new.payload = json(&format!("\"{}\"", "x".repeat(bytes)));
        let created = Snapshot::default().create(driver.env(), new).unwrap();
        Task::clone(&created.changes.tasks[0].task)
    }

    #[test]
    fn what_is_looked_for_stays_and_the_rest_goes() {
        let mut hot = HotTasks::new(32 << 20);
        let large = task_with_payload(1 << 19);
        for number in 0..128 {
            hot.note(number, &large);
            assert!(hot.get(0).is_some(), "after {number}");
        }
        assert!(hot.get(127).is_some());
        assert!(hot.get(40).is_none(), "nobody looked for it");
        assert!(hot.young.len() + hot.old.len() <= 65);
    }

    /// A task that stands in both generations must not come back in its older state.
    #[test]
    fn a_task_that_ended_is_forgotten_in_both_generations() {
        let mut hot = HotTasks::new(4 << 10);
        hot.note(1, &task_with_payload(1_500));
        assert_eq!(hot.old.len(), 1, "it made the younger generation full");
        hot.note(1, &task_with_payload(1));
        hot.forget(1);
        assert_eq!(hot.get(1), None);
        assert_eq!(hot.bytes, 0);
    }

    #[test]
    fn the_newest_state_counts_and_its_weight_once() {
        let mut hot = HotTasks::new(1 << 20);
        let mut task = task_with_payload(100);
        for attempt in 0..100_000 {
            task.attempt = attempt;
            hot.note(1, &task);
        }
        assert_eq!(hot.get(1).map(|task| task.attempt), Some(99_999));
        assert_eq!(hot.bytes, weight(&task));
    }
}
