//! The operations, one file each: decode is done, authorisation by role is done; what is left is to
//! name the principal, declare what to load, and hand the rule its data.

mod ack_receipt;
mod admission;
mod bootstrap;
mod cancel_task;
mod complete;
mod create_task;
mod fail;
mod get_config;
mod get_health;
mod get_ledger_head;
mod get_receipt;
mod get_task;
mod lease_next;
mod list_ledger;
mod list_open_obligations;
mod list_receipts;
mod list_tasks;
mod mailbox;
mod read_ledger;
mod release_lease;
mod renew_lease;
mod report_progress;
mod start_task;

use asyncgate_api::{Operation, PrincipalKind};
use asyncgate_core::{Rejection, Task, TaskId, task::Hold};
use asyncgate_store::{ReadSet, Snapshot};

pub(crate) use self::admission::{host_fault, unix};
use crate::{Caller, Engine, Fault, Settings, authorise::Named, input};

/// How an operation is done.
pub trait Execute: Operation {
    /// Does it. The caller's role has been checked, ownership has not.
    fn execute(
        engine: &Engine,
        caller: &Caller,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output, Fault>> + Send;

    /// Whether the answer stands for something new.
    fn created(_output: &Self::Output) -> bool {
        false
    }

    /// What HTTP tells beside the body.
    fn headers(_output: &Self::Output) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// How many bytes its input may have as JSON, if that is more than others may.
    fn max_input_bytes(_settings: &Settings) -> Option<usize> {
        None
    }
}

/// What every call under a lease names.
struct UnderLease {
    task_id: TaskId,
    hold: Hold,
}

impl UnderLease {
    fn new(
        caller: &Caller,
        task_id: &str,
        lease_id: &str,
        (kind, id, instance_id): (Option<PrincipalKind>, Option<String>, Option<String>),
    ) -> Result<Self, Fault> {
        Ok(Self {
            task_id: input::id("task_id", task_id)?,
            hold: Hold {
                lease_id: input::id("lease_id", lease_id)?,
                worker: caller.acting(Named::worker(kind, id, instance_id))?,
            },
        })
    }

    fn reads(&self) -> ReadSet {
        one_task(self.task_id)
    }
}

/// Declares one task.
fn one_task(id: TaskId) -> ReadSet {
    ReadSet {
        tasks: vec![id],
        ..ReadSet::default()
    }
}

/// The one task that was declared.
fn the_task(snapshot: &mut Snapshot) -> Result<Task, Rejection> {
    snapshot.tasks.pop().ok_or(Rejection::TaskNotFound)
}
