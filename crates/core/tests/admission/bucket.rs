use asyncgate_core::admission::{Bucket, Flaw, MILLIONTHS, Rule};
use proptest::prelude::*;

use crate::world::{START_MS, World, bucket, check, overdraft, thousandths};

const START: i64 = START_MS / 1_000;

#[test]
fn a_bucket_starts_full_and_refills_at_its_rate() {
    let mut world = World::new();
    let rule = bucket(100, 10);
    // The columns are: milliseconds to wait, cost, allowed, remaining, seconds to retry.
    for (wait, cost, allowed, remaining, retry) in [
        (0, 1, true, 99, None),
        (0, 99, true, 0, None),
        (0, 1, false, 0, Some(6)),
        (5_999, 1, false, 0, Some(1)),
        (1, 1, true, 0, None),
        (60_000, 10, true, 0, None),
        (0, 100, false, 0, Some(600)),
        (0, 101, false, 0, None),
        (300_000, 0, true, 50, None),
        (0, -10, true, 60, None),
        (0, -1_000, true, 100, None),
        (0, i64::MIN, true, 100, None),
        (0, i64::MAX, false, 100, None),
    ] {
        world.wait(wait);
        let limited = world.limit(check(&rule, cost));
        let seen = (limited.allowed, limited.remaining, limited.retry_after_secs);
        assert_eq!(seen, (allowed, remaining, retry), "{wait} {cost}");
        assert_eq!(limited.limit, 100);
    }
}

#[test]
fn it_says_when_it_will_be_full_again() {
    let mut world = World::new();
    let rule = bucket(100, 10);
    assert_eq!(world.limit(check(&rule, 0)).reset_at, START);
    assert_eq!(world.limit(check(&rule, 50)).reset_at, START + 300);
    world.wait(500);
    assert_eq!(world.limit(check(&rule, 0)).reset_at, START + 300);
}

#[test]
fn overdraw_makes_refusals_cost_down_to_minus_the_capacity() {
    let mut world = World::new();
    let rule = overdraft(100, 10);
    for _ in 0..100 {
        assert!(world.limit(check(&rule, 1)).allowed);
    }
    for n in 1..=50 {
        let limited = world.limit(check(&rule, 1));
        assert!(!limited.allowed);
        assert_eq!(thousandths(&limited), -1_000 * n);
        // The wait is from the stored content to the cost of the call.
        assert_eq!(limited.retry_after_secs, Some(6 * (n as u64 + 1)));
    }
    for _ in 0..100 {
        world.limit(check(&rule, 1));
    }
    let limited = world.limit(check(&rule, 1));
    assert_eq!(thousandths(&limited), -100_000);
    // A cost above the capacity charges nothing, and there is no time to wait for.
    let limited = world.limit(check(&rule, 101));
    assert_eq!(thousandths(&limited), -100_000);
    assert_eq!(limited.retry_after_secs, None);
    // A look at an overdrawn bucket is refused, and costs nothing.
    let limited = world.limit(check(&rule, 0));
    assert!(!limited.allowed);
    assert_eq!(thousandths(&limited), -100_000);
}

#[test]
fn fractions_come_back_to_the_last_part() {
    // A third of a token comes back each minute, and looks at odd moments lose nothing of it.
    let rule = Rule::Bucket(Bucket::new(10, 1, 180_000).unwrap());
    let (mut often, mut once) = (World::new(), World::new());
    often.limit(check(&rule, 10));
    once.limit(check(&rule, 10));
    for _ in 0..1_000 {
        often.wait(539);
        // Taking and giving back stores the content that was reached.
        often.limit(check(&rule, -1));
        often.limit(check(&rule, 1));
    }
    once.wait(539_000);
    assert_eq!(
        often.limit(check(&rule, 0)),
        once.limit(check(&rule, 0)),
        "539 seconds are 2.994 tokens"
    );
    assert_eq!(once.limit(check(&rule, 0)).remaining, 2);
    once.wait(1_000);
    assert_eq!(once.limit(check(&rule, 0)).remaining, 3);
}

#[test]
fn a_changed_rate_keeps_the_tokens() {
    let mut world = World::new();
    world.limit(check(&bucket(100, 10), 40));
    for (rule, remaining) in [
        (bucket(100, 10), 60),
        (Rule::Bucket(Bucket::per_minute(100, 1).unwrap()), 60),
        (Rule::Bucket(Bucket::new(200, 7, 3_600_000).unwrap()), 60),
        (bucket(50, 10), 50),
    ] {
        assert_eq!(world.limit(check(&rule, 0)).remaining, remaining);
    }
}

#[test]
fn buckets_that_cannot_be_exact_are_refused() {
    for (made, expected) in [
        (Bucket::per_minute(0, MILLIONTHS), false),
        (Bucket::per_minute(1, 0), false),
        (Bucket::new(1, 1, 0), false),
        (Bucket::per_minute(1, 1), true),
        (Bucket::per_minute(150_000, 1), true),
        (Bucket::per_minute(1 << 53, MILLIONTHS), false),
        (Bucket::per_minute(u64::MAX, u64::MAX), false),
        (Bucket::per_minute(1_000_000_000, 10 * MILLIONTHS), true),
    ] {
        assert_eq!(made.is_ok(), expected, "{made:?}");
    }
    assert_eq!(Bucket::per_minute(1 << 40, 1), Err(Flaw::TooFine));
}

proptest! {
    /// For any calls at any times: the content is never above the capacity, never below what overdraw
    /// allows, and no more is given out than there was and came back.
    #[test]
    fn no_more_than_the_capacity_and_the_refill_is_given_out(
        capacity in 1_u64..50,
        per_minute in 1_u64..600,
        overdraw: bool,
        calls in prop::collection::vec((0_i64..20_000, 0_i64..60), 1..100),
    ) {
        let rule = if overdraw { overdraft(capacity, per_minute) } else { bucket(capacity, per_minute) };
        let mut world = World::new();
        let mut given: i128 = 0;
        for (wait, cost) in calls {
            world.wait(wait);
            let limited = world.limit(check(&rule, cost));
            if limited.allowed {
                given += i128::from(cost);
            }
            let most = i128::from(capacity) * 60_000
                + i128::from(per_minute) * i128::from(world.now_ms - START_MS);
            prop_assert!(given * 60_000 <= most);
            let tokens = thousandths(&limited);
            let bound = 1_000 * i128::from(capacity);
            let least = if overdraw { -bound } else { 0 };
            prop_assert!((least..=bound).contains(&tokens));
            prop_assert!(limited.allowed || limited.retry_after_secs.is_some() || cost > capacity as i64);
        }
    }

    /// The wait that a refusal names is exact: a second less is not enough, and that long is.
    #[test]
    fn the_wait_is_exact(
        capacity in 1_u64..1_000, millionths in 1_000_u64..5_000_000_000, overdraw: bool,
        used in 0_i64..1_000, cost in 1_i64..1_000,
    ) {
        let bucket = Bucket::per_minute(capacity, millionths).unwrap().with_overdraw(overdraw);
        let rule = Rule::Bucket(bucket);
        let mut world = World::new();
        world.limit(check(&rule, used.min(capacity as i64)));
        let refused = world.limit(check(&rule, cost));
        if let Some(wait) = refused.retry_after_secs {
            let mut early = world.clone();
            early.wait((wait as i64 - 1) * 1_000);
            prop_assert!(!early.limit(check(&rule, cost)).allowed);
            world.wait(wait as i64 * 1_000);
            prop_assert!(world.limit(check(&rule, cost)).allowed);
        }
    }

    /// Forgetting rows as soon as they say they do not matter changes no answer.
    #[test]
    fn forgetting_changes_nothing(
        calls in prop::collection::vec((0_i64..200_000, -3_i64..15), 1..60),
    ) {
        let rule = overdraft(10, 3);
        let (mut keeping, mut forgetful) = (World::new(), World::forgetful());
        for (wait, cost) in calls {
            keeping.wait(wait);
            forgetful.wait(wait);
            prop_assert_eq!(keeping.limit(check(&rule, cost)), forgetful.limit(check(&rule, cost)));
        }
    }
}
