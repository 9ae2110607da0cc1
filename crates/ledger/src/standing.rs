//! The states of tasks by their receipts, to compare with the tasks that a store keeps.

use std::collections::HashMap;

use asyncgate_core::{
    LeaseId, Principal, Receipt, ReceiptId, ReceiptType, Seq, Task, TaskId,
    receipt::{is_terminal, opens_obligation},
    task::Status,
};

/// The state of every task of a ledger.
#[derive(Debug, Default)]
pub struct Standings(HashMap<Seq, Standing>);

/// The state of a task that its receipts add up to. Facts that no receipt records are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    id: TaskId,
    assignment: ReceiptId,
    status: Status,
    attempt: u32,
    expiries: u32,
    lease: Option<LeaseId>,
    end: Option<ReceiptId>,
    discharged: bool,
}

impl Standings {
    /// Takes the next receipt of a ledger that is being verified.
    pub fn push(&mut self, receipt: &Receipt) {
        let Some(id) = receipt.task_id else {
            return;
        };
        if opens_obligation(receipt.receipt_type) {
            let standing = Standing {
                id,
                assignment: receipt.id,
                status: Status::Queued,
                attempt: 0,
                expiries: 0,
                lease: None,
                end: None,
                discharged: false,
            };
            self.0.insert(id.seq(), standing);
        } else if let Some(standing) = self.0.get_mut(&id.seq()) {
            standing.follow(receipt);
        }
    }

    /// Compares with the next task of a store, and returns the difference if there is one.
    pub fn check(&mut self, task: &Task) -> Result<(), String> {
        let Some(told) = self.0.remove(&task.id.seq()) else {
            return Err("no receipt assigned it".to_owned());
        };
        match told.difference(&Standing::of(task)) {
            None => Ok(()),
            Some((what, told, kept)) => Err(format!(
                "its receipts come to the {what} {told}, but the task has {kept}"
            )),
        }
    }

    /// Returns a task that was assigned and not compared.
    pub fn missing(&self) -> Option<TaskId> {
        let first = self.0.iter().min_by_key(|(seq, _)| **seq);
        first.map(|(_, standing)| standing.id)
    }
}

impl Standing {
    fn of(task: &Task) -> Self {
        Self {
            id: task.id,
            assignment: task.assignment,
            status: task.status(),
            attempt: task.attempt,
            expiries: task.expiries,
            lease: task.lease().map(|lease| lease.id),
            end: task.end().map(|end| end.receipt),
            discharged: task.end().is_some_and(|end| end.discharged),
        }
    }

    fn follow(&mut self, receipt: &Receipt) {
        self.status = match receipt.receipt_type {
            ReceiptType::TaskAccepted => Status::Leased,
            ReceiptType::TaskStarted => Status::Running,
            ReceiptType::TaskRetryScheduled
            | ReceiptType::LeaseExpired
            | ReceiptType::LeaseReleased => Status::Queued,
            ReceiptType::TaskCompleted => Status::Succeeded,
            ReceiptType::TaskFailed => Status::Failed,
            ReceiptType::TaskCanceled => Status::Canceled,
            // These receipts record something without moving the task.
            ReceiptType::TaskAssigned
            | ReceiptType::TaskProgress
            | ReceiptType::TaskResultReady
            | ReceiptType::SystemAnomaly
            | ReceiptType::ReceiptAcknowledged
            | ReceiptType::LedgerSigned => return,
        };
        let failed = [ReceiptType::TaskRetryScheduled, ReceiptType::TaskFailed];
        // A task that the server gave up has failed without another attempt.
        let tried = !receipt.from.is(&Principal::system());
        self.attempt += u32::from(tried && failed.contains(&receipt.receipt_type));
        self.expiries += u32::from(receipt.receipt_type == ReceiptType::LeaseExpired);
        let held = matches!(self.status, Status::Leased | Status::Running);
        // The receipt of a lease that ended still names it, but the task holds it no longer.
        self.lease = receipt.lease_id.filter(|_| held);
        if is_terminal(receipt.receipt_type) {
            self.end = Some(receipt.id);
            // A success without proof ends the task; proof may discharge it later, in a second receipt.
            self.discharged |= receipt.parents.contains(&self.assignment);
        }
    }

    /// Returns the first fact in which two differ: its name, and both values.
    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        fn id(id: Option<impl ToString>) -> String {
            id.map_or_else(|| "none".to_owned(), |id| id.to_string())
        }
        let said = |standing: &Self| {
            [
                ("id", standing.id.to_string()),
                ("assignment", standing.assignment.to_string()),
                ("status", standing.status.as_str().to_owned()),
                ("attempt", standing.attempt.to_string()),
                ("number of expired leases", standing.expiries.to_string()),
                ("lease", id(standing.lease)),
                ("last receipt", id(standing.end)),
                ("discharge", standing.discharged.to_string()),
            ]
        };
        if self == other {
            return None;
        }
        let mut pairs = said(self).into_iter().zip(said(other));
        let ((what, mine), (_, theirs)) = pairs.find(|(mine, theirs)| mine != theirs)?;
        Some((what, mine, theirs))
    }
}
