//! The plane of tasks: the rows that its decisions declare and are shown.

use asyncgate_core::{
    Changes, Class, ClassesInUse, Decision, Env, Head, Json, PrincipalKey, Reach, Receipt,
    ReceiptId, Rejection, Relationship, Seq, Task, TaskId, TenantLoad, Usage,
    identity::Quota,
    metering::Metered,
    task::{
        self, Answers, Claim, Claimed, Created, Ending, Finished, Hold, IdempotencyKey, Lease,
        NewTask,
    },
};

use crate::{Decided, Declared, Job, Plane, Work, fair::Lane};

/// Tasks, their receipts and obligations.
#[derive(Debug)]
pub enum Tasks {}

impl Plane for Tasks {
    type Reads = ReadSet;
    type Snapshot = Snapshot;
    type Changes = Changes;
    type Rejection = Rejection;

    fn is_empty(changes: &Changes) -> bool {
        changes.is_empty()
    }

    fn receipts(changes: &Changes) -> usize {
        changes.receipts.len()
    }

    fn work(job: Job<Self>) -> Work {
        Work::Tasks(job)
    }
}

/// The rows that a decision needs. What is not declared is not loaded.
#[derive(Debug, Clone, Default)]
pub struct ReadSet {
    /// Tasks by id. Those that do not exist are missing from the snapshot.
    pub tasks: Vec<TaskId>,
    /// The tasks that owners' idempotency keys stand for.
    pub keyed: Vec<IdempotencyKey>,
    /// The number of tasks to be created. They are not loaded, but they are rows that the job writes.
    pub created: usize,
    /// Ready tasks that a worker can serve, by priority, then age, and how many at most.
    pub claimable: Option<(Reach, usize)>,
    /// A receipt by id.
    pub receipt: Option<ReceiptId>,
    /// The principal whose acknowledgement of that receipt is to be found.
    pub acknowledged_by: Option<PrincipalKey>,
    /// The relationship with a principal.
    pub relationship: Option<PrincipalKey>,
    /// The classes of tasks to be created.
    pub classes: Vec<Class>,
    /// The number of receipts about a task, counted up to a bound.
    pub receipts_about: Option<(TaskId, u64)>,
    /// The last usage event, and the oldest ones, this many at most.
    pub metered: Option<usize>,
}

impl ReadSet {
    /// Declares what the creation of a task needs.
    pub fn to_create(new: &NewTask) -> Self {
        Self::to_create_all(std::slice::from_ref(new))
    }

    /// Declares what the creation of tasks needs.
    pub fn to_create_all(requests: &[NewTask]) -> Self {
        Self {
            created: requests.len(),
            keyed: each_once(requests.iter().filter_map(NewTask::key)),
            classes: each_once(requests.iter().map(NewTask::class)),
            ..Self::default()
        }
    }

    /// Declares what calls about held tasks need.
    pub fn to_hold(tasks: impl Iterator<Item = TaskId>) -> Self {
        Self {
            tasks: each_once(tasks),
            ..Self::default()
        }
    }

    /// Declares what a report of progress needs, within a quota of receipts for each task.
    pub fn to_report(id: TaskId, quota: Quota) -> Self {
        Self {
            tasks: vec![id],
            // Without a quota nobody asks how many there are.
            receipts_about: match quota {
                Quota::None => None,
                Quota::AtMost(most) => Some((id, most)),
            },
            ..Self::default()
        }
    }
}

/// Returns things in order, without those that occur again.
fn each_once<T: Ord>(things: impl Iterator<Item = T>) -> Vec<T> {
    let mut things: Vec<T> = things.collect();
    things.sort_unstable();
    things.dedup();
    things
}

impl Declared for ReadSet {
    type Plane = Tasks;

    fn lane(&self) -> Lane {
        Lane::Tasks
    }

    fn rows(&self) -> usize {
        let claimed = self.claimable.as_ref().map_or(0, |(_, limit)| *limit);
        self.tasks.len() + self.created + claimed + self.metered.unwrap_or(0)
    }
}

/// The rows that were declared, as they stand.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The place of the ledger's last receipt, 0 when it is empty.
    pub head: Seq,
    /// The whole of the ledger's head.
    pub ledger: Head,
    /// What the tenant uses.
    pub usage: Usage,
    /// The declared tasks that exist, in the order declared.
    pub tasks: Vec<Task>,
    /// The tasks behind the idempotency keys, as many as there are.
    pub keyed: Vec<Task>,
    /// The claimable tasks, in claim order.
    pub claimable: Vec<Task>,
    /// The receipt.
    pub receipt: Option<Receipt>,
    /// The receipt by which the principal acknowledged it.
    pub acknowledgement: Option<ReceiptId>,
    /// The relationship.
    pub relationship: Option<Relationship>,
    /// The classes in use, as the declared classes see them.
    pub classes: ClassesInUse,
    /// The number of receipts about the declared task, or the bound if there are more.
    pub receipts_about: u64,
    /// The declared usage events.
    pub metered: Metered,
}

impl Snapshot {
    /// Decides on the creation of a task from what [`ReadSet::to_create`] declared.
    pub fn create(mut self, env: Env, new: NewTask) -> Decided<Tasks, Created> {
        let load = TenantLoad {
            usage: self.usage,
            classes: self.classes.of(&new.class()),
        };
        task::create(env, self.head, new, self.keyed.pop(), load)
    }

    /// Decides on the creation of tasks from what [`ReadSet::to_create_all`] declared.
    pub fn create_all(self, env: Env, requests: Vec<NewTask>) -> Decision<Answers<Created>> {
        let (usage, classes) = (self.usage, self.classes);
        task::create_all(env, self.head, requests, self.keyed, usage, classes)
    }

    /// Takes reports of the end of tasks that [`ReadSet::to_hold`] declared.
    pub fn finish_all(self, env: Env, endings: Vec<Ending>) -> Decision<Answers<Finished>> {
        task::finish_all(env, self.head, endings, self.tasks)
    }

    /// Extends the leases of tasks that [`ReadSet::to_hold`] declared.
    pub fn renew_all(
        self,
        env: Env,
        holds: &[(TaskId, Hold)],
        extend_by_ms: Option<i64>,
    ) -> Decision<Answers<Lease>> {
        task::renew_all(env, self.head, holds, self.tasks, extend_by_ms)
    }

    /// Looks which leases of tasks that [`ReadSet::to_hold`] declared are still good.
    pub fn check_all(self, env: &Env, holds: &[(TaskId, Hold)]) -> Decision<Answers<Lease>> {
        task::check_all(env, self.head, holds, self.tasks)
    }

    /// Leases the claimable tasks that were declared.
    pub fn claim(self, env: Env, claim: &Claim) -> Decision<Claimed> {
        let held = self.usage.concurrent_leases;
        task::claim(env, self.head, claim, self.claimable, held)
    }

    /// Records progress of the task that [`ReadSet::to_report`] declared.
    pub fn progress(mut self, env: Env, hold: &Hold, value: Json) -> Decided<Tasks, ()> {
        let task = self.tasks.pop().ok_or(Rejection::TaskNotFound)?;
        task::progress(env, self.head, hold, task, value, self.receipts_about)
    }
}
