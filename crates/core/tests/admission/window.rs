use asyncgate_core::admission::{Asks, Counted, Flaw, Increment, Rule, Window};
use proptest::prelude::*;

use crate::world::{START_MS, World, check, increment};

const START: i64 = START_MS / 1_000;

fn count(world: &mut World, increment: Increment) -> Counted {
    let counters = vec![increment];
    world
        .ask(&Asks {
            counters,
            ..Asks::default()
        })
        .counters[0]
}

#[test]
fn every_call_counts_also_a_refused_one() {
    let mut world = World::new();
    // The columns are: milliseconds to wait, calls to add, allowed, count, remaining.
    for (wait, by, allowed, counted, remaining) in [
        (0, 1, true, 1, 2),
        (10_000, 2, true, 3, 0),
        (0, 0, true, 3, 0),
        (0, 1, false, 4, 0),
        (49_999, 1, false, 5, 0),
        (1, 1, true, 1, 2),
        (0, u64::MAX, false, u64::MAX, 0),
        (0, 5, false, u64::MAX, 0),
    ] {
        world.wait(wait);
        let seen = count(&mut world, increment(3, by));
        assert_eq!(
            (seen.allowed, seen.count, seen.remaining),
            (allowed, counted, remaining)
        );
        let bucket = world.now_ms / 60_000;
        assert_eq!(seen.bucket as i64, bucket);
        assert_eq!(seen.reset_at, (bucket + 1) * 60);
        let left = seen.reset_at - world.now_ms / 1_000;
        assert_eq!(seen.retry_after_secs as i64, left.max(1));
    }
}

#[test]
fn counters_of_other_windows_and_names_are_others() {
    let mut world = World::new();
    count(&mut world, increment(1, 1));
    let hour = Increment {
        window_secs: 3_600,
        ..increment(1, 1)
    };
    assert_eq!(count(&mut world, hour).count, 1);
    let other = Increment {
        namespace: [9; 32],
        ..increment(1, 1)
    };
    assert_eq!(count(&mut world, other).count, 1);
    let limit = increment(0, 1);
    assert_eq!(
        count(&mut world, limit).count,
        2,
        "the limit is no part of the name"
    );
}

#[test]
fn a_refusal_by_a_window_costs_nothing() {
    let mut world = World::new();
    let rule = Rule::Window(Window::new(3, 60).unwrap());
    for (wait, cost, allowed, remaining, retry) in [
        (0, 2, true, 1, None),
        (0, 2, false, 1, Some(60)),
        (0, 4, false, 1, None),
        (1_500, 1, true, 0, None),
        (0, 1, false, 0, Some(59)),
        (0, -2, true, 2, None),
        (0, -9, true, 3, None),
        (0, 0, true, 3, None),
        (0, 3, true, 0, None),
        (58_500, 3, true, 0, None),
    ] {
        world.wait(wait);
        let limited = world.limit(check(&rule, cost));
        let seen = (limited.allowed, limited.remaining, limited.retry_after_secs);
        assert_eq!(seen, (allowed, remaining, retry), "{wait} {cost}");
    }
    assert_eq!(world.limit(check(&rule, 0)).reset_at, START + 120);
}

#[test]
fn windows_have_bounds() {
    assert_eq!(Window::new(0, 1), Err(Flaw::Zero { fields: "limit" }));
    for secs in [0, 7_776_001, u64::MAX] {
        assert!(Window::new(1, secs).is_err());
    }
    assert!(Window::new(u64::MAX, 7_776_000).is_ok());
}

proptest! {
    #[test]
    fn a_window_never_gives_more_than_its_limit(
        limit in 1_u64..20,
        calls in prop::collection::vec((0_i64..30_000, 0_i64..30), 1..100),
    ) {
        let rule = Rule::Window(Window::new(limit, 60).unwrap());
        let (mut keeping, mut forgetful) = (World::new(), World::forgetful());
        let mut given = std::collections::HashMap::<i64, i64>::new();
        for (wait, cost) in calls {
            keeping.wait(wait);
            forgetful.wait(wait);
            let limited = keeping.limit(check(&rule, cost));
            prop_assert_eq!(limited, forgetful.limit(check(&rule, cost)));
            if limited.allowed {
                *given.entry(limited.reset_at).or_default() += cost;
            }
            prop_assert!(given.values().all(|given| *given <= limit as i64));
        }
    }
}
