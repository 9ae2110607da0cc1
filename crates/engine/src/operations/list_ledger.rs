//! Lists the receipts of a task, a lease or a type.

use asyncgate_api::{ListLedger, ListLedgerInput, ReceiptPage};
use asyncgate_core::ReceiptType;
use asyncgate_store::ReceiptFilter;

use super::{Execute, list_receipts::receipt_page};
use crate::{Caller, Engine, Fault, Role, authorise::Named, input};

impl Execute for ListLedger {
    async fn execute(
        engine: &Engine,
        caller: &Caller,
        input: ListLedgerInput,
    ) -> Result<ReceiptPage, Fault> {
        let filter = filter(&input)?;
        caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            None,
        ))?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        let found = engine.store.receipts(caller.tenant, filter, page).await?;
        let mut answer = receipt_page(caller.tenant, found.clone(), page.limit);
        if caller.role != Role::Admin {
            // Cursors still name what was looked at, so that paging goes on behind it.
            let own = |id: &str| {
                found.iter().any(|found| {
                    let receipt = &found.receipt;
                    let concerns =
                        receipt.to.is(&caller.principal) || receipt.from.is(&caller.principal);
                    concerns && receipt.id.to_string() == id
                })
            };
            answer.receipts.retain(|receipt| own(&receipt.receipt_id));
        }
        Ok(answer)
    }
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
