//! Reports that the server is alive.

use asyncgate_api::{GetHealth, HealthRecord};
use asyncgate_store::Health;

use super::{Execute, Executed};
use crate::{Caller, Engine};

impl Execute for GetHealth {
    async fn execute(engine: &Engine, _caller: &Caller, _input: Self::Input) -> Executed<Self> {
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
