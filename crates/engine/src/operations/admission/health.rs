//! Reports the health of the host.

use asyncgate_admission::{ComponentHealth, Status};
use asyncgate_api::{self as api, Code, GetHostHealth, HostHealth, NoInput};

use super::Execute;
use crate::{Caller, Engine, Fault};

impl Execute for GetHostHealth {
    async fn execute(engine: &Engine, _: &Caller, _: NoInput) -> Result<HostHealth, Fault> {
        let health = engine.host.health().await;
        let shown = HostHealth {
            status: health.status.as_str().to_owned(),
            nonce_store: component(&health.nonces),
            counter_store: component(&health.counters),
            revocation_registry: component(&health.revocations),
        };
        if health.status != Status::Unavailable {
            return Ok(shown);
        }
        let message = "the backend of admission does not answer";
        let mut fault = Fault::new(Code::HostUnavailable, message).retry_after(1);
        if let Ok(serde_json::Value::Object(details)) = serde_json::to_value(shown) {
            fault.details.extend(details);
        }
        Err(fault)
    }
}

fn component(health: &ComponentHealth) -> api::ComponentHealth {
    api::ComponentHealth {
        available: health.available,
        latency_p99_ms: health
            .latency_p99
            .map(|latency| latency.as_micros() as f64 / 1_000.0),
        error_rate: health.error_rate,
        backend: health.backend.to_owned(),
        failure_mode: health.failure_mode.as_str().to_owned(),
        circuit: health.circuit.as_str().to_owned(),
    }
}
