//! Settings of credentials: what they are checked with, how long they are trusted, and how they are hashed.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY, fixed, integer, live};

pub(super) static KEYS: &[Key] = &[
    fixed(
        "server.public_url",
        "",
        Rule::Optional(&Rule::Url),
        "The address by which clients reach this server, such as https://gate.example.com; without it, the one that they name in a request counts.",
    ),
    live(
        "security.cap_cache_ttl_secs",
        "",
        Rule::Optional(&integer(0, DAY)),
        "The same as mailbox.cap_cache_ttl, in seconds; if it is set, it counts.",
    ),
    live(
        "security.jwt.private_key_path",
        "",
        Rule::Optional(&Rule::Path),
        "The RSA key that signs access tokens, in PEM or DER; without it one is made in the data directory; SIGHUP reads it again, and tokens of the former one stay valid.",
    ),
    fixed(
        "security.jwt.issuer",
        "asyncgate",
        Rule::Name,
        "The issuer (iss) of access tokens.",
    ),
    fixed(
        "security.jwt.audience",
        "asyncgate-api",
        Rule::Name,
        "The audience (aud) that access tokens must name.",
    ),
    live(
        "security.api_keys.hash_time_cost",
        "2",
        integer(1, 100),
        "The passes of Argon2id over its memory, for keys that are made from now on.",
    ),
    live(
        "security.api_keys.hash_memory_cost",
        "65536",
        integer(8, 4 << 20),
        "The memory of Argon2id in KiB, for keys that are made from now on.",
    ),
    live(
        "security.api_keys.hash_parallelism",
        "1",
        integer(1, 64),
        "The lanes of Argon2id, for keys that are made from now on.",
    ),
];
