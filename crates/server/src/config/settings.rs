//! The settings as the program uses them: one field per key, in the type that its user wants.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use asyncgate_admission::FailureMode;
use asyncgate_core::admission::{DOMAINS_POLICY, Limits, Protected, RevocationCache, Tier};
use asyncgate_core::mailbox::{self, TopicClasses};
use asyncgate_domains::Compat;
use asyncgate_engine::{Ingresses, Network};
use asyncgate_mcp::{ToolNames, Toolsets};
use asyncgate_oauth::ProviderSettings;
use asyncgate_store::fair::Weights;
use asyncgate_warrants::RevocationPolicy;

use crate::tls;

use super::Error;
use super::backend::Backend;
use super::domains::{Domains, NO_KEYS, NO_POLICY};
use super::resolve::Entries;
use super::table_value::{Content, Table};
use super::tenants::Tenants;
use super::topic_classes::{self, Classes};
use super::value::{Secret, Value};

/// The place where state lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// In this process only.
    Memory,
    /// In a file in the data directory.
    Sqlite,
}

/// The way in which the mailbox is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Everything is in memory.
    Micronode,
    /// What was acknowledged is kept.
    Macronode,
}

impl Profile {
    /// Returns the profile's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Micronode => "micronode",
            Self::Macronode => "macronode",
        }
    }
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
    /// Text on a terminal, JSON elsewhere.
    Auto,
}

/// The settings of OAuth.
#[derive(Debug, Clone)]
pub struct Oauth {
    pub enabled: bool,
    pub providers: Vec<ProviderSettings>,
    pub local_login: bool,
    pub dynamic_registration: bool,
    pub client_documents: bool,
    /// The tenant of clients that register themselves or that a document describes.
    pub registration_tenant: String,
    pub access_token_ttl_days: u32,
    pub refresh_token_ttl_days: u32,
}

/// Every setting that the program acts on. Settings that nothing acts on yet are in the table only.
#[derive(Debug, Clone)]
pub struct Settings {
    pub bind: SocketAddr,
    pub metrics_addr: Option<SocketAddr>,
    /// The certificates and key exchanges, if the main address speaks TLS.
    pub tls: Option<tls::Options>,
    pub hsts: bool,
    pub trusted_proxies: Vec<Network>,
    pub uds_path: Option<PathBuf>,
    pub uds_allow_uids: Vec<u32>,
    pub profile: Profile,
    pub data_dir: PathBuf,
    pub store: StoreKind,
    pub instance_id: String,
    pub environment: String,
    pub api_key: Option<Secret>,
    pub allow_insecure_dev: bool,
    /// The address by which clients reach this server, if it is known.
    pub public_url: Option<String>,
    /// The time for which a credential that was proved is trusted.
    pub proof_ttl: Duration,
    pub macaroon_path: Option<PathBuf>,
    pub jwt_key_path: Option<PathBuf>,
    pub jwt_issuer: String,
    pub jwt_audience: String,
    pub hash_time_cost: u32,
    pub hash_memory_cost: u32,
    pub hash_parallelism: u32,
    pub oauth: Oauth,
    pub default_lease_ttl: Duration,
    pub max_lease_ttl: Duration,
    pub lease_sweep_interval: Duration,
    pub ledger_sign_interval: Duration,
    pub audit_retention_days: u32,
    pub lease_grace: Duration,
    pub expiry_jitter_max: Duration,
    pub default_max_attempts: u32,
    pub max_lease_expiries: u32,
    pub default_retry_backoff_seconds: u32,
    pub max_retry_backoff_seconds: u32,
    pub default_priority: i32,
    pub max_payload_bytes: usize,
    pub max_task_classes: usize,
    pub max_body_bytes: usize,
    pub decompress_ratio_cap: u32,
    pub memory_budget: usize,
    pub default_list_limit: u32,
    pub max_list_limit: u32,
    pub default_bootstrap_items: u32,
    pub max_bootstrap_items: u32,
    pub strict_locatability: bool,
    pub writer_queue_jobs: usize,
    pub writer_queue_bytes: usize,
    pub writer_hot_bytes: usize,
    pub sqlite_readers: usize,
    pub max_connections: usize,
    pub max_connections_per_address: usize,
    pub min_transfer_rate: usize,
    pub read_timeout: Duration,
    pub write_timeout: Duration,
    pub idle_timeout: Duration,
    pub request_timeout: Duration,
    pub drain_grace: Duration,
    pub drain_timeout: Duration,
    pub allowed_origins: Vec<String>,
    pub tool_names: ToolNames,
    pub toolsets: Option<Toolsets>,
    pub log_format: LogFormat,
    pub log_level: String,
    pub mailbox: mailbox::Policy,
    pub topic_classes: TopicClasses,
    pub weights: Weights,
    pub limits: Limits,
    pub tenants: Tenants,
    pub admission: asyncgate_admission::Settings,
    pub admission_backend: Backend,
    pub admission_max_rows: usize,
    pub domains: Domains,
    pub ingress: Ingresses,
    pub warrants: asyncgate_warrants::Policy,
}

impl Settings {
    /// Takes the values out of the table's form, and checks tables against the settings that they name.
    pub(super) fn new(from: &Entries) -> Result<Self, Error> {
        let limits = limits(from)?;
        Ok(Self {
            ingress: ingress(from, &limits)?,
            domains: domains(from, &limits)?,
            bind: from.read("bind")?,
            metrics_addr: from.optional("metrics_addr")?,
            tls: tls_options(from)?,
            hsts: from.read("server.hsts")?,
            trusted_proxies: from.read("server.trusted_proxies")?,
            uds_path: from.optional("uds.path")?,
            uds_allow_uids: from.read("uds.allow_uids")?,
            profile: if from.word("mailbox.profile")? == "micronode" {
                Profile::Micronode
            } else {
                Profile::Macronode
            },
            data_dir: from.read("data_dir")?,
            store: if from.word("store")? == "memory" {
                StoreKind::Memory
            } else {
                StoreKind::Sqlite
            },
            instance_id: from.read("instance_id")?,
            environment: from.read("environment")?,
            api_key: from.read("api_key")?,
            allow_insecure_dev: from.read("allow_insecure_dev")?,
            public_url: from.optional("server.public_url")?,
            proof_ttl: proof_ttl(from)?,
            macaroon_path: from.optional("auth.macaroon_path")?,
            jwt_key_path: from.optional("security.jwt.private_key_path")?,
            jwt_issuer: from.read("security.jwt.issuer")?,
            jwt_audience: from.read("security.jwt.audience")?,
            hash_time_cost: from.number("security.api_keys.hash_time_cost")?,
            hash_memory_cost: from.number("security.api_keys.hash_memory_cost")?,
            hash_parallelism: from.number("security.api_keys.hash_parallelism")?,
            oauth: oauth(from)?,
            default_lease_ttl: from.seconds("default_lease_ttl_seconds")?,
            max_lease_ttl: from.seconds("max_lease_ttl_seconds")?,
            lease_sweep_interval: from.seconds("lease_sweep_interval_seconds")?,
            ledger_sign_interval: from.seconds("ledger.sign_interval_seconds")?,
            audit_retention_days: from.number("security.audit_logging.retention_days")?,
            lease_grace: from.seconds("lease_grace_seconds")?,
            expiry_jitter_max: from.seconds("expiry_jitter_max_seconds")?,
            default_max_attempts: from.number("default_max_attempts")?,
            max_lease_expiries: from.number("max_lease_expiries")?,
            default_retry_backoff_seconds: from.number("default_retry_backoff_seconds")?,
            max_retry_backoff_seconds: from.number("max_retry_backoff_seconds")?,
            default_priority: from.number("default_priority")?,
            max_payload_bytes: from.bytes("max_payload_bytes")?,
            max_task_classes: from.number("max_task_classes")?,
            max_body_bytes: from.bytes("max_body_bytes")?,
            decompress_ratio_cap: from.number("limits.decompress_ratio_cap")?,
            memory_budget: from.bytes("limits.memory_budget")?,
            default_list_limit: from.number("default_list_limit")?,
            max_list_limit: from.number("max_list_limit")?,
            default_bootstrap_items: from.number("default_bootstrap_max_items")?,
            max_bootstrap_items: from.number("max_bootstrap_max_items")?,
            strict_locatability: from.word("receipts.locatability")? == "strict",
            writer_queue_jobs: from.number("writer.queue_jobs")?,
            writer_queue_bytes: from.bytes("writer.queue_bytes")?,
            writer_hot_bytes: from.bytes("writer.hot_bytes")?,
            sqlite_readers: from.number("sqlite.readers")?,
            max_connections: from.number("http.max_connections")?,
            max_connections_per_address: from.number("http.max_connections_per_address")?,
            min_transfer_rate: from.bytes("server.min_transfer_rate")?,
            read_timeout: from.read("read_timeout")?,
            write_timeout: from.read("write_timeout")?,
            idle_timeout: from.read("idle_timeout")?,
            request_timeout: from.seconds("http.request_timeout_seconds")?,
            drain_grace: from.read("drain_grace")?,
            drain_timeout: from.seconds("http.drain_timeout_seconds")?,
            allowed_origins: from.read("mcp.allowed_origins")?,
            tool_names: match from.word("mcp.tool_names")? {
                "dotted" => ToolNames::Dotted,
                _ => ToolNames::Underscore,
            },
            toolsets: from.optional("mcp.toolsets")?,
            log_format: match from.word("log.format")? {
                "json" => LogFormat::Json,
                "text" => LogFormat::Text,
                _ => LogFormat::Auto,
            },
            log_level: from.read("log.level")?,
            mailbox: mailbox(from)?,
            topic_classes: topic_classes::rule(from.read("mailbox.topic_classes")?),
            weights: weights(from.read("mailbox.weights")?),
            limits,
            tenants: Tenants::new(from)?,
            admission: admission(from)?,
            admission_backend: from.read("admission.backend")?,
            admission_max_rows: from.number("admission.max_rows")?,
            warrants: warrants(from)?,
        })
    }
}

/// Returns for how long a proved credential is trusted. Two specifications name this.
fn proof_ttl(from: &Entries) -> Result<Duration, Error> {
    match from.optional::<i64>("security.cap_cache_ttl_secs")? {
        Some(_) => from.seconds("security.cap_cache_ttl_secs"),
        None => from.read("mailbox.cap_cache_ttl"),
    }
}

fn mailbox(from: &Entries) -> Result<mailbox::Policy, Error> {
    Ok(mailbox::Policy {
        shards: from.number("mailbox.ready_shards")?,
        topic_capacity: from.number("mailbox.topic_capacity")?,
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
        require_lease: from.read("mailbox.require_lease")?,
        max_payload_bytes: from.bytes("limits.max_body_bytes")?,
    })
}

fn admission(from: &Entries) -> Result<asyncgate_admission::Settings, Error> {
    let mode = |name| FailureMode::named(from.word(name)?).ok_or(Error::Defect(name));
    let seconds = |name| Ok(1_000 * from.number::<i64>(name)?);
    // Every warrant depends on these keys, so nobody can revoke them by mistake.
    let mut protected = from.read::<Vec<_>>("admission.revocation.protected_keys")?;
    protected.extend(from.read::<Vec<[u8; 32]>>("warrants.trusted_roots")?);
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

fn warrants(from: &Entries) -> Result<asyncgate_warrants::Policy, Error> {
    Ok(asyncgate_warrants::Policy {
        trusted_roots: from.read("warrants.trusted_roots")?,
        require_pop: from.read("warrants.require_pop")?,
        revocation: match from.word("warrants.revocation")? {
            "always" => RevocationPolicy::Always,
            _ => RevocationPolicy::Marked,
        },
        clock_skew_secs: from.number("warrants.clock_skew_secs")?,
    })
}

fn tls_options(from: &Entries) -> Result<Option<tls::Options>, Error> {
    if !from.read("tls.enabled")? {
        return Ok(None);
    }
    let path = |name| {
        let needs = || from.refuse("tls.enabled", format!("needs {name}"));
        from.optional(name)?.ok_or_else(needs)
    };
    Ok(Some(tls::Options {
        certificates: path("tls.cert_path")?,
        key: path("tls.key_path")?,
        clients: client_auth(from)?,
        pq: pq_mode(from)?,
    }))
}

fn client_auth(from: &Entries) -> Result<tls::ClientAuth, Error> {
    let roots = || {
        let needs = || from.refuse("tls.client_auth", "needs tls.client_ca");
        from.optional("tls.client_ca")?.ok_or_else(needs)
    };
    Ok(match from.word("tls.client_auth")? {
        "required" => tls::ClientAuth::Required(roots()?),
        "optional" => tls::ClientAuth::Optional(roots()?),
        _ => tls::ClientAuth::Off,
    })
}

fn pq_mode(from: &Entries) -> Result<tls::PqMode, Error> {
    Ok(match from.word("pq.mode")? {
        "only" => tls::PqMode::Only,
        "hybrid" => tls::PqMode::Hybrid,
        _ => tls::PqMode::Off,
    })
}

/// Puts the tables of limits together: what one of them names must be in another.
fn limits(from: &Entries) -> Result<Limits, Error> {
    let rows = from.iter().filter_map(|(_, entry)| {
        if let Value::Table(table) = &entry.value
            && let Content::Limits(rows) = &table.content
        {
            Some(rows.clone())
        } else {
            None
        }
    });
    asyncgate_admission::limits(rows)
        .map_err(|wrong| from.refuse(wrong.table.setting(), is_wrong(&wrong.problem)))
}

fn ingress(from: &Entries, limits: &Limits) -> Result<Ingresses, Error> {
    let Content::Ingress(ingresses) = from.read::<Table>("ingress")?.content else {
        return Err(Error::Defect("ingress"));
    };
    for (name, ingress) in &ingresses {
        if !has_policy(limits, &ingress.policy) {
            let problem = format!("{name}: there is no policy named {}", ingress.policy);
            return Err(from.refuse("ingress", is_wrong(&problem)));
        }
    }
    Ok(ingresses)
}

fn domains(from: &Entries, limits: &Limits) -> Result<Domains, Error> {
    let Content::DomainKeys(keys) = from.read::<Table>("domains.keys")?.content else {
        return Err(Error::Defect("domains.keys"));
    };
    let evaluator = match from.word("domains.evaluator")? {
        "none" => None,
        _ => Some(keys.ok_or_else(|| from.refuse("domains.keys", is_wrong(NO_KEYS)))?),
    };
    let named: Option<String> = from.optional("domains.client_policy")?;
    let client_policy = match named.as_deref() {
        // Anybody can make a key and sign with it, and what is stored of a domain stays for ever. So nobody may ask
        // without a limit by default.
        None => Some(DOMAINS_POLICY.to_owned()),
        Some(NO_POLICY) => None,
        Some(policy) if has_policy(limits, policy) => named,
        Some(_) => return Err(from.refuse("domains.client_policy", "names no policy")),
    };
    Ok(Domains {
        enabled: from.read("domains.enabled")?,
        compat: match from.word("domains.compat")? {
            "cip40" => Compat::Cip40,
            _ => Compat::Odis,
        },
        evaluator,
        client_policy,
    })
}

fn oauth(from: &Entries) -> Result<Oauth, Error> {
    let Content::Providers(providers) = from.read::<Table>("security.oauth.providers")?.content
    else {
        return Err(Error::Defect("security.oauth.providers"));
    };
    Ok(Oauth {
        enabled: from.read("security.oauth.enabled")?,
        providers,
        local_login: from.read("security.oauth.local_login")?,
        dynamic_registration: from.read("security.oauth.dynamic_registration")?,
        client_documents: from.read("security.oauth.client_metadata_documents")?,
        registration_tenant: from.read("security.oauth.registration_tenant")?,
        access_token_ttl_days: from.number("security.jwt.access_token_ttl_days")?,
        refresh_token_ttl_days: from.number("security.jwt.refresh_token_ttl_days")?,
    })
}

fn has_policy(limits: &Limits, policy: &str) -> bool {
    limits.resolve(policy, Tier::default()).is_ok()
}

/// Formats a problem within a table.
fn is_wrong(problem: &str) -> String {
    format!("is wrong: {problem}")
}

/// Sorts weights: a name in the form of a tenant's id is one, any other is a prefix of topics.
fn weights(pairs: Vec<(String, u32)>) -> Weights {
    let mut weights = Weights::default();
    for (name, weight) in pairs {
        match name.parse() {
            Ok(tenant) => {
                weights.tenants.insert(tenant, weight);
            }
            Err(_) => weights.topics.push((name, weight)),
        }
    }
    weights
}

/// Typed access to the values. That a value has another type than its field is a defect, which the
/// tests below would show.
impl Entries {
    pub(super) fn read<T: FromValue>(&self, name: &'static str) -> Result<T, Error> {
        T::from_value(&self.get(name)?.value).ok_or(Error::Defect(name))
    }

    pub(super) fn optional<T: FromValue>(&self, name: &'static str) -> Result<Option<T>, Error> {
        match self.get(name)?.value == Value::Unset {
            true => Ok(None),
            false => self.read(name).map(Some),
        }
    }

    pub(super) fn word(&self, name: &'static str) -> Result<&'static str, Error> {
        self.read(name)
    }

    pub(super) fn number<T: TryFrom<i64>>(&self, name: &'static str) -> Result<T, Error> {
        T::try_from(self.read(name)?).map_err(|_| Error::Defect(name))
    }

    pub(super) fn seconds(&self, name: &'static str) -> Result<Duration, Error> {
        self.number(name).map(Duration::from_secs)
    }

    pub(super) fn millis(&self, name: &'static str) -> Result<i64, Error> {
        let time: Duration = self.read(name)?;
        i64::try_from(time.as_millis()).map_err(|_| Error::Defect(name))
    }

    fn bytes(&self, name: &'static str) -> Result<usize, Error> {
        usize::try_from(self.read::<u64>(name)?).map_err(|_| Error::Defect(name))
    }
}

/// A type that values of settings have.
pub(super) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $variant:ident),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                if let Value::$variant(inner) = value {
                    Some(inner.to_owned())
                } else {
                    None
                }
            }
        }
    )*};
}

from_value! {
    asyncgate_courier::Address: Webhook,
    Backend: Backend,
    bool: Switch,
    Duration: Duration,
    i64: Integer,
    Option<Secret>: Secret,
    PathBuf: Path,
    SocketAddr: Address,
    &'static str: Word,
    String: Text,
    Table: Table,
    u64: Size,
    Classes: Classes,
    Vec<(String, u32)>: Weights,
    Vec<[u8; 32]>: Keys,
    Vec<Network>: Networks,
    Vec<String>: List,
    Vec<u32>: Uids,
    Toolsets: Toolsets,
}

#[cfg(test)]
mod tests {
    use super::super::rule::Rule;
    use super::super::{Effective, Inputs, table};
    use super::*;

    #[test]
    fn the_defaults_become_settings() {
        let settings = Effective::read(&Inputs::default()).unwrap().settings;
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
                let mut entries = Effective::read(&Inputs::default()).unwrap().entries;
                // Other settings may not allow it; here only the type is of interest.
                let value = key.rule.parse(&bound).unwrap();
                entries.imply(key.name, value, "the test");
                Settings::new(&entries).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            }
        }
    }
}
