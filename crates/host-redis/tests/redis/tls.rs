//! TLS: servers that are trusted, servers that are not, and servers that do not use it.
//!
//! The certificates in the folder `tls` are for tests only: a root, under it `localhost` and a client, and
//! another root.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use asyncgate_core::{TenantId, Timestamp, admission::Asks};
use asyncgate_host_redis::{Address, RedisHost};
use asyncgate_store::{
    Error,
    admission::Host,
    conformance::{PATIENCE, eventually, exercise_host, free_port, nonce},
};
use futures_util::future::join_all;
use tokio::net::{TcpListener, TcpStream};

use crate::{
    faults::{is_new, load},
    servers::{IN_CLUSTER, Server, address, available, connected, join},
};

fn file(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/redis/tls");
    folder.join(name).to_str().unwrap().to_owned()
}

/// A server with a port for TLS beside its plain one.
struct Secure {
    server: Server,
    port: u16,
}

impl Secure {
    async fn start(args: &[&str]) -> Self {
        let (port, tls) = tls_args();
        let tls = tls.iter().map(String::as_str);
        let args: Vec<&str> = tls.chain(args.iter().copied()).collect();
        let server = Server::start(&args).await;
        Self { server, port }
    }

    /// Returns the address of the TLS port with these options.
    fn address(&self, options: &str) -> Address {
        address(&format!("rediss://localhost:{}?{options}", self.port))
    }

    fn host(&self) -> RedisHost {
        RedisHost::new(self.address(&trusted())).unwrap()
    }
}

/// Returns a port for TLS, and the arguments that make a server listen there.
fn tls_args() -> (u16, Vec<String>) {
    let port = free_port();
    let args = [
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "optional",
    ];
    (port, args.map(str::to_owned).to_vec())
}

/// Returns the option that trusts the servers of these tests.
fn trusted() -> String {
    format!("ca={}", file("ca.pem"))
}

/// Waits until every call fails with this complaint. Each call ends by itself.
async fn refused(address: Address, complaint: &str) {
    let host = RedisHost::new(address).unwrap();
    eventually("it says why", async || {
        let ended = tokio::time::timeout(PATIENCE, is_new(&host, "n")).await;
        let Ok(Err(Error::Unavailable(text))) = ended else {
            panic!("{ended:?}");
        };
        text.contains(complaint)
    })
    .await;
    assert!(host.ping().await.is_err(), "it stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls_conforms() {
    if !available() {
        return;
    }
    let secure = Secure::start(&[]).await;
    exercise_host(|| {
        let host = RedisHost::simulated(secure.address(&trusted()));
        Arc::new(host.unwrap()) as Arc<dyn Host>
    })
    .await;
}

/// They are larger than the buffers of TLS.
#[tokio::test]
async fn large_questions_pass() {
    if !available() {
        return;
    }
    let secure = Secure::start(&[]).await;
    let host = connected(secure.host()).await;
    let asks = |number: usize| {
        let nonces = (0..1_000).map(|n| nonce(&format!("{number}-{n}"), 60));
        Asks {
            nonces: nonces.collect(),
            ..Asks::default()
        }
    };
    let tenant = TenantId::from_bytes([7; 16]);
    for passed in [true, false] {
        let asked = (0..64).map(|number| host.admit(tenant, Timestamp::default(), asks(number)));
        for verdicts in join_all(asked).await {
            assert_eq!(verdicts.unwrap().passed(), passed);
        }
    }
}

#[tokio::test]
async fn servers_with_another_certificate_are_refused() {
    if !available() {
        return;
    }
    let secure = Secure::start(&[]).await;
    let other = format!("ca={}", file("other_ca.pem"));
    for options in [other.as_str(), ""] {
        refused(secure.address(options), "UnknownIssuer").await;
    }
    // The same server by a name that its certificate does not have.
    let elsewhere = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await;
    let elsewhere = elsewhere.unwrap();
    let place = elsewhere.local_addr().unwrap();
    tokio::spawn(forward(elsewhere, secure.port));
    let options = trusted();
    let unnamed = address(&format!("rediss://{place}?{options}"));
    refused(unnamed, "not valid for name").await;
    assert_eq!(
        secure.server.command(&["DBSIZE"]).await.unwrap().get(..2),
        Some(":0"),
        "nobody asked it anything"
    );
    connected(secure.host()).await;
}

async fn forward(from: TcpListener, to: u16) {
    while let Ok((mut near, _)) = from.accept().await {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, to));
        let mut far = TcpStream::connect(to).await.unwrap();
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
    }
}

#[tokio::test]
async fn tls_and_plain_do_not_mix() {
    if !available() {
        return;
    }
    let secure = Secure::start(&[]).await;
    let options = trusted();
    let plain = secure.server.port;
    refused(
        address(&format!("rediss://localhost:{plain}?{options}")),
        "TLS",
    )
    .await;
    refused(
        address(&format!("redis://localhost:{}", secure.port)),
        "localhost",
    )
    .await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let place = silent.local_addr().unwrap();
    refused(
        address(&format!("rediss://{place}?{options}")),
        "cannot connect with TLS within",
    )
    .await;
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    if !available() {
        return;
    }
    let secure = Secure::start(&["--tls-auth-clients", "yes"]).await;
    refused(secure.address(&trusted()), "CertificateRequired").await;
    let (cert, key) = (file("client.pem"), file("client.key"));
    let options = format!("{}&cert={cert}&key={key}", trusted());
    let host = connected(RedisHost::new(secure.address(&options)).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    assert_eq!(is_new(&host, "n").await, Ok(false));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (ca, key) = (file("ca.pem"), file("client.key"));
    let (cert, other) = (file("client.pem"), file("server.key"));
    let none = file("none.pem");
    for (options, complaint) in [
        (format!("ca={none}"), format!("ca={none}: ")),
        (format!("ca={key}"), format!("ca={key}: there is no cert")),
        (
            format!("ca={ca}&cert={none}&key={key}"),
            format!("cert={none}: "),
        ),
        (
            format!("ca={ca}&cert={cert}&key={cert}"),
            format!("key={cert}: "),
        ),
        (
            format!("ca={ca}&cert={cert}&key={other}"),
            format!("key={other}: "),
        ),
    ] {
        let address = address(&format!("rediss://localhost?{options}"));
        let flaw = RedisHost::new(address).unwrap_err().to_string();
        assert!(flaw.starts_with(&complaint), "{flaw}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load() {
    if !available() {
        return;
    }
    let mut secure = Secure::start(&[]).await;
    let load = load(connected(secure.host()).await);
    for _ in 0..2 {
        load.until(true).await;
        secure.server.kill();
        load.until(false).await;
        secure.server.restart().await;
    }
    load.until(true).await;
    secure.server.program().pause();
    load.until(false).await;
    secure.server.program().resume();
    load.until(true).await;
    load.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_master_use_tls() {
    if !available() {
        return;
    }
    let master = Secure::start(&[]).await;
    let (port, args) = tls_args();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(["--tls-replication", "yes"]);
    let sentinel = Server::start_sentinel_with(master.port, &args).await;
    let place = |port| format!("rediss+sentinel://localhost:{port}/main?{}", trusted());
    let host = connected(RedisHost::new(address(&place(port))).unwrap()).await;
    assert_eq!(is_new(&host, "n").await, Ok(true));
    assert_eq!(is_new(&host, "n").await, Ok(false));
    // At its plain port the sentinel cannot be asked.
    refused(address(&place(sentinel.port)), "TLS").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_of_a_cluster_uses_tls() {
    if !available() {
        return;
    }
    let args = [&IN_CLUSTER[..], &["--tls-cluster", "yes"]].concat();
    let (mut servers, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let Secure { server, port } = Secure::start(&args).await;
        servers.push(server);
        ports.push(port);
    }
    join(&servers, &ports, &["--tls", "--cacert", &file("ca.pem")]).await;
    let place = format!("rediss+cluster://localhost:{}?{}", ports[0], trusted());
    let host = connected(RedisHost::new(address(&place)).unwrap()).await;
    for number in 0..40 {
        let tenant = TenantId::from_bytes([number; 16]);
        for passed in [true, false] {
            let asks = Asks {
                nonces: vec![nonce("n", 600)],
                ..Asks::default()
            };
            let verdicts = host.admit(tenant, Timestamp::default(), asks).await;
            assert_eq!(verdicts.unwrap().passed(), passed);
        }
    }
    for server in &servers {
        let rows = server.command(&["DBSIZE"]).await.unwrap();
        assert!(!rows.starts_with(":0"), "each has some of the tenants");
    }
}
