//! Several questions in one call.

use asyncgate_core::admission::{
    Asks, LimitCheck, Name, NonceResult, Rule, Together, Verdicts, Window,
};
use proptest::prelude::*;

use crate::world::{TENANT, World, bucket, check, increment, nonce, overdraft, thousandths};

fn named(policy: &str, rule: &Rule, cost: i64) -> LimitCheck {
    LimitCheck {
        policy: policy.into(),
        ..check(rule, cost)
    }
}

fn limits(world: &mut World, limits: Vec<LimitCheck>) -> Verdicts {
    world.ask(&Asks {
        limits,
        ..Asks::default()
    })
}

#[test]
fn a_refused_batch_charges_nothing_but_overdraw_to_those_that_refused() {
    let mut world = World::new();
    let (wide, narrow, strict) = (overdraft(10, 1), overdraft(2, 1), bucket(2, 1));
    let all = || {
        vec![
            named("wide", &wide, 2),
            named("narrow", &narrow, 2),
            named("strict", &strict, 2),
        ]
    };
    assert!(limits(&mut world, all()).passed());
    let refused = limits(&mut world, all());
    let allowed: Vec<bool> = refused.limits.iter().map(|limit| limit.allowed).collect();
    assert_eq!(allowed, [true, false, false]);
    let tokens: Vec<i128> = refused.limits.iter().map(thousandths).collect();
    assert_eq!(tokens, [8_000, -2_000, 0]);
    assert!(refused.limits[1].retry_after_secs.is_some());
    // A later look finds the same.
    let looks = all()
        .into_iter()
        .map(|check| LimitCheck { cost: 0, ..check });
    let seen = limits(&mut world, looks.collect());
    let tokens: Vec<i128> = seen.limits.iter().map(thousandths).collect();
    assert_eq!(tokens, [8_000, -2_000, 0]);
}

#[test]
fn the_same_limit_twice_is_charged_twice_or_not_at_all() {
    let mut world = World::new();
    let rule = bucket(10, 1);
    let twice = limits(&mut world, vec![check(&rule, 3), check(&rule, 3)]);
    assert_eq!(twice.limits[1].remaining, 4);
    let twice = limits(&mut world, vec![check(&rule, 3), check(&rule, 3)]);
    assert!(!twice.passed());
    assert!(twice.limits[1].retry_after_secs.is_some());
    assert_eq!(world.limit(check(&rule, 0)).remaining, 4);
}

#[test]
fn a_peek_says_what_would_happen_and_changes_nothing() {
    let mut world = World::new();
    let rule = overdraft(3, 1);
    for cost in [1, 2, 1, 1, 9] {
        let asks = Asks {
            limits: vec![check(&rule, cost)],
            peek: true,
            ..Asks::default()
        };
        let before = world.rows.clone();
        let peeked = world.ask(&asks);
        assert_eq!(world.rows, before);
        assert_eq!(peeked.limits[0], world.limit(check(&rule, cost)));
    }
}

#[test]
fn a_rule_that_is_tried_out_refuses_nobody() {
    let mut world = World::new();
    let tried = LimitCheck {
        shadow: true,
        ..named("tried", &bucket(1, 1), 1)
    };
    let real = named("real", &bucket(3, 1), 1);
    for (n, shadowed) in [false, true, true].into_iter().enumerate() {
        let verdicts = limits(&mut world, vec![tried.clone(), real.clone()]);
        assert!(verdicts.passed());
        assert_eq!(verdicts.limits[0].shadowed, shadowed);
        assert_eq!(verdicts.limits[1].remaining, 2 - n as u64);
    }
}

#[test]
fn a_nonce_is_used_only_if_everything_else_passes_and_a_replay_costs_no_token() {
    let mut world = World::new();
    let rule = overdraft(2, 1);
    let asks = |text: &str| Asks {
        limits: vec![check(&rule, 1)],
        nonces: vec![nonce(text, 60)],
        ..Asks::default()
    };
    assert!(world.ask(&asks("a")).passed());
    let replayed = world.ask(&asks("a"));
    assert_ne!(replayed.nonces[0], NonceResult::Accepted);
    assert_eq!(
        world.limit(check(&rule, 0)).remaining,
        1,
        "nothing was charged"
    );
    assert!(world.ask(&asks("b")).passed());
    // A refusal for the rate costs tokens, and the nonce is still new.
    let refused = world.ask(&asks("c"));
    assert!(!refused.passed());
    assert_eq!(thousandths(&world.limit(check(&rule, 0))), -1_000);
    world.wait(120_000);
    assert!(world.ask(&asks("c")).passed());
    // A replay does not overdraw an empty bucket.
    world.ask(&asks("c"));
    assert_eq!(thousandths(&world.limit(check(&rule, 0))), 0);
}

#[test]
fn counters_count_whatever_comes_of_the_rest() {
    let mut world = World::new();
    let asks = |limit, nonces: &[&str]| Asks {
        counters: vec![increment(limit, 1)],
        nonces: nonces.iter().map(|text| nonce(text, 60)).collect(),
        ..Asks::default()
    };
    assert!(world.ask(&asks(10, &["a"])).passed());
    for (limit, nonces, count) in [
        (10, &["a"][..], 2),
        (1, &["b"][..], 3),
        (10, &["b", "b"][..], 4),
    ] {
        let verdicts = world.ask(&asks(limit, nonces));
        assert!(!verdicts.passed());
        assert_eq!(verdicts.counters[0].count, count);
    }
    assert!(world.ask(&asks(10, &["b"])).passed(), "b was not used");
}

#[test]
fn nonces_that_belong_together_are_used_together() {
    let mut world = World::new();
    let asks = |nonces: &[&str]| Asks {
        nonces: nonces.iter().map(|text| nonce(text, 60)).collect(),
        together: Together::All,
        ..Asks::default()
    };
    assert!(world.ask(&asks(&["a", "b"])).passed());
    assert!(!world.ask(&asks(&["c", "b"])).passed());
    assert!(world.ask(&asks(&["c", "d"])).passed());
}

proptest! {
    /// A batch that passes is the same as its parts asked one by one. A batch that does not pass leaves
    /// every limit that did not refuse unchanged.
    #[test]
    fn all_or_nothing(
        batches in prop::collection::vec(
            prop::collection::vec((0_usize..3, 0_usize..2, 0_i64..6), 1..5), 1..20),
    ) {
        let rules = [
            bucket(5, 1),
            overdraft(5, 1),
            Rule::Window(Window::new(5, 60).unwrap()),
        ];
        let mut world = World::new();
        for batch in batches {
            let asked: Vec<LimitCheck> = batch
                .iter()
                .map(|(rule, key, cost)| LimitCheck {
                    policy: rule.to_string().into(),
                    key: key.to_string(),
                    ..check(&rules[*rule], *cost)
                })
                .collect();
            let mut alone = world.clone();
            let before = world.rows.clone();
            let verdicts = limits(&mut world, asked.clone());
            if verdicts.passed() {
                for (check, together) in asked.into_iter().zip(verdicts.limits) {
                    prop_assert_eq!(alone.limit(check), together);
                }
                prop_assert_eq!(&alone.rows, &world.rows);
            } else {
                let name = |check: &LimitCheck| check.name(TENANT, world.now());
                let refused: Vec<Name> = asked
                    .iter()
                    .zip(&verdicts.limits)
                    .filter(|(_, verdict)| !verdict.allowed)
                    .map(|(check, _)| name(check))
                    .collect();
                for name in asked.iter().map(name).filter(|name| !refused.contains(name)) {
                    prop_assert_eq!(before.get(&name), world.rows.get(&name));
                }
            }
            world.wait(7_000);
        }
    }
}
