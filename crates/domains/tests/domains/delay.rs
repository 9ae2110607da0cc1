//! The rule: the published sequences, a plain model, and extreme numbers.

use asyncgate_domains::{
    State,
    delay::{Stage, Verdict, check},
};
use proptest::prelude::*;

const fn stage(delay: u64, reset_timer: bool, batch_size: u64, repetitions: u64) -> Stage {
    Stage {
        delay,
        reset_timer,
        batch_size,
        repetitions,
    }
}

/// A time, and the expected timer and counter after an accepted attempt, or the time to wait for.
type Step = (i64, Result<(i64, u64), Option<i64>>);

fn run(stages: &[Stage], steps: &[Step]) {
    let mut state = State::default();
    for (at, (now, expected)) in steps.iter().enumerate() {
        let found = match check(stages, state, *now) {
            Verdict::Accepted(next) => {
                state = next;
                Ok((next.timer, next.counter))
            }
            Verdict::Refused { not_before } => Err(not_before),
        };
        assert_eq!(found, *expected, "step {at}");
    }
}

#[test]
fn the_published_sequences_come_out() {
    run(
        &[stage(0, true, 1, 1)],
        &[(-1, Err(Some(0))), (0, Ok((0, 1)))],
    );
    run(
        &[stage(0, true, 2, 1)],
        &[(1, Ok((1, 1))), (1, Ok((1, 2))), (1, Err(None))],
    );
    run(
        &[
            stage(10, false, 1, 1),
            stage(1, false, 1, 1),
            stage(1, false, 1, 1),
            stage(1, false, 1, 1),
        ],
        &[
            (13, Ok((10, 1))),
            (13, Ok((11, 2))),
            (13, Ok((12, 3))),
            (13, Ok((13, 4))),
            (13, Err(None)),
        ],
    );
    run(
        &[stage(0, true, 1, 1), stage(1, true, 1, 1)],
        &[(2, Ok((2, 1))), (2, Err(Some(3))), (3, Ok((3, 2)))],
    );
    for t in [10, 1_631_650_286] {
        run(
            &[
                stage(t as u64, true, 2, 1),
                stage(1, false, 1, 1),
                stage(1, true, 1, 1),
                stage(2, false, 1, 1),
                stage(4, true, 2, 2),
            ],
            &[
                (t - 1, Err(Some(t))),
                (t, Ok((t, 1))),
                (t + 1, Ok((t + 1, 2))),
                (t + 3, Ok((t + 2, 3))),
                (t + 3, Ok((t + 3, 4))),
                (t + 6, Ok((t + 5, 5))),
                (t + 8, Err(Some(t + 9))),
                (t + 9, Ok((t + 9, 6))),
                (t + 10, Ok((t + 10, 7))),
                (t + 14, Ok((t + 14, 8))),
                (t + 15, Ok((t + 15, 9))),
                (t + 99, Err(None)),
            ],
        );
    }
}

#[test]
fn a_disabled_domain_is_out_of_quota() {
    let state = State {
        timer: 1,
        counter: 1,
        disabled: true,
    };
    let verdict = check(&[stage(0, true, 2, 1)], state, 1);
    assert_eq!(verdict, Verdict::Refused { not_before: None });
}

#[test]
fn numbers_at_the_edge_neither_panic_nor_let_anyone_through() {
    let never = Verdict::Refused {
        not_before: Some(i64::MAX),
    };
    let refused = Verdict::Refused { not_before: None };
    let late = State {
        timer: i64::MAX - 1,
        ..State::default()
    };
    assert_eq!(
        check(&[stage(u64::MAX, true, 1, 1)], State::default(), 5),
        never
    );
    assert_eq!(check(&[stage(2, true, 1, 1)], late, 5), never);
    assert_eq!(check(&[], State::default(), 5), refused);
    assert_eq!(
        check(
            &[stage(0, true, 0, 9), stage(0, true, 9, 0)],
            State::default(),
            5
        ),
        refused
    );
    let used = State {
        counter: u64::MAX,
        ..State::default()
    };
    let endless = [stage(0, true, u64::MAX, u64::MAX); 3];
    assert!(matches!(check(&endless, used, 5), Verdict::Accepted(_)));
    assert_eq!(check(&[stage(0, true, 1, u64::MAX)], used, 5), refused);
}

/// The rule as a list: one delay for each attempt.
fn model(stages: &[Stage], state: State, now: i64) -> Option<(i64, u64)> {
    let mut attempts = Vec::new();
    for stage in stages {
        for _ in 0..stage.repetitions {
            for place in 0..stage.batch_size {
                let delay = if place == 0 { stage.delay } else { 0 };
                attempts.push((delay as i64, stage.reset_timer));
            }
        }
    }
    let (delay, resets) = *attempts.get(state.counter as usize)?;
    let not_before = state.timer + delay;
    let timer = if resets { now } else { not_before };
    (now >= not_before).then_some((timer, state.counter + 1))
}

fn any_stage() -> impl Strategy<Value = Stage> {
    (0..6_u64, any::<bool>(), 0..4_u64, 0..4_u64)
        .prop_map(|(delay, reset, batch, times)| stage(delay, reset, batch, times))
}

proptest! {
    #[test]
    fn the_rule_is_the_list_of_its_attempts(
        stages in prop::collection::vec(any_stage(), 0..5),
        waits in prop::collection::vec(0..5_i64, 0..60),
    ) {
        let (mut state, mut now) = (State::default(), 0);
        for wait in waits {
            now += wait;
            let expected = model(&stages, state, now);
            match check(&stages, state, now) {
                Verdict::Accepted(next) => {
                    prop_assert_eq!(expected, Some((next.timer, next.counter)));
                    state = next;
                }
                Verdict::Refused { not_before } => {
                    prop_assert_eq!(expected, None);
                    // Waiting for the named time is enough, and one second less is not.
                    if let Some(at) = not_before {
                        prop_assert!(at > now);
                        prop_assert!(model(&stages, state, at).is_some());
                        prop_assert!(model(&stages, state, at - 1).is_none());
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_panics(
        stages in prop::collection::vec(
            (any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>())
                .prop_map(|(delay, reset, batch, times)| stage(delay, reset, batch, times)),
            0..5,
        ),
        timer in any::<i64>(), counter in any::<u64>(), now in any::<i64>(),
    ) {
        let state = State { timer, counter, disabled: false };
        if let Verdict::Accepted(next) = check(&stages, state, now) {
            prop_assert!(next.timer <= now);
            prop_assert!(next.counter > counter || counter == u64::MAX);
        }
    }
}
