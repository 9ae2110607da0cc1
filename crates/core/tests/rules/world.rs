//! A tiny world: the rows that a store would keep, and the checks that every decision must pass.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use asyncgate_core::{
    Changes, Class, ClassLoad, Decision, Env, Ids, Json, ObligationKey, Policy, Principal,
    PrincipalKind, Receipt, ReceiptType, Rejection, Seq, Stamp, Task, TaskId, TaskWrite,
    TenantLoad, Timestamp, Usage,
    identity::Quotas,
    obligation,
    receipt::{MAX_BODY_BYTES, MAX_PARENTS, is_terminal},
    task::{
        self, Claim, Completion, Created, Failure, Finished, Hold, IdempotencyKey, Lease, NewTask,
        Status, Swept,
    },
};

/// Rows of one tenant, and a clock that only the test moves.
#[derive(Debug)]
pub struct World {
    pub now: Timestamp,
    pub policy: Policy,
    pub quotas: Quotas,
    pub tasks: BTreeMap<TaskId, Task>,
    pub ledger: Vec<Receipt>,
    pub open: BTreeSet<ObligationKey>,
    /// The ids of the next decision, if it must have certain ones.
    pub ids: Option<Ids>,
    decisions: u64,
}

pub fn agent(id: &str) -> Principal {
    Principal::new(PrincipalKind::Agent, id)
}

pub fn worker(id: &str) -> Principal {
    Principal::new(PrincipalKind::Worker, id)
}

pub fn json(text: &str) -> Json {
    Json::from_text(text.to_owned()).unwrap()
}

/// Builds a JSON string of exactly `bytes` bytes, quotes included.
pub fn json_of_size(bytes: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

/// Builds the smallest request that a tasker can make.
pub fn echo() -> NewTask {
    NewTask::new(agent("alice"), "echo", json(r#"{"say":"hello"}"#))
}

/// Builds a success without proof.
pub fn bare() -> Completion {
    Completion {
        result: Some(json(r#"{"answer":42}"#)),
        ..Completion::default()
    }
}

/// Builds a success that says where its result is.
pub fn proven() -> Completion {
    Completion {
        artifacts: Some(json(r#"[{"type":"s3","url":"s3://bucket/result"}]"#)),
        ..bare()
    }
}

pub fn failure(retryable: bool) -> Failure {
    Failure {
        error: json(r#"{"message":"no luck"}"#),
        retryable,
        retry_after_seconds: None,
    }
}

pub fn key_of(task: &Task) -> ObligationKey {
    ObligationKey {
        owner: task.created_by.key(),
        seq: task.assignment.seq(),
    }
}

impl World {
    /// Builds a world without jitter, so that an expired task is ready at once.
    pub fn new() -> Self {
        Self::with(Policy {
            expiry_jitter_ms: 0,
            ..Policy::default()
        })
    }

    pub fn with(policy: Policy) -> Self {
        Self {
            now: Timestamp::from_millis(1_767_610_800_000),
            policy,
            quotas: Quotas::default(),
            tasks: BTreeMap::new(),
            ledger: Vec::new(),
            open: BTreeSet::new(),
            ids: None,
            decisions: 0,
        }
    }

    pub fn wait_ms(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    pub fn env(&mut self) -> Env {
        self.decisions += 1;
        Env {
            now: self.now,
            ids: self
                .ids
                .take()
                .unwrap_or_else(|| Ids::new(Stamp::from_u64(self.decisions), self.decisions)),
            instance: Arc::from("asyncgate-1"),
            policy: Arc::new(self.policy.clone()),
            quotas: Some(Arc::new(self.quotas)),
        }
    }

    /// Runs one decision as a store would: a refusal writes nothing.
    pub fn run<T>(
        &mut self,
        decide: impl FnOnce(Env, Seq) -> Result<Decision<T>, Rejection>,
    ) -> Result<T, Rejection> {
        let (env, head) = (self.env(), self.ledger.len() as Seq);
        let Decision { changes, output } = decide(env, head)?;
        self.apply(changes);
        Ok(output)
    }

    /// Returns what the tenant uses, counted anew.
    pub fn usage(&self) -> Usage {
        let count = |counts: fn(Status) -> bool| {
            let counted = self.tasks.values().filter(|task| counts(task.status()));
            counted.count() as u64
        };
        Usage {
            active_tasks: count(|status| !status.is_terminal()),
            concurrent_leases: count(Status::is_held),
            receipt_storage_bytes: self.ledger.iter().map(Receipt::stored_bytes).sum(),
            tasks_created: self.tasks.len() as u64,
            lease_seconds: 0,
        }
    }

    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[&id]
    }

    pub fn status(&self, id: TaskId) -> Status {
        self.task(id).status()
    }

    pub fn is_open(&self, id: TaskId) -> bool {
        self.open.contains(&key_of(self.task(id)))
    }

    pub fn receipts(&self, id: TaskId, receipt_type: ReceiptType) -> Vec<&Receipt> {
        self.ledger
            .iter()
            .filter(|receipt| receipt.task_id == Some(id) && receipt.receipt_type == receipt_type)
            .collect()
    }

    /// Returns the kinds of the anomalies that were recorded about a task.
    pub fn anomalies(&self, id: TaskId) -> Vec<String> {
        self.receipts(id, ReceiptType::SystemAnomaly)
            .into_iter()
            .map(|receipt| {
                field(&receipt.body, "kind")
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .into()
            })
            .collect()
    }

    /// Returns the task that an owner's name stands for.
    pub fn named(&self, key: &IdempotencyKey) -> Option<&Task> {
        let mut tasks = self.tasks.values();
        tasks.find(|task| IdempotencyKey::of(task).as_ref() == Some(key))
    }

    /// Returns the classes of the tasks that have not ended.
    pub fn classes(&self) -> BTreeSet<Class> {
        let live = self.tasks.values().filter(|task| task.end().is_none());
        live.map(Task::class).collect()
    }

    pub fn try_create(&mut self, new: NewTask) -> Result<Created, Rejection> {
        let existing = new.key().and_then(|key| self.named(&key).cloned());
        let classes = self.classes();
        let load = TenantLoad {
            usage: self.usage(),
            classes: ClassLoad {
                classes: classes.len(),
                is_known: classes.contains(&new.class()),
            },
        };
        self.run(|env, head| task::create(env, head, new, existing, load))
    }

    pub fn create(&mut self, new: NewTask) -> TaskId {
        self.try_create(new).unwrap().task.id
    }

    /// Offers the tasks to the worker, as a store would after finding them.
    pub fn claim(&mut self, claim: &Claim, ids: &[TaskId]) -> Vec<Task> {
        let candidates = ids.iter().map(|id| self.task(*id).clone()).collect();
        let held = self.usage().concurrent_leases;
        self.run(|env, head| Ok(task::claim(env, head, claim, candidates, held)))
            .unwrap()
            .leased
    }

    /// Leases one ready task to the worker `bob` for the default time.
    pub fn lease(&mut self, id: TaskId) -> Hold {
        let claim = Claim {
            worker: worker("bob"),
            capabilities: Vec::new(),
            lease_ttl_ms: None,
            expected_duration_seconds: None,
        };
        let leased = self.claim(&claim, &[id]);
        assert_eq!(leased.len(), 1, "the task is not ready");
        Hold {
            worker: claim.worker,
            lease_id: leased[0].lease().unwrap().id,
        }
    }

    pub fn renew(
        &mut self,
        hold: &Hold,
        id: TaskId,
        extend_by_ms: Option<i64>,
    ) -> Result<Lease, Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::renew(env, head, hold, task, extend_by_ms))
    }

    pub fn release(&mut self, hold: &Hold, id: TaskId) -> Result<(), Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::release(env, head, hold, task))
    }

    pub fn start(&mut self, hold: &Hold, id: TaskId) -> Result<(), Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::start(env, head, hold, task))
    }

    pub fn progress(&mut self, hold: &Hold, id: TaskId, value: Json) -> Result<(), Rejection> {
        let task = self.task(id).clone();
        let about = |receipt: &&Receipt| receipt.task_id == Some(id);
        let receipts = self.ledger.iter().filter(about).count() as u64;
        self.run(|env, head| task::progress(env, head, hold, task, value, receipts))
    }

    pub fn complete(
        &mut self,
        hold: &Hold,
        id: TaskId,
        completion: Completion,
    ) -> Result<Finished, Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::complete(env, head, hold, task, completion))
    }

    pub fn fail(
        &mut self,
        hold: &Hold,
        id: TaskId,
        failure: Failure,
    ) -> Result<Finished, Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::fail(env, head, hold, task, failure))
    }

    pub fn cancel(&mut self, id: TaskId, reason: Option<&str>) -> Result<Status, Rejection> {
        let task = self.task(id).clone();
        self.run(|env, head| task::cancel(env, head, task, &agent("alice"), reason))
    }

    /// Sweeps every task, due or not: the rule itself must skip those that are not due.
    pub fn sweep(&mut self) -> Swept {
        let all = self.tasks.values().cloned().collect();
        self.run(|env, head| Ok(task::sweep(env, head, all)))
            .unwrap()
    }

    /// Lets the current lease of a task run out, and the jitter too.
    pub fn expire(&mut self, id: TaskId) {
        let until = self.task(id).lease().unwrap().expires_at;
        self.now = until.plus_millis(self.policy.lease_grace_ms);
        self.sweep();
        self.now = self.now.max(self.task(id).next_eligible_at);
        self.sweep();
    }

    fn apply(&mut self, changes: Changes) {
        for write in changes.tasks {
            self.write(write);
        }
        for receipt in changes.receipts {
            self.append(receipt);
        }
        for opened in changes.opened {
            assert!(self.open.insert(opened), "an obligation was opened twice");
        }
        for closed in changes.closed {
            assert!(self.open.remove(&closed), "nothing open was discharged");
        }
        self.check();
    }

    fn write(&mut self, write: TaskWrite) {
        let TaskWrite { task, before } = write;
        let old = self.tasks.insert(task.id, task.clone());
        assert_eq!(
            before,
            old.as_ref().map(Task::standing),
            "a store would look for the task in the wrong place"
        );
        let Some(old) = old else { return };
        assert_eq!(task.created_by, old.created_by, "ownership is immutable");
        assert_eq!(task.spec, old.spec);
        assert_eq!(task.created_at, old.created_at);
        assert_eq!(task.assignment, old.assignment);
        if let (Some(was), now) = (old.end(), task.end()) {
            let now = now.unwrap();
            assert!(!was.discharged, "an end that is proven never changes");
            assert_eq!(
                (now.outcome, now.at, &now.by, &now.result),
                (was.outcome, was.at, &was.by, &was.result),
                "only proof may be added to an end"
            );
            assert_ne!(
                now.receipt, was.receipt,
                "and its receipt is the one that proves it"
            );
        }
    }

    fn append(&mut self, receipt: Receipt) {
        assert_eq!(receipt.seq(), self.ledger.len() as Seq + 1, "a gap");
        assert_eq!(receipt.created_at, self.now);
        assert!(
            receipt.body.len() <= MAX_BODY_BYTES,
            "{} has a body of {} bytes",
            receipt.receipt_type.as_str(),
            receipt.body.len()
        );
        assert!(receipt.parents.len() <= MAX_PARENTS);
        self.ledger.push(receipt);
    }

    /// Checks what must hold after every decision.
    fn check(&self) {
        let open: BTreeSet<_> = obligation::open(&self.ledger).into_iter().collect();
        assert_eq!(open, self.open, "the index and the ledger disagree");
        let mut once = HashSet::new();
        for receipt in &self.ledger {
            let emitted_once = matches!(
                receipt.receipt_type,
                ReceiptType::TaskAccepted | ReceiptType::TaskCompleted | ReceiptType::TaskFailed
            );
            assert!(
                !emitted_once || once.insert(receipt.key()),
                "the same receipt was written twice: {receipt:?}"
            );
            if is_terminal(receipt.receipt_type) {
                for id in &receipt.parents {
                    let parent = &self.ledger[id.seq() as usize - 1];
                    assert_eq!(parent.id, *id, "a parent that does not exist");
                    assert_eq!(parent.receipt_type, ReceiptType::TaskAssigned);
                    assert_eq!(parent.task_id, receipt.task_id);
                }
            }
        }
    }
}

/// Returns a field of a receipt's body.
pub fn field(body: &Json, name: &str) -> Option<serde_json::Value> {
    let body: serde_json::Value = serde_json::from_str(body.text()).unwrap();
    body.get(name).cloned()
}
