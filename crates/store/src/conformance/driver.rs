//! A driver takes a store through the real rules, with a clock and ids that only the test moves.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use asyncgate_core::{
    Changes, ClassLoad, Decision, Env, Head, Ids, Json, Policy, Principal, PrincipalKind, Reach,
    Receipt, ReceiptId, ReceiptType, Rejection, Relationship, Stamp, Task, TaskId, TenantId,
    Timestamp,
    identity::{QuotaName, Quotas},
    receipt::{SignedHead, acknowledge, record_signature},
    task::{
        self, Claim, Completion, Created, Failure, Finished, Hold, Lease, NewTask, Status, Swept,
    },
};

use crate::{
    Decided, Declared, DeliveredReceipt, Error, Job, Plane, ReadSet, ReceiptFilter, SeqPage,
    Snapshot, Store, Tasks, memory::MemoryStore, transact,
};

/// A page with more receipts than any test writes.
pub(super) const EVERYTHING: SeqPage = SeqPage {
    after: 0,
    limit: 100_000,
};

/// A driver of one tenant of a store. Two drivers that were made alike and do the same make the same ids.
pub struct Driver {
    store: Arc<dyn Store>,
    /// The tenant in which everything is done.
    pub tenant: TenantId,
    /// The time at which decisions are asked for.
    pub now: Timestamp,
    /// The settings that rules read.
    pub policy: Policy,
    /// The quotas of the tenant.
    pub quotas: Quotas,
    decisions: u64,
    decided: Arc<Mutex<Changes>>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("tenant", &self.tenant)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Makes an agent with this name.
pub fn agent(id: &str) -> Principal {
    Principal::new(PrincipalKind::Agent, id)
}

/// Makes a worker with this name.
pub fn worker(id: &str) -> Principal {
    Principal::new(PrincipalKind::Worker, id)
}

/// Makes a JSON value of its text.
pub fn json(text: &str) -> Json {
    Json::from_text(text.to_owned()).unwrap()
}

/// Makes the least change that a store can keep: a receipt at this place.
pub fn receipt_at(seq: u64) -> Changes {
    let receipt = Receipt {
        id: Ids::new(Stamp::from_u64(seq), seq).receipt(seq),
        receipt_type: ReceiptType::SystemAnomaly,
        created_at: Timestamp::from_millis(1),
        from: agent("alice"),
        to: agent("alice"),
        task_id: None,
        lease_id: None,
        parents: Vec::new(),
        body: json("{}"),
        instance: "asyncgate-1".into(),
    };
    Changes {
        receipts: vec![receipt],
        ..Changes::default()
    }
}

/// Makes a task with the least that a tasker must say.
pub fn echo() -> NewTask {
    NewTask::new(agent("alice"), "echo", json(r#"{"say":"hello"}"#))
}

/// Makes a success without any proof.
pub fn bare() -> Completion {
    Completion {
        result: Some(json(r#"{"answer":42}"#)),
        ..Completion::default()
    }
}

/// Makes a success that says where its result is.
pub fn proven() -> Completion {
    Completion {
        artifacts: Some(json(r#"[{"type":"s3","url":"s3://bucket/result"}]"#)),
        ..bare()
    }
}

/// Makes a failure.
pub fn failure(retryable: bool) -> Failure {
    Failure {
        error: json(r#"{"message":"no luck"}"#),
        retryable,
        retry_after_seconds: None,
    }
}

impl Driver {
    /// Makes a driver of the first tenant, without jitter, so that an expired task is ready at once.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::of_tenant(store, 1)
    }

    /// Makes a driver of another tenant. Its ids are those that any other driver would make.
    pub fn of_tenant(store: Arc<dyn Store>, number: u8) -> Self {
        Self {
            store,
            tenant: TenantId::from_bytes([number; 16]),
            now: Timestamp::from_millis(1_767_610_800_000),
            policy: Policy {
                expiry_jitter_ms: 0,
                ..Policy::default()
            },
            quotas: Quotas::default(),
            decisions: 0,
            decided: Arc::default(),
        }
    }

    /// Returns the store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Lets go of the store, so that it can be closed and opened again.
    pub fn detach(&mut self) {
        self.store = Arc::new(MemoryStore::new());
    }

    /// Takes another handle of the same rows.
    pub fn attach(&mut self, store: Arc<dyn Store>) {
        self.store = store;
    }

    /// Lets time pass.
    pub fn wait_ms(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    /// Returns the surroundings of the next decision.
    pub fn env(&mut self) -> Env {
        self.decisions += 1;
        Env {
            now: self.now,
            ids: Ids::new(Stamp::from_u64(self.decisions), self.decisions),
            instance: Arc::from("asyncgate-1"),
            policy: Arc::new(self.policy.clone()),
            quotas: Some(Arc::new(self.quotas)),
        }
    }

    /// Runs one decision; a failure of the store fails the test.
    pub async fn decide<T: Send + 'static>(
        &mut self,
        reads: ReadSet,
        decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> Result<T, Rejection> {
        self.try_decide(reads, decide).await.unwrap()
    }

    /// Runs one decision.
    pub async fn try_decide<T: Send + 'static>(
        &mut self,
        reads: ReadSet,
        decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> Result<Result<T, Rejection>, Error> {
        let decided = Arc::clone(&self.decided);
        self.transact(reads, decided, decide).await
    }

    /// Runs one decision of any plane, and keeps what it wants written in `decided`.
    pub(super) async fn transact<R, P, T>(
        &mut self,
        reads: R,
        decided: Arc<Mutex<P::Changes>>,
        mut decide: impl FnMut(Env, P::Snapshot) -> Decided<P, T> + Send + 'static,
    ) -> Result<Result<T, P::Rejection>, Error>
    where
        R: Declared<Plane = P>,
        P: Plane<Reads = R, Changes: Clone>,
        T: Send + 'static,
    {
        let (env, tenant) = (self.env(), self.tenant);
        let run = transact(&*self.store, tenant, env, 0, reads, move |env, snapshot| {
            let decision = decide(env, snapshot)?;
            *decided.lock().unwrap() = decision.changes.clone();
            Ok(decision)
        });
        Ok(run.await?.map(|committed| committed.output))
    }

    /// Returns the changes of the last decision that was not refused.
    pub fn decided(&self) -> Changes {
        self.decided.lock().unwrap().clone()
    }

    /// Returns what a decision would be given, without deciding anything.
    pub async fn load(&self, reads: ReadSet) -> Snapshot {
        self.show(reads).await.1
    }

    /// Returns the time at which a decision would be made now.
    pub async fn decided_at(&self) -> Timestamp {
        self.show(ReadSet::default()).await.0
    }

    /// Returns what a decision of any plane would be given, without deciding anything.
    pub(super) async fn show<R, P>(&self, reads: R) -> (Timestamp, P::Snapshot)
    where
        R: Declared<Plane = P>,
        P: Plane<Reads = R>,
    {
        let (seen, shown) = std::sync::mpsc::channel();
        let job = Job::<P> {
            tenant: self.tenant,
            reads,
            now: self.now,
            weight: 0,
            decide: Box::new(move |now, snapshot| {
                // Only the last call counts, and the receiver is still there.
                let _ = seen.send((now, snapshot));
                None
            }),
        };
        self.store.transact(job.into()).await.unwrap();
        shown.try_iter().last().unwrap()
    }

    /// Writes changes that no rule decided.
    pub async fn write(&self, changes: Changes) {
        let job = Job::<Tasks> {
            tenant: self.tenant,
            reads: ReadSet::default(),
            now: self.now,
            weight: 0,
            decide: Box::new(move |_, _| Some(changes.clone())),
        };
        self.store.transact(job.into()).await.unwrap();
    }

    /// Creates a task, or finds the one behind its key.
    pub async fn try_create(&mut self, new: NewTask) -> Result<Created, Rejection> {
        self.decide(ReadSet::to_create(&new), move |env, snapshot| {
            snapshot.create(env, new.clone())
        })
        .await
    }

    /// Returns the classes in use as a new task sees them.
    pub async fn class_load(&self, new: &NewTask) -> ClassLoad {
        let seen = self.load(ReadSet::to_create(new)).await;
        seen.classes.of(&new.class())
    }

    /// Creates a task.
    pub async fn create(&mut self, new: NewTask) -> TaskId {
        self.try_create(new).await.unwrap().task.id
    }

    /// Claims up to `limit` tasks within a reach for `bob`, for the default time.
    pub async fn claim(&mut self, reach: Reach, limit: usize) -> Vec<Task> {
        self.claim_as(worker("bob"), reach, limit, None).await
    }

    /// Claims up to `limit` tasks within a reach.
    pub async fn claim_as(
        &mut self,
        worker: Principal,
        reach: Reach,
        limit: usize,
        lease_ttl_ms: Option<i64>,
    ) -> Vec<Task> {
        let claim = Claim {
            worker,
            capabilities: reach.capabilities.clone(),
            lease_ttl_ms,
            expected_duration_seconds: None,
        };
        let reads = ReadSet {
            claimable: Some((reach, limit)),
            ..ReadSet::default()
        };
        self.decide(reads, move |env, snapshot| Ok(snapshot.claim(env, &claim)))
            .await
            .unwrap()
            .leased
    }

    /// Leases the one task that is first in line for a worker without capabilities.
    pub async fn lease(&mut self) -> (TaskId, Hold) {
        let leased = self.claim(Reach::default(), 1).await;
        assert_eq!(leased.len(), 1, "no task is ready");
        let hold = Hold {
            worker: worker("bob"),
            lease_id: leased[0].lease().unwrap().id,
        };
        (leased[0].id, hold)
    }

    /// Runs a decision about one task, which may not exist.
    pub async fn on<T: Send + 'static>(
        &mut self,
        id: TaskId,
        mut decide: impl FnMut(Env, u64, Task) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> Result<T, Rejection> {
        let reads = ReadSet {
            tasks: vec![id],
            ..ReadSet::default()
        };
        self.decide(reads, move |env, mut snapshot| {
            let task = snapshot.tasks.pop().ok_or(Rejection::TaskNotFound)?;
            decide(env, snapshot.head, task)
        })
        .await
    }

    /// Renews a lease.
    pub async fn renew(&mut self, hold: &Hold, id: TaskId, ms: i64) -> Result<Lease, Rejection> {
        let hold = hold.clone();
        self.on(id, move |env, head, task| {
            task::renew(env, head, &hold, task, Some(ms))
        })
        .await
    }

    /// Gives a task back.
    pub async fn release(&mut self, hold: &Hold, id: TaskId) -> Result<(), Rejection> {
        let hold = hold.clone();
        self.on(id, move |env, head, task| {
            task::release(env, head, &hold, task)
        })
        .await
    }

    /// Begins a task.
    pub async fn start(&mut self, hold: &Hold, id: TaskId) -> Result<(), Rejection> {
        let hold = hold.clone();
        self.on(id, move |env, head, task| {
            task::start(env, head, &hold, task)
        })
        .await
    }

    /// Reports progress.
    pub async fn progress(&mut self, hold: &Hold, id: TaskId, v: Json) -> Result<(), Rejection> {
        let hold = hold.clone();
        let reads = ReadSet::to_report(id, self.quotas.get(QuotaName::ReceiptsPerTask));
        self.decide(reads, move |env, snapshot| {
            snapshot.progress(env, &hold, v.clone())
        })
        .await
    }

    /// Reports success.
    pub async fn complete(
        &mut self,
        hold: &Hold,
        id: TaskId,
        completion: Completion,
    ) -> Result<Finished, Rejection> {
        let hold = hold.clone();
        self.on(id, move |env, head, task| {
            task::complete(env, head, &hold, task, completion.clone())
        })
        .await
    }

    /// Reports a failure.
    pub async fn fail(
        &mut self,
        hold: &Hold,
        id: TaskId,
        failure: Failure,
    ) -> Result<Finished, Rejection> {
        let hold = hold.clone();
        self.on(id, move |env, head, task| {
            task::fail(env, head, &hold, task, failure.clone())
        })
        .await
    }

    /// Calls a task off.
    pub async fn cancel(&mut self, id: TaskId) -> Result<Status, Rejection> {
        self.on(id, |env, head, task| {
            task::cancel(env, head, task, &agent("alice"), Some("enough"))
        })
        .await
    }

    /// Moves the tasks of this tenant that are due.
    pub async fn sweep(&mut self) -> Swept {
        let due = self.store.due(self.now, 100_000).await.unwrap();
        let of_tenant = due.into_iter().filter(|(tenant, _)| *tenant == self.tenant);
        let mut tasks: Vec<TaskId> = of_tenant.map(|(_, task)| task).collect();
        // Two stores may list tasks with one deadline in different orders.
        tasks.sort_unstable();
        let reads = ReadSet {
            tasks,
            ..ReadSet::default()
        };
        self.decide(reads, |env, snapshot| {
            Ok(task::sweep(env, snapshot.head, snapshot.tasks))
        })
        .await
        .unwrap()
    }

    /// Records that a principal was seen.
    pub async fn see(&mut self, principal: Principal) -> Relationship {
        let reads = ReadSet {
            relationship: Some(principal.key()),
            ..ReadSet::default()
        };
        self.decide(reads, move |env, snapshot| {
            let known = snapshot.relationship;
            let seen = Relationship::seen(known, principal.clone(), env.now, &env.policy);
            Ok(Decision {
                changes: Changes {
                    relationship: Some(seen.clone()),
                    ..Changes::default()
                },
                output: seen,
            })
        })
        .await
        .unwrap()
    }

    /// Marks receipts as handed over now.
    pub async fn deliver(&mut self, seqs: Vec<u64>) {
        let delivered = asyncgate_core::Delivery { seqs, at: self.now };
        self.write(Changes {
            delivered: Some(delivered),
            ..Changes::default()
        })
        .await;
    }

    /// Acknowledges a receipt.
    pub async fn acknowledge(
        &mut self,
        id: ReceiptId,
        by: Principal,
    ) -> Result<ReceiptId, Rejection> {
        let reads = ReadSet {
            receipt: Some(id),
            acknowledged_by: Some(by.key()),
            ..ReadSet::default()
        };
        self.decide(reads, move |env, snapshot| {
            let receipt = snapshot.receipt.ok_or(Rejection::ReceiptNotFound)?;
            let before = snapshot.acknowledgement;
            Ok(acknowledge(env, snapshot.head, &receipt, &by, before))
        })
        .await
    }

    /// Records that the server signed the head of the ledger. The signature is not a real one.
    pub async fn sign(&mut self) -> ReceiptId {
        self.decide(ReadSet::default(), |env, snapshot| {
            let signed = SignedHead {
                head: snapshot.ledger,
                signed_at: env.now,
                public_key: [1; 32],
                signature: [2; 64],
            };
            Ok(record_signature(env, snapshot.head, &signed))
        })
        .await
        .unwrap()
    }

    /// Returns the head of the ledger.
    pub async fn head(&self) -> Head {
        self.store.head(self.tenant).await.unwrap()
    }

    /// Returns the task, if there is one.
    pub async fn task(&self, id: TaskId) -> Option<Task> {
        self.store.task(self.tenant, id).await.unwrap()
    }

    /// Returns the whole ledger.
    pub async fn ledger(&self) -> Vec<Receipt> {
        let all = self.receipts(ReceiptFilter::All, EVERYTHING).await;
        all.into_iter().map(|found| found.receipt).collect()
    }

    /// Returns a page of receipts.
    pub async fn receipts(&self, filter: ReceiptFilter, page: SeqPage) -> Vec<DeliveredReceipt> {
        let found = self.store.receipts(self.tenant, filter, page).await;
        found.unwrap()
    }

    /// Returns the places of all open obligations of a principal.
    pub async fn open(&self, owner: &Principal) -> Vec<u64> {
        let open = self.store.obligations(self.tenant, owner.key(), EVERYTHING);
        open.await
            .unwrap()
            .iter()
            .map(|found| found.receipt.seq())
            .collect()
    }
}
