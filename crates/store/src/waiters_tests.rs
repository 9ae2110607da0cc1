//! Waiters are found by what they have in common with an offer. They stand apart from `waiters.rs`, which the tests in
//! `tests/loom` compile with primitives of their own.

use asyncgate_core::{Class, Reach};
use proptest::prelude::*;

use crate::waiters::Waiters;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn names() -> impl Strategy<Value = Vec<String>> {
    let some = proptest::sample::subsequence(&NAMES[..], 0..=NAMES.len());
    some.prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

proptest! {
    #[test]
    fn an_offer_wakes_the_first_that_accepts_it(
        reaches in prop::collection::vec((names(), prop::option::of(names())), 0..12),
        offers in prop::collection::vec((0..NAMES.len(), names()), 1..12),
    ) {
        let waiters: Waiters<u8, Reach> = Waiters::default();
        let reaches: Vec<_> = reaches.into_iter().map(|(caps, types)| Reach::new(caps, types)).collect();
        let mut registered: Vec<_> = reaches.iter().map(|reach| waiters.register(0, reach.clone())).collect();
        let mut waiting: Vec<usize> = (0..reaches.len()).collect();
        for (task_type, capabilities) in offers {
            let class = Class { task_type: NAMES[task_type].to_owned(), capabilities };
            let first = waiting.iter().position(|n| reaches[*n].serves(&class));
            let expected = first.map(|n| waiting.remove(n));
            waiters.wake_one(&0, &class);
            let woken = registered.iter_mut().position(|waiter| waiter.is_woken());
            prop_assert_eq!(woken, expected);
        }
    }
}
