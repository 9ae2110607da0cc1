//! Settings of the task plane: leases, tasks, lists and receipts.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY, KIB, MIB, integer, live, size};

pub(super) static KEYS: &[Key] = &[
    // Leases.
    live(
        "default_lease_ttl_seconds",
        "300",
        integer(1, DAY),
        "How long a lease lasts when the worker does not say.",
    )
    .or_env(&["DEFAULT_LEASE_TTL_SECONDS"]),
    live(
        "max_lease_ttl_seconds",
        "1800",
        integer(1, DAY),
        "Longest lease and extension; longer wishes are cut to it.",
    )
    .or_env(&["MAX_LEASE_TTL_SECONDS"]),
    live(
        "lease_sweep_interval_seconds",
        "10",
        integer(1, 3_600),
        "Longest pause between two searches for ended leases.",
    )
    .or_env(&["LEASE_SWEEP_INTERVAL_SECONDS"]),
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
    .or_env(&["LEASE_GRACE_SECONDS"]),
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
    .or_env(&["DEFAULT_MAX_ATTEMPTS"]),
    live(
        "default_retry_backoff_seconds",
        "30",
        integer(0, DAY),
        "Delay before the first retry; it doubles with each one.",
    )
    .or_env(&["DEFAULT_RETRY_BACKOFF_SECONDS"]),
    live(
        "max_retry_backoff_seconds",
        "900",
        integer(0, DAY),
        "Longest delay before a retry.",
    )
    .or_env(&["MAX_RETRY_BACKOFF_SECONDS"]),
    live(
        "default_priority",
        "0",
        integer(-1_000_000, 1_000_000),
        "Priority of a task that names none; higher goes first.",
    )
    .or_env(&["DEFAULT_PRIORITY"]),
    live(
        "default_fallback_owner_kind",
        "system",
        Rule::OneOf(&["agent", "worker", "service", "human", "system"]),
        "Kind of the principal that gets results nobody owns.",
    )
    .or_env(&["DEFAULT_FALLBACK_OWNER_KIND"]),
    live(
        "default_fallback_owner_id",
        "asyncgate",
        Rule::Name,
        "Id of the principal that gets results nobody owns.",
    )
    .or_env(&["DEFAULT_FALLBACK_OWNER_ID"]),
    live(
        "max_payload_bytes",
        "1MiB",
        size(KIB, 64 * MIB),
        "Largest payload and largest result.",
    ),
    // Lists.
    live(
        "default_list_limit",
        "50",
        integer(1, 1_000),
        "Items on a page when the caller does not say.",
    )
    .or_env(&["DEFAULT_LIST_LIMIT"]),
    live(
        "max_list_limit",
        "200",
        integer(1, 1_000),
        "Most items on a page; more is cut to it.",
    )
    .or_env(&["MAX_LIST_LIMIT"]),
    live(
        "default_bootstrap_max_items",
        "50",
        integer(1, 1_000),
        "Items that bootstrap gives when the caller does not say.",
    )
    .or_env(&["DEFAULT_BOOTSTRAP_MAX_ITEMS"]),
    live(
        "max_bootstrap_max_items",
        "200",
        integer(1, 1_000),
        "Most items that bootstrap gives.",
    )
    .or_env(&["MAX_BOOTSTRAP_MAX_ITEMS"]),
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
];
