//! Lists the receipts of a task, a lease or a type.

use asyncgate_api::{ListLedger, ListLedgerInput};
use asyncgate_core::{Receipt, ReceiptType};
use asyncgate_store::ReceiptFilter;

use super::{Execute, Executed, list_receipts::receipt_page};
use crate::{Caller, Engine, Fault, Role, authorise::Named, input};

impl Execute for ListLedger {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let filter = filter(&input)?;
        caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        let whole = sees_all(engine, caller, &filter).await?;
        let found = engine.store.receipts(caller.tenant, filter, page).await?;
        let concerns = |receipt: &Receipt| {
            whole || receipt.to.is(&caller.principal) || receipt.from.is(&caller.principal)
        };
        let shown: Vec<bool> = found.iter().map(|found| concerns(&found.receipt)).collect();
        let mut answer = receipt_page(caller.tenant, found, page.limit, since);
        // The cursor names the last receipt that was looked at, also if it is not shown: paging goes on
        // behind it.
        let mut shown = shown.into_iter();
        answer.receipts.retain(|_| shown.next().unwrap_or(false));
        Ok(answer)
    }
}

/// Returns true if the caller may see every receipt that the filter finds: it is an admin, or the filter names
/// a task. A task that the caller may not read is refused.
async fn sees_all(engine: &Engine, caller: &Caller, filter: &ReceiptFilter) -> Result<bool, Fault> {
    if caller.role == Role::Admin {
        return Ok(true);
    }
    let ReceiptFilter::Task(id) = filter else {
        return Ok(false);
    };
    let task = engine.store.task(caller.tenant, *id).await?;
    task.map_or(Ok(()), |task| caller.may_read(&task))?;
    Ok(true)
}

fn filter(input: &ListLedgerInput) -> Result<ReceiptFilter, Fault> {
    match (&input.task_id, &input.lease_id, &input.receipt_type) {
        (Some(id), None, None) => Ok(ReceiptFilter::Task(input::id("task_id", id)?)),
        (None, Some(id), None) => Ok(ReceiptFilter::Lease(input::id("lease_id", id)?)),
        (None, None, Some(name)) => ReceiptType::parse(name)
            .map(ReceiptFilter::Type)
            .ok_or_else(|| Fault::bad_request("receipt_type is not a type of receipt")),
        _ => Err(Fault::bad_request(
            "give exactly one of task_id, lease_id and receipt_type",
        )),
    }
}
