//! Random histories: what may happen, and to what.

use asyncgate_core::{
    Changes, Json, Principal, PrincipalKind, Reach, ReceiptId, TaskId,
    task::{Completion, Contract, Deadline, Ending, Failure, Hold, NewTask, Report, Requirements},
};
use asyncgate_store::conformance::{Driver, agent, echo, json, worker};
use proptest::prelude::*;

/// One step of a history. Numbers pick among what exists, whatever exists by then.
#[derive(Debug, Clone)]
pub enum Step {
    Wait(i64),
    Reopen,
    Do { tenant: usize, act: Act },
}

#[derive(Debug, Clone)]
pub enum Act {
    Create(Order),
    CreateAll(Vec<Order>),
    Claim {
        capabilities: Vec<String>,
        accept_types: Option<Vec<String>>,
        limit: usize,
        ttl_ms: i64,
    },
    Held {
        hold: usize,
        stranger: bool,
        call: Call,
    },
    /// Holds, and reports of the end of their tasks.
    FinishAll(Vec<(usize, Call)>),
    RenewAll(Vec<usize>, i64),
    Cancel(usize),
    Sweep,
    See(usize),
    Deliver(Vec<u64>),
    Acknowledge(usize, usize),
    Sign,
}

#[derive(Debug, Clone)]
pub struct Order {
    owner: usize,
    task_type: String,
    capabilities: Vec<String>,
    priority: i32,
    delay_ms: i64,
    max_attempts: u32,
    backoff_s: u32,
    key: Option<u8>,
    payload: usize,
    /// The deadline in seconds, the most expiries, and how long the instructions are.
    terms: (Option<i64>, Option<u32>, usize),
}

#[derive(Debug, Clone)]
pub enum Call {
    Renew(i64),
    Release,
    Start,
    Progress(usize),
    Complete {
        result: usize,
        artifacts: Option<usize>,
    },
    Fail {
        error: usize,
        retryable: bool,
    },
}

/// What has come to exist in each tenant. Both stores are given the same picks.
#[derive(Debug, Default)]
pub struct Known([Rows; 2]);

#[derive(Debug, Default, Clone)]
pub struct Rows {
    pub tasks: Vec<TaskId>,
    pub holds: Vec<(TaskId, Hold)>,
    pub receipts: Vec<ReceiptId>,
}

impl Known {
    pub fn of(&self, tenant: usize) -> Rows {
        self.0[tenant].clone()
    }

    pub fn learn(&mut self, tenant: usize, changes: &Changes) {
        let rows = &mut self.0[tenant];
        for write in &changes.tasks {
            let task = &write.task;
            if !rows.tasks.contains(&task.id) {
                rows.tasks.push(task.id);
            }
            if let Some(lease) = task.lease()
                && !rows.holds.iter().any(|(_, hold)| hold.lease_id == lease.id)
            {
                let (lease_id, worker) = (lease.id, lease.worker.clone());
                rows.holds.push((task.id, Hold { worker, lease_id }));
            }
        }
        for receipt in &changes.receipts {
            if !rows.receipts.contains(&receipt.id) {
                rows.receipts.push(receipt.id);
            }
        }
    }

    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.0.iter().flat_map(|rows| rows.tasks.iter().copied())
    }
}

/// Everyone who owns tasks or is seen: alike in name, different in kind or instance.
pub fn people() -> Vec<Principal> {
    let mut laptop = agent("alice");
    laptop.instance_id = Some("laptop".into());
    vec![
        agent("alice"),
        laptop,
        agent("ali"),
        Principal::new(PrincipalKind::Human, "alice"),
    ]
}

/// Values that are small, large, odd, or say nothing.
pub fn values() -> Vec<Json> {
    let large = format!("{{\"z\":1,\"a\":\"{}\"}}", "x".repeat(5_000));
    let huge = format!("[\"\\u0000{}\", 1.50]", "y".repeat(70_000));
    [
        "null",
        "[]",
        "{\"b\":1, \"a\":[12345678901234567890]}",
        &large,
        &huge,
    ]
    .map(json)
    .to_vec()
}

fn value(pick: usize) -> Json {
    let values = values();
    values[pick % values.len()].clone()
}

fn person(pick: usize) -> Principal {
    let people = people();
    people[pick % people.len()].clone()
}

fn pick<T: Clone>(from: &[T], pick: usize) -> Option<T> {
    from.get(pick % from.len().max(1)).cloned()
}

impl Act {
    /// Does it, and tells what came of it.
    pub async fn run(&self, driver: &mut Driver, known: &Rows) -> String {
        match self {
            Self::Create(order) => told(driver.try_create(order.new_task()).await),
            Self::CreateAll(orders) => {
                let requests = orders.iter().map(Order::new_task);
                told(driver.create_all(requests.collect()).await)
            }
            Self::Claim {
                capabilities,
                accept_types,
                limit,
                ttl_ms,
            } => {
                let reach = Reach::new(capabilities.clone(), accept_types.clone());
                told(
                    driver
                        .claim_as(worker("bob"), reach, *limit, Some(*ttl_ms))
                        .await,
                )
            }
            Self::Held {
                hold,
                stranger,
                call,
            } => match pick(&known.holds, *hold) {
                Some((id, mut hold)) => {
                    if *stranger {
                        hold.worker = worker("eve");
                    }
                    call.run(driver, &hold, id).await
                }
                None => String::new(),
            },
            Self::FinishAll(calls) => {
                let endings = calls.iter().filter_map(|(n, call)| {
                    let (task_id, hold) = pick(&known.holds, *n)?;
                    let report = call.report()?;
                    Some(Ending {
                        task_id,
                        hold,
                        report,
                    })
                });
                told(driver.finish_all(endings.collect()).await)
            }
            Self::RenewAll(holds, ms) => {
                let holds = holds.iter().filter_map(|n| pick(&known.holds, *n));
                told(driver.renew_all(holds.collect(), *ms).await)
            }
            Self::Cancel(task) => match pick(&known.tasks, *task) {
                Some(id) => told(driver.cancel(id).await),
                None => String::new(),
            },
            Self::Sweep => told(driver.sweep().await),
            Self::See(who) => told(driver.see(person(*who)).await),
            Self::Deliver(places) => {
                let head = known.receipts.len() as u64;
                let places = places.iter().copied().filter(|seq| *seq <= head);
                driver.deliver(places.collect()).await;
                String::new()
            }
            Self::Acknowledge(receipt, by) => match pick(&known.receipts, *receipt) {
                Some(id) => told(driver.acknowledge(id, person(*by)).await),
                None => String::new(),
            },
            Self::Sign => told(driver.sign().await),
        }
    }
}

impl Call {
    async fn run(&self, driver: &mut Driver, hold: &Hold, id: TaskId) -> String {
        match self {
            Self::Renew(ms) => told(driver.renew(hold, id, *ms).await),
            Self::Release => told(driver.release(hold, id).await),
            Self::Start => told(driver.start(hold, id).await),
            Self::Progress(n) => told(driver.progress(hold, id, value(*n)).await),
            Self::Complete { .. } | Self::Fail { .. } => match self.report() {
                Some(Report::Completed(completion)) => {
                    told(driver.complete(hold, id, completion).await)
                }
                Some(Report::Failed(failure)) => told(driver.fail(hold, id, failure).await),
                None => String::new(),
            },
        }
    }

    /// Returns the report of an end, if the call is one.
    fn report(&self) -> Option<Report> {
        match self {
            Self::Complete { result, artifacts } => Some(Report::Completed(Completion {
                result: Some(value(*result)),
                artifacts: artifacts.map(value),
                delivery_proof: None,
                summary: artifacts.map(|n| "s".repeat(n)),
                metadata: artifacts.map(|n| value(n + 1)),
            })),
            Self::Fail { error, retryable } => Some(Report::Failed(Failure {
                error: value(*error),
                retryable: *retryable,
                retry_after_seconds: (*error % 3 == 0).then_some(7),
            })),
            Self::Renew(_) | Self::Release | Self::Start | Self::Progress(_) => None,
        }
    }
}

fn told(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

impl Order {
    fn new_task(&self) -> NewTask {
        NewTask {
            owner: person(self.owner),
            task_type: self.task_type.clone(),
            payload: value(self.payload),
            requirements: Requirements::new(self.capabilities.clone(), Vec::new()),
            priority: Some(self.priority),
            max_attempts: Some(self.max_attempts),
            retry_backoff_seconds: Some(self.backoff_s),
            idempotency_key: self.key.map(|key| key.to_string()),
            delay_ms: self.delay_ms,
            contract: self.contract(),
            ..echo()
        }
    }
}

impl Order {
    fn contract(&self) -> Contract {
        let (deadline, max_lease_expiries, length) = self.terms;
        let said = (length > 0).then(|| "i".repeat(length * 1_500));
        Contract {
            success_criteria: said.as_ref().map(|_| value(length)),
            instructions: said,
            deadline: deadline.map(|seconds| Deadline::After { seconds }),
            max_lease_expiries,
            ..Contract::default()
        }
    }
}

fn names(from: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(from, 0..=from.len())
        .prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

const TYPES: &[&str] = &["echo", "http"];
const CAPABILITIES: &[&str] = &["gpu", "net"];

fn order() -> impl Strategy<Value = Order> {
    let task_type = proptest::sample::select(TYPES).prop_map(str::to_owned);
    let delay = prop_oneof![3 => Just(0_i64), 1 => 1..120_000_i64];
    let key = proptest::option::weighted(0.3, 0..3_u8);
    let retries = (0..4_u32, prop_oneof![Just(0_u32), Just(30)]);
    let first = (0..8_usize, task_type, names(CAPABILITIES), -2..3_i32);
    let deadline = proptest::option::weighted(0.3, 1..600_i64);
    let terms = (deadline, proptest::option::of(0..3_u32), 0..4_usize);
    (first, delay, retries, key, 0..8_usize, terms).prop_map(
        |((owner, task_type, capabilities, priority), delay_ms, retries, key, payload, terms)| {
            Order {
                owner,
                task_type,
                capabilities,
                priority,
                delay_ms,
                max_attempts: retries.0,
                backoff_s: retries.1,
                key,
                payload,
                terms,
            }
        },
    )
}

fn claim() -> impl Strategy<Value = Act> {
    let accept = proptest::option::weighted(0.3, names(TYPES));
    // A limit of zero is left out: the edge never asks for it.
    (names(CAPABILITIES), accept, 1..4_usize, 1_000..400_000_i64).prop_map(
        |(capabilities, accept_types, limit, ttl_ms)| Act::Claim {
            capabilities,
            accept_types,
            limit,
            ttl_ms,
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        2 => (0..900_000_i64).prop_map(Call::Renew),
        1 => Just(Call::Release),
        2 => Just(Call::Start),
        1 => (0..8_usize).prop_map(Call::Progress),
        3 => (0..8_usize, proptest::option::of(0..3_usize))
            .prop_map(|(result, artifacts)| Call::Complete { result, artifacts }),
        3 => (0..8_usize, any::<bool>())
            .prop_map(|(error, retryable)| Call::Fail { error, retryable }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => order().prop_map(Act::Create),
        2 => proptest::collection::vec(order(), 1..6).prop_map(Act::CreateAll),
        5 => claim(),
        9 => (0..40_usize, proptest::bool::weighted(0.1), call())
            .prop_map(|(hold, stranger, call)| Act::Held { hold, stranger, call }),
        2 => proptest::collection::vec((0..40_usize, call()), 1..8).prop_map(Act::FinishAll),
        1 => (proptest::collection::vec(0..40_usize, 1..8), 0..900_000_i64)
            .prop_map(|(holds, ms)| Act::RenewAll(holds, ms)),
        1 => (0..40_usize).prop_map(Act::Cancel),
        4 => Just(Act::Sweep),
        1 => (0..8_usize).prop_map(Act::See),
        2 => proptest::collection::vec(1..30_u64, 0..8).prop_map(Act::Deliver),
        2 => (0..80_usize, 0..3_usize).prop_map(|(receipt, by)| Act::Acknowledge(receipt, by)),
        1 => Just(Act::Sign),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![0..50_i64, 0..40_000_i64, 0..400_000_i64];
    prop_oneof![
        40 => (0..2_usize, act()).prop_map(|(tenant, act)| Step::Do { tenant, act }),
        6 => wait.prop_map(Step::Wait),
        1 => Just(Step::Reopen),
    ]
}
