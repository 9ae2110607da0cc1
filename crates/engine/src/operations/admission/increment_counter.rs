//! Counts a call.

use asyncgate_api::{Code, IncrementCounter, IncrementCounterOutput};
use asyncgate_core::admission::{Asks, Increment};

use super::{Execute, Executed, hex64, host_fault, provenance, seconds};
use crate::{Caller, Engine, Fault};

impl Execute for IncrementCounter {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let counters = vec![Increment {
            namespace: hex64("namespace", &input.namespace)?,
            window_secs: seconds("window_secs", input.window_secs)?,
            limit: input.limit,
            by: input.by.unwrap_or(1),
        }];
        let asks = Asks {
            counters,
            ..Asks::default()
        };
        let answered = engine.host.admit(caller.tenant, engine.now(), asks).await;
        let answered = answered.map_err(host_fault)?;
        let counted = answered.answer.counters.first().copied();
        let counted =
            counted.ok_or_else(|| Fault::new(Code::Internal, "the count has no answer"))?;
        let (result, allowed) = match counted.allowed {
            true => ("allowed", true),
            false => ("exceeded", false),
        };
        Ok(IncrementCounterOutput {
            result: result.to_owned(),
            count: counted.count,
            remaining: allowed.then_some(counted.remaining),
            retry_after_secs: (!allowed).then_some(counted.retry_after_secs),
            bucket: counted.bucket,
            reset_at: counted.reset_at,
            provenance: provenance(answered.provenance),
        })
    }
}
