use std::sync::Arc;

use asyncgate_core::admission::{Delay, Flaw, Progress, Rule, Stage, Standing};
use proptest::prelude::*;

use crate::world::{START_MS, World, check};

fn stage(delay: u64, reset_timer: bool, batch_size: u64, repetitions: u64) -> Stage {
    Stage {
        delay,
        reset_timer,
        batch_size,
        repetitions,
    }
}

/// The time, accepted, the first allowed time, and the timer and counter after it.
type Expected = (i64, bool, Option<i64>, i64, u64);

fn play(stages: Vec<Stage>, expected: &[Expected]) {
    let delay = Delay::new(stages).unwrap();
    let mut progress = Progress::default();
    for (now, accepted, not_before, timer, counter) in expected {
        let attempt = delay.attempt(progress, *now);
        assert_eq!(attempt.accepted, *accepted, "at {now}");
        if !accepted {
            assert_eq!(attempt.not_before, *not_before, "at {now}");
        }
        let after = Progress {
            counter: *counter,
            timer: *timer,
        };
        assert_eq!(attempt.progress, after, "at {now}");
        progress = attempt.progress;
    }
}

#[test]
fn the_published_sequences_come_out() {
    play(
        vec![Stage::after(0)],
        &[(-1, false, Some(0), 0, 0), (0, true, None, 0, 1)],
    );
    play(
        vec![stage(0, true, 2, 1)],
        &[
            (1, true, None, 1, 1),
            (1, true, None, 1, 2),
            (1, false, None, 1, 2),
        ],
    );
    play(
        vec![
            stage(10, false, 1, 1),
            stage(1, false, 1, 1),
            stage(1, false, 1, 1),
            stage(1, false, 1, 1),
        ],
        &[
            (13, true, None, 10, 1),
            (13, true, None, 11, 2),
            (13, true, None, 12, 3),
            (13, true, None, 13, 4),
            (13, false, None, 13, 4),
        ],
    );
    play(
        vec![Stage::after(0), Stage::after(1)],
        &[
            (2, true, None, 2, 1),
            (2, false, Some(3), 2, 1),
            (3, true, None, 3, 2),
        ],
    );
    for t in [10, 1_631_650_286] {
        play(
            vec![
                stage(t as u64, true, 2, 1),
                stage(1, false, 1, 1),
                stage(1, true, 1, 1),
                stage(2, false, 1, 1),
                stage(4, true, 2, 2),
            ],
            &[
                (t - 1, false, Some(t), 0, 0),
                (t, true, None, t, 1),
                (t + 1, true, None, t + 1, 2),
                (t + 3, true, None, t + 2, 3),
                (t + 3, true, None, t + 3, 4),
                (t + 6, true, None, t + 5, 5),
                (t + 8, false, Some(t + 9), t + 5, 5),
                (t + 9, true, None, t + 9, 6),
                (t + 10, true, None, t + 10, 7),
                (t + 14, true, None, t + 14, 8),
                (t + 15, true, None, t + 15, 9),
                (t + 99, false, None, t + 15, 9),
            ],
        );
    }
}

#[test]
fn no_number_is_too_large() {
    let most = (1 << 53) - 1;
    let delay = Delay::new(vec![stage(most, false, most, most), Stage::after(most)]).unwrap();
    for progress in [
        Progress {
            counter: u64::MAX,
            timer: i64::MAX,
        },
        Progress {
            counter: u64::MAX - 1,
            timer: i64::MIN,
        },
    ] {
        for now in [i64::MIN, 0, i64::MAX] {
            let after = delay.attempt(progress, now).progress;
            assert!(after.counter >= progress.counter);
        }
    }
}

#[test]
fn stages_that_cannot_be_are_refused() {
    assert_eq!(Delay::new(vec![]), Err(Flaw::Stages { max: 1_000 }));
    assert!(Delay::new(vec![Stage::after(0); 1_001]).is_err());
    for flawed in [
        stage(0, true, 0, 1),
        stage(0, true, 1, 0),
        stage(1 << 53, true, 1, 1),
        stage(0, true, 1 << 53, 1),
        stage(0, true, 1, u64::MAX),
    ] {
        let made = Delay::new(vec![Stage::after(0), flawed]);
        assert_eq!(made, Err(Flaw::Stage { index: 1 }));
    }
}

#[test]
fn a_policy_of_delays_counts_what_it_accepts() {
    let start = START_MS / 1_000;
    let delay = Delay::new(vec![stage(0, true, 2, 1), stage(10, true, 1, 1)]).unwrap();
    let rule = Rule::Delay(Arc::new(delay));
    let mut world = World::forgetful();
    // The columns are: seconds to wait, cost, allowed, counter, remaining, seconds to retry, reset.
    for (wait, cost, allowed, counter, remaining, retry, reset) in [
        (0, 0, true, 0, 3, None, 0),
        (0, 1, true, 1, 2, None, 0),
        (0, 1, true, 2, 1, None, 10),
        (4, 1, false, 2, 1, Some(6), 10),
        (6, 0, true, 2, 1, None, 10),
        (0, 1, true, 3, 0, None, 10),
        (1_000_000, 1, false, 3, 0, None, 1_000_010),
    ] {
        world.wait(wait * 1_000);
        let limited = world.limit(check(&rule, cost));
        let Standing::Delay(progress) = limited.standing else {
            panic!("{limited:?}");
        };
        assert_eq!(
            (limited.allowed, progress.counter, limited.remaining),
            (allowed, counter, remaining)
        );
        assert_eq!(limited.retry_after_secs, retry);
        assert_eq!(limited.reset_at, start + reset);
        assert_eq!(limited.limit, 3);
    }
}

proptest! {
    /// Batches and repetitions are only a short way to write stages of one attempt each.
    #[test]
    fn batches_and_repetitions_are_stages_written_short(
        stages in prop::collection::vec((0_u64..5, any::<bool>(), 1_u64..4, 1_u64..4), 1..4),
        waits in prop::collection::vec(0_i64..4, 1..40),
    ) {
        let stages: Vec<Stage> = stages
            .into_iter()
            .map(|(delay, reset, batch, repetitions)| stage(delay, reset, batch, repetitions))
            .collect();
        let mut long = Vec::new();
        for short in &stages {
            for _ in 0..short.repetitions {
                for n in 0..short.batch_size {
                    let delay = if n == 0 { short.delay } else { 0 };
                    long.push(stage(delay, short.reset_timer, 1, 1));
                }
            }
        }
        let (short, long) = (Delay::new(stages).unwrap(), Delay::new(long).unwrap());
        let (mut progress, mut now) = (Progress::default(), 0);
        for wait in waits {
            now += wait;
            let attempt = short.attempt(progress, now);
            prop_assert_eq!(attempt, long.attempt(progress, now));
            progress = attempt.progress;
        }
    }
}
