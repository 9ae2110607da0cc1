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
        "The length of a lease if the worker asks for none.",
    )
    .or_env(&["DEFAULT_LEASE_TTL_SECONDS"]),
    live(
        "max_lease_ttl_seconds",
        "1800",
        integer(1, DAY),
        "The longest lease and the longest extension; a worker that asks for more gets this.",
    )
    .or_env(&["MAX_LEASE_TTL_SECONDS"]),
    live(
        "lease_sweep_interval_seconds",
        "10",
        integer(1, 3_600),
        "The longest pause between two searches for ended leases.",
    )
    .or_env(&["LEASE_SWEEP_INTERVAL_SECONDS"]),
    live(
        "ledger.sign_interval_seconds",
        "3600",
        integer(0, 86_400 * 365),
        "The time between two signed heads in a ledger that grows; 0 writes none.",
    ),
    live(
        "lease_grace_seconds",
        "0",
        integer(0, 300),
        "The time between the end of a lease and the moment when the task is taken back.",
    )
    .or_env(&["LEASE_GRACE_SECONDS"]),
    live(
        "expiry_jitter_max_seconds",
        "5",
        integer(0, 300),
        "The longest random delay before a task whose lease has ended is offered again.",
    ),
    // Tasks.
    live(
        "default_max_attempts",
        "3",
        integer(1, 1_000),
        "The number of reported failures after which a task has failed for good.",
    )
    .or_env(&["DEFAULT_MAX_ATTEMPTS"]),
    live(
        "max_lease_expiries",
        "20",
        integer(0, 1_000_000),
        "The number of leases of a task that may run out before it ends as failed, if it names none; 0 sets no limit.",
    ),
    live(
        "default_retry_backoff_seconds",
        "30",
        integer(0, DAY),
        "The delay before the first retry; it doubles with each further one.",
    )
    .or_env(&["DEFAULT_RETRY_BACKOFF_SECONDS"]),
    live(
        "max_retry_backoff_seconds",
        "900",
        integer(0, DAY),
        "The longest delay before a retry.",
    )
    .or_env(&["MAX_RETRY_BACKOFF_SECONDS"]),
    live(
        "default_priority",
        "0",
        integer(-1_000_000, 1_000_000),
        "The priority of a task that names none; a task with a higher one goes first.",
    )
    .or_env(&["DEFAULT_PRIORITY"]),
    live(
        "default_fallback_owner_kind",
        "system",
        Rule::OneOf(&["agent", "worker", "service", "human", "system"]),
        "The kind of the principal that gets results which nobody owns.",
    )
    .or_env(&["DEFAULT_FALLBACK_OWNER_KIND"]),
    live(
        "default_fallback_owner_id",
        "asyncgate",
        Rule::Name,
        "The id of the principal that gets results which nobody owns.",
    )
    .or_env(&["DEFAULT_FALLBACK_OWNER_ID"]),
    live(
        "max_payload_bytes",
        "1MiB",
        size(KIB, 64 * MIB),
        "The largest payload and the largest result of a task.",
    ),
    live(
        "max_task_classes",
        "10000",
        integer(1, 1_000_000),
        "The most combinations of a type and required capabilities that a tenant's tasks may have before they end.",
    ),
    // Lists.
    live(
        "default_list_limit",
        "50",
        integer(1, 1_000),
        "The number of items on a page if the caller asks for none.",
    )
    .or_env(&["DEFAULT_LIST_LIMIT"]),
    live(
        "max_list_limit",
        "200",
        integer(1, 1_000),
        "The most items on a page; a caller that asks for more gets this.",
    )
    .or_env(&["MAX_LIST_LIMIT"]),
    live(
        "default_bootstrap_max_items",
        "50",
        integer(1, 1_000),
        "The number of items that bootstrap returns if the caller asks for none.",
    )
    .or_env(&["DEFAULT_BOOTSTRAP_MAX_ITEMS"]),
    live(
        "max_bootstrap_max_items",
        "200",
        integer(1, 1_000),
        "The most items that bootstrap returns.",
    )
    .or_env(&["MAX_BOOTSTRAP_MAX_ITEMS"]),
    // Receipts and retention.
    live(
        "receipts.locatability",
        "lenient",
        Rule::OneOf(&["lenient", "strict"]),
        "With strict, a completion must say where its result is; otherwise it is refused.",
    ),
    live(
        "receipt_retention_days",
        "never",
        Rule::Days,
        "The age at which receipts may be pruned; nothing is deleted by itself.",
    ),
    live(
        "task_retention_days",
        "never",
        Rule::Days,
        "The age at which ended tasks may be pruned; nothing is deleted by itself.",
    ),
];
