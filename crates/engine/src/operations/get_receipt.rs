//! Reads a receipt.

use asyncgate_api::GetReceipt;
use asyncgate_core::{ReceiptId, Rejection};

use super::{Execute, Executed};
use crate::{Caller, Engine, authorise::Named, input, view};

impl Execute for GetReceipt {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id: ReceiptId = input::id("receipt_id", &input.receipt_id)?;
        caller.acting(Named::reader(input.principal_kind, input.principal_id))?;
        let found = engine.store.receipt(caller.tenant, id).await?;
        let found = found.ok_or(Rejection::ReceiptNotFound)?;
        if !found.receipt.from.is(&caller.principal) {
            caller.may_act_for(&found.receipt.to)?;
        }
        Ok(view::receipt(caller.tenant, &found))
    }
}
