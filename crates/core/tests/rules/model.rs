//! Random histories against a small model that was written from the contract, not from the code.

use asyncgate_core::{
    Policy, Rejection, TaskId,
    task::{Claim, Hold, NewTask, Status},
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::world::{World, agent, bare, echo, failure, json, proven, worker};

/// One step of a history. Numbers pick among the tasks that exist when the step runs.
#[derive(Debug, Clone)]
enum Step {
    Create(Order),
    Claim {
        picks: Vec<usize>,
        ttl_s: i64,
    },
    Call {
        task: usize,
        by: By,
        call: Call,
    },
    Cancel(usize),
    Sweep,
    Wait(i64),
    /// Waits to the deadline of a task, or to a millisecond before or after it, if it lies ahead.
    WaitUntil {
        task: usize,
        off_ms: i64,
    },
}

#[derive(Debug, Clone)]
struct Order {
    delay_s: i64,
    max_attempts: u32,
    backoff_s: u32,
    key: Option<u8>,
    content: u8,
}

/// The lease under which a call is made.
#[derive(Debug, Clone, Copy)]
enum By {
    Latest,
    Older(usize),
    WrongWorker,
    AnotherTasks(usize),
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Renew(i64),
    Release,
    Start,
    Progress,
    Complete { with_proof: bool },
    Fail { retryable: bool },
}

/// The contract's view of one task.
#[derive(Debug, Default)]
struct Twin {
    order: (u32, u32),
    key: Option<(u8, u8)>,
    attempt: u32,
    expiries: u32,
    ready: bool,
    eligible: i64,
    held: Option<Held>,
    /// The outcome, and the hold that caused it.
    ended: Option<(Status, Option<usize>)>,
    open: bool,
    holds: Vec<Hold>,
}

#[derive(Debug)]
struct Held {
    hold: usize,
    until: i64,
    running: bool,
}

impl Twin {
    fn status(&self) -> Status {
        match (&self.ended, &self.held) {
            (Some((status, _)), _) => *status,
            (None, Some(held)) if held.running => Status::Running,
            (None, Some(_)) => Status::Leased,
            (None, None) => Status::Queued,
        }
    }

    fn requeue(&mut self, now: i64, eligible: i64) {
        self.held = None;
        self.eligible = eligible;
        self.ready = eligible <= now;
    }

    fn end(&mut self, status: Status, hold: Option<usize>, discharged: bool) {
        self.held = None;
        self.ended = Some((status, hold));
        self.open = !discharged;
    }

    /// Returns the expected answer to a call under hold number `by` (absent: not a hold on this task).
    fn call(&mut self, now: i64, by: Option<usize>, call: Call) -> Result<(), Rejection> {
        let ended_it = |outcome| by.is_some() && self.ended == Some((outcome, by));
        match call {
            Call::Complete { with_proof } if ended_it(Status::Succeeded) => {
                self.open &= !with_proof;
                return Ok(());
            }
            Call::Fail { .. } if ended_it(Status::Failed) => return Ok(()),
            Call::Renew(_)
            | Call::Release
            | Call::Start
            | Call::Progress
            | Call::Complete { .. }
            | Call::Fail { .. } => {}
        }
        let held = self.held.as_mut();
        let held = held.filter(|held| Some(held.hold) == by && now < held.until);
        let held = held.ok_or(Rejection::LeaseInvalid)?;
        match call {
            Call::Renew(ms) => held.until = held.until.max(now + ms.min(1_800_000)),
            Call::Release => self.requeue(now, now),
            Call::Start => held.running = true,
            Call::Progress => {}
            Call::Complete { with_proof } => self.end(Status::Succeeded, by, with_proof),
            Call::Fail { retryable } => {
                self.attempt += 1;
                let (max_attempts, backoff_s) = self.order;
                if retryable && self.attempt < max_attempts {
                    let factor = 2_i64.pow(self.attempt - 1);
                    let delay_s = (i64::from(backoff_s) * factor).min(900);
                    self.requeue(now, now + delay_s * 1_000);
                } else {
                    self.end(Status::Failed, by, true);
                }
            }
        }
        Ok(())
    }
}

/// The world and its model, side by side.
struct Pair {
    world: World,
    twins: Vec<(TaskId, Twin)>,
}

impl Pair {
    fn now(&self) -> i64 {
        self.world.now.as_millis()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Create(order) => self.create(order),
            Step::Claim { picks, ttl_s } => self.claim(picks, *ttl_s),
            Step::Call { task, by, call } => self.call(*task, *by, *call),
            Step::Cancel(task) => self.cancel(*task),
            Step::Sweep => self.sweep(),
            Step::Wait(ms) => self.world.wait_ms(*ms),
            Step::WaitUntil { task, off_ms } => self.wait_until(*task, *off_ms),
        }
        self.compare();
    }

    fn wait_until(&mut self, task: usize, off_ms: i64) {
        let unended = self.twins.iter().filter(|(_, twin)| twin.ended.is_none());
        let deadlines: Vec<i64> = unended
            .map(|(_, twin)| twin.held.as_ref().map_or(twin.eligible, |held| held.until))
            .collect();
        if let Some(deadline) = deadlines.get(task % deadlines.len().max(1)) {
            let ahead = deadline + off_ms - self.now();
            self.world.wait_ms(ahead.max(0));
        }
    }

    fn create(&mut self, order: &Order) {
        let same_key = |twin: &&(TaskId, Twin)| {
            let known = twin.1.key.map(|(key, _)| key);
            known.is_some() && known == order.key
        };
        let first = self
            .twins
            .iter()
            .find(same_key)
            .map(|(id, twin)| (*id, twin.key));
        let answer = self.world.try_create(NewTask {
            payload: json(&order.content.to_string()),
            max_attempts: Some(order.max_attempts),
            retry_backoff_seconds: Some(order.backoff_s),
            idempotency_key: order.key.map(|key| key.to_string()),
            delay_ms: order.delay_s * 1_000,
            ..echo()
        });
        if let Some((task_id, key)) = first {
            if key.map(|(_, content)| content) == Some(order.content) {
                let answer = answer.unwrap();
                assert!(answer.duplicate && answer.task.id == task_id);
            } else {
                let conflict = Rejection::IdempotencyConflict { task_id };
                assert_eq!(answer.unwrap_err(), conflict);
            }
            return;
        }
        let answer = answer.unwrap();
        assert!(!answer.duplicate);
        let twin = Twin {
            order: (order.max_attempts, order.backoff_s),
            key: order.key.map(|key| (key, order.content)),
            ready: order.delay_s == 0,
            eligible: self.now() + order.delay_s * 1_000,
            open: true,
            ..Twin::default()
        };
        self.twins.push((answer.task.id, twin));
    }

    fn claim(&mut self, picks: &[usize], ttl_s: i64) {
        let mut offered: Vec<usize> = picks.iter().map(|n| n % self.twins.len().max(1)).collect();
        offered.sort_unstable();
        offered.dedup();
        offered.retain(|n| *n < self.twins.len());
        let claim = Claim {
            worker: worker("bob"),
            capabilities: Vec::new(),
            lease_ttl_ms: Some(ttl_s * 1_000),
            expected_duration_seconds: None,
        };
        let ids: Vec<TaskId> = offered.iter().map(|n| self.twins[*n].0).collect();
        let mut given = self.world.claim(&claim, &ids).into_iter();
        let now = self.now();
        for n in offered {
            let (id, twin) = &mut self.twins[n];
            let free = twin.held.is_none() && twin.ended.is_none();
            if !(free && twin.ready) {
                continue;
            }
            assert!(twin.eligible <= now, "claimed before it was eligible");
            let task = given.next().unwrap();
            assert_eq!(task.id, *id, "what is ready is given, in the order offered");
            let hold = Hold {
                worker: worker("bob"),
                lease_id: task.lease().unwrap().id,
            };
            twin.holds.push(hold);
            twin.ready = false;
            twin.held = Some(Held {
                hold: twin.holds.len() - 1,
                until: now + (ttl_s * 1_000).min(1_800_000),
                running: false,
            });
        }
        assert!(given.next().is_none(), "what is not ready is passed over");
    }

    fn call(&mut self, task: usize, by: By, call: Call) {
        let Some((id, number, hold)) = self.resolve(task, by) else {
            return;
        };
        let (before, receipts) = (self.world.tasks.clone(), self.world.ledger.len());
        let world = &mut self.world;
        let answer = match call {
            Call::Renew(ms) => world.renew(&hold, id, Some(ms)).map(drop),
            Call::Release => world.release(&hold, id),
            Call::Start => world.start(&hold, id),
            Call::Progress => world.progress(&hold, id, json("1")),
            Call::Complete { with_proof: true } => world.complete(&hold, id, proven()).map(drop),
            Call::Complete { with_proof: false } => world.complete(&hold, id, bare()).map(drop),
            Call::Fail { retryable } => world.fail(&hold, id, failure(retryable)).map(drop),
        };
        let now = self.now();
        let twin = &mut self.twins.iter_mut().find(|(of, _)| *of == id).unwrap().1;
        assert_eq!(
            answer,
            twin.call(now, number, call),
            "{call:?} under {by:?}"
        );
        if answer.is_err() {
            assert_eq!(self.world.tasks, before, "a refused call changed a task");
            assert_eq!(self.world.ledger.len(), receipts);
        }
    }

    /// The task, the number of the hold if it is one on this task, and the hold itself.
    fn resolve(&self, task: usize, by: By) -> Option<(TaskId, Option<usize>, Hold)> {
        let held: Vec<_> = self
            .twins
            .iter()
            .filter(|(_, t)| !t.holds.is_empty())
            .collect();
        let (id, twin) = held.get(task % held.len().max(1))?;
        let latest = twin.holds.len() - 1;
        let own = |number: usize| (*id, Some(number), twin.holds[number].clone());
        Some(match by {
            By::Latest => own(latest),
            By::Older(n) => own(n % twin.holds.len()),
            By::WrongWorker => {
                let mut hold = twin.holds[latest].clone();
                hold.worker = worker("eve");
                (*id, None, hold)
            }
            By::AnotherTasks(n) => {
                let (other, twin) = held[n % held.len()];
                let number = (other == id).then_some(twin.holds.len() - 1);
                (*id, number, twin.holds[twin.holds.len() - 1].clone())
            }
        })
    }

    fn cancel(&mut self, task: usize) {
        let count = self.twins.len().max(1);
        let Some((id, twin)) = self.twins.get_mut(task % count) else {
            return;
        };
        let answer = self.world.cancel(*id, Some("enough"));
        let status = twin.status();
        if matches!(status, Status::Succeeded | Status::Failed) {
            assert_eq!(answer, Err(Rejection::InvalidTransition { status }));
            return;
        }
        assert_eq!(answer, Ok(Status::Canceled));
        if status != Status::Canceled {
            twin.end(Status::Canceled, None, true);
        }
    }

    fn sweep(&mut self) {
        let swept = self.world.sweep();
        let now = self.now();
        let (mut readied, mut expired) = (0, 0);
        for (id, twin) in &mut self.twins {
            if twin.ended.is_some() {
                continue;
            }
            if twin.held.as_ref().is_some_and(|held| held.until <= now) {
                let eligible = self.world.task(*id).next_eligible_at.as_millis();
                let jitter = eligible - now;
                assert!((0..=self.world.policy.expiry_jitter_ms).contains(&jitter));
                twin.expiries += 1;
                twin.requeue(now, eligible);
                expired += 1;
            } else if twin.held.is_none() && !twin.ready && twin.eligible <= now {
                twin.ready = true;
                readied += 1;
            }
        }
        assert_eq!((swept.readied, swept.expired), (readied, expired));
    }

    /// Checks that everything visible of every task agrees with the model.
    fn compare(&self) {
        assert_eq!(self.world.tasks.len(), self.twins.len());
        for (id, twin) in &self.twins {
            let task = self.world.task(*id);
            assert_eq!(task.status(), twin.status());
            assert_eq!((task.attempt, task.expiries), (twin.attempt, twin.expiries));
            assert_eq!(self.world.is_open(*id), twin.open);
            assert_eq!(task.created_by, agent("alice"));
            let lease = task.lease().map(|l| (l.id, l.expires_at.as_millis()));
            let held = twin.held.as_ref();
            let held = held.map(|held| (twin.holds[held.hold].lease_id, held.until));
            assert_eq!(lease, held);
            if twin.status() == Status::Queued {
                assert_eq!(task.next_eligible_at.as_millis(), twin.eligible);
            }
            let ender = task.end().and_then(|end| end.by.as_ref()).map(|by| by.0);
            let model = twin.ended.and_then(|(_, hold)| hold);
            assert_eq!(ender, model.map(|hold| twin.holds[hold].lease_id));
        }
    }
}

fn order() -> impl Strategy<Value = Order> {
    let delay = prop_oneof![3 => Just(0_i64), 1 => 1..120_i64];
    let key = proptest::option::weighted(0.3, 0..3_u8);
    (delay, 0..5_u32, 0..1_200_u32, key, 0..2_u8).prop_map(
        |(delay_s, max_attempts, backoff_s, key, content)| Order {
            delay_s,
            max_attempts,
            backoff_s,
            key,
            content,
        },
    )
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![
        8 => Just(By::Latest),
        2 => (0..9_usize).prop_map(By::Older),
        1 => Just(By::WrongWorker),
        1 => (0..9_usize).prop_map(By::AnotherTasks),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => (0..2_500_000_i64).prop_map(Call::Renew),
        1 => Just(Call::Release),
        2 => Just(Call::Start),
        1 => Just(Call::Progress),
        2 => any::<bool>().prop_map(|with_proof| Call::Complete { with_proof }),
        3 => any::<bool>().prop_map(|retryable| Call::Fail { retryable }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![0..50_i64, 0..40_000_i64, 0..2_000_000_i64];
    prop_oneof![
        3 => order().prop_map(Step::Create),
        5 => (proptest::collection::vec(0..12_usize, 1..6), 1..2_400_i64)
            .prop_map(|(picks, ttl_s)| Step::Claim { picks, ttl_s }),
        8 => (0..12_usize, by(), call())
            .prop_map(|(task, by, call)| Step::Call { task, by, call }),
        1 => (0..12_usize).prop_map(Step::Cancel),
        4 => Just(Step::Sweep),
        3 => wait.prop_map(Step::Wait),
        4 => (0..12_usize, -1..2_i64)
            .prop_map(|(task, off_ms)| Step::WaitUntil { task, off_ms }),
    ]
}

pub fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_history_agrees_with_the_model(
        steps in proptest::collection::vec(step(), 1..200),
        jitter_ms in prop_oneof![Just(0_i64), Just(5_000_i64)],
    ) {
        let world = World::with(Policy {
            expiry_jitter_ms: jitter_ms,
            ..Policy::default()
        });
        let mut pair = Pair { world, twins: Vec::new() };
        for step in &steps {
            pair.step(step);
        }
    }
}
