//! A batch is the same as its calls one after the other.

use asyncgate_core::{
    ClassesInUse, Decision, Ids, Locatability, Policy, Rejection, Seq, Stamp, TaskId,
    identity::{Quota, QuotaName},
    task::{self, Answers, Claim, Created, Ending, Finished, Hold, Lease, NewTask, Report},
};
use proptest::prelude::*;

use crate::{
    model::config,
    world::{World, bare, echo, failure, json, json_of_size, proven, worker},
};

/// One step of a history. Numbers pick among the leases that were given so far.
#[derive(Debug, Clone)]
enum Step {
    Create(Vec<Order>),
    Claim(i64),
    Finish(Vec<(usize, bool, Said)>),
    Renew(Vec<(usize, bool)>, i64),
    Sweep,
    Wait(i64),
}

#[derive(Debug, Clone)]
struct Order {
    task_type: u8,
    key: Option<u8>,
    content: u8,
    max_attempts: u32,
    deadline_s: Option<i64>,
    too_large: bool,
}

#[derive(Debug, Clone, Copy)]
enum Said {
    Proven,
    Bare,
    Retryable,
    Failed,
    TooLarge,
}

/// The same tenant twice: one is given batches, the other their calls.
struct Pair {
    batched: World,
    single: World,
    holds: Vec<(TaskId, Hold)>,
    batches: u64,
}

/// Counts what a decision drew: an id for each receipt, and one for each new task.
fn drawn(world: &World) -> usize {
    world.ledger.len() + world.tasks.len()
}

impl Pair {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Create(orders) => self.create(orders),
            Step::Claim(ttl_s) => self.claim(*ttl_s),
            Step::Finish(said) => self.finish(said),
            Step::Renew(picks, ms) => self.renew(picks, *ms),
            Step::Sweep => {
                let same = self.ids();
                for world in [&mut self.batched, &mut self.single] {
                    world.ids = Some(same.clone());
                    world.sweep();
                }
            }
            Step::Wait(ms) => {
                self.batched.wait_ms(*ms);
                self.single.wait_ms(*ms);
            }
        }
        assert_eq!(self.batched.tasks, self.single.tasks);
        assert_eq!(self.batched.ledger, self.single.ledger);
        assert_eq!(self.batched.open, self.single.open);
    }

    /// Gives both the same ids, so that even those must come out the same.
    fn ids(&mut self) -> Ids {
        self.batches += 1;
        Ids::new(Stamp::from_u64(1 << 40 | self.batches), self.batches)
    }

    /// Makes the calls one by one with the ids that a batch would have drawn.
    fn one_by_one<I, T>(
        &mut self,
        mut ids: Ids,
        calls: Vec<I>,
        mut call: impl FnMut(&mut World, I) -> Result<T, Rejection>,
    ) -> Answers<T> {
        let world = &mut self.single;
        let answers = calls.into_iter().map(|one| {
            world.ids = Some(ids.clone());
            let before = drawn(world);
            let answer = call(world, one);
            for _ in before..drawn(world) {
                ids.random();
            }
            world.ids = None;
            answer
        });
        answers.collect()
    }

    /// Decides a batch as a store would.
    fn at_once<T>(
        &mut self,
        ids: Ids,
        decide: impl FnOnce(&World, asyncgate_core::Env, Seq) -> Decision<Answers<T>>,
    ) -> Answers<T> {
        self.batched.ids = Some(ids);
        let (env, head) = (self.batched.env(), self.batched.ledger.len() as Seq);
        let decision = decide(&self.batched, env, head);
        self.batched.run(|_, _| Ok(decision)).unwrap()
    }

    fn create(&mut self, orders: &[Order]) {
        let requests: Vec<NewTask> = orders.iter().map(Order::new_task).collect();
        let ids = self.ids();
        let wanted = requests.clone();
        let batch: Answers<Created> = self.at_once(ids.clone(), |world, env, head| {
            let keys = wanted.iter().filter_map(NewTask::key);
            let existing = keys.filter_map(|key| world.named(&key).cloned()).collect();
            let classes = world.classes();
            let asked = wanted.iter().map(NewTask::class);
            let known = asked.filter(|class| classes.contains(class)).collect();
            let classes = ClassesInUse::new(classes.len(), known);
            task::create_all(env, head, wanted, existing, world.usage(), classes)
        });
        let singles = self.one_by_one(ids, requests, |world, new| world.try_create(new));
        assert_eq!(batch, singles);
    }

    fn claim(&mut self, ttl_s: i64) {
        let claim = Claim {
            worker: worker("bob"),
            capabilities: Vec::new(),
            lease_ttl_ms: Some(ttl_s * 1_000),
            expected_duration_seconds: None,
        };
        let ids: Vec<TaskId> = self.batched.tasks.keys().copied().collect();
        let same = self.ids();
        for world in [&mut self.batched, &mut self.single] {
            world.ids = Some(same.clone());
            let leased = world.claim(&claim, &ids);
            let holds = leased.iter().map(|task| {
                let (worker, lease_id) = (worker("bob"), task.lease().unwrap().id);
                (task.id, Hold { worker, lease_id })
            });
            self.holds.extend(holds);
        }
    }

    fn hold(&self, pick: usize, stranger: bool) -> Option<(TaskId, Hold)> {
        let (id, mut hold) = self.holds.get(pick % self.holds.len().max(1))?.clone();
        if stranger {
            hold.worker = worker("eve");
        }
        Some((id, hold))
    }

    fn finish(&mut self, said: &[(usize, bool, Said)]) {
        let ending = |(pick, stranger, said): &(usize, bool, Said)| {
            let (task_id, hold) = self.hold(*pick, *stranger)?;
            let report = said.report();
            Some(Ending {
                task_id,
                hold,
                report,
            })
        };
        let endings: Vec<Ending> = said.iter().filter_map(ending).collect();
        let ids = self.ids();
        let wanted = endings.clone();
        let batch: Answers<Finished> = self.at_once(ids.clone(), |world, env, head| {
            let tasks = wanted.iter().map(|ending| ending.task_id);
            let tasks = tasks.map(|id| world.task(id).clone()).collect();
            task::finish_all(env, head, wanted, tasks)
        });
        let singles = self.one_by_one(ids, endings, |world, one| match one.report {
            Report::Completed(completion) => world.complete(&one.hold, one.task_id, completion),
            Report::Failed(failure) => world.fail(&one.hold, one.task_id, failure),
        });
        assert_eq!(batch, singles);
    }

    fn renew(&mut self, picks: &[(usize, bool)], ms: i64) {
        let picked = picks.iter().filter_map(|(n, by)| self.hold(*n, *by));
        let holds: Vec<(TaskId, Hold)> = picked.collect();
        let ids = self.ids();
        let batch: Answers<Lease> = self.at_once(ids.clone(), |world, env, head| {
            let tasks = holds.iter().map(|(id, _)| world.task(*id).clone());
            task::renew_all(env, head, &holds, tasks.collect(), Some(ms))
        });
        let singles = self.one_by_one(ids, holds, |world, (id, hold)| {
            world.renew(&hold, id, Some(ms))
        });
        assert_eq!(batch, singles);
    }
}

impl Order {
    fn new_task(&self) -> NewTask {
        let payload = match self.too_large {
            true => json_of_size(2_000),
            false => json(&self.content.to_string()),
        };
        let deadline = self.deadline_s;
        let mut new = NewTask {
            task_type: format!("type {}", self.task_type),
            payload,
            max_attempts: Some(self.max_attempts),
            retry_backoff_seconds: Some(0),
            idempotency_key: self.key.map(|key| key.to_string()),
            ..echo()
        };
        new.contract.deadline = deadline.map(|seconds| task::Deadline::After { seconds });
        new
    }
}

impl Said {
    fn report(self) -> Report {
        match self {
            Self::Proven => Report::Completed(proven()),
            Self::Bare => Report::Completed(bare()),
            Self::Retryable => Report::Failed(failure(true)),
            Self::Failed => Report::Failed(failure(false)),
            Self::TooLarge => Report::Completed(task::Completion {
                result: Some(json_of_size(2_000)),
                ..proven()
            }),
        }
    }
}

fn order() -> impl Strategy<Value = Order> {
    let key = proptest::option::weighted(0.4, 0..4_u8);
    let deadline = proptest::option::weighted(0.2, 1..300_i64);
    let large = proptest::bool::weighted(0.1);
    (0..5_u8, key, 0..2_u8, 0..4_u32, deadline, large).prop_map(
        |(task_type, key, content, max_attempts, deadline_s, too_large)| Order {
            task_type,
            key,
            content,
            max_attempts,
            deadline_s,
            too_large,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let said = prop_oneof![
        3 => Just(Said::Proven),
        3 => Just(Said::Bare),
        2 => Just(Said::Retryable),
        1 => Just(Said::Failed),
        1 => Just(Said::TooLarge),
    ];
    let stranger = || proptest::bool::weighted(0.1);
    let endings = proptest::collection::vec((0..12_usize, stranger(), said), 1..8);
    let renewals = proptest::collection::vec((0..12_usize, stranger()), 1..8);
    prop_oneof![
        4 => proptest::collection::vec(order(), 1..8).prop_map(Step::Create),
        4 => (1..600_i64).prop_map(Step::Claim),
        5 => endings.prop_map(Step::Finish),
        3 => (renewals, 0..900_000_i64).prop_map(|(picks, ms)| Step::Renew(picks, ms)),
        1 => Just(Step::Sweep),
        2 => (0..200_000_i64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_batch_is_the_same_as_its_calls_one_after_the_other(
        steps in proptest::collection::vec(step(), 1..40),
        strict in any::<bool>(),
        active in 3..20_u64,
        storage in 3_000..60_000_u64,
    ) {
        let policy = Policy {
            locatability: if strict { Locatability::Strict } else { Locatability::Lenient },
            max_task_classes: 4,
            max_payload_bytes: 1_000,
            renewals_before_anomaly: 2,
            expiry_jitter_ms: 0,
            ..Policy::default()
        };
        let world = || {
            let mut world = World::with(policy.clone());
            world.quotas = world
                .quotas
                .with(QuotaName::ActiveTasks, Quota::AtMost(active))
                .with(QuotaName::ReceiptStorageBytes, Quota::AtMost(storage));
            world
        };
        let mut pair = Pair { batched: world(), single: world(), holds: Vec::new(), batches: 0 };
        for step in &steps {
            pair.step(step);
        }
    }
}

#[test]
fn the_second_of_two_requests_with_one_key_is_the_repetition_and_other_content_a_conflict() {
    let world = World::new();
    let keyed = |content: &str| NewTask {
        payload: json(content),
        idempotency_key: Some("k".into()),
        ..echo()
    };
    let requests = vec![keyed("1"), keyed("1"), keyed("2"), echo()];
    let mut pair = Pair {
        batched: world,
        single: World::new(),
        holds: Vec::new(),
        batches: 0,
    };
    let ids = pair.ids();
    let answers = pair.at_once(ids, |world, env, head| {
        let classes = ClassesInUse::default();
        task::create_all(env, head, requests, Vec::new(), world.usage(), classes)
    });
    let first = answers[0].as_ref().unwrap();
    let task_id = first.task.id;
    let again = answers[1].as_ref().unwrap();
    assert!(!first.duplicate && again.duplicate && again.task.id == task_id);
    let conflict = Rejection::IdempotencyConflict { task_id };
    assert_eq!(answers[2], Err(conflict));
    assert!(!answers[3].as_ref().unwrap().duplicate);
    assert_eq!(pair.batched.tasks.len(), 2);
}
