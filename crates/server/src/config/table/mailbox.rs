//! Settings of the mailbox. Names, defaults and `SVCMBX_` variables are its specification's.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY_MS, KIB, MIB, duration, fixed, integer, live, size};

const U32: i64 = u32::MAX as i64;
const HALF_DAY_MS: u64 = DAY_MS / 2;
const DECADE_MS: u64 = 3_650 * DAY_MS;

pub(super) static KEYS: &[Key] = &[
    fixed(
        "mailbox.ready_shards",
        "8",
        integer(1, u16::MAX as i64),
        "Shards that new messages are spread over.",
    )
    .or_env(&["SVCMBX_SHARDS"])
    .old_env("MAILBOX_SHARDS")
    .flag("shards"),
    live(
        "mailbox.shard_capacity",
        "4096",
        integer(1, U32),
        "Messages that may wait in a shard; beyond it senders get 429.",
    )
    .or_env(&["SVCMBX_SHARD_CAP"])
    .flag("shard-cap"),
    live(
        "mailbox.global_inflight",
        "8192",
        integer(1, U32),
        "Messages that may be with receivers at once.",
    )
    .or_env(&["SVCMBX_GLOBAL_INFLIGHT"])
    .flag("global-inflight"),
    live(
        "mailbox.dedup_capacity",
        "4000000",
        integer(1, U32),
        "Sends that are remembered to recognise repetitions.",
    ),
    live(
        "mailbox.visibility_ms_min",
        "250ms",
        duration(1, HALF_DAY_MS),
        "Shortest time that a receiver may ask for.",
    )
    .or_env(&["SVCMBX_VISIBILITY_MS_MIN"])
    .flag("visibility-min"),
    live(
        "mailbox.default_visibility",
        "5s",
        duration(1, HALF_DAY_MS),
        "Time that a receiver gets that asks for none.",
    )
    .or_env(&["SVCMBX_VISIBILITY_DEFAULT"])
    .old_env("VISIBILITY_DEFAULT")
    .flag("default-visibility"),
    live(
        "mailbox.visibility_max",
        "12h",
        duration(1, 7 * DAY_MS),
        "Longest time that a receiver may ask for.",
    ),
    live(
        "mailbox.max_messages",
        "32",
        integer(1, 256),
        "Most messages that one receive hands over.",
    )
    .or_env(&["SVCMBX_MAX_MESSAGES"])
    .flag("max-messages"),
    live(
        "mailbox.max_bytes",
        "512KiB",
        size(1, 64 * MIB),
        "Most content that one receive hands over, unless the first message alone has more.",
    )
    .or_env(&["SVCMBX_MAX_BYTES"])
    .flag("max-bytes"),
    live(
        "limits.max_body_bytes",
        "1MiB",
        size(KIB, 64 * MIB),
        "Largest content of a message, decoded.",
    )
    .or_env(&["SVCMBX_MAX_BODY_BYTES"]),
    live(
        "mailbox.t_replay",
        "300s",
        duration(2, 30 * DAY_MS),
        "How long a repeated send or acknowledgement is recognised.",
    )
    .or_env(&["SVCMBX_T_REPLAY"])
    .flag("t-replay"),
    live(
        "mailbox.cap_cache_ttl",
        "30s",
        duration(0, DAY_MS),
        "How long a verified capability is believed.",
    )
    .or_env(&["SVCMBX_CAP_CACHE_TTL"])
    .flag("cap-cache-ttl"),
    live(
        "mailbox.backoff_base",
        "200ms",
        duration(0, DAY_MS),
        "First step of the backoff after a refusal; it doubles, with jitter.",
    )
    .or_env(&["SVCMBX_BACKOFF_BASE"])
    .flag("backoff-base"),
    live(
        "mailbox.backoff_max",
        "60s",
        duration(0, DAY_MS),
        "Longest backoff.",
    )
    .or_env(&["SVCMBX_BACKOFF_MAX"])
    .flag("backoff-max"),
    live(
        "mailbox.max_attempts",
        "5",
        integer(1, 1_000_000),
        "Deliveries before a message is dead.",
    )
    .or_env(&["SVCMBX_MAX_ATTEMPTS"])
    .flag("max-attempts"),
    live(
        "mailbox.require_lease",
        "false",
        Rule::Switch,
        "Refuse acknowledgements that do not name their lease.",
    ),
    live(
        "mailbox.topic_classes",
        "",
        Rule::Classes,
        "What topics are called in metrics and events, by prefix; the longest that fits counts.",
    ),
    live(
        "mailbox.weights",
        "",
        Rule::Weights,
        "Share of a tenant (its id) or of topics (a prefix) against others; 1 when not named.",
    ),
    live(
        "retention.ready_seconds",
        "7d",
        duration(1_000, DECADE_MS),
        "How long a message may wait before it is dead.",
    )
    .or_env(&["SVCMBX_RET_READY"]),
    live(
        "retention.inflight_factor",
        "10",
        integer(1, 1_000_000),
        "How many times the asked time a receiver may keep a message by extending.",
    )
    .or_env(&["SVCMBX_RET_INFLIGHT_FACTOR"]),
    live(
        "retention.dlq_seconds",
        "14d",
        duration(1_000, DECADE_MS),
        "How long dead letters are kept.",
    )
    .or_env(&["SVCMBX_RET_DLQ"]),
];
