//! The old way to begin: the inbox, marked as delivered.

use asyncgate_api::{Attention, Bootstrap, BootstrapCursor, BootstrapOutput};
use asyncgate_store::ReceiptFilter;

use super::{Execute, Executed, list_open_obligations::seen, list_receipts::receipt_page};
use crate::{Caller, Engine, authorise::Named, input, view};

impl Execute for Bootstrap {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let principal = caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            input.principal_instance_id,
        ))?;
        let settings = engine.settings();
        let limit = input::limit(
            "max_items",
            input.max_items,
            settings.default_bootstrap_items,
            settings.max_bootstrap_items,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        tracing::warn!(principal = %principal.key(), "deprecated: bootstrap was called");
        let filter = ReceiptFilter::To(principal.key());
        let mut found = engine
            .store
            .receipts(caller.tenant, filter.clone(), page)
            .await?;
        found.truncate(limit);
        view::fit(&mut found);
        let first_time = found.iter().filter(|found| found.delivered_at.is_none());
        let delivered: Vec<_> = first_time.map(|found| found.receipt.seq()).collect();
        let again = !delivered.is_empty();
        let relationship = seen(engine, caller, principal, delivered).await?;
        if again {
            // Read again after the write: another call may have been handed them first, and the answer
            // shows what is stored.
            found = engine.store.receipts(caller.tenant, filter, page).await?;
            found.truncate(limit);
            view::fit(&mut found);
        }
        let inbox = receipt_page(caller.tenant, found, page.limit, since);
        Ok(BootstrapOutput {
            server: engine.server_info(),
            relationship,
            attention: Attention {
                inbox_receipts: inbox.receipts,
                assigned_tasks: [],
                waiting_results: [],
                running_or_scheduled: [],
                anomalies: [],
            },
            cursor: BootstrapCursor {
                latest_receipt_id: inbox.cursor,
            },
        })
    }
}
