//! Settings of admission and of limits.

use asyncgate_admission::Table;

use super::super::key::Key;
use super::super::rule::Rule;
use super::super::table_value::Kind;
use super::{DAY, fixed, integer, live};

const MODES: Rule = Rule::OneOf(&["closed", "open", "stale_cache"]);

pub(super) static KEYS: &[Key] = &[
    fixed(
        "admission.backend",
        "store",
        Rule::Backend,
        "The backend that decides about nonces, limits and revocations: the store, Redis, DynamoDB, or minimal, which allows everything.",
    ),
    fixed(
        "admission.max_rows",
        "10000000",
        integer(1_000, 1_000_000_000),
        "The most nonces, windows, buckets and delays that a store in memory keeps; beyond it the failure mode decides about new ones.",
    ),
    live(
        "admission.timeout_ms",
        "100",
        integer(1, 60_000),
        "The longest time for a decision, in milliseconds; after it the failure mode decides.",
    ),
    live(
        "admission.nonce_failure_mode",
        "closed",
        MODES,
        "The decision about nonces when the backend does not answer: closed refuses, open allows, stale_cache goes by earlier answers.",
    ),
    live(
        "admission.counter_failure_mode",
        "open",
        MODES,
        "The decision about counters and limits when the backend does not answer, in the same words.",
    ),
    live(
        "admission.revocation_failure_mode",
        "stale_cache",
        MODES,
        "The decision about revocations when the backend does not answer, in the same words.",
    ),
    live(
        "admission.revocation.cache_ttl_secs",
        "60",
        integer(0, DAY),
        "The time for which an answer about a revocation is used again.",
    ),
    live(
        "admission.revocation.max_staleness_secs",
        "300",
        integer(0, 30 * DAY),
        "The greatest age of an earlier answer that stands in when the backend does not answer.",
    ),
    live(
        "admission.revocation.protected_keys",
        "",
        Rule::Keys,
        "The keys that cannot be revoked.",
    ),
    live(
        "limits.policies",
        "",
        Rule::Table(Kind::Limits(Table::Policies)),
        "The policies by name; the kind of each is token_bucket, fixed_window, sequential_delay or tiered.",
    ),
    live(
        "limits.tiers",
        "",
        Rule::Table(Kind::Limits(Table::Tiers)),
        "The clients of the tiers trusted, batch and throttled; all others are standard.",
    ),
    live(
        "limits.gate",
        "",
        Rule::Table(Kind::Limits(Table::Gate)),
        "The policies that limit calls of this server's operations: global, tenant, principal, tasks and messages.",
    ),
    live(
        "limits.envoy",
        "",
        Rule::Table(Kind::Limits(Table::Envoy)),
        "The policies of Envoy's rate limit service, by its domains and descriptors.",
    ),
    live(
        "warrants.trusted_roots",
        "",
        Rule::Keys,
        "The keys that may issue the first warrant of a chain; they cannot be revoked.",
    ),
    live(
        "warrants.require_pop",
        "false",
        Rule::Switch,
        "Requires a proof of possession from the holder of a warrant in every call by warrant.",
    ),
    live(
        "warrants.revocation",
        "marked",
        Rule::OneOf(&["marked", "always"]),
        "With marked, revocation is checked if a warrant of the chain says so; with always, in every call.",
    ),
    live(
        "warrants.clock_skew_secs",
        "30",
        integer(0, 3_600),
        "The largest difference that is allowed between this clock and the clocks of those who issue warrants.",
    ),
    live(
        "ingress",
        "",
        Rule::Table(Kind::Ingress),
        "The ingresses by name, for senders that sign: secrets, tenant, principal, task_type, policy, key and limits of their own.",
    ),
    fixed(
        "domains.enabled",
        "true",
        Rule::Switch,
        "Serves requests about sequential delay domains (CIP-40).",
    ),
    fixed(
        "domains.compat",
        "odis",
        Rule::OneOf(&["odis", "cip40"]),
        "The authority where the two differ about domains: odis is the deployed signers, cip40 is the text of CIP-40.",
    ),
    fixed(
        "domains.evaluator",
        "none",
        Rule::OneOf(&["none", "poprf-ristretto255"]),
        "The gain of an attempt on a domain: with none the right to go on, otherwise the evaluation of its blinded message.",
    ),
    fixed(
        "domains.keys",
        "",
        Rule::Table(Kind::DomainKeys),
        "The keys of the evaluator, each with a version and a seed of 64 hexadecimal digits; the highest version is the newest.",
    ),
    fixed(
        "domains.client_policy",
        "",
        Rule::Optional(&Rule::Name),
        "The policy that limits requests about domains by the address of the client: the built-in policy domains if empty, and no limit with none.",
    ),
];
