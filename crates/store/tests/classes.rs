//! The index of classes: a claim finds what a look at every class would find, whatever was taken and put before.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use asyncgate_core::{Class, Reach};
use asyncgate_store::classes::{Classes, Place};
use proptest::prelude::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
enum Step {
    Put(Class, i64),
    Take(Reach, usize),
    DropIdle,
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let some = proptest::sample::subsequence(&NAMES[..], 0..=NAMES.len());
    some.prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

fn class() -> impl Strategy<Value = Class> {
    (0..NAMES.len(), names()).prop_map(|(task_type, capabilities)| Class {
        task_type: NAMES[task_type].to_owned(),
        capabilities,
    })
}

fn reach() -> impl Strategy<Value = Reach> {
    (names(), prop::option::of(names())).prop_map(|(caps, types)| Reach::new(caps, types))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (class(), -2..3_i64).prop_map(|(class, rank)| Step::Put(class, rank)),
        4 => (reach(), 0..5_usize).prop_map(|(reach, limit)| Step::Take(reach, limit)),
        1 => Just(Step::DropIdle),
    ]
}

/// Ready tasks as a backend keeps them, beside the index.
#[derive(Default)]
struct Tenant {
    index: Classes,
    ready: BTreeMap<i64, (Class, BTreeSet<Place>)>,
    next: i64,
}

impl Tenant {
    fn put(&mut self, class: Class, rank: i64) {
        self.next += 1;
        let place = (rank, self.next);
        let number = self.index.number(&class).unwrap_or_else(|| {
            self.index.insert(class.clone(), self.next);
            self.next
        });
        self.index.enter(number, place);
        let (_, queue) = self.ready.entry(number).or_insert((class, BTreeSet::new()));
        queue.insert(place);
    }

    fn looked_at(&mut self, reach: &Reach, limit: usize) -> Vec<Place> {
        let ready = &self.ready;
        let fetch = |number: i64, from: Place, limit: usize| {
            let places = ready[&number].1.range(from..);
            Ok::<_, Infallible>(places.take(limit).copied().collect())
        };
        self.index.first(reach, limit, fetch, |_| {}).unwrap()
    }

    fn expected(&self, reach: &Reach, limit: usize) -> Vec<Place> {
        let served = self.ready.values().filter(|(class, _)| reach.serves(class));
        let places: BTreeSet<_> = served.flat_map(|(_, queue)| queue).copied().collect();
        places.into_iter().take(limit).collect()
    }

    fn drop_idle(&mut self) {
        // What was taken is known to the index after a look only, so it drops some of the empty ones, and no other.
        for number in self.index.drop_idle() {
            let (_, queue) = self.ready.remove(&number).unwrap();
            assert!(queue.is_empty(), "a class with ready tasks was dropped");
        }
    }
}

proptest! {
    #[test]
    fn a_claim_finds_what_a_look_at_every_class_finds(steps in prop::collection::vec(step(), 1..60)) {
        let mut tenant = Tenant::default();
        for step in steps {
            match step {
                Step::Put(class, rank) => tenant.put(class, rank),
                Step::DropIdle => tenant.drop_idle(),
                Step::Take(reach, limit) => {
                    let found = tenant.looked_at(&reach, limit);
                    prop_assert_eq!(&found, &tenant.expected(&reach, limit));
                    for place in found {
                        for (_, queue) in tenant.ready.values_mut() {
                            queue.remove(&place);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_claim_looks_at_few_of_many_classes() {
    let mut tenant = Tenant::default();
    for n in 0..2_000 {
        let capabilities = if n % 2 == 0 {
            vec![]
        } else {
            vec![format!("c{n}")]
        };
        tenant.put(
            Class {
                task_type: format!("t{n}"),
                capabilities,
            },
            0,
        );
    }
    let any = Reach::new(vec!["c1".to_owned()], None);
    let mut looks = 0;
    for _ in 0..100 {
        let ready = &tenant.ready;
        let fetch = |number: i64, from: Place, limit: usize| {
            looks += 1;
            let places = ready[&number].1.range(from..);
            Ok::<_, Infallible>(places.take(limit).copied().collect())
        };
        let found = tenant.index.first(&any, 1, fetch, |_| {}).unwrap();
        for (_, queue) in tenant.ready.values_mut() {
            queue.remove(&found[0]);
        }
    }
    // One look for each task, and one that learns that the class before is empty.
    assert!(looks <= 200, "{looks} looks for 100 tasks");
}
