//! Reports that the server is alive.

use asyncgate_api::{GetHealth, HealthRecord, NoInput};
use asyncgate_store::Health;

use super::Execute;
use crate::{Caller, Engine, Fault};

impl Execute for GetHealth {
    async fn execute(
        engine: &Engine,
        _caller: &Caller,
        _input: NoInput,
    ) -> Result<HealthRecord, Fault> {
        let settings = engine.settings();
        let status = match engine.health() {
            Health::Ready => "healthy",
            Health::Failing(_) => "failing",
        };
        Ok(HealthRecord {
            status: status.to_owned(),
            service: "AsyncGate".to_owned(),
            version: settings.version.to_owned(),
            instance_id: settings.instance_id.to_string(),
        })
    }
}
