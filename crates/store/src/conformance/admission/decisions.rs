//! Nonces, counters and limits.

use asyncgate_core::admission::{
    Asks, Increment, LimitCheck, Limited, NonceCheck, NonceResult, Rule, Standing, Together,
};

use super::{HostCase, HostDriver, bucket, delay, host_cases, increment, limit, nonce, window};

pub(super) fn cases() -> Vec<HostCase> {
    host_cases![
        a_nonce_is_new_once_and_a_replay_does_not_prolong_it,
        a_batch_of_nonces_is_answered_in_order,
        nonces_that_belong_together_are_used_together,
        of_many_who_use_one_nonce_at_once_one_may,
        every_call_is_counted_in_its_window,
        counts_stop_at_the_largest_number,
        many_who_count_at_once_are_all_counted,
        buckets_give_and_refill,
        overdraw_costs,
        windows_give_no_more_than_their_limit,
        delays_come_one_after_the_other,
        several_limits_are_charged_together_or_not_at_all,
        many_who_take_at_once_get_no_more_than_there_is,
        a_peek_changes_nothing,
        the_short_way_is_the_same,
        a_replay_costs_no_token_and_a_refusal_uses_no_nonce,
        counters_count_whatever_comes_of_the_rest,
        tenants_do_not_meet,
        a_question_of_nothing_is_answered,
    ]
}

async fn a_nonce_is_new_once_and_a_replay_does_not_prolong_it(mut driver: HostDriver) {
    let first_seen = driver.now.as_millis() / 1_000;
    assert!(driver.use_nonce(nonce("n", 60)).await);
    driver.wait_ms(59_999);
    let replay = driver.use_nonces(vec![nonce("n", 60)]).await;
    let first_seen = Some(first_seen);
    assert_eq!(replay, [NonceResult::Replay { first_seen }]);
    driver.wait_ms(1);
    assert!(driver.use_nonce(nonce("n", 60)).await);
}

async fn a_batch_of_nonces_is_answered_in_order(driver: HostDriver) {
    driver.use_nonce(nonce("b", 60)).await;
    let other = NonceCheck {
        namespace: [9; 32],
        ..nonce("b", 60)
    };
    let asked = ["a", "b", "a", "c"].map(|text| nonce(text, 60));
    let mut asked = Vec::from(asked);
    asked.push(other);
    let fresh = driver.use_nonces(asked).await;
    let fresh: Vec<bool> = fresh
        .iter()
        .map(|result| *result == NonceResult::Accepted)
        .collect();
    assert_eq!(fresh, [true, false, false, true, true]);
    assert!(!driver.use_nonce(nonce("c", 60)).await);
}

async fn nonces_that_belong_together_are_used_together(driver: HostDriver) {
    let asks = |texts: [&str; 2]| Asks {
        nonces: texts.map(|text| nonce(text, 60)).into(),
        together: Together::All,
        ..Asks::default()
    };
    assert!(driver.ask(asks(["a", "b"])).await.passed());
    assert!(!driver.ask(asks(["c", "b"])).await.passed());
    assert!(driver.ask(asks(["c", "d"])).await.passed());
}

/// Returns how many of so many callers at once are allowed.
async fn at_once<F>(count: usize, mut call: impl FnMut() -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let calls: Vec<_> = (0..count).map(|_| tokio::spawn(call())).collect();
    let mut yes = 0;
    for call in calls {
        yes += usize::from(call.await.unwrap());
    }
    yes
}

async fn of_many_who_use_one_nonce_at_once_one_may(driver: HostDriver) {
    for round in 0..8 {
        let accepted = at_once(64, || {
            let driver = driver.clone();
            async move { driver.use_nonce(nonce(&round.to_string(), 60)).await }
        });
        assert_eq!(accepted.await, 1);
    }
}

async fn every_call_is_counted_in_its_window(mut driver: HostDriver) {
    for (wait, allowed, count) in [
        (0, true, 1),
        (59_999, true, 2),
        (1, true, 1),
        (0, true, 2),
        (0, false, 3),
        (0, false, 4),
    ] {
        driver.wait_ms(wait);
        let counted = driver.count(increment(2)).await;
        assert_eq!((counted.allowed, counted.count), (allowed, count));
        let bucket = driver.now.as_millis() / 60_000;
        assert_eq!(counted.bucket as i64, bucket);
        assert_eq!(counted.reset_at, (bucket + 1) * 60);
    }
}

async fn counts_stop_at_the_largest_number(driver: HostDriver) {
    for _ in 0..3 {
        let increment = Increment {
            by: u64::MAX - 1,
            ..increment(u64::MAX)
        };
        driver.count(increment).await;
    }
    let counted = driver.count(increment(u64::MAX)).await;
    assert_eq!(counted.count, u64::MAX);
    assert!(counted.allowed);
    assert!(!driver.count(increment(7)).await.allowed);
}

async fn many_who_count_at_once_are_all_counted(driver: HostDriver) {
    let allowed = at_once(64, || {
        let driver = driver.clone();
        async move { driver.count(increment(40)).await.allowed }
    });
    assert_eq!(allowed.await, 40);
    assert_eq!(driver.count(increment(40)).await.count, 65);
}

/// Returns whether it is allowed, what remains, and when to try again.
type Seen = (bool, u64, Option<u64>);

fn seen(limited: &Limited) -> Seen {
    (limited.allowed, limited.remaining, limited.retry_after_secs)
}

async fn table(driver: &mut HostDriver, rule: &Rule, cases: &[(i64, i64, Seen)]) {
    for (wait, cost, expected) in cases {
        driver.wait_ms(*wait);
        let limited = driver.limit(&limit(rule, "k", *cost)).await;
        assert_eq!(seen(&limited), *expected, "{wait} {cost}");
    }
}

async fn buckets_give_and_refill(mut driver: HostDriver) {
    let rule = bucket(10, 6, false);
    let cases = [
        (0, 4, (true, 6, None)),
        (0, 7, (false, 6, Some(10))),
        (10_000, 7, (true, 0, None)),
        (9_999, 1, (false, 0, Some(1))),
        (1, 1, (true, 0, None)),
        (0, 11, (false, 0, None)),
        (0, -3, (true, 3, None)),
        (0, -30, (true, 10, None)),
        (0, 1, (true, 9, None)),
        (1_000_000, 0, (true, 10, None)),
        (0, 10, (true, 0, None)),
    ];
    table(&mut driver, &rule, &cases).await;
    let empty = driver.limit(&limit(&rule, "k", 0)).await;
    assert_eq!(empty.reset_at, driver.now.as_millis() / 1_000 + 100);
    assert_eq!(seen(&driver.limit(&limit(&rule, "other", 1)).await).1, 9);
}

async fn overdraw_costs(mut driver: HostDriver) {
    let rule = bucket(2, 6, true);
    let cases = [
        (0, 2, (true, 0, None)),
        (0, 1, (false, 0, Some(20))),
        (0, 1, (false, 0, Some(30))),
        (0, 1, (false, 0, Some(30))),
        (30_000, 1, (true, 0, None)),
    ];
    table(&mut driver, &rule, &cases).await;
}

async fn windows_give_no_more_than_their_limit(mut driver: HostDriver) {
    let cases = [
        (0, 2, (true, 1, None)),
        (0, 2, (false, 1, Some(60))),
        (30_000, 1, (true, 0, None)),
        (0, 1, (false, 0, Some(30))),
        (0, 4, (false, 0, None)),
        (0, -2, (true, 2, None)),
        (30_000, 3, (true, 0, None)),
    ];
    table(&mut driver, &window(3), &cases).await;
}

async fn delays_come_one_after_the_other(mut driver: HostDriver) {
    let cases = [
        (0, 1, (true, 1, None)),
        (4_000, 1, (false, 1, Some(6))),
        (6_000, 0, (true, 1, None)),
        (0, 1, (true, 0, None)),
        (864_000_000, 1, (false, 0, None)),
    ];
    table(&mut driver, &delay(10), &cases).await;
    let limited = driver.limit(&limit(&delay(10), "k", 1)).await;
    assert!(matches!(limited.standing, Standing::Delay(at) if at.counter == 2));
}

async fn several_limits_are_charged_together_or_not_at_all(driver: HostDriver) {
    let (wide, narrow) = (bucket(10, 6, true), window(1));
    let both = || vec![limit(&wide, "k", 1), limit(&narrow, "k", 1)];
    let passed = driver.limits(both()).await;
    assert!(passed.iter().all(|limited| limited.allowed));
    let refused = driver.limits(both()).await;
    let allowed: Vec<bool> = refused.iter().map(|limited| limited.allowed).collect();
    assert_eq!(allowed, [true, false]);
    assert_eq!(driver.limit(&limit(&wide, "k", 0)).await.remaining, 9);
    // A limit that is named twice is charged twice.
    let twice = vec![limit(&wide, "k", 4), limit(&wide, "k", 4)];
    assert_eq!(driver.limits(twice).await[1].remaining, 1);
}

async fn many_who_take_at_once_get_no_more_than_there_is(driver: HostDriver) {
    let (one, other) = (bucket(40, 1, false), window(64));
    let allowed = at_once(64, || {
        let driver = driver.clone();
        let both = vec![limit(&one, "k", 1), limit(&other, "k", 1)];
        async move {
            let limits = driver.limits(both).await;
            limits.iter().all(|limited| limited.allowed)
        }
    });
    assert_eq!(allowed.await, 40);
    assert_eq!(driver.limit(&limit(&other, "k", 0)).await.remaining, 24);
}

async fn a_peek_changes_nothing(driver: HostDriver) {
    for rule in [bucket(1, 6, true), window(1), delay(10)] {
        for _ in 0..3 {
            let peek = || Asks {
                limits: vec![limit(&rule, "k", 1)],
                peek: true,
                ..Asks::default()
            };
            let peeked = driver.ask(peek()).await;
            assert_eq!(peeked, driver.ask(peek()).await);
            assert_eq!(peeked.limits[0], driver.limit(&limit(&rule, "k", 1)).await);
        }
    }
}

async fn the_short_way_is_the_same(mut driver: HostDriver) {
    let other = driver.neighbour();
    for rule in [bucket(3, 6, true), bucket(3, 6, false), window(3), delay(5)] {
        for cost in [1, 1, 0, 1, 1, 1] {
            let check = LimitCheck {
                policy: format!("{rule:?}").into(),
                ..limit(&rule, "k", cost)
            };
            driver.wait_ms(1_700);
            let other = HostDriver {
                now: driver.now,
                ..other.clone()
            };
            let short = driver.limit(&check).await;
            assert_eq!(other.limits(vec![check]).await, [short]);
        }
    }
}

async fn a_replay_costs_no_token_and_a_refusal_uses_no_nonce(mut driver: HostDriver) {
    let rule = bucket(1, 6, true);
    let asks = |text: &str| Asks {
        limits: vec![limit(&rule, "k", 1)],
        nonces: vec![nonce(text, 600)],
        ..Asks::default()
    };
    assert!(driver.ask(asks("a")).await.passed());
    assert!(!driver.ask(asks("a")).await.passed());
    driver.wait_ms(10_000);
    assert!(driver.ask(asks("b")).await.passed(), "the replay was free");
    assert!(!driver.ask(asks("c")).await.passed());
    driver.wait_ms(20_000);
    assert!(driver.ask(asks("c")).await.passed(), "c was not used");
}

async fn counters_count_whatever_comes_of_the_rest(driver: HostDriver) {
    let asks = |limit| Asks {
        counters: vec![increment(limit)],
        nonces: vec![nonce("n", 60)],
        ..Asks::default()
    };
    assert!(!driver.ask(asks(0)).await.passed());
    assert!(driver.ask(asks(2)).await.passed());
    let replayed = driver.ask(asks(9)).await;
    assert_ne!(replayed.nonces, [NonceResult::Accepted]);
    assert_eq!(replayed.counters[0].count, 3);
}

async fn tenants_do_not_meet(driver: HostDriver) {
    let other = driver.neighbour();
    for driver in [&driver, &other] {
        assert!(driver.use_nonce(nonce("n", 60)).await);
        assert_eq!(driver.count(increment(9)).await.count, 1);
        let limited = driver.limit(&limit(&window(3), "k", 1)).await;
        assert_eq!(limited.remaining, 2);
    }
}

async fn a_question_of_nothing_is_answered(driver: HostDriver) {
    assert!(driver.ask(Asks::default()).await.passed());
}
