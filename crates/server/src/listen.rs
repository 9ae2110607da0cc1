//! The HTTP listener: accepts, bounds and drains connections, and hands requests to one router.
//! HTTP/1.1 and HTTP/2 come to the same port. A client that speaks HTTP/2 shows it by its first bytes
//! or, with TLS, says it in the handshake.
//!
//! hyper is driven directly: the ready-made server has no limits on connections or time, and every
//! layer that could add them boxes a body or sets a timer per request.
//!
//! Invariants: at most [`Options::connections`] are open; no connection outlives [`Listener::drain`];
//! every answer passes [`Service::answer`], which counts it and puts the security headers on it.

mod http1;
mod http2;
mod linger;
mod preface;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_edge::{SecurityHeaders, correlate, error_response, forwarded_for};
use asyncgate_engine::{Engine, Fault, Remote};
use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::{Version, header};
use axum::response::Response;
use axum::{BoxError, Router};
use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::progress::{Phase, Timeouts};
use crate::reloadable::Reloadable;
use crate::serve::PREFIX;
use crate::tls;
use crate::traffic::{Report, Traffic};
use crate::uds::UnixSocket;
pub use http1::read_first_date;
use preface::{Protocol, peeked, read};

/// The largest request line with headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The pause after an error of `accept` that is not the client's, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The most open connections; more wait to be accepted.
    pub connections: usize,
    /// The time limits of a connection.
    pub timeouts: Timeouts,
    /// Tells browsers to come by TLS only, also where this listener does not speak it itself.
    pub hsts: bool,
}

/// The counts of a listener.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    open: Gauge,
    accepted: Counter,
    timed_out: Counter,
    traffic: Arc<Traffic>,
}

impl Metrics {
    /// Adds the metrics to `registry`. Those of requests have the names that operators know from other
    /// services, without a prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Report(self.traffic.clone())));
        let own = registry.sub_registry_with_prefix(PREFIX);
        let http = own.sub_registry_with_prefix("http");
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

/// A socket that connections come to.
pub enum Socket {
    /// From the network.
    Tcp(TcpListener),
    /// From the network, with TLS.
    Tls(TcpListener, Reloadable<TlsAcceptor>),
    /// From processes of this machine.
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
    async fn accept(&self) -> io::Result<(Stream, Remote)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, address) = socket.accept().await?;
                Ok((Stream::Tcp(stream), Remote::Network(address)))
            }
            Self::Tls(socket, acceptor) => {
                let (stream, address) = socket.accept().await?;
                // The handshake happens in the connection's own task: nobody else waits for it.
                Ok((
                    Stream::Tls(acceptor.get(), stream),
                    Remote::Network(address),
                ))
            }
            Self::Unix(socket) => {
                let (stream, uid) = socket.accept().await?;
                Ok((Stream::Unix(stream), Remote::Local { uid }))
            }
        }
    }
}

/// A connection.
enum Stream {
    Tcp(TcpStream),
    Tls(TlsAcceptor, TcpStream),
    Unix(UnixStream),
}

/// The stages of a listener's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Requests in flight may finish; nothing new begins.
    Draining,
    /// Requests that are still in flight are cut.
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
    timeouts: Reloadable<Timeouts>,
}

impl Listener {
    /// Starts to accept. Connections made before this call wait in the socket's queue.
    pub fn start(
        socket: impl Into<Socket>,
        router: Router,
        engine: Arc<Engine>,
        options: Options,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let socket = socket.into();
        let address = match &socket {
            Socket::Tcp(socket) | Socket::Tls(socket, _) => Some(socket.local_addr()?),
            Socket::Unix(_) => None,
        };
        let (stage, _) = watch::channel(Stage::Serving);
        // A semaphore counts to a bound of its own, far beyond what a process can open.
        let connections = options.connections.min(u32::MAX as usize >> 4);
        let slots = Arc::new(Semaphore::new(connections));
        let timeouts = Reloadable::new(options.timeouts);
        let hsts = options.hsts || matches!(socket, Socket::Tls(..));
        let connection = Connection {
            service: Service {
                router,
                engine,
                traffic: metrics.traffic.clone(),
                security: SecurityHeaders { hsts },
            },
            timeouts: timeouts.clone(),
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
            timeouts,
        })
    }

    /// Puts other time limits in force, for connections that begin after this.
    pub fn set_timeouts(&self, timeouts: Timeouts) {
        self.timeouts.set(timeouts);
    }

    /// Returns the address on the network, with the real port if 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops accepting, and lets requests in flight finish for at most `limit`. Returns true if all did.
    pub async fn drain(self, limit: Duration) -> bool {
        self.stage.send_replace(Stage::Draining);
        let all = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let left = async {
            // The task ends by itself, except for a bug, which must not keep the process alive.
            let _ = self.accepting.await;
            // Every connection holds a slot: who holds all of them knows that none is left.
            let _ = self.slots.acquire_many(all).await;
        };
        let finished = timeout(limit, left).await.is_ok();
        self.stage.send_replace(Stage::Ended);
        finished
    }
}

/// The way from a request to its answer, the same for all protocols. Cloned for each request.
#[derive(Debug, Clone)]
struct Service {
    router: Router,
    engine: Arc<Engine>,
    traffic: Arc<Traffic>,
    security: SecurityHeaders,
}

impl Service {
    async fn answer<B>(mut self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let passage = self.traffic.begin(request.method(), request.uri().path());
        let mut response = match check_host(&request) {
            Ok(()) => self.route(request).await,
            Err(fault) => self.refuse(&request, &fault),
        };
        self.security.apply(response.headers_mut());
        passage.answered(response.status());
        response
    }

    /// Hands a request to the router, on behalf of its client.
    async fn route<B>(&mut self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let client = self.client(&request);
        let routed = self.router.call(request);
        let Ok(response) = match client {
            Some(client) => client.scope(routed).await,
            None => routed.await,
        };
        response
    }

    /// Returns the client that a trusted proxy names, if it does.
    fn client<B>(&self, request: &Request<B>) -> Option<Remote> {
        let settings = self.engine.settings();
        if settings.trusted_proxies.is_empty() {
            return None;
        }
        let peer = Remote::current()?.ip()?;
        let client = forwarded_for(peer, request.headers(), &settings.trusted_proxies);
        client.map(Remote::Forwarded)
    }

    fn refuse<B>(&self, request: &Request<B>, fault: &Fault) -> Response {
        self.engine.note_refusal(fault);
        let corr_id = correlate(request.headers(), || self.engine.corr_id());
        error_response(fault, &corr_id.text)
    }
}

/// Refuses a request of HTTP/1.1 that does not name its host exactly once. Programs on its way could
/// each take it for a request to another host.
fn check_host<B>(request: &Request<B>) -> Result<(), Fault> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let one = hosts.next().is_some() && hosts.next().is_none();
    match request.version() {
        Version::HTTP_11 if !one => Err(Fault::bad_request(
            "a request must have the header Host, once",
        )),
        _ => Ok(()),
    }
}

/// The things that every connection needs.
#[derive(Debug, Clone)]
struct Connection {
    service: Service,
    timeouts: Reloadable<Timeouts>,
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
            Some((slot, Ok((stream, remote)))) => {
                let connection = connection.clone();
                tokio::spawn(remote.scope(async move {
                    connection.serve(stream).await;
                    drop(slot);
                }));
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
                self.run(stream, async |stream| {
                    let protocol = peeked(&stream).await?;
                    Ok((protocol, stream))
                })
                .await
            }
            Stream::Tls(acceptor, stream) => {
                let _ = stream.set_nodelay(true);
                self.run(stream, async |stream| {
                    let stream = acceptor.accept(stream).await?;
                    let agreed = stream.get_ref().1.alpn_protocol();
                    let protocol = match agreed {
                        Some(tls::HTTP2) => Protocol::Http2,
                        Some(_) | None => Protocol::Http1,
                    };
                    Ok((protocol, stream))
                })
                .await
            }
            Stream::Unix(stream) => self.run(stream, read).await,
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

    /// Serves until the client or the drain ends the connection. Returns the phase in which it took too
    /// long, if it did. `recognise` finds out which protocol the client speaks.
    async fn run<S, T>(
        mut self,
        stream: S,
        recognise: impl AsyncFnOnce(S) -> io::Result<(Protocol, T)>,
    ) -> Option<Phase>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let timeouts = self.timeouts.get();
        let recognised = tokio::select! {
            biased;
            recognised = timeout(timeouts.idle, recognise(stream)) => recognised,
            // Nothing was asked yet, so nothing is left unanswered.
            _ = self.stage.changed() => return None,
        };
        match recognised {
            Err(_) => Some(Phase::Open),
            Ok(Err(_)) => None,
            Ok(Ok((Protocol::Http1, stream))) => http1::run(self, stream).await,
            Ok(Ok((Protocol::Http2, stream))) => {
                // A box keeps what HTTP/1.1 has no use for out of its connections.
                Box::pin(http2::run(self, stream)).await
            }
        }
    }
}

#[cfg(test)]
mod tests;
