//! Reads the heads of the chains of messages, signed.

use asyncgate_api::{GetMailboxHeads, GetMailboxHeadsOutput, MailboxHead};
use asyncgate_core::hex;

use super::{Execute, Executed};
use crate::{Caller, Engine};

impl Execute for GetMailboxHeads {
    async fn execute(engine: &Engine, caller: &Caller, _input: Self::Input) -> Executed<Self> {
        let chains = engine.store.mailbox().chains(caller.tenant).await?;
        let signed_at = engine.now();
        let signer = engine.signer.as_ref();
        let heads = chains.into_iter().map(|(shard, head)| MailboxHead {
            shard,
            seq: head.seq,
            link: head.link.to_string(),
            tenant_id: caller.tenant.to_string(),
            signed_at: signed_at.to_string(),
            signed_at_millis: signed_at.as_millis(),
            public_key: signer.map(|signer| hex::encode(&signer.public_key())),
            signature: signer.map(|signer| {
                let statement = head.statement(caller.tenant, shard, signed_at);
                hex::encode(&signer.sign(&statement))
            }),
        });
        Ok(GetMailboxHeadsOutput {
            heads: heads.collect(),
        })
    }
}
