//! Lists the receipts of a task, a lease or a type.

use asyncgate_api::{ListLedger, ListLedgerInput};
use asyncgate_core::{LeaseId, Receipt, ReceiptType, TaskId};
use asyncgate_store::{ReceiptFilter, SeqPage};

use super::{Execute, Executed, list_receipts::receipt_page};
use crate::{Caller, Engine, Fault, authorise::Named, input};

impl Execute for ListLedger {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let choice = choice(&input)?;
        caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let mut page = engine.page_after(caller.tenant, since, limit).await?;
        let whole = sees_all(engine, caller, &choice).await?;
        let filter = match choice {
            Choice::Task(id) => Some(ReceiptFilter::Task(id)),
            Choice::Type(receipt_type) => Some(ReceiptFilter::Type(receipt_type)),
            Choice::Lease(id) => {
                // Nothing under a lease stands before its acceptance.
                page.after = page.after.max(id.seq().saturating_sub(1));
                let task = accepted_task(engine, caller, id).await?;
                task.map(ReceiptFilter::Task)
            }
        };
        let found = match filter {
            Some(filter) => engine.store.receipts(caller.tenant, filter, page).await?,
            None => Vec::new(),
        };
        let concerns = |receipt: &Receipt| {
            whole || receipt.to.is(&caller.principal) || receipt.from.is(&caller.principal)
        };
        let shown = |receipt: &Receipt| choice.includes(receipt) && concerns(receipt);
        let shown: Vec<bool> = found.iter().map(|found| shown(&found.receipt)).collect();
        let mut answer = receipt_page(caller.tenant, found, page.limit, since);
        // The cursor names the last receipt that was looked at, also if it is not shown: paging goes on
        // behind it.
        let mut shown = shown.into_iter();
        answer.receipts.retain(|_| shown.next().unwrap_or(false));
        Ok(answer)
    }
}

/// The receipts that a caller asks for.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Task(TaskId),
    /// They are looked for among those of the lease's task, page by page.
    Lease(LeaseId),
    Type(ReceiptType),
}

impl Choice {
    fn includes(self, receipt: &Receipt) -> bool {
        match self {
            Self::Lease(id) => receipt.lease_id == Some(id),
            Self::Task(_) | Self::Type(_) => true,
        }
    }
}

/// Returns the task that was accepted under a lease. A lease's id carries the place of the acceptance.
async fn accepted_task(
    engine: &Engine,
    caller: &Caller,
    lease: LeaseId,
) -> Result<Option<TaskId>, Fault> {
    let place = SeqPage {
        after: lease.seq().saturating_sub(1),
        limit: 1,
    };
    let filter = ReceiptFilter::All;
    let found = engine.store.receipts(caller.tenant, filter, place).await?;
    let accepted = found.into_iter().map(|found| found.receipt).next();
    let accepted = accepted.filter(|receipt| receipt.lease_id == Some(lease));
    Ok(accepted.and_then(|receipt| receipt.task_id))
}

/// Returns true if the caller may see every receipt that it asks for: it is an admin, or it names a task. A task
/// that the caller may not read is refused.
async fn sees_all(engine: &Engine, caller: &Caller, choice: &Choice) -> Result<bool, Fault> {
    if caller.sees_all() {
        return Ok(true);
    }
    let Choice::Task(id) = choice else {
        return Ok(false);
    };
    let parties = engine.store.parties(caller.tenant, *id).await?;
    parties.map_or(Ok(()), |parties| caller.may_read(&parties))?;
    Ok(true)
}

fn choice(input: &ListLedgerInput) -> Result<Choice, Fault> {
    match (&input.task_id, &input.lease_id, &input.receipt_type) {
        (Some(id), None, None) => Ok(Choice::Task(input::id("task_id", id)?)),
        (None, Some(id), None) => Ok(Choice::Lease(input::id("lease_id", id)?)),
        (None, None, Some(name)) => ReceiptType::parse(name)
            .map(Choice::Type)
            .ok_or_else(|| Fault::bad_request("receipt_type is not a type of receipt")),
        _ => Err(Fault::bad_request(
            "give exactly one of task_id, lease_id and receipt_type",
        )),
    }
}
