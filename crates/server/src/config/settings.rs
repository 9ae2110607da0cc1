//! The settings as the program uses them: one field per key, in the type that its user wants.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::key::{Secret, Value};
use super::resolve::Effective;

/// Where state lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process only.
    Memory,
    /// In a file in the data directory.
    Sqlite,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Every setting that the program acts on; those that are only kept for later stay in the table.
#[derive(Debug, Clone)]
pub struct Settings {
    pub bind: SocketAddr,
    pub data_dir: PathBuf,
    pub store: StoreKind,
    pub instance_id: String,
    pub environment: String,
    pub api_key: Option<Secret>,
    pub allow_insecure_dev: bool,
    pub default_lease_ttl: Duration,
    pub max_lease_ttl: Duration,
    pub lease_sweep_interval: Duration,
    pub ledger_sign_interval: Duration,
    pub lease_grace: Duration,
    pub expiry_jitter_max: Duration,
    pub default_max_attempts: u32,
    pub default_retry_backoff_seconds: u32,
    pub max_retry_backoff_seconds: u32,
    pub default_priority: i32,
    pub max_payload_bytes: usize,
    pub max_body_bytes: usize,
    pub default_list_limit: u32,
    pub max_list_limit: u32,
    pub default_bootstrap_items: u32,
    pub max_bootstrap_items: u32,
    pub strict_locatability: bool,
    pub writer_queue_jobs: usize,
    pub writer_queue_bytes: usize,
    pub sqlite_readers: usize,
    pub max_connections: usize,
    pub header_timeout: Duration,
    pub keep_alive: Duration,
    pub request_timeout: Duration,
    pub drain_timeout: Duration,
    pub allowed_origins: Vec<String>,
    pub log_format: LogFormat,
    pub log_level: String,
}

/// The table and this struct disagree: a defect, which the tests below would show.
#[derive(Debug, thiserror::Error)]
#[error("defect: the setting {0} does not have the type that the program expects")]
pub struct Mismatch(&'static str);

impl Settings {
    /// Takes the checked values out of the table's form.
    pub fn new(effective: &Effective) -> Result<Self, Mismatch> {
        let from = Reader(effective);
        Ok(Self {
            bind: from.address("bind")?,
            data_dir: from.path("data_dir")?,
            store: if from.word("store")? == "memory" {
                StoreKind::Memory
            } else {
                StoreKind::Sqlite
            },
            instance_id: from.text("instance_id")?,
            environment: from.text("environment")?,
            api_key: from.secret("api_key")?,
            allow_insecure_dev: from.switch("allow_insecure_dev")?,
            default_lease_ttl: from.seconds("default_lease_ttl_seconds")?,
            max_lease_ttl: from.seconds("max_lease_ttl_seconds")?,
            lease_sweep_interval: from.seconds("lease_sweep_interval_seconds")?,
            ledger_sign_interval: from.seconds("ledger.sign_interval_seconds")?,
            lease_grace: from.seconds("lease_grace_seconds")?,
            expiry_jitter_max: from.seconds("expiry_jitter_max_seconds")?,
            default_max_attempts: from.number("default_max_attempts")?,
            default_retry_backoff_seconds: from.number("default_retry_backoff_seconds")?,
            max_retry_backoff_seconds: from.number("max_retry_backoff_seconds")?,
            default_priority: from.number("default_priority")?,
            max_payload_bytes: from.number("max_payload_bytes")?,
            max_body_bytes: from.number("max_body_bytes")?,
            default_list_limit: from.number("default_list_limit")?,
            max_list_limit: from.number("max_list_limit")?,
            default_bootstrap_items: from.number("default_bootstrap_max_items")?,
            max_bootstrap_items: from.number("max_bootstrap_max_items")?,
            strict_locatability: from.word("receipts.locatability")? == "strict",
            writer_queue_jobs: from.number("writer.queue_jobs")?,
            writer_queue_bytes: from.number("writer.queue_bytes")?,
            sqlite_readers: from.number("sqlite.readers")?,
            max_connections: from.number("http.max_connections")?,
            header_timeout: from.seconds("http.header_timeout_seconds")?,
            keep_alive: from.seconds("http.keep_alive_seconds")?,
            request_timeout: from.seconds("http.request_timeout_seconds")?,
            drain_timeout: from.seconds("http.drain_timeout_seconds")?,
            allowed_origins: from.list("mcp.allowed_origins")?,
            log_format: if from.word("log.format")? == "json" {
                LogFormat::Json
            } else {
                LogFormat::Text
            },
            log_level: from.text("log.level")?,
        })
    }
}

/// Typed access to checked values.
struct Reader<'a>(&'a Effective);

impl Reader<'_> {
    fn take<T>(
        &self,
        name: &'static str,
        pick: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Mismatch> {
        self.0
            .get(name)
            .and_then(|entry| pick(&entry.value))
            .ok_or(Mismatch(name))
    }

    fn number<T: TryFrom<i64>>(&self, name: &'static str) -> Result<T, Mismatch> {
        self.take(name, |value| {
            if let Value::Integer(n) = value {
                T::try_from(*n).ok()
            } else {
                None
            }
        })
    }

    fn seconds(&self, name: &'static str) -> Result<Duration, Mismatch> {
        self.number(name).map(Duration::from_secs)
    }

    fn switch(&self, name: &'static str) -> Result<bool, Mismatch> {
        self.take(name, |value| {
            if let Value::Switch(on) = value {
                Some(*on)
            } else {
                None
            }
        })
    }

    fn word(&self, name: &'static str) -> Result<&'static str, Mismatch> {
        self.take(name, |value| {
            if let Value::Word(word) = value {
                Some(*word)
            } else {
                None
            }
        })
    }

    fn text(&self, name: &'static str) -> Result<String, Mismatch> {
        self.take(name, |value| {
            if let Value::Text(text) = value {
                Some(text.clone())
            } else {
                None
            }
        })
    }

    fn address(&self, name: &'static str) -> Result<SocketAddr, Mismatch> {
        self.take(name, |value| {
            if let Value::Address(address) = value {
                Some(*address)
            } else {
                None
            }
        })
    }

    fn path(&self, name: &'static str) -> Result<PathBuf, Mismatch> {
        self.take(name, |value| {
            if let Value::Path(path) = value {
                Some(path.clone())
            } else {
                None
            }
        })
    }

    fn list(&self, name: &'static str) -> Result<Vec<String>, Mismatch> {
        self.take(name, |value| {
            if let Value::List(items) = value {
                Some(items.clone())
            } else {
                None
            }
        })
    }

    fn secret(&self, name: &'static str) -> Result<Option<Secret>, Mismatch> {
        self.take(name, |value| {
            if let Value::Secret(secret) = value {
                Some(secret.clone())
            } else {
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Inputs;
    use super::super::key::Rule;
    use super::super::source::Flag;
    use super::super::table::KEYS;
    use super::*;

    #[test]
    fn the_defaults_become_settings() {
        let settings = Settings::new(&Effective::read(&Inputs::default()).unwrap()).unwrap();
        assert_eq!(settings.bind.to_string(), "127.0.0.1:8080");
        assert_eq!(settings.store, StoreKind::Sqlite);
        assert_eq!(settings.default_lease_ttl, Duration::from_secs(300));
        assert!(
            settings.api_key.is_none()
                && !settings.allow_insecure_dev
                && !settings.strict_locatability
        );
    }

    /// The bounds of every number fit the type of its field.
    #[test]
    fn both_ends_of_every_range_become_settings() {
        for key in KEYS {
            let Rule::Integer { min, max } = key.rule else {
                continue;
            };
            for bound in [min, max] {
                let flag = Flag {
                    flag: "--set",
                    name: key.name.to_owned(),
                    text: bound.to_string(),
                };
                let mut inputs = Inputs {
                    flags: vec![flag],
                    ..Inputs::default()
                };
                // A default must stay at or under its maximum, and the other way round.
                for (low, high) in super::super::table::ORDERED {
                    let (partner, text) = match key.name {
                        name if name == *low => (*high, 1_000.max(bound).to_string()),
                        name if name == *high => (*low, bound.min(1).to_string()),
                        _ => continue,
                    };
                    inputs.flags.push(Flag {
                        flag: "--set",
                        name: partner.to_owned(),
                        text,
                    });
                }
                let effective =
                    Effective::read(&inputs).unwrap_or_else(|e| panic!("{}: {e}", key.name));
                Settings::new(&effective).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            }
        }
    }
}
