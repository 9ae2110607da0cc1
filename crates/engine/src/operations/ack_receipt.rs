//! Acknowledges a receipt.

use asyncgate_api::{AckReceipt, Done};
use asyncgate_core::{Rejection, receipt};
use asyncgate_store::ReadSet;

use super::{Execute, Executed};
use crate::{Caller, Engine, authorise::Named, input};

impl Execute for AckReceipt {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = input::id("receipt_id", &input.receipt_id)?;
        let by = caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            input.principal_instance_id,
        ))?;
        let reads = ReadSet {
            receipt: Some(id),
            acknowledged_by: Some(by.key()),
            ..ReadSet::default()
        };
        let asker = caller.clone();
        engine
            .transact(caller.tenant, 0, reads, move |env, snapshot| {
                let found = snapshot.receipt.ok_or(Rejection::ReceiptNotFound)?;
                if asker.may_act_for(&found.to).is_err() {
                    return Err(Rejection::NotOwner);
                }
                let before = snapshot.acknowledgement;
                Ok(receipt::acknowledge(
                    env,
                    snapshot.head,
                    &found,
                    &by,
                    before,
                ))
            })
            .await
            .map_err(|fault| caller.explain(fault))?;
        Ok(Done { ok: true })
    }
}
