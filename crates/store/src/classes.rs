//! The classes of ready tasks, found by what a worker can serve.
//!
//! A class is a type and a set of required capabilities. The index knows for each class a place before which no
//! ready task of it stands, and keeps the classes in that order. A claim looks at the classes that the worker can
//! serve, the most urgent first, and stops when it has enough: its cost does not grow with the number of classes.
//!
//! Invariant: a class's place is never behind its first ready task. It may be before it, because a task that is
//! taken leaves the place as it was; the next look moves it.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
    ops::Bound,
};

use asyncgate_core::{Class, ClassesInUse, Placement, Reach, TaskWrite};

/// The place of a ready task among those of its tenant: its rank, then its age. The first is served first.
pub type Place = (i64, i64);

/// The number that a backend gives to a class.
pub type ClassNumber = i64;

/// The classes of one tenant's tasks that have not ended, each with the number of these tasks.
#[derive(Debug, Default)]
pub struct LiveClasses(HashMap<Class, u64>);

impl LiveClasses {
    /// Adds tasks of a class.
    pub fn add(&mut self, class: Class, tasks: u64) {
        *self.0.entry(class).or_default() += tasks;
    }

    /// Takes one task of a class away.
    pub fn remove(&mut self, class: &Class) {
        let Some(tasks) = self.0.get_mut(class) else {
            return;
        };
        *tasks = tasks.saturating_sub(1);
        if *tasks == 0 {
            self.0.remove(class);
        }
    }

    /// Returns the classes as new tasks of `classes` see them.
    pub fn load(&self, classes: &[Class]) -> ClassesInUse {
        let known = classes.iter().filter(|class| self.0.contains_key(class));
        ClassesInUse::new(self.0.len(), known.cloned().collect())
    }
}

/// The effect of a written task on the classes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turnover {
    /// The task is new and has not ended.
    Began,
    /// The task has ended.
    Ended,
    /// Neither.
    None,
}

impl Turnover {
    /// Returns the effect of a written task.
    pub fn of(write: &TaskWrite) -> Self {
        let was_live = write
            .before
            .is_some_and(|before| before.placement != Placement::Ended);
        match (was_live, write.task.placement() != Placement::Ended) {
            (false, true) => Self::Began,
            (true, false) => Self::Ended,
            (true, true) | (false, false) => Self::None,
        }
    }
}

/// The classes of one tenant.
#[derive(Debug, Default)]
pub struct Classes {
    numbers: HashMap<Class, ClassNumber>,
    entries: foldhash::HashMap<ClassNumber, Entry>,
    sets: CapabilitySets,
}

#[derive(Debug)]
struct Entry {
    set: usize,
    /// No ready task stands before it. Absent when there are no ready tasks.
    place: Option<Place>,
}

impl Classes {
    /// Returns the number of a class, if it is known.
    pub fn number(&self, class: &Class) -> Option<ClassNumber> {
        self.numbers.get(class).copied()
    }

    /// Returns the number of known classes.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns true if no class is known.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Adds a class without ready tasks.
    pub fn insert(&mut self, class: Class, number: ClassNumber) {
        let set = self.sets.find_or_add(&class.capabilities);
        let types = &mut self.sets.nodes[set].types;
        types.insert(class.task_type.clone(), number);
        self.entries.insert(number, Entry { set, place: None });
        self.numbers.insert(class, number);
    }

    /// Notes that a task at `place` became ready. Returns true if the class had no ready tasks.
    pub fn enter(&mut self, number: ClassNumber, place: Place) -> bool {
        let known = self.entries.get(&number).and_then(|entry| entry.place);
        if known.is_none_or(|known| place < known) {
            self.set_place(number, Some(place));
        }
        known.is_none()
    }

    /// Forgets the classes without ready tasks, and returns their numbers.
    pub fn drop_idle(&mut self) -> Vec<ClassNumber> {
        let kept = std::mem::take(self);
        let mut idle = Vec::new();
        for (class, number) in kept.numbers {
            match kept.entries.get(&number).and_then(|entry| entry.place) {
                None => idle.push(number),
                Some(place) => {
                    self.insert(class, number);
                    self.set_place(number, Some(place));
                }
            }
        }
        idle
    }

    /// Returns the places of the first `limit` ready tasks that a worker can serve. `fetch` returns those of a class:
    /// at most so many, in order, not before a place. `emptied` is called for a class that turns out to have none.
    pub fn first<E>(
        &mut self,
        reach: &Reach,
        limit: usize,
        mut fetch: impl FnMut(ClassNumber, Place, usize) -> Result<Vec<Place>, E>,
        mut emptied: impl FnMut(ClassNumber),
    ) -> Result<Vec<Place>, E> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut heads: BinaryHeap<Reverse<Head>> = self.heads(reach);
        while found.len() < limit
            && let Some(Reverse(head)) = heads.pop()
        {
            let (from, number) = head.at;
            if let Some(set) = head.rest_of {
                let next = self.sets.nodes[set].after(head.at);
                let rest_of = head.rest_of;
                heads.extend(next.map(|at| Reverse(Head { at, rest_of })));
            }
            // A look may move a class further back, where the walk along its set meets it again.
            let is_first_look = seen.insert(number);
            if !is_first_look && head.rest_of.is_some() {
                continue;
            }
            let places = fetch(number, from, limit - found.len())?;
            if is_first_look {
                self.set_place(number, places.first().copied());
                if places.is_empty() {
                    emptied(number);
                }
            }
            for place in places {
                if let Some(Reverse(next)) = heads.peek()
                    && next.at.0 < place
                {
                    // Another class is more urgent from here on.
                    let at = (place, number);
                    heads.push(Reverse(Head { at, rest_of: None }));
                    break;
                }
                found.push(place);
            }
        }
        Ok(found)
    }

    /// Returns the first class of everything that the worker serves. A worker that accepts any type walks along the
    /// classes of a set in their order; one that names types is given these classes themselves.
    fn heads(&self, reach: &Reach) -> BinaryHeap<Reverse<Head>> {
        let mut heads = BinaryHeap::new();
        for set in self.sets.within(&reach.capabilities) {
            let node = &self.sets.nodes[set];
            let Some(types) = &reach.accept_types else {
                let first = node.order.first();
                let rest_of = Some(set);
                heads.extend(first.map(|at| Reverse(Head { at: *at, rest_of })));
                continue;
            };
            // A type that is named twice is one type.
            let numbers: HashSet<_> = types.iter().filter_map(|it| node.types.get(it)).collect();
            for number in numbers {
                let place = self.entries.get(number).and_then(|entry| entry.place);
                let rest_of = None;
                heads.extend(place.map(|place| {
                    let at = (place, *number);
                    Reverse(Head { at, rest_of })
                }));
            }
        }
        heads
    }

    fn set_place(&mut self, number: ClassNumber, place: Option<Place>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let order = &mut self.sets.nodes[entry.set].order;
        if let Some(old) = entry.place {
            order.remove(&(old, number));
        }
        if let Some(new) = place {
            order.insert((new, number));
        }
        entry.place = place;
    }
}

/// The class that comes next, and the set along whose classes the walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    at: (Place, ClassNumber),
    rest_of: Option<usize>,
}

/// The sets of required capabilities, in a tree: a set stands at the end of the path of its names in order. To find
/// the sets within an offer, only paths of offered names are followed.
#[derive(Debug)]
struct CapabilitySets {
    /// The first is the empty set.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<String, usize>,
    types: HashMap<String, ClassNumber>,
    /// The classes that have ready tasks.
    order: BTreeSet<(Place, ClassNumber)>,
}

impl Node {
    fn after(&self, at: (Place, ClassNumber)) -> Option<(Place, ClassNumber)> {
        let behind = (Bound::Excluded(at), Bound::Unbounded);
        self.order.range(behind).next().copied()
    }
}

impl Default for CapabilitySets {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }
}

impl CapabilitySets {
    /// Returns the node of a set, whose names are sorted.
    fn find_or_add(&mut self, names: &[String]) -> usize {
        let mut at = 0;
        for name in names {
            let new = self.nodes.len();
            let next = *self.nodes[at].children.entry(name.clone()).or_insert(new);
            if next == new {
                self.nodes.push(Node::default());
            }
            at = next;
        }
        at
    }

    /// Returns the nodes of the sets whose names are all among `offered`, which is sorted.
    fn within(&self, offered: &[String]) -> Vec<usize> {
        let mut found = vec![0];
        // Each found node with the offered names that may still follow on its path.
        let mut open = vec![(0, offered)];
        while let Some((at, names)) = open.pop() {
            let children = &self.nodes[at].children;
            if children.is_empty() {
                continue;
            }
            for (n, name) in names.iter().enumerate() {
                if let Some(&next) = children.get(name) {
                    found.push(next);
                    open.push((next, &names[n + 1..]));
                }
            }
        }
        found
    }
}
