//! Many calls in one decision.
//!
//! Each call sees what the calls before it left, as if they had been decided one after the other. One that is refused
//! changes nothing and does not stop the others.

use std::collections::BTreeMap;

use crate::{
    ClassesInUse, Decision, Env, Ledger, Receipt, Rejection, Seq, Task, TaskId, TenantLoad, Usage,
    task::{
        Created, Finished, Hold, IdempotencyKey, Lease, NewTask, Report, create::add,
        finish::report, hold::extend,
    },
};

/// The answers to the calls of a batch, in their order.
pub type Answers<T> = Vec<Result<T, Rejection>>;

/// A report of the end of one task, under a lease.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The task.
    pub task_id: TaskId,
    /// The lease, and the worker that says that it holds it.
    pub hold: Hold,
    /// The report.
    pub report: Report,
}

/// Decides one call by itself. A rule must refuse before it appends anything.
pub(super) fn alone<T>(
    mut env: Env,
    head: Seq,
    rule: impl FnOnce(&mut Env, &mut Ledger) -> Result<T, Rejection>,
) -> Result<Decision<T>, Rejection> {
    let mut ledger = Ledger::after(head);
    let output = rule(&mut env, &mut ledger)?;
    Ok(Decision {
        changes: ledger.changes,
        output,
    })
}

/// Creates tasks, each as [`create`](super::create) does. `existing` are the tasks that idempotency keys of the batch
/// stand for; of two requests with one key, the later is the repetition of the earlier.
pub fn create_all(
    mut env: Env,
    head: Seq,
    requests: Vec<NewTask>,
    existing: Vec<Task>,
    mut usage: Usage,
    mut classes: ClassesInUse,
) -> Decision<Answers<Created>> {
    let mut ledger = Ledger::after(head);
    let named = existing
        .into_iter()
        .filter_map(|task| Some((IdempotencyKey::of(&task)?, task)));
    let mut named: BTreeMap<IdempotencyKey, Task> = named.collect();
    let mut create = |new: NewTask| -> Result<Created, Rejection> {
        let (key, class) = (new.key(), new.class());
        let first = key.as_ref().and_then(|key| named.get(key)).cloned();
        let load = TenantLoad {
            usage,
            classes: classes.of(&class),
        };
        let receipts = ledger.changes.receipts.len();
        let created = add(&mut env, &mut ledger, new, first, &load)?;
        if created.duplicate {
            return Ok(created);
        }
        usage.active_tasks += 1;
        usage.tasks_created += 1;
        let new_receipts = ledger.changes.receipts.iter().skip(receipts);
        usage.receipt_storage_bytes += new_receipts.map(Receipt::stored_bytes).sum::<u64>();
        classes.add(class);
        named.extend(key.map(|key| (key, created.task.clone())));
        Ok(created)
    };
    let output = requests.into_iter().map(&mut create).collect();
    Decision {
        changes: ledger.changes,
        output,
    }
}

/// Takes reports of the end of tasks, each as [`complete`](super::complete) or [`fail`](super::fail) does.
pub fn finish_all(
    mut env: Env,
    head: Seq,
    endings: Vec<Ending>,
    tasks: Vec<Task>,
) -> Decision<Answers<Finished>> {
    let mut held = HeldTasks::new(head, tasks);
    let finish = |ending: Ending| {
        let Ending { task_id, hold, .. } = ending;
        held.decide(task_id, |ledger, task| {
            report(&mut env, ledger, &hold, task, ending.report)
        })
    };
    let output = endings.into_iter().map(finish).collect();
    held.decision(output)
}

/// Extends leases, each as [`renew`](super::renew) does.
pub fn renew_all(
    mut env: Env,
    head: Seq,
    holds: &[(TaskId, Hold)],
    tasks: Vec<Task>,
    extend_by_ms: Option<i64>,
) -> Decision<Answers<Lease>> {
    let mut held = HeldTasks::new(head, tasks);
    let renew = |(task_id, hold): &(TaskId, Hold)| {
        held.decide(*task_id, |ledger, task| {
            extend(&mut env, ledger, hold, task, extend_by_ms)
        })
    };
    let output = holds.iter().map(renew).collect();
    held.decision(output)
}

/// Returns the leases that are still good, without a change to any.
pub fn check_all(
    env: &Env,
    head: Seq,
    holds: &[(TaskId, Hold)],
    tasks: Vec<Task>,
) -> Decision<Answers<Lease>> {
    let mut held = HeldTasks::new(head, tasks);
    let check = |(task_id, hold): &(TaskId, Hold)| {
        held.decide(*task_id, |_, task| hold.check(env, &task).cloned())
    };
    let output = holds.iter().map(check).collect();
    held.decision(output)
}

/// The tasks of a batch, as the calls before left them.
struct HeldTasks {
    ledger: Ledger,
    loaded: BTreeMap<TaskId, Task>,
    /// For each task that was written, the place of its last write among the changes.
    written: BTreeMap<TaskId, usize>,
}

impl HeldTasks {
    fn new(head: Seq, tasks: Vec<Task>) -> Self {
        Self {
            ledger: Ledger::after(head),
            loaded: tasks.into_iter().map(|task| (task.id, task)).collect(),
            written: BTreeMap::new(),
        }
    }

    fn decide<T>(
        &mut self,
        id: TaskId,
        rule: impl FnOnce(&mut Ledger, Task) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let written = self.written.get(&id);
        let written = written.and_then(|place| self.ledger.changes.tasks.get(*place));
        let task = match written {
            Some(write) => &write.task,
            None => self.loaded.get(&id).ok_or(Rejection::TaskNotFound)?,
        };
        let task = task.clone();
        let place = self.ledger.changes.tasks.len();
        let answer = rule(&mut self.ledger, task)?;
        if self.ledger.changes.tasks.len() > place {
            self.written.insert(id, place);
        }
        Ok(answer)
    }

    fn decision<T>(self, output: T) -> Decision<T> {
        Decision {
            changes: self.ledger.changes,
            output,
        }
    }
}
