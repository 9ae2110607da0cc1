//! The key exchanges of TLS, and the counts of them.

use asyncgate_client::Client;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{DEFAULT_VERSIONS, HandshakeKind, NamedGroup, SupportedProtocolVersion, version};

use crate::harness::{KEY, Launch, Server, eventually};
use crate::tls::{Peer, ask, connect, file, launch};

const HYBRID: &str = "X25519MLKEM768";
const CLASSICAL: &str = "X25519";

static OLD: &[&SupportedProtocolVersion] = &[&version::TLS12];

/// The sorts of clients, by the exchanges that they offer.
#[derive(Debug, Clone, Copy)]
enum Sort {
    /// Only a classical one.
    Classical,
    /// Both; it likes the hybrid one better.
    HybridFirst,
    /// Both; it likes a classical one better, and makes a share for that alone.
    HybridLast,
    /// Only the hybrid one.
    HybridAlone,
    /// Those of TLS 1.2.
    Old,
}

impl Sort {
    fn peer(self) -> Peer {
        let groups: Vec<&'static dyn SupportedKxGroup> = match self {
            Self::Classical => vec![kx_group::X25519],
            Self::HybridFirst => vec![kx_group::X25519MLKEM768, kx_group::X25519],
            Self::HybridLast | Self::Old => vec![kx_group::X25519, kx_group::X25519MLKEM768],
            Self::HybridAlone => vec![kx_group::X25519MLKEM768],
        };
        Peer {
            provider: CryptoProvider {
                kx_groups: groups,
                ..default_provider()
            },
            versions: match self {
                Self::Old => OLD,
                Self::Classical | Self::HybridFirst | Self::HybridLast | Self::HybridAlone => {
                    DEFAULT_VERSIONS
                }
            },
            ..Peer::default()
        }
    }
}

fn in_mode(mode: &str) -> Launch {
    launch("server.pem", "server.key").args(&["--pq-mode", mode])
}

/// The exchange that a client of this sort and the server agree on, or why there is none.
fn agreed(server: &Server, sort: Sort) -> Result<&'static str, String> {
    let mut stream = connect(server, sort.peer().config());
    ask(&mut stream, "/healthz").map_err(|error| error.to_string())?;
    let group = stream.conn.negotiated_key_exchange_group().unwrap().name();
    let names = [
        (NamedGroup::X25519MLKEM768, HYBRID),
        (NamedGroup::X25519, CLASSICAL),
    ];
    let (_, name) = names
        .into_iter()
        .find(|(known, _)| *known == group)
        .unwrap();
    Ok(name)
}

/// All metrics, asked for by a client that every mode lets in.
fn metrics(server: &Server) -> String {
    let mut stream = connect(server, Sort::HybridFirst.peer().config());
    ask(&mut stream, "/metrics").unwrap()
}

#[track_caller]
fn counts(metrics: &str, samples: &[(&str, u64)]) {
    for (sample, count) in samples {
        let line = format!("{sample} {count}");
        assert!(
            metrics.lines().any(|found| found.trim_end() == line),
            "{line} is not among\n{metrics}"
        );
    }
}

#[test]
fn off_is_classical_and_counts_who_would_do_better() {
    let server = in_mode("off").start();
    for sort in [
        Sort::Classical,
        Sort::HybridFirst,
        Sort::HybridLast,
        Sort::Old,
    ] {
        assert_eq!(agreed(&server, sort), Ok(CLASSICAL), "{sort:?}");
    }
    let refused = agreed(&server, Sort::HybridAlone).unwrap_err();
    assert!(refused.contains("HandshakeFailure"), "{refused}");
    counts(
        &metrics(&server),
        &[
            (r#"pq_handshake_total{algo="x25519",result="ok"}"#, 5),
            (r#"pq_handshake_total{algo="none",result="failed"}"#, 1),
            (r#"pq_handshake_total{algo="hybrid",result="ok"}"#, 0),
            ("tls_handshake_failures_total", 1),
            // One of them asks for the metrics.
            (
                r#"pq_sessions_downgraded_total{peer="client",reason="mode_off"}"#,
                3,
            ),
            (r#"crypto_latency_seconds_count{op="kex",algo="x25519"}"#, 4),
            (r#"crypto_latency_seconds_count{op="kex",algo="hybrid"}"#, 0),
            (r#"pq_only_refusals_total{surface="transport"}"#, 0),
            (r#"pq_only_refusals_total{surface="token"}"#, 0),
            (r#"pq_signature_verify_total{algo="ml-dsa",result="ok"}"#, 0),
        ],
    );
}

#[test]
fn hybrid_is_agreed_on_with_everybody_who_knows_it() {
    let server = in_mode("hybrid").start();
    for (sort, expected) in [
        (Sort::Classical, CLASSICAL),
        (Sort::HybridFirst, HYBRID),
        (Sort::HybridLast, HYBRID),
        (Sort::HybridAlone, HYBRID),
        (Sort::Old, CLASSICAL),
    ] {
        assert_eq!(agreed(&server, sort), Ok(expected), "{sort:?}");
    }
    counts(
        &metrics(&server),
        &[
            (r#"pq_handshake_total{algo="hybrid",result="ok"}"#, 4),
            (r#"pq_handshake_total{algo="x25519",result="ok"}"#, 2),
            (
                r#"pq_sessions_downgraded_total{peer="client",reason="not_offered"}"#,
                2,
            ),
            (
                r#"pq_sessions_downgraded_total{peer="client",reason="mode_off"}"#,
                0,
            ),
            (r#"crypto_latency_seconds_count{op="kex",algo="hybrid"}"#, 4),
            ("tls_handshake_failures_total", 0),
        ],
    );
}

#[test]
fn only_refuses_classical_clients() {
    let server = in_mode("only").start();
    for sort in [Sort::HybridFirst, Sort::HybridLast, Sort::HybridAlone] {
        assert_eq!(agreed(&server, sort), Ok(HYBRID), "{sort:?}");
    }
    for (sort, alert) in [
        (Sort::Classical, "HandshakeFailure"),
        (Sort::Old, "ProtocolVersion"),
    ] {
        let refused = agreed(&server, sort).unwrap_err();
        assert!(refused.contains(alert), "{sort:?}: {refused}");
    }
    counts(
        &metrics(&server),
        &[
            (r#"pq_handshake_total{algo="hybrid",result="ok"}"#, 4),
            (r#"pq_handshake_total{algo="x25519",result="refused"}"#, 2),
            (r#"pq_only_refusals_total{surface="transport"}"#, 2),
            ("tls_handshake_failures_total", 2),
        ],
    );
}

/// A session that goes on agrees on a new key, so it is as secret as the first.
#[test]
fn a_resumed_session_has_a_hybrid_key_too() {
    let server = in_mode("hybrid").start();
    let config = Sort::HybridFirst.peer().config();
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut stream = connect(&server, config.clone());
        ask(&mut stream, "/healthz").unwrap();
        assert_eq!(stream.conn.handshake_kind(), Some(expected));
        let group = stream.conn.negotiated_key_exchange_group().unwrap();
        assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
    }
}

#[test]
fn the_rust_client_is_served_where_classical_ones_are_refused() {
    let server = in_mode("only").start();
    let root = std::fs::read(file("ca.pem")).unwrap();
    let address = format!("https://localhost:{}", server.address.port());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::builder(address).key(KEY).trusted_roots(root);
        client.build().unwrap().get_config().await.unwrap();
    });
}

/// Balancers connect and hang up to see whether the port is open.
#[test]
fn a_connection_that_says_nothing_is_no_failure() {
    let server = in_mode("off").start();
    drop(std::net::TcpStream::connect(server.address).unwrap());
    let metrics = eventually("the first connection is over", || {
        let metrics = metrics(&server);
        let alone = metrics.contains("asyncgate_http_connections 1\n");
        let both = !metrics.contains("asyncgate_http_connections_accepted_total 1\n");
        (alone && both).then_some(metrics)
    });
    counts(&metrics, &[("tls_handshake_failures_total", 0)]);
}
