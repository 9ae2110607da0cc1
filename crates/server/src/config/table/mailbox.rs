//! Settings of the mailbox. Names, defaults and `SVCMBX_` variables come from its specification.

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
        "The number of shards that new messages are spread over.",
    )
    .or_env(&["SVCMBX_SHARDS"])
    .old_env("MAILBOX_SHARDS")
    .flag("shards"),
    live(
        "mailbox.topic_capacity",
        "1000000",
        integer(1, U32),
        "The most messages that may wait in one topic of a tenant, ready and delayed; senders beyond it get 429. They are \
         on disk, about 330 bytes and the content each.",
    )
    .alias("mailbox.shard_capacity")
    .or_env(&["SVCMBX_SHARD_CAP"])
    .old_env("ASYNCGATE_MAILBOX_SHARD_CAPACITY")
    .flag("shard-cap"),
    live(
        "mailbox.global_inflight",
        "8192",
        integer(1, U32),
        "The most messages that receivers may hold at the same time. Tenants share it: what is free is there for all of \
         them, and each has an equal part that others cannot fill.",
    )
    .or_env(&["SVCMBX_GLOBAL_INFLIGHT"])
    .flag("global-inflight"),
    live(
        "mailbox.dedup_capacity",
        "32000000",
        integer(1, U32),
        "The most sends that are remembered to recognise repetitions, shared by tenants like mailbox.global_inflight. \
         Each takes about 75 bytes of memory for mailbox.t_replay: 1,000 sends a second for 300s take 23 MB, 100,000 a \
         second 2.3 GB.",
    ),
    live(
        "mailbox.visibility_ms_min",
        "250ms",
        duration(1, HALF_DAY_MS),
        "The shortest visibility that a receiver may ask for.",
    )
    .or_env(&["SVCMBX_VISIBILITY_MS_MIN"])
    .flag("visibility-min"),
    live(
        "mailbox.default_visibility",
        "5s",
        duration(1, HALF_DAY_MS),
        "The visibility if the receiver asks for none: until it ends, nobody else gets the message.",
    )
    .or_env(&["SVCMBX_VISIBILITY_DEFAULT"])
    .old_env("VISIBILITY_DEFAULT")
    .flag("default-visibility"),
    live(
        "mailbox.visibility_max",
        "12h",
        duration(1, 7 * DAY_MS),
        "The longest visibility that a receiver may ask for.",
    ),
    live(
        "mailbox.max_messages",
        "32",
        integer(1, 256),
        "The most messages that one receive returns.",
    )
    .or_env(&["SVCMBX_MAX_MESSAGES"])
    .flag("max-messages"),
    live(
        "mailbox.max_bytes",
        "512KiB",
        size(1, 64 * MIB),
        "The most content that one receive returns; a first message that is larger is returned alone.",
    )
    .or_env(&["SVCMBX_MAX_BYTES"])
    .flag("max-bytes"),
    live(
        "limits.max_body_bytes",
        "1MiB",
        size(KIB, 64 * MIB),
        "The largest content of a message, decoded.",
    )
    .or_env(&["SVCMBX_MAX_BODY_BYTES"]),
    live(
        "mailbox.t_replay",
        "300s",
        duration(2, 30 * DAY_MS),
        "The time for which a repeated send or acknowledgement is recognised.",
    )
    .or_env(&["SVCMBX_T_REPLAY"])
    .flag("t-replay"),
    live(
        "mailbox.cap_cache_ttl",
        "30s",
        duration(0, DAY_MS),
        "The time for which a proved credential is trusted before the stored keys are read again; a revoked key, and every stream that it opened, ends within this time.",
    )
    .or_env(&["SVCMBX_CAP_CACHE_TTL"])
    .flag("cap-cache-ttl"),
    live(
        "mailbox.backoff_base",
        "200ms",
        duration(0, DAY_MS),
        "The delay before a message that was given back is delivered again; it doubles each time, with jitter.",
    )
    .or_env(&["SVCMBX_BACKOFF_BASE"])
    .flag("backoff-base"),
    live(
        "mailbox.backoff_max",
        "60s",
        duration(0, DAY_MS),
        "The longest delay before a message that was given back is delivered again.",
    )
    .or_env(&["SVCMBX_BACKOFF_MAX"])
    .flag("backoff-max"),
    live(
        "mailbox.max_attempts",
        "5",
        integer(1, 1_000_000),
        "The number of deliveries after which a message becomes a dead letter.",
    )
    .or_env(&["SVCMBX_MAX_ATTEMPTS"])
    .flag("max-attempts"),
    live(
        "mailbox.require_lease",
        "false",
        Rule::Switch,
        "Refuses acknowledgements that do not name the lease of their delivery.",
    ),
    live(
        "mailbox.topic_classes",
        "",
        Rule::Classes,
        "Classes of topics, each with its patterns: * stands for any characters between : or /, and at the end for all the rest. Metrics and events name a topic by the class of the longest pattern that fits, and the caveat topic_class of a macaroon allows all topics of a class.",
    ),
    live(
        "mailbox.weights",
        "",
        Rule::Weights,
        "The share of a tenant (its id) or of topics (a prefix) against others; 1 when not named.",
    ),
    live(
        "retention.ready_seconds",
        "7d",
        duration(1_000, DECADE_MS),
        "The longest time that a message waits; after it the message becomes a dead letter.",
    )
    .or_env(&["SVCMBX_RET_READY"]),
    live(
        "retention.inflight_factor",
        "10",
        integer(1, 1_000_000),
        "The longest time that a receiver can keep a message by extending, as a multiple of the visibility it asked for.",
    )
    .or_env(&["SVCMBX_RET_INFLIGHT_FACTOR"]),
    live(
        "retention.dlq_seconds",
        "14d",
        duration(1_000, DECADE_MS),
        "The time for which dead letters are kept.",
    )
    .or_env(&["SVCMBX_RET_DLQ"]),
];
