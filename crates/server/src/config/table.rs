//! The table of settings. A setting exists because it stands here: files, environment, `--set`,
//! `config show` and the reference all read this list.
//!
//! A key keeps the name that its specification gave it, in lower case. Keys that came later live
//! in tables (`http.`, `writer.`, `log.`, `mcp.`, `receipts.`).

use super::key::{Key, Reload, Rule};

const DAY: i64 = 86_400;
const MIB: i64 = 1_048_576;

const fn integer(min: i64, max: i64) -> Rule {
    Rule::Integer { min, max }
}

/// A setting that is read once, at the start.
const fn fixed(name: &'static str, default: &'static str, rule: Rule, doc: &'static str) -> Key {
    Key {
        name,
        bare_env: None,
        default,
        rule,
        reload: Reload::Restart,
        doc,
    }
}

/// A setting that SIGHUP applies.
const fn live(name: &'static str, default: &'static str, rule: Rule, doc: &'static str) -> Key {
    Key {
        name,
        bare_env: None,
        default,
        rule,
        reload: Reload::Live,
        doc,
    }
}

impl Key {
    const fn or_env(mut self, bare: &'static str) -> Self {
        self.bare_env = Some(bare);
        self
    }
}

/// Every setting, in the order that `config show` lists them.
pub static KEYS: &[Key] = &[
    // Where it runs.
    fixed(
        "bind",
        "127.0.0.1:8080",
        Rule::Address,
        "Address and port to listen on; port 0 picks a free one.",
    ),
    fixed(
        "data_dir",
        "./data",
        Rule::Path,
        "Directory for the database and the key file.",
    ),
    fixed(
        "store",
        "sqlite",
        Rule::OneOf(&["memory", "sqlite"]),
        "Where state lives; memory forgets everything at exit.",
    ),
    fixed(
        "instance_id",
        "asyncgate-1",
        Rule::Name,
        "Name of this instance, stamped on tasks and receipts.",
    ),
    fixed(
        "environment",
        "development",
        Rule::Name,
        "Name of the deployment, told to clients.",
    ),
    // Who may call.
    fixed(
        "api_key",
        "",
        Rule::Secret,
        "Shared key: whoever presents it is the admin of the default tenant.",
    ),
    fixed(
        "allow_insecure_dev",
        "false",
        Rule::Switch,
        "Serve without credentials; loopback only.",
    )
    .or_env("ALLOW_INSECURE_DEV"),
    // Leases.
    live(
        "default_lease_ttl_seconds",
        "300",
        integer(1, DAY),
        "How long a lease lasts when the worker does not say.",
    )
    .or_env("DEFAULT_LEASE_TTL_SECONDS"),
    live(
        "max_lease_ttl_seconds",
        "1800",
        integer(1, DAY),
        "Longest lease and extension; longer wishes are cut to it.",
    )
    .or_env("MAX_LEASE_TTL_SECONDS"),
    live(
        "lease_sweep_interval_seconds",
        "10",
        integer(1, 3_600),
        "Longest pause between two searches for ended leases.",
    )
    .or_env("LEASE_SWEEP_INTERVAL_SECONDS"),
    live(
        "ledger.sign_interval_seconds",
        "3600",
        integer(0, 86_400 * 365),
        "How often a signed head is written into each ledger that has grown; 0 means never.",
    ),
    live(
        "lease_grace_seconds",
        "0",
        integer(0, 300),
        "How long an ended lease is left alone before it is taken back.",
    )
    .or_env("LEASE_GRACE_SECONDS"),
    live(
        "expiry_jitter_max_seconds",
        "5",
        integer(0, 300),
        "Largest random delay before a task with an ended lease is offered again.",
    ),
    // Tasks.
    live(
        "default_max_attempts",
        "3",
        integer(1, 1_000),
        "Reported failures after which a task has failed.",
    )
    .or_env("DEFAULT_MAX_ATTEMPTS"),
    live(
        "default_retry_backoff_seconds",
        "30",
        integer(0, DAY),
        "Delay before the first retry; it doubles with each one.",
    )
    .or_env("DEFAULT_RETRY_BACKOFF_SECONDS"),
    live(
        "max_retry_backoff_seconds",
        "900",
        integer(0, DAY),
        "Longest delay before a retry.",
    )
    .or_env("MAX_RETRY_BACKOFF_SECONDS"),
    live(
        "default_priority",
        "0",
        integer(-1_000_000, 1_000_000),
        "Priority of a task that names none; higher goes first.",
    )
    .or_env("DEFAULT_PRIORITY"),
    live(
        "default_fallback_owner_kind",
        "system",
        Rule::OneOf(&["agent", "worker", "service", "human", "system"]),
        "Kind of the principal that gets results nobody owns.",
    )
    .or_env("DEFAULT_FALLBACK_OWNER_KIND"),
    live(
        "default_fallback_owner_id",
        "asyncgate",
        Rule::Name,
        "Id of the principal that gets results nobody owns.",
    )
    .or_env("DEFAULT_FALLBACK_OWNER_ID"),
    live(
        "max_payload_bytes",
        "1048576",
        integer(1_024, 64 * MIB),
        "Largest payload and largest result.",
    ),
    fixed(
        "max_body_bytes",
        "1310720",
        integer(1_024, 128 * MIB),
        "Largest request body: a payload and its envelope.",
    ),
    // Lists.
    live(
        "default_list_limit",
        "50",
        integer(1, 1_000),
        "Items on a page when the caller does not say.",
    )
    .or_env("DEFAULT_LIST_LIMIT"),
    live(
        "max_list_limit",
        "200",
        integer(1, 1_000),
        "Most items on a page; more is cut to it.",
    )
    .or_env("MAX_LIST_LIMIT"),
    live(
        "default_bootstrap_max_items",
        "50",
        integer(1, 1_000),
        "Items that bootstrap gives when the caller does not say.",
    )
    .or_env("DEFAULT_BOOTSTRAP_MAX_ITEMS"),
    live(
        "max_bootstrap_max_items",
        "200",
        integer(1, 1_000),
        "Most items that bootstrap gives.",
    )
    .or_env("MAX_BOOTSTRAP_MAX_ITEMS"),
    // Receipts and retention.
    live(
        "receipts.locatability",
        "lenient",
        Rule::OneOf(&["lenient", "strict"]),
        "Strict refuses a completion that does not say where its result is.",
    ),
    live(
        "receipt_retention_days",
        "never",
        Rule::Days,
        "Age at which receipts may be pruned; nothing is deleted by itself.",
    ),
    live(
        "task_retention_days",
        "never",
        Rule::Days,
        "Age at which ended tasks may be pruned; nothing is deleted by itself.",
    ),
    // The writer.
    fixed(
        "writer.queue_jobs",
        "4096",
        integer(16, 1_000_000),
        "Writes that may wait for a commit; beyond it callers get 503.",
    ),
    fixed(
        "writer.queue_bytes",
        "67108864",
        integer(MIB, 1 << 40),
        "Bytes that may wait for a commit; beyond it callers get 503.",
    ),
    fixed(
        "sqlite.readers",
        "2",
        integer(1, 64),
        "Threads that read the database.",
    ),
    // The listener.
    fixed(
        "http.max_connections",
        "4096",
        integer(1, 1_000_000),
        "Open connections; more wait to be accepted.",
    ),
    fixed(
        "http.header_timeout_seconds",
        "15",
        integer(1, 600),
        "Time for a request's headers, from their first byte.",
    ),
    fixed(
        "http.keep_alive_seconds",
        "90",
        integer(1, DAY),
        "Time that a connection may stay silent between requests.",
    ),
    fixed(
        "http.request_timeout_seconds",
        "90",
        integer(1, DAY),
        "Time from a request's headers to its answer; waiting calls take up to 60.",
    ),
    fixed(
        "http.drain_timeout_seconds",
        "10",
        integer(0, 600),
        "Time for requests in flight to finish after SIGTERM.",
    ),
    // MCP.
    fixed(
        "mcp.allowed_origins",
        "",
        Rule::Origins,
        "Web origins whose pages may call /mcp; loopback pages always may.",
    ),
    // Logs.
    fixed(
        "log.format",
        "text",
        Rule::OneOf(&["json", "text"]),
        "How log lines look on stderr.",
    ),
    live(
        "log.level",
        "info",
        Rule::LogFilter,
        "What is logged: a level, or directives per module.",
    ),
];

/// Pairs of keys whose first may not exceed its second.
pub static ORDERED: &[(&str, &str)] = &[
    ("default_lease_ttl_seconds", "max_lease_ttl_seconds"),
    ("default_retry_backoff_seconds", "max_retry_backoff_seconds"),
    ("default_list_limit", "max_list_limit"),
    ("default_bootstrap_max_items", "max_bootstrap_max_items"),
];

/// Keys that are accepted and shown, and that nothing acts on yet. Setting one of them warns.
pub static KEPT_FOR_LATER: &[&str] = &[
    "default_fallback_owner_kind",
    "default_fallback_owner_id",
    "receipt_retention_days",
    "task_retention_days",
];

/// The variable that names the file; with the product's prefix, but not a setting.
pub const CONFIG_ENV: &str = "ASYNCGATE_CONFIG";

/// The key of that name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name nearest to `name`, if one is near enough to be what was meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(far, candidate)| *far <= (candidate.len() / 3).max(2))
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance over bytes.
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
        for key in KEYS {
            assert!(key.rule.check(key.default).is_ok(), "{}", key.name);
        }
    }

    #[test]
    fn no_name_or_variable_is_taken_twice_and_no_key_is_also_a_table() {
        let mut names = HashSet::new();
        let mut variables = HashSet::from([CONFIG_ENV.to_owned()]);
        for key in KEYS {
            assert!(names.insert(key.name), "{}", key.name);
            assert!(variables.insert(key.env()), "{}", key.env());
            if let Some(bare) = key.bare_env {
                assert!(variables.insert(bare.to_owned()), "{bare}");
            }
            if let Some((table, _)) = key.name.split_once('.') {
                assert!(find(table).is_none(), "{table} is a key and a table");
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
        for key in KEYS {
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
            assert_eq!(key.bare_env, Some(name.to_uppercase().as_str()), "{name}");
        }
    }

    #[test]
    fn nearest_finds_a_slip_and_not_a_stranger() {
        let names = || KEYS.iter().map(|key| key.name);
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
