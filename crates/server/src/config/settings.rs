//! The settings as the program uses them: one field per key, in the type that its user wants.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use asyncgate_admission::{FailureMode, Tables};
use asyncgate_core::admission::{Limits, Protected, RevocationCache};
use asyncgate_core::{hex, mailbox};
use asyncgate_domains::Compat;
use asyncgate_engine::Ingresses;
use asyncgate_store::fair::Weights;
use asyncgate_warrants::RevocationPolicy;

use crate::tls;

use super::backend::Backend;
use super::domains::{Domains, keys};
use super::ingress::ingresses;
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

/// What the mailbox promises about dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Everything is in memory.
    Micronode,
    /// What was answered is kept.
    Macronode,
}

impl Profile {
    /// The profile's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Micronode => "micronode",
            Self::Macronode => "macronode",
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
    /// Text on a terminal, JSON elsewhere.
    Auto,
}

/// Every setting that the program acts on; those that are only kept for later stay in the table.
#[derive(Debug, Clone)]
pub struct Settings {
    pub bind: SocketAddr,
    pub metrics_addr: Option<SocketAddr>,
    /// Present where the main address speaks TLS.
    pub tls: Option<tls::Files>,
    pub uds_path: Option<PathBuf>,
    pub uds_allow_uids: Vec<u32>,
    pub profile: Profile,
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
    pub decompress_ratio_cap: u32,
    pub default_list_limit: u32,
    pub max_list_limit: u32,
    pub default_bootstrap_items: u32,
    pub max_bootstrap_items: u32,
    pub strict_locatability: bool,
    pub writer_queue_jobs: usize,
    pub writer_queue_bytes: usize,
    pub sqlite_readers: usize,
    pub max_connections: usize,
    pub read_timeout: Duration,
    pub write_timeout: Duration,
    pub idle_timeout: Duration,
    pub request_timeout: Duration,
    pub drain_timeout: Duration,
    pub allowed_origins: Vec<String>,
    pub log_format: LogFormat,
    pub log_level: String,
    pub mailbox: mailbox::Policy,
    /// What topics are called in metrics, longest prefix first.
    pub topic_classes: Vec<(String, String)>,
    pub weights: Weights,
    pub limits: Limits,
    pub admission: asyncgate_admission::Settings,
    pub admission_backend: Backend,
    pub admission_max_rows: usize,
    pub domains: Domains,
    pub ingress: Ingresses,
    pub warrants: asyncgate_warrants::Policy,
}

/// The table and this struct disagree: a defect, which the tests below would show.
#[derive(Debug, thiserror::Error)]
#[error("defect: the setting {0} does not have the type that the program expects")]
pub struct Mismatch(&'static str);

impl Settings {
    /// Takes the checked values out of the table's form.
    pub fn new(effective: &Effective) -> Result<Self, Mismatch> {
        let from = Reader(effective);
        let tables = Tables::read(|name| from.table(name))?;
        let limits = tables.limits().map_err(|wrong| Mismatch(wrong.key))?;
        Ok(Self {
            ingress: ingress(&from, &limits)?,
            bind: from.address("bind")?,
            metrics_addr: from.optional("metrics_addr", Reader::address)?,
            tls: if from.switch("tls.enabled")? {
                Some(tls::Files {
                    certificates: from.path("tls.cert_path")?,
                    key: from.path("tls.key_path")?,
                })
            } else {
                None
            },
            uds_path: from.optional("uds.path", Reader::path)?,
            uds_allow_uids: from.uids("uds.allow_uids")?,
            profile: if from.word("mailbox.profile")? == "micronode" {
                Profile::Micronode
            } else {
                Profile::Macronode
            },
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
            max_payload_bytes: from.bytes("max_payload_bytes")?,
            max_body_bytes: from.bytes("max_body_bytes")?,
            decompress_ratio_cap: from.number("limits.decompress_ratio_cap")?,
            default_list_limit: from.number("default_list_limit")?,
            max_list_limit: from.number("max_list_limit")?,
            default_bootstrap_items: from.number("default_bootstrap_max_items")?,
            max_bootstrap_items: from.number("max_bootstrap_max_items")?,
            strict_locatability: from.word("receipts.locatability")? == "strict",
            writer_queue_jobs: from.number("writer.queue_jobs")?,
            writer_queue_bytes: from.bytes("writer.queue_bytes")?,
            sqlite_readers: from.number("sqlite.readers")?,
            max_connections: from.number("http.max_connections")?,
            read_timeout: from.duration("read_timeout")?,
            write_timeout: from.duration("write_timeout")?,
            idle_timeout: from.duration("idle_timeout")?,
            request_timeout: from.seconds("http.request_timeout_seconds")?,
            drain_timeout: from.seconds("http.drain_timeout_seconds")?,
            allowed_origins: from.list("mcp.allowed_origins")?,
            log_format: match from.word("log.format")? {
                "json" => LogFormat::Json,
                "text" => LogFormat::Text,
                _ => LogFormat::Auto,
            },
            log_level: from.text("log.level")?,
            mailbox: mailbox(&from)?,
            topic_classes: longest_first(from.pairs("mailbox.topic_classes")?),
            weights: weights(from.pairs("mailbox.weights")?)?,
            limits,
            admission: admission(&from)?,
            admission_backend: from.take("admission.backend", |value| {
                if let Value::Backend(backend) = value {
                    Some(backend.clone())
                } else {
                    None
                }
            })?,
            admission_max_rows: from.number("admission.max_rows")?,
            domains: domains(&from)?,
            warrants: warrants(&from)?,
        })
    }
}

fn mailbox(from: &Reader<'_>) -> Result<mailbox::Policy, Mismatch> {
    Ok(mailbox::Policy {
        shards: from.number("mailbox.ready_shards")?,
        shard_capacity: from.number("mailbox.shard_capacity")?,
        global_inflight: from.number("mailbox.global_inflight")?,
        dedup_capacity: from.number("mailbox.dedup_capacity")?,
        visibility_min_ms: from.millis("mailbox.visibility_ms_min")?,
        default_visibility_ms: from.millis("mailbox.default_visibility")?,
        visibility_max_ms: from.millis("mailbox.visibility_max")?,
        max_messages: from.number("mailbox.max_messages")?,
        max_bytes: from.bytes("mailbox.max_bytes")?,
        t_replay_ms: from.millis("mailbox.t_replay")?,
        backoff_base_ms: from.millis("mailbox.backoff_base")?,
        backoff_max_ms: from.millis("mailbox.backoff_max")?,
        max_attempts: from.number("mailbox.max_attempts")?,
        ready_retention_ms: from.millis("retention.ready_seconds")?,
        inflight_factor: from.number("retention.inflight_factor")?,
        dlq_retention_ms: from.millis("retention.dlq_seconds")?,
        require_lease: from.switch("mailbox.require_lease")?,
        max_payload_bytes: from.bytes("limits.max_body_bytes")?,
    })
}

fn admission(from: &Reader<'_>) -> Result<asyncgate_admission::Settings, Mismatch> {
    let mode = |name| FailureMode::named(from.word(name)?).ok_or(Mismatch(name));
    let seconds = |name| Ok(1_000 * from.number::<i64>(name)?);
    // What everything hangs on cannot be revoked by mistake.
    let mut protected = public_keys(from, "admission.revocation.protected_keys")?;
    protected.extend(public_keys(from, "warrants.trusted_roots")?);
    Ok(asyncgate_admission::Settings {
        timeout: Duration::from_millis(from.number("admission.timeout_ms")?),
        nonces: mode("admission.nonce_failure_mode")?,
        counters: mode("admission.counter_failure_mode")?,
        revocations: mode("admission.revocation_failure_mode")?,
        cache: RevocationCache {
            ttl_ms: seconds("admission.revocation.cache_ttl_secs")?,
            max_staleness_ms: seconds("admission.revocation.max_staleness_secs")?,
        },
        protected: Protected::new(&protected),
    })
}

fn public_keys(from: &Reader<'_>, name: &'static str) -> Result<Vec<[u8; 32]>, Mismatch> {
    let keys = from.list(name)?;
    let keys = keys
        .iter()
        .map(|key| hex::decode(key).ok_or(Mismatch(name)));
    keys.collect()
}

fn warrants(from: &Reader<'_>) -> Result<asyncgate_warrants::Policy, Mismatch> {
    Ok(asyncgate_warrants::Policy {
        trusted_roots: public_keys(from, "warrants.trusted_roots")?,
        require_pop: from.switch("warrants.require_pop")?,
        revocation: match from.word("warrants.revocation")? {
            "always" => RevocationPolicy::Always,
            _ => RevocationPolicy::Marked,
        },
        clock_skew_secs: from.number("warrants.clock_skew_secs")?,
    })
}

fn ingress(from: &Reader<'_>, limits: &Limits) -> Result<Ingresses, Mismatch> {
    let text = from.secret("ingress")?;
    let text = text.as_ref().map_or("", Secret::reveal);
    ingresses(text, limits).map_err(|_| Mismatch("ingress"))
}

fn domains(from: &Reader<'_>) -> Result<Domains, Mismatch> {
    let evaluator = match from.word("domains.evaluator")? {
        "none" => None,
        _ => {
            let text = from.secret("domains.keys")?;
            let text = text.as_ref().map_or("", Secret::reveal);
            Some(keys(text).map_err(|_| Mismatch("domains.keys"))?)
        }
    };
    Ok(Domains {
        enabled: from.switch("domains.enabled")?,
        compat: match from.word("domains.compat")? {
            "cip40" => Compat::Cip40,
            _ => Compat::Odis,
        },
        evaluator,
        client_policy: from.optional("domains.client_policy", Reader::text)?,
    })
}

fn longest_first(mut classes: Vec<(String, String)>) -> Vec<(String, String)> {
    classes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    classes
}

/// What has the form of a tenant's id is one; anything else is the beginning of topics' names.
fn weights(pairs: Vec<(String, String)>) -> Result<Weights, Mismatch> {
    let mut weights = Weights::default();
    for (name, weight) in pairs {
        let weight = weight.parse().map_err(|_| Mismatch("mailbox.weights"))?;
        match name.parse() {
            Ok(tenant) => {
                weights.tenants.insert(tenant, weight);
            }
            Err(_) => weights.topics.push((name, weight)),
        }
    }
    Ok(weights)
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

    fn bytes(&self, name: &'static str) -> Result<usize, Mismatch> {
        self.take(name, |value| {
            if let Value::Size(bytes) = value {
                usize::try_from(*bytes).ok()
            } else {
                None
            }
        })
    }

    fn duration(&self, name: &'static str) -> Result<Duration, Mismatch> {
        self.take(name, |value| {
            if let Value::Duration(time) = value {
                Some(*time)
            } else {
                None
            }
        })
    }

    fn millis(&self, name: &'static str) -> Result<i64, Mismatch> {
        let time = self.duration(name)?;
        i64::try_from(time.as_millis()).map_err(|_| Mismatch(name))
    }

    fn uids(&self, name: &'static str) -> Result<Vec<u32>, Mismatch> {
        self.take(name, |value| {
            if let Value::Uids(uids) = value {
                Some(uids.clone())
            } else {
                None
            }
        })
    }

    fn pairs(&self, name: &'static str) -> Result<Vec<(String, String)>, Mismatch> {
        self.take(name, |value| {
            if let Value::Pairs(pairs) = value {
                Some(pairs.clone())
            } else {
                None
            }
        })
    }

    fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&Self, &'static str) -> Result<T, Mismatch>,
    ) -> Result<Option<T>, Mismatch> {
        match self.0.get(name) {
            Some(entry) if entry.value == Value::Unset => Ok(None),
            _ => read(self, name).map(Some),
        }
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

    fn table(&self, name: &'static str) -> Result<&str, Mismatch> {
        match self.0.get(name).map(|entry| &entry.value) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(Mismatch(name)),
        }
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
    use super::super::table;
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

    /// The bounds of every amount fit the type of its field.
    #[test]
    fn both_ends_of_every_range_become_settings() {
        for key in table::keys() {
            let bounds = if let Rule::Integer { min, max } = key.rule {
                [min.to_string(), max.to_string()]
            } else if let Rule::Duration { min_ms, max_ms } = key.rule {
                [min_ms, max_ms].map(|millis| format!("{millis}ms"))
            } else if let Rule::Size { min, max } = key.rule {
                [min, max].map(|bytes| bytes.to_string())
            } else {
                continue;
            };
            for bound in bounds {
                let mut effective = Effective::read(&Inputs::default()).unwrap();
                // Other settings may not allow it; here only the type is of interest.
                let value = key.rule.check(&bound).unwrap();
                effective.imply(key.name, value, "the test");
                Settings::new(&effective).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            }
        }
    }
}
