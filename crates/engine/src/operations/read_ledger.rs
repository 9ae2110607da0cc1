//! Reads the whole ledger.

use asyncgate_api::{Operation as _, ReadLedger};
use asyncgate_store::ReceiptFilter;

use super::{Execute, Executed, list_receipts::receipt_page};
use crate::{Caller, Engine, input};

impl Execute for ReadLedger {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let settings = engine.settings();
        let limit = input::limit(
            "limit",
            input.limit,
            settings.default_list_limit,
            settings.max_list_limit,
        )?;
        let since = input.since_receipt_id.as_deref();
        let page = engine.page_after(caller.tenant, since, limit).await?;
        let found = engine
            .store
            .receipts(caller.tenant, ReceiptFilter::All, page)
            .await?;
        engine.note_exported(caller, &Self::SPEC);
        Ok(receipt_page(caller.tenant, found, page.limit, since))
    }
}
