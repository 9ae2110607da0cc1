//! A network that carries nothing for a while, both ways or only one, without closing anything.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use asyncgate_host_redis::RedisHost;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use asyncgate_store::conformance::eventually;

use crate::{
    faults::{is_new, load},
    servers::{Server, address, available, connected},
};

/// The directions that the network carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Carries {
    requests: bool,
    answers: bool,
}

/// A proxy that is the network between a host and its server.
struct Network {
    port: u16,
    carries: Arc<watch::Sender<Carries>>,
}

impl Network {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let whole = Carries {
            requests: true,
            answers: true,
        };
        let carries = Arc::new(watch::Sender::new(whole));
        let (there, state) = (server.port, Arc::clone(&carries));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect((Ipv4Addr::LOCALHOST, there)).await;
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.unwrap().into_split();
                tokio::spawn(carry(near_in, far_out, state.subscribe(), |it| it.requests));
                tokio::spawn(carry(far_in, near_out, state.subscribe(), |it| it.answers));
            }
        });
        Self { port, carries }
    }

    fn carry(&self, requests: bool, answers: bool) {
        self.carries.send_replace(Carries { requests, answers });
    }

    fn host(&self) -> RedisHost {
        RedisHost::new(address(&format!("redis://127.0.0.1:{}", self.port))).unwrap()
    }
}

/// Carries bytes from one side to the other. Bytes that are held up go on later.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<Carries>,
    may: fn(&Carries) -> bool,
) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if state.wait_for(may).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitioned_and_healed_under_load() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let network = Network::to(&server).await;
    let load = load(connected(network.host()).await);
    for (requests, answers) in [(false, false), (true, false), (false, true)] {
        load.until(true).await;
        network.carry(requests, answers);
        load.until(false).await;
        network.carry(true, true);
    }
    load.until(true).await;
    load.end();
}

#[tokio::test]
async fn a_nonce_whose_answer_was_lost_has_been_used() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let network = Network::to(&server).await;
    let host = connected(network.host()).await;
    network.carry(true, false);
    assert!(is_new(&host, "n").await.is_err(), "the answer is lost");
    network.carry(true, true);
    let mut known = None;
    eventually("it answers again", async || {
        known = is_new(&host, "n").await.ok();
        known.is_some()
    })
    .await;
    assert_eq!(known, Some(false), "the nonce was used");
}

#[tokio::test]
async fn a_caller_who_left_before_there_was_a_connection_is_not_served() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let network = Network::to(&server).await;
    network.carry(false, true);
    let host = network.host();
    let left = tokio::time::timeout(Duration::from_millis(50), is_new(&host, "n")).await;
    assert!(left.is_err(), "there is nobody to answer yet");
    network.carry(true, true);
    let host = connected(host).await;
    assert_eq!(is_new(&host, "n").await, Ok(true), "nobody used it");
}
