//! The ready tasks of all tenants, by class, priority and age, and the classes in use.
//!
//! Each ready task is a place in a queue and the number of bytes that it takes in an answer; the task itself stays where
//! it is. So a claim knows which rows it needs without asking for any.

use std::collections::{BTreeMap, HashSet};

use asyncgate_core::{Class, ClassesInUse, Placement, Reach, Task, TaskWrite};
use asyncgate_store::{
    MAX_ANSWER_BYTES,
    classes::{ClassNumber, Classes, LiveClasses, Place, Turnover},
};
use foldhash::HashMap;

use crate::ledgers::Key;

/// The most classes of a tenant without ready tasks that are kept for the next task of theirs.
const MAX_IDLE: usize = 1_024;

/// The ready tasks of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    tenants: HashMap<i64, Tenant>,
}

#[derive(Debug, Default)]
struct Tenant {
    classes: Classes,
    queues: HashMap<ClassNumber, BTreeMap<Place, usize>>,
    live: LiveClasses,
    last: ClassNumber,
    idle: usize,
}

impl Ready {
    /// Notes a task that is written.
    pub(crate) fn note(&mut self, key: Key, write: &TaskWrite) {
        let task = &write.task;
        let tenant = self.tenants.entry(key.tenant).or_default();
        match Turnover::of(write) {
            Turnover::Began => tenant.live.add(task.class(), 1),
            Turnover::Ended => tenant.live.remove(&task.class()),
            Turnover::None => {}
        }
        let before = write.before.map(|before| before.placement);
        if before == Some(task.placement()) && !matches!(before, Some(Placement::Ready { .. })) {
            return;
        }
        if let Some(Placement::Ready { priority, .. }) = before {
            tenant.leave(&task.class(), (rank(priority), key.seq));
        }
        tenant.enter(key, task);
    }

    /// Takes back a task that has not ended.
    pub(crate) fn restore(&mut self, key: Key, class: Class, priority: Option<i32>, weight: usize) {
        let tenant = self.tenants.entry(key.tenant).or_default();
        tenant.live.add(class.clone(), 1);
        if let Some(priority) = priority {
            tenant.add(class, (rank(priority), key.seq), weight);
        }
    }

    /// Takes a task out that cannot be given out.
    pub(crate) fn drop_damaged(&mut self, key: Key) {
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            for queue in tenant.queues.values_mut() {
                queue.retain(|(_, seq), _| *seq != key.seq);
            }
        }
    }

    /// Returns the first `limit` ready tasks that a worker can serve, by priority, then age, as many as one answer may
    /// hold.
    pub(crate) fn claimable(&mut self, tenant: i64, reach: &Reach, limit: usize) -> Vec<Key> {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return Vec::new();
        };
        let places = known.first(reach, limit);
        let (mut keys, mut bytes) = (Vec::new(), 0_usize);
        for (place, weight) in places {
            bytes = bytes.saturating_add(weight);
            if !keys.is_empty() && bytes > MAX_ANSWER_BYTES {
                break;
            }
            let seq = place.1;
            keys.push(Key { tenant, seq });
        }
        keys
    }

    /// Returns the classes as new tasks of `classes` see them.
    pub(crate) fn in_use(&self, tenant: i64, classes: &[Class]) -> ClassesInUse {
        let known = self.tenants.get(&tenant);
        known
            .map(|known| known.live.load(classes))
            .unwrap_or_default()
    }
}

impl Tenant {
    fn enter(&mut self, key: Key, task: &Task) {
        if let Placement::Ready { priority, .. } = task.placement() {
            self.add(task.class(), (rank(priority), key.seq), task.weight());
        }
    }

    fn add(&mut self, class: Class, place: Place, weight: usize) {
        let number = match self.classes.number(&class) {
            Some(number) => number,
            None => self.begin(class),
        };
        if self.classes.enter(number, place) {
            self.idle = self.idle.saturating_sub(1);
        }
        let queue = self.queues.entry(number).or_default();
        queue.insert(place, weight);
    }

    fn begin(&mut self, class: Class) -> ClassNumber {
        if self.idle >= MAX_IDLE {
            let idle: HashSet<ClassNumber> = self.classes.drop_idle().into_iter().collect();
            self.queues.retain(|number, _| !idle.contains(number));
            self.idle = 0;
        }
        self.last += 1;
        self.classes.insert(class, self.last);
        self.idle += 1;
        self.last
    }

    fn leave(&mut self, class: &Class, place: Place) {
        let number = self.classes.number(class);
        if let Some(queue) = number.and_then(|number| self.queues.get_mut(&number)) {
            queue.remove(&place);
        }
    }

    fn first(&mut self, reach: &Reach, limit: usize) -> Vec<(Place, usize)> {
        let Self {
            classes,
            queues,
            idle,
            ..
        } = self;
        let mut weights = HashMap::default();
        let fetch = |number: ClassNumber, from: Place, limit: usize| {
            let queue = queues.get(&number);
            let places = queue.into_iter().flat_map(|queue| queue.range(from..));
            let places = places.take(limit).map(|(place, weight)| {
                weights.insert(*place, *weight);
                *place
            });
            Ok::<_, std::convert::Infallible>(places.collect())
        };
        let Ok(places) = classes.first(reach, limit, fetch, |_| *idle += 1);
        let weight = |place: &Place| weights.get(place).copied().unwrap_or_default();
        places
            .into_iter()
            .map(|place| (place, weight(&place)))
            .collect()
    }
}

/// Returns the rank of a priority: in ascending order, higher priorities come first.
const fn rank(priority: i32) -> i64 {
    -(priority as i64)
}
