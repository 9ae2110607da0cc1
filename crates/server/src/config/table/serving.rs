//! Settings of the listeners: where, for whom, how much and how long.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY, DAY_MS, KIB, MIB, duration, fixed, integer, live, size};

pub(super) static KEYS: &[Key] = &[
    fixed(
        "bind",
        "127.0.0.1:8080",
        Rule::Address,
        "Address and port to listen on; port 0 picks a free one.",
    )
    .alias("bind_addr")
    .or_env(&["SVCMBX_BIND_ADDR"])
    .flag("bind"),
    fixed(
        "metrics_addr",
        "",
        Rule::Optional(&Rule::Address),
        "Own address for /metrics, which is then not served on bind; /healthz and /readyz are on both.",
    )
    .or_env(&["SVCMBX_METRICS_ADDR"])
    .flag("metrics"),
    fixed(
        "uds.path",
        "",
        Rule::Optional(&Rule::Path),
        "Unix socket that serves the same as bind; a missing directory is made for its owner only.",
    )
    .or_env(&["SVCMBX_UDS_PATH"])
    .flag("uds"),
    fixed(
        "uds.allow_uids",
        "",
        Rule::Uids,
        "Users whose processes may use the socket; empty means the server's own user.",
    )
    .or_env(&["SVCMBX_UDS_ALLOW_UIDS"]),
    fixed(
        "tls.enabled",
        "false",
        Rule::Switch,
        "Speak TLS on bind (HTTP/2 and HTTP/1.1); needs tls.cert_path and tls.key_path.",
    )
    .or_env(&["SVCMBX_TLS_ENABLED"])
    .flag("tls"),
    fixed(
        "tls.cert_path",
        "",
        Rule::Optional(&Rule::Path),
        "Certificate chain, PEM, the server's own certificate first.",
    )
    .or_env(&["SVCMBX_TLS_CERT_PATH"])
    .flag("tls-cert"),
    fixed(
        "tls.key_path",
        "",
        Rule::Optional(&Rule::Path),
        "Private key of the first certificate, PEM.",
    )
    .or_env(&["SVCMBX_TLS_KEY_PATH"])
    .flag("tls-key"),
    fixed(
        "server.hsts",
        "false",
        Rule::Switch,
        "Tell browsers to come by TLS only, also without tls.enabled; for servers behind a proxy that speaks TLS.",
    ),
    fixed(
        "pq.mode",
        "off",
        Rule::OneOf(&["off", "hybrid"]),
        "Post-quantum key exchange; this build has none and refuses to start with hybrid.",
    )
    .or_env(&["SVCMBX_PQ_MODE"])
    .flag("pq-mode"),
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
    .or_env(&["ALLOW_INSECURE_DEV"]),
    fixed(
        "auth.macaroon_path",
        "",
        Rule::Optional(&Rule::Path),
        "Capability token file; this build has no macaroons and refuses to start with it.",
    )
    .or_env(&["SVCMBX_MACAROON_PATH"]),
    // How much.
    fixed(
        "http.max_connections",
        "4096",
        integer(1, 1_000_000),
        "Open connections; more wait to be accepted.",
    )
    .alias("max_conns")
    .or_env(&["SVCMBX_MAX_CONNS"])
    .flag("max-conns"),
    fixed(
        "max_body_bytes",
        "1280KiB",
        size(KIB, 128 * MIB),
        "Largest request body, unpacked; those of the mailbox may be as large as its messages need.",
    ),
    live(
        "limits.decompress_ratio_cap",
        "10",
        integer(1, 10_000),
        "How many times larger a compressed body may become.",
    )
    .or_env(&["SVCMBX_DECOMPRESS_RATIO_CAP"]),
    // How long.
    live(
        "read_timeout",
        "5s",
        duration(100, DAY_MS),
        "Time for a request's headers from their first byte, and for each pause in its body.",
    )
    .or_env(&["SVCMBX_READ_TIMEOUT"])
    .flag("read-timeout"),
    live(
        "write_timeout",
        "5s",
        duration(100, DAY_MS),
        "Time for a client to take more of an answer.",
    )
    .or_env(&["SVCMBX_WRITE_TIMEOUT"])
    .flag("write-timeout"),
    live(
        "idle_timeout",
        "60s",
        duration(100, DAY_MS),
        "Time that a connection may stay silent; streams say something every 15 seconds.",
    )
    .or_env(&["SVCMBX_IDLE_TIMEOUT"])
    .flag("idle-timeout"),
    live(
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
];
