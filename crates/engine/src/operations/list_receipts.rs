//! Lists an inbox.

use asyncgate_api::{ListReceipts, ReceiptPage};
use asyncgate_core::TenantId;
use asyncgate_store::{DeliveredReceipt, ReceiptFilter};

use super::{Execute, Executed};
use crate::{Caller, Engine, authorise::Named, input, view};

impl Execute for ListReceipts {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let named = Named::reader(input.principal_kind, input.principal_id);
        let principal = caller.acting(named)?;
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        let filter = ReceiptFilter::To(principal.key());
        let found = engine.store.receipts(caller.tenant, filter, page).await?;
        Ok(receipt_page(caller.tenant, found, page.limit, since))
    }
}

/// Makes a page of receipts. The store was asked for one more than fits.
pub(super) fn receipt_page(
    tenant: TenantId,
    found: Vec<DeliveredReceipt>,
    asked: usize,
    since: Option<&str>,
) -> ReceiptPage {
    let cut = view::cut(found, asked, since);
    ReceiptPage {
        receipts: cut
            .receipts
            .iter()
            .map(|found| view::receipt(tenant, found))
            .collect(),
        cursor: cut.cursor,
        next_cursor: cut.next_cursor,
    }
}
