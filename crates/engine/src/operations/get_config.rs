//! Reads the settings that matter to callers.

use asyncgate_api::{ConfigRecord, GetConfig};
use asyncgate_core::Locatability;

use super::{Execute, Executed};
use crate::{Caller, Durability, Engine};

impl Execute for GetConfig {
    async fn execute(engine: &Engine, _caller: &Caller, _input: Self::Input) -> Executed<Self> {
        let settings = engine.settings();
        let policy = &settings.policy;
        let seconds = |millis: i64| u64::try_from(millis / 1_000).unwrap_or(0);
        let capabilities = [
            "lease_based_execution",
            "receipt_emission",
            "open_obligations",
        ];
        Ok(ConfigRecord {
            receipt_mode: "standalone".to_owned(),
            instance_id: settings.instance_id.to_string(),
            version: settings.version.to_owned(),
            capabilities: capabilities.map(str::to_owned).to_vec(),
            durability: match settings.durability {
                Durability::Fsync => "fsync",
                Durability::None => "none",
            }
            .to_owned(),
            profile: settings.profile.to_owned(),
            dlq_profile: settings.durability.dlq_profile().to_owned(),
            locatability: match policy.locatability {
                Locatability::Lenient => "lenient",
                Locatability::Strict => "strict",
            }
            .to_owned(),
            default_lease_ttl_seconds: seconds(policy.default_lease_ttl_ms),
            max_lease_ttl_seconds: seconds(policy.max_lease_ttl_ms),
            default_max_attempts: policy.default_max_attempts,
            default_retry_backoff_seconds: policy.default_retry_backoff_seconds,
            max_retry_backoff_seconds: policy.max_retry_backoff_seconds,
            default_list_limit: settings.default_list_limit,
            max_list_limit: settings.max_list_limit,
            max_payload_bytes: policy.max_payload_bytes as u64,
        })
    }
}
