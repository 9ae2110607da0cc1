//! The operations, one file each.
//!
//! When an operation runs, its caller's role was checked and its input decoded. It names the acting
//! principal, declares the rows to load, and hands them to a rule.

mod ack_receipt;
mod admission;
mod bootstrap;
mod cancel_task;
mod complete;
mod create_task;
mod create_tasks;
mod fail;
mod finish_tasks;
mod get_config;
mod get_health;
mod get_ledger_head;
mod get_receipt;
mod get_task;
mod identity;
mod lease_next;
mod list_ledger;
mod list_open_obligations;
mod list_receipts;
mod list_tasks;
mod mailbox;
mod read_ledger;
mod release_lease;
mod renew_lease;
mod renew_leases;
mod report_progress;
mod start_task;
mod usage;

use asyncgate_api::{Operation, PrincipalKind};
use asyncgate_core::{Env, Rejection, Seq, Task, TaskId, task::Hold};
use asyncgate_store::{Decided, ReadSet, Snapshot, Tasks};

pub use self::admission::Descriptor;
pub(crate) use self::admission::{host_fault, unix};
use crate::{
    Caller, Engine, Fault, Settings, Touches, authorise::Named, input, rate_headers::Header,
};

/// The result of an operation's work.
pub type Executed<O> = Result<<O as Operation>::Output, Fault>;

/// The work of an operation.
pub trait Execute: Operation {
    /// Does the work. The caller's role has been checked, ownership has not.
    fn execute(
        engine: &Engine,
        caller: &Caller,
        input: Self::Input,
    ) -> impl Future<Output = Executed<Self>> + Send;

    /// States what a decoded call touches. Rules about topics and bytes see nothing else of it, so an
    /// input with a topic must name it here.
    fn touches(_input: &Self::Input) -> Touches<'_> {
        Touches::Nothing
    }

    /// Returns true if the call created something.
    fn created(_output: &Self::Output) -> bool {
        false
    }

    /// Returns the HTTP headers that go with the output.
    fn headers(_output: &Self::Output) -> Vec<Header> {
        Vec::new()
    }

    /// Returns the largest input in bytes as JSON, for an operation that may have more than the usual
    /// limit.
    fn max_input_bytes(_settings: &Settings) -> Option<usize> {
        None
    }
}

/// The task and the lease that a worker's call names.
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

    /// Runs a rule on the task, for the worker that holds it.
    fn transact<T: Send + 'static>(
        self,
        engine: &Engine,
        caller: &Caller,
        weight: usize,
        mut rule: impl FnMut(Env, Seq, &Hold, Task) -> Decided<Tasks, T> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let Self { task_id, hold } = self;
        let decide = move |env, mut snapshot: Snapshot| {
            let task = the_task(&mut snapshot)?;
            rule(env, snapshot.head, &hold, task)
        };
        engine.transact(caller.tenant, weight, one_task(task_id), decide)
    }
}

/// Declares one task to load.
fn one_task(id: TaskId) -> ReadSet {
    ReadSet {
        tasks: vec![id],
        ..ReadSet::default()
    }
}

/// Takes the one task that was declared.
fn the_task(snapshot: &mut Snapshot) -> Result<Task, Rejection> {
    snapshot.tasks.pop().ok_or(Rejection::TaskNotFound)
}
