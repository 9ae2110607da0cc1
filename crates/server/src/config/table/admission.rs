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
        "The backend that decides about nonces, limits and revocations: the store, Redis, DynamoDB, or none (minimal), which allows everything.",
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
        Rule::Table(Kind::Limits(Table::Policies)),
        "Policies by name; their kind is token_bucket, fixed_window, sequential_delay or tiered.",
    ),
    live(
        "limits.tiers",
        "",
        Rule::Table(Kind::Limits(Table::Tiers)),
        "Clients of the tiers trusted, batch and throttled.",
    ),
    live(
        "limits.gate",
        "",
        Rule::Table(Kind::Limits(Table::Gate)),
        "Policies that the server's own operations are limited by: global, tenant, principal, tasks.",
    ),
    live(
        "limits.envoy",
        "",
        Rule::Table(Kind::Limits(Table::Envoy)),
        "Policies by Envoy's domains and descriptors.",
    ),
    live(
        "warrants.trusted_roots",
        "",
        Rule::Keys,
        "Keys that may issue the first warrant of a chain; they cannot be revoked.",
    ),
    live(
        "warrants.require_pop",
        "false",
        Rule::Switch,
        "Whether every call by warrant needs its holder's proof.",
    ),
    live(
        "warrants.revocation",
        "marked",
        Rule::OneOf(&["marked", "always"]),
        "Whether revocation is asked about if a warrant of the chain says so, or always.",
    ),
    live(
        "warrants.clock_skew_secs",
        "30",
        integer(0, 3_600),
        "How far the clocks of those who issue warrants may differ.",
    ),
    live(
        "ingress",
        "",
        Rule::Table(Kind::Ingress),
        "Ways in for senders that sign, by name: secrets, tenant, principal, task_type, policy, key and limits of their own.",
    ),
    fixed(
        "domains.enabled",
        "true",
        Rule::Switch,
        "Whether requests about sequential delay domains (CIP-40) are served.",
    ),
    fixed(
        "domains.compat",
        "odis",
        Rule::OneOf(&["odis", "cip40"]),
        "Whose word counts about domains where they differ: the deployed signers' or the text's of CIP-40.",
    ),
    fixed(
        "domains.evaluator",
        "none",
        Rule::OneOf(&["none", "poprf-ristretto255"]),
        "What an attempt on a domain buys: the right to go on, or the evaluation of its blinded message.",
    ),
    fixed(
        "domains.keys",
        "",
        Rule::Table(Kind::DomainKeys),
        "Keys of the evaluator, each with a version and a seed of 64 hexadecimal digits; the highest version is the newest.",
    ),
    fixed(
        "domains.client_policy",
        "",
        Rule::Optional(&Rule::Name),
        "A policy that limits requests about domains by the address of the client.",
    ),
];
