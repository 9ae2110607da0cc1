//! The table of settings. Files, environment, flags, `--set`, `config show` and the reference all read
//! this one list, so a new setting is a row here and a field in `Settings`.
//!
//! A setting keeps the name that its specification gave it, in lower case. Later ones are in tables
//! (`http.`, `writer.`, `log.`, `mcp.`, `receipts.`). Where two specifications name the same thing, the
//! second name is an alias.

mod admission;
mod audit;
mod mailbox;
mod oauth;
mod process;
mod security;
mod serving;
mod tasks;
mod tenants;

use super::key::{Key, Reload};
use super::rule::Rule;

const DAY: i64 = 86_400;
const DAY_MS: u64 = 86_400_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn integer(min: i64, max: i64) -> Rule {
    Rule::Integer { min, max }
}

const fn duration(min_ms: u64, max_ms: u64) -> Rule {
    Rule::Duration { min_ms, max_ms }
}

const fn size(min: u64, max: u64) -> Rule {
    Rule::Size { min, max }
}

/// Makes a setting that is read once, at the start.
const fn fixed(name: &'static str, default: &'static str, rule: Rule, doc: &'static str) -> Key {
    Key {
        name,
        alias: None,
        more_env: &[],
        old_env: None,
        flag: None,
        default,
        rule,
        reload: Reload::Restart,
        doc,
    }
}

/// Makes a setting that SIGHUP applies.
const fn live(name: &'static str, default: &'static str, rule: Rule, doc: &'static str) -> Key {
    let mut key = fixed(name, default, rule, doc);
    key.reload = Reload::Live;
    key
}

impl Key {
    const fn alias(mut self, name: &'static str) -> Self {
        self.alias = Some(name);
        self
    }

    const fn or_env(mut self, names: &'static [&'static str]) -> Self {
        self.more_env = names;
        self
    }

    const fn old_env(mut self, name: &'static str) -> Self {
        self.old_env = Some(name);
        self
    }

    const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }
}

/// Returns every setting, in the order of `config show`.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    [
        process::KEYS,
        serving::KEYS,
        security::KEYS,
        oauth::KEYS,
        tasks::KEYS,
        mailbox::KEYS,
        admission::KEYS,
        tenants::KEYS,
        audit::KEYS,
    ]
    .into_iter()
    .flatten()
}

/// Pairs of settings whose first may not exceed its second.
pub static ORDERED: &[(&str, &str)] = &[
    ("default_lease_ttl_seconds", "max_lease_ttl_seconds"),
    ("default_retry_backoff_seconds", "max_retry_backoff_seconds"),
    ("default_list_limit", "max_list_limit"),
    ("default_bootstrap_max_items", "max_bootstrap_max_items"),
    ("mailbox.visibility_ms_min", "mailbox.default_visibility"),
    ("mailbox.default_visibility", "mailbox.visibility_max"),
    ("mailbox.max_bytes", "limits.max_body_bytes"),
    ("mailbox.backoff_base", "mailbox.backoff_max"),
    (
        "admission.revocation.cache_ttl_secs",
        "admission.revocation.max_staleness_secs",
    ),
];

/// Settings that are accepted and shown, but that nothing acts on yet. Setting one gives a warning.
pub static KEPT_FOR_LATER: &[&str] = &[
    "default_fallback_owner_kind",
    "default_fallback_owner_id",
    "receipt_retention_days",
    "task_retention_days",
];

/// The variable that names the config file. It has the prefix of settings but is none.
pub const CONFIG_ENV: &str = "ASYNCGATE_CONFIG";

/// Returns the setting of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.names().any(|own| own == name))
}

/// Returns the known name that is most like `name`, if it can be what was meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(far, candidate)| *far <= (candidate.len() / 3).max(2))
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance over bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut last = i + 1;
        for (b, cell) in right.bytes().zip(row.iter_mut().skip(1)) {
            let next = (diagonal + usize::from(a != b))
                .min(last + 1)
                .min(*cell + 1);
            diagonal = std::mem::replace(cell, next);
            last = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_default_passes_its_own_rule() {
        for key in keys() {
            assert!(key.rule.parse(key.default).is_ok(), "{}", key.name);
        }
    }

    #[test]
    fn no_name_or_variable_is_taken_twice_and_no_key_is_also_a_table() {
        let mut names = HashSet::new();
        let mut variables = HashSet::from([CONFIG_ENV.to_owned()]);
        for key in keys() {
            for variable in key.variables() {
                assert!(variables.insert(variable.clone()), "{variable}");
            }
            for name in key.names() {
                assert!(names.insert(name), "{name}");
                if let Some((table, _)) = name.split_once('.') {
                    assert!(find(table).is_none(), "{table} is a key and a table");
                }
            }
        }
    }

    #[test]
    fn lists_of_names_name_keys() {
        let ordered = ORDERED.iter().flat_map(|(low, high)| [low, high]);
        for name in ordered.chain(KEPT_FOR_LATER) {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn documents_are_one_sentence() {
        for key in keys() {
            assert!(
                key.doc.ends_with('.') && !key.doc.contains('\n'),
                "{}",
                key.name
            );
        }
    }

    #[test]
    fn the_baseline_of_the_specification_is_the_default() {
        let baseline = [
            ("default_lease_ttl_seconds", "300"),
            ("max_lease_ttl_seconds", "1800"),
            ("lease_sweep_interval_seconds", "10"),
            ("lease_grace_seconds", "0"),
            ("default_max_attempts", "3"),
            ("default_retry_backoff_seconds", "30"),
            ("max_retry_backoff_seconds", "900"),
            ("default_priority", "0"),
            ("default_list_limit", "50"),
            ("max_list_limit", "200"),
            ("default_bootstrap_max_items", "50"),
            ("max_bootstrap_max_items", "200"),
            ("default_fallback_owner_kind", "system"),
            ("default_fallback_owner_id", "asyncgate"),
        ];
        for (name, value) in baseline {
            let key = find(name).unwrap();
            assert_eq!(key.default, value, "{name}");
            assert_eq!(key.more_env, [name.to_uppercase()], "{name}");
        }
    }

    /// Key (or its other name), variable, default, and flag, as the mailbox's specification has
    /// them; `-` is nothing. Where a default differs, decision 7 says why.
    const MAILBOX: &str = "
        bind_addr SVCMBX_BIND_ADDR 127.0.0.1:8080 bind
        metrics_addr SVCMBX_METRICS_ADDR - metrics
        max_conns SVCMBX_MAX_CONNS 4096 max-conns
        read_timeout SVCMBX_READ_TIMEOUT 5s read-timeout
        write_timeout SVCMBX_WRITE_TIMEOUT 5s write-timeout
        idle_timeout SVCMBX_IDLE_TIMEOUT 60s idle-timeout
        log.format SVCMBX_LOG_FORMAT auto log-format
        log.level SVCMBX_LOG_LEVEL info log-level
        tls.enabled SVCMBX_TLS_ENABLED false tls
        tls.cert_path SVCMBX_TLS_CERT_PATH - tls-cert
        tls.key_path SVCMBX_TLS_KEY_PATH - tls-key
        limits.max_body_bytes SVCMBX_MAX_BODY_BYTES 1MiB -
        limits.decompress_ratio_cap SVCMBX_DECOMPRESS_RATIO_CAP 10 -
        uds.path SVCMBX_UDS_PATH - uds
        uds.allow_uids SVCMBX_UDS_ALLOW_UIDS - -
        auth.macaroon_path SVCMBX_MACAROON_PATH - -
        amnesia.enabled SVCMBX_AMNESIA false amnesia
        pq.mode SVCMBX_PQ_MODE off pq-mode
        mailbox.profile SVCMBX_PROFILE macronode profile
        mailbox.ready_shards SVCMBX_SHARDS 8 shards
        mailbox.shard_capacity SVCMBX_SHARD_CAP 1000000 shard-cap
        mailbox.global_inflight SVCMBX_GLOBAL_INFLIGHT 8192 global-inflight
        mailbox.visibility_ms_min SVCMBX_VISIBILITY_MS_MIN 250ms visibility-min
        mailbox.default_visibility SVCMBX_VISIBILITY_DEFAULT 5s default-visibility
        mailbox.max_messages SVCMBX_MAX_MESSAGES 32 max-messages
        mailbox.max_bytes SVCMBX_MAX_BYTES 512KiB max-bytes
        mailbox.t_replay SVCMBX_T_REPLAY 300s t-replay
        mailbox.cap_cache_ttl SVCMBX_CAP_CACHE_TTL 30s cap-cache-ttl
        mailbox.backoff_base SVCMBX_BACKOFF_BASE 200ms backoff-base
        mailbox.backoff_max SVCMBX_BACKOFF_MAX 60s backoff-max
        mailbox.max_attempts SVCMBX_MAX_ATTEMPTS 5 max-attempts
        retention.ready_seconds SVCMBX_RET_READY 7d -
        retention.inflight_factor SVCMBX_RET_INFLIGHT_FACTOR 10 -
        retention.dlq_seconds SVCMBX_RET_DLQ 14d -
    ";

    #[test]
    fn the_mailbox_has_the_names_and_defaults_of_its_specification() {
        for line in MAILBOX.trim().lines() {
            let [name, variable, default, flag]: [&str; 4] = line
                .split_whitespace()
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
            let given = |text: &'static str| if text == "-" { "" } else { text };
            let key = find(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(key.more_env, [variable], "{name}");
            assert_eq!(key.default, given(default), "{name}");
            assert_eq!(key.flag.unwrap_or_default(), given(flag), "{name}");
        }
    }

    #[test]
    fn nearest_finds_a_slip_and_not_a_stranger() {
        let names = || keys().map(|key| key.name);
        assert_eq!(
            nearest("default_lease_ttl_second", names()),
            Some("default_lease_ttl_seconds")
        );
        assert_eq!(nearest("log.levle", names()), Some("log.level"));
        assert_eq!(nearest("zzz", names()), None);
    }

    #[test]
    fn distance_counts_edits() {
        for (left, right, edits) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
        ] {
            assert_eq!(distance(left, right), edits, "{left} {right}");
        }
    }
}
