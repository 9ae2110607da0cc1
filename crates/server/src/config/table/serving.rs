//! Settings of the listeners: addresses, credentials, sizes and times.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY, DAY_MS, KIB, MIB, duration, fixed, integer, live, size};

pub(super) static KEYS: &[Key] = &[
    fixed(
        "bind",
        "127.0.0.1:8080",
        Rule::Address,
        "The address and port to listen on; port 0 picks a free port.",
    )
    .alias("bind_addr")
    .or_env(&["SVCMBX_BIND_ADDR"])
    .flag("bind"),
    fixed(
        "metrics_addr",
        "",
        Rule::Optional(&Rule::Address),
        "A second address that serves /metrics in place of bind; both serve /healthz and /readyz.",
    )
    .or_env(&["SVCMBX_METRICS_ADDR"])
    .flag("metrics"),
    fixed(
        "uds.path",
        "",
        Rule::Optional(&Rule::Path),
        "A Unix socket that serves the same as bind; a missing directory is made for its owner only.",
    )
    .or_env(&["SVCMBX_UDS_PATH"])
    .flag("uds"),
    fixed(
        "uds.allow_uids",
        "",
        Rule::Uids,
        "The users whose processes may use the Unix socket; if empty, only the user that runs the server.",
    )
    .or_env(&["SVCMBX_UDS_ALLOW_UIDS"]),
    fixed(
        "tls.enabled",
        "false",
        Rule::Switch,
        "Serves TLS on bind, with HTTP/2 and HTTP/1.1; this needs tls.cert_path and tls.key_path.",
    )
    .or_env(&["SVCMBX_TLS_ENABLED"])
    .flag("tls"),
    fixed(
        "tls.cert_path",
        "",
        Rule::Optional(&Rule::Path),
        "The file with the certificate chain in PEM, the server's own certificate first; SIGHUP reads it and the key again.",
    )
    .or_env(&["SVCMBX_TLS_CERT_PATH"])
    .flag("tls-cert"),
    fixed(
        "tls.key_path",
        "",
        Rule::Optional(&Rule::Path),
        "The file with the private key of the first certificate, in PEM; others than its owner must not be able to read it, except for the group of a file that belongs to root.",
    )
    .or_env(&["SVCMBX_TLS_KEY_PATH"])
    .flag("tls-key"),
    fixed(
        "tls.client_auth",
        "off",
        Rule::OneOf(&["off", "optional", "required"]),
        "Asks clients for a certificate from tls.client_ca: optional lets those in that have none, required refuses them in the handshake, and a certificate that is not good is always refused. A certificate is no credential: requests need one all the same.",
    ),
    fixed(
        "tls.client_ca",
        "",
        Rule::Optional(&Rule::Path),
        "The file with the roots, in PEM, that clients' certificates must come from; SIGHUP reads it again, for connections that begin after it.",
    ),
    fixed(
        "server.hsts",
        "false",
        Rule::Switch,
        "Tells browsers to come by TLS only, also without tls.enabled; for servers behind a proxy that speaks TLS.",
    ),
    live(
        "server.trusted_proxies",
        "",
        Rule::Networks,
        "The proxies whose X-Forwarded-For counts: of the addresses in it, the last one that is no such proxy is the client; from anybody else the header is ignored.",
    ),
    fixed(
        "pq.mode",
        "off",
        Rule::OneOf(&["off", "hybrid", "only"]),
        "The key exchange of TLS: off is classical; hybrid is X25519MLKEM768, which stays secret even if quantum computers break X25519, with every client that knows it, and classical with others; only refuses those others.",
    )
    .or_env(&["SVCMBX_PQ_MODE"])
    .flag("pq-mode"),
    // Credentials.
    fixed(
        "api_key",
        "",
        Rule::Secret,
        "A shared key; whoever shows it is the admin of the default tenant and manages tenants.",
    ),
    fixed(
        "allow_insecure_dev",
        "false",
        Rule::Switch,
        "Serves without credentials, to try things out; bind must be a loopback address.",
    )
    .or_env(&["ALLOW_INSECURE_DEV"]),
    fixed(
        "auth.macaroon_path",
        "",
        Rule::Optional(&Rule::Path),
        "A file with the secret behind macaroons, of at least 32 bytes, which several servers can share; without it one is made in the data directory.",
    )
    .or_env(&["SVCMBX_MACAROON_PATH"]),
    // Sizes.
    fixed(
        "http.max_connections",
        "4096",
        integer(1, 1_000_000),
        "The most open connections; for further ones, the connection that has had no request for the longest time is closed, and if all have one under way they wait.",
    )
    .alias("max_conns")
    .or_env(&["SVCMBX_MAX_CONNS"])
    .flag("max-conns"),
    fixed(
        "http.max_connections_per_address",
        "1024",
        integer(1, 1_000_000),
        "The most open connections from one address, or from one /64 network of IPv6; server.trusted_proxies and the Unix socket have no such bound.",
    ),
    fixed(
        "max_body_bytes",
        "1280KiB",
        size(KIB, 128 * MIB),
        "The largest body of a request, decompressed; bodies of the mailbox may be as large as its messages need.",
    ),
    live(
        "limits.memory_budget",
        "0B",
        size(0, 1_024 * 1_024 * MIB),
        "The memory that request bodies and answers under way may take together; tenants share it. 0B: a quarter of the machine's memory, at most 1GiB.",
    ),
    live(
        "limits.decompress_ratio_cap",
        "10",
        integer(1, 10_000),
        "The largest factor by which a compressed body may grow.",
    )
    .or_env(&["SVCMBX_DECOMPRESS_RATIO_CAP"]),
    // Times.
    live(
        "read_timeout",
        "5s",
        duration(100, DAY_MS),
        "The time for the headers of a request, from their first byte or, on a new connection, from its beginning; and for a pause at the beginning of a body, which must keep up with server.min_transfer_rate.",
    )
    .or_env(&["SVCMBX_READ_TIMEOUT"])
    .flag("read-timeout"),
    live(
        "write_timeout",
        "5s",
        duration(100, DAY_MS),
        "The longest time that a client may read nothing of an answer; one that kept up with server.min_transfer_rate before may pause for up to four times as long.",
    )
    .or_env(&["SVCMBX_WRITE_TIMEOUT"])
    .flag("write-timeout"),
    live(
        "server.min_transfer_rate",
        "1KiB",
        size(1, 1_024 * MIB),
        "The bytes per second at which a client must take its answers and send its bodies; slower ones are cut when read_timeout or write_timeout has passed. Streams that have nothing to say are not meant.",
    ),
    live(
        "idle_timeout",
        "60s",
        duration(100, DAY_MS),
        "The longest time that a connection may be silent between requests; streams send something every 15 seconds.",
    )
    .or_env(&["SVCMBX_IDLE_TIMEOUT"])
    .flag("idle-timeout"),
    live(
        "http.request_timeout_seconds",
        "90",
        integer(1, DAY),
        "The time from the headers of a request to its answer; calls that wait take up to 60 seconds.",
    ),
    fixed(
        "drain_grace",
        "5s",
        duration(0, 600_000),
        "The time after SIGTERM in which /readyz is red and new work gets 503, while everything that settles work still passes; then the server closes, and http.drain_timeout_seconds later it has ended.",
    ),
    fixed(
        "http.drain_timeout_seconds",
        "10",
        integer(0, 600),
        "The time that running requests get to finish after drain_grace is over; those that do not are cut.",
    ),
    // MCP.
    fixed(
        "mcp.allowed_origins",
        "",
        Rule::Origins,
        "The web origins whose pages may call /mcp; loopback pages always may.",
    ),
    fixed(
        "mcp.tool_names",
        "underscore",
        Rule::OneOf(&["underscore", "dotted"]),
        "The form of the tools' names in lists: mailbox_send, or mailbox.send, which some hosts refuse; calls may always use both.",
    ),
    fixed(
        "mcp.toolsets",
        "",
        Rule::Toolsets,
        "The tools that MCP lists for clients that do not choose by /mcp?tools=...; if empty, worker for a worker's key and agent for all others. A tool that is not listed can still be called.",
    )
    .flag("tools"),
];
