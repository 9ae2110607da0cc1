//! Settings of admission and of limits.

use super::super::key::{Key, Rule};
use super::{DAY, fixed, integer, live};

const MODES: Rule = Rule::OneOf(&["closed", "open", "stale_cache"]);

pub(super) static KEYS: &[Key] = &[
    fixed(
        "admission.backend",
        "store",
        Rule::Backend,
        "Who decides about nonces, limits and revocations: the store, Redis, or nobody (minimal), which allows everything.",
    ),
    fixed(
        "admission.max_rows",
        "10000000",
        integer(1_000, 1_000_000_000),
        "Nonces, windows, buckets and delays that a store in memory keeps; beyond it the failure mode counts for new ones.",
    ),
    live(
        "admission.timeout_ms",
        "100",
        integer(1, 60_000),
        "Milliseconds that a decision may take; then the failure mode counts.",
    ),
    live(
        "admission.nonce_failure_mode",
        "closed",
        MODES,
        "What is done about nonces when the backend does not answer.",
    ),
    live(
        "admission.counter_failure_mode",
        "open",
        MODES,
        "What is done about counters and limits when the backend does not answer.",
    ),
    live(
        "admission.revocation_failure_mode",
        "stale_cache",
        MODES,
        "What is done about revocations when the backend does not answer.",
    ),
    live(
        "admission.revocation.cache_ttl_secs",
        "60",
        integer(0, DAY),
        "How long an answer about a revocation is kept.",
    ),
    live(
        "admission.revocation.max_staleness_secs",
        "300",
        integer(0, 30 * DAY),
        "How long a kept answer may stand in when the registry does not answer.",
    ),
    live(
        "admission.revocation.protected_keys",
        "",
        Rule::Keys,
        "Keys that cannot be revoked.",
    ),
    live(
        "limits.policies",
        "",
        Rule::Table,
        "Policies by name; their kind is token_bucket, fixed_window, sequential_delay or tiered.",
    ),
    live(
        "limits.tiers",
        "",
        Rule::Table,
        "Clients of the tiers trusted, batch and throttled.",
    ),
    live(
        "limits.gate",
        "",
        Rule::Table,
        "Policies that the server's own operations are limited by: global, tenant, principal, tasks.",
    ),
    live(
        "limits.envoy",
        "",
        Rule::Table,
        "Policies by Envoy's domains and descriptors.",
    ),
];
