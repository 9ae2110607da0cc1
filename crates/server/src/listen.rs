//! The HTTP listener: accepts, bounds and drains connections, and hands requests to one router.
//! HTTP/1.1 and HTTP/2 (without TLS, by prior knowledge) come to the same port.
//!
//! hyper is driven directly: the ready-made server has no limits on connections or time, and every
//! layer that could add them boxes a body or sets a timer per request.
//!
//! Invariants: at most [`Limits::connections`] are open; no connection outlives [`Listener::drain`].

mod http2;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tower::Service as _;

use crate::live::Live;
use crate::pulse::{Patience, Phase, Pulse, Watchdog, Watched};
use crate::uds::UnixSocket;

/// The largest request line with headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How the first bytes of HTTP/2 begin. No method of HTTP/1.1 is called so.
const PREFACE: &[u8; 3] = b"PRI";

/// How soon to look again at a client that has sent only a part of that.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// The pause after an error of `accept` that is not the client's, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What bounds a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections; more wait to be accepted.
    pub connections: usize,
    /// How long connections may take.
    pub patience: Patience,
}

/// What a listener counts.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    open: Gauge,
    accepted: Counter,
    timed_out: Counter,
}

impl Metrics {
    /// Makes the metrics part of what `registry` reports.
    pub fn register(&self, registry: &mut Registry) {
        let http = registry.sub_registry_with_prefix("http");
        http.register("connections", "Open connections", self.open.clone());
        http.register(
            "connections_accepted",
            "Connections accepted",
            self.accepted.clone(),
        );
        http.register(
            "connections_timed_out",
            "Connections closed because they took too long",
            self.timed_out.clone(),
        );
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Socket {
    /// The network.
    Tcp(TcpListener),
    /// Processes of this machine.
    Unix(UnixSocket),
}

impl From<TcpListener> for Socket {
    fn from(socket: TcpListener) -> Self {
        Self::Tcp(socket)
    }
}

impl From<UnixSocket> for Socket {
    fn from(socket: UnixSocket) -> Self {
        Self::Unix(socket)
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(socket) => socket.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
            Self::Unix(socket) => socket.accept().await.map(Stream::Unix),
        }
    }
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Requests in flight may finish; nothing new begins.
    Draining,
    /// Whatever is left is cut.
    Ended,
}

/// A running listener.
#[derive(Debug)]
pub struct Listener {
    address: Option<SocketAddr>,
    stage: watch::Sender<Stage>,
    accepting: JoinHandle<()>,
    slots: Arc<Semaphore>,
    connections: usize,
    patience: Live<Patience>,
}

impl Listener {
    /// Starts to accept. Connections made before this call wait in the socket's queue.
    pub fn start(
        socket: impl Into<Socket>,
        router: Router,
        limits: Limits,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let socket = socket.into();
        let address = match &socket {
            Socket::Tcp(socket) => Some(socket.local_addr()?),
            Socket::Unix(_) => None,
        };
        let (stage, _) = watch::channel(Stage::Serving);
        // A semaphore counts to a bound of its own, far beyond what a process can open.
        let connections = limits.connections.min(u32::MAX as usize >> 4);
        let slots = Arc::new(Semaphore::new(connections));
        let patience = Live::new(limits.patience);
        let connection = Connection {
            router,
            patience: patience.clone(),
            metrics,
            stage: stage.subscribe(),
        };
        let accepting = tokio::spawn(accept(socket, connection, slots.clone()));
        Ok(Self {
            address,
            stage,
            accepting,
            slots,
            connections,
            patience,
        })
    }

    /// From now on, new connections may take so long.
    pub fn set_patience(&self, patience: Patience) {
        self.patience.set(patience);
    }

    /// Where it listens, on the network; the real port if 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops accepting, and lets requests in flight finish for at most `patience`. True if all did.
    pub async fn drain(self, patience: Duration) -> bool {
        self.stage.send_replace(Stage::Draining);
        // The task ends by itself, except for a bug, which must not keep the process alive.
        let _ = timeout(patience, self.accepting).await;
        let all = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let finished = timeout(patience, self.slots.acquire_many(all))
            .await
            .is_ok();
        self.stage.send_replace(Stage::Ended);
        finished
    }
}

/// What every connection needs.
#[derive(Debug, Clone)]
struct Connection {
    router: Router,
    patience: Live<Patience>,
    metrics: Metrics,
    stage: watch::Receiver<Stage>,
}

async fn accept(socket: Socket, connection: Connection, slots: Arc<Semaphore>) {
    let mut stage = connection.stage.clone();
    let mut stop = pin!(stage.wait_for(|stage| *stage != Stage::Serving));
    loop {
        let next = async {
            // The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, socket.accept().await))
        };
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => return,
            accepted = next => accepted,
        };
        match accepted {
            None => return,
            Some((slot, Ok(stream))) => {
                let connection = connection.clone();
                tokio::spawn(async move {
                    connection.serve(stream).await;
                    drop(slot);
                });
            }
            Some((_, Err(error))) if is_of_the_client(&error) => {}
            Some((_, Err(error))) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

impl Connection {
    async fn serve(self, stream: Stream) {
        self.metrics.accepted.inc();
        self.metrics.open.inc();
        let metrics = self.metrics.clone();
        let ended = match stream {
            Stream::Tcp(stream) => {
                // Answers are small and whole: waiting to fill a packet only delays them. An old
                // socket that refuses is served all the same.
                let _ = stream.set_nodelay(true);
                self.run(stream).await
            }
            // HTTP/2 is recognised by peeking, which a socket file does not offer.
            Stream::Unix(stream) => self.run_http1(stream).await,
        };
        if let Some(phase) = ended {
            metrics.timed_out.inc();
            match phase {
                Phase::Open => tracing::debug!("closed a silent connection"),
                Phase::Head => tracing::debug!("closed a connection whose request did not arrive"),
                Phase::Answer => tracing::warn!("closed a connection whose request took too long"),
                Phase::Stuck => tracing::debug!("closed a connection that took nothing more"),
            }
        }
        metrics.open.dec();
    }

    /// Serves until the client or the drain ends it; or until it took too long, and in which phase.
    async fn run(mut self, stream: TcpStream) -> Option<Phase> {
        let patience = self.patience.get();
        let spoken = tokio::select! {
            biased;
            spoken = timeout(patience.silence, spoken(&stream)) => spoken,
            // Nothing was asked yet, so nothing is left unanswered.
            _ = self.stage.changed() => return None,
        };
        match spoken {
            Err(_) => Some(Phase::Open),
            Ok(Err(_)) => None,
            Ok(Ok(Spoken::Http1)) => self.run_http1(stream).await,
            Ok(Ok(Spoken::Http2)) => {
                // A box keeps what HTTP/1.1 has no use for out of its connections.
                Box::pin(http2::run(stream, self.router, patience, self.stage)).await
            }
        }
    }

    async fn run_http1(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<Phase> {
        let Self {
            router,
            patience,
            mut stage,
            ..
        } = self;
        let patience = patience.get();
        let pulse = Arc::new(Pulse::default());
        let mut dog = Watchdog::new(pulse.clone(), patience);
        let io = TokioIo::new(Watched::new(stream, pulse.clone()));
        let service = service_fn(move |request| answer(router.clone(), pulse.clone(), request));
        let mut http = http1::Builder::new();
        http.max_header_size(MAX_HEAD_BYTES);
        let mut connection = pin!(http.serve_connection(io, service));
        let mut tick = interval(patience.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate and tells nothing.
        tick.reset();
        loop {
            tokio::select! {
                biased;
                // What went wrong is the client's affair: it hung up or does not speak HTTP.
                _ = connection.as_mut() => return None,
                changed = stage.changed() => {
                    if changed.is_err() || *stage.borrow_and_update() == Stage::Ended {
                        return None;
                    }
                    connection.as_mut().graceful_shutdown();
                }
                _ = tick.tick() => {
                    if let Some(phase) = dog.look() {
                        return Some(phase);
                    }
                }
            }
        }
    }
}

/// A protocol that clients speak.
enum Spoken {
    Http1,
    Http2,
}

/// Which protocol the client speaks. What it has sent stays in the socket, so that the protocol's own
/// reader sees it all and nothing stands between them.
async fn spoken(stream: &TcpStream) -> io::Result<Spoken> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(Spoken::Http1);
        }
        if seen == PREFACE.len() {
            return Ok(Spoken::Http2);
        }
        // What is already there does not let the socket tell when more comes.
        sleep(PREFACE_PAUSE).await;
    }
}

async fn answer(
    mut router: Router,
    pulse: Arc<Pulse>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    pulse.enter(Phase::Answer);
    let response = router.call(request).await;
    pulse.enter(Phase::Open);
    response
}

#[cfg(test)]
mod tests;
