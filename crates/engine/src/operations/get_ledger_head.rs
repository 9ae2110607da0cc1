//! Reads the head of the ledger, signed.

use asyncgate_api::{GetLedgerHead, LedgerHead};
use asyncgate_core::hex;

use super::{Execute, Executed};
use crate::{Caller, Engine};

impl Execute for GetLedgerHead {
    async fn execute(engine: &Engine, caller: &Caller, _input: Self::Input) -> Executed<Self> {
        let head = engine.store.head(caller.tenant).await?;
        let signed_at = engine.now();
        let signed = engine.sign(caller.tenant, head, signed_at);
        Ok(LedgerHead {
            tenant_id: caller.tenant.to_string(),
            seq: head.seq,
            link: head.link.to_string(),
            open_obligations: head.open_obligations,
            signed_at: signed_at.to_string(),
            signed_at_millis: signed_at.as_millis(),
            public_key: signed
                .as_ref()
                .map(|signed| hex::encode(&signed.public_key)),
            signature: signed.as_ref().map(|signed| hex::encode(&signed.signature)),
        })
    }
}
