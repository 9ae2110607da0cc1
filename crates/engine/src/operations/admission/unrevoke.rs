//! Takes a revocation back.

use asyncgate_api::{Code, Unrevoke, UnrevokeOutput};
use asyncgate_core::{admission::Subject, identity::audit};

use super::{Execute, Executed, hex64, host_fault, subject};
use crate::{Caller, Engine, Fault};

impl Execute for Unrevoke {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let subject = Subject {
            kind: subject::kind(&input.kind)?,
            hash: hex64("hash", &input.hash)?,
        };
        let host = &engine.host;
        let gone = host.unrevoke(caller.tenant, engine.now(), subject).await;
        if !gone.map_err(host_fault)? {
            return Err(Fault::new(Code::NotFound, "this is not revoked"));
        }
        engine.log_revocation(audit::Event::RevocationRemoved, caller, subject);
        Ok(UnrevokeOutput { ok: true })
    }
}
