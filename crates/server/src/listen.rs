//! The HTTP listener: accepts, bounds and drains connections, and hands requests to one router.
//! HTTP/1.1 and HTTP/2 come to the same port. A client that speaks HTTP/2 shows it by its first bytes
//! or, with TLS, says it in the handshake.
//!
//! hyper is driven directly: the ready-made server has no limits on connections or time, and every
//! layer that could add them boxes a body or sets a timer per request.
//!
//! Invariants: no more than [`Options::bounds`] are open, and those that are idle give way to newcomers;
//! no connection outlives [`Listener::drain`]; every answer passes [`Service::answer`], which counts it
//! and puts the security headers on it.

mod http1;
mod http2;
mod linger;
mod preface;
mod seats;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_edge::{Challenge, SecurityHeaders, correlate, error_response, forwarded_for};
use asyncgate_engine::{Engine, Entry, Fault, Remote};
use asyncgate_rest::Rest;
use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, Version, header};
use axum::response::Response;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::Service as _;

use crate::progress::{Cut, Progress, Timeouts};
use crate::reloadable::Reloadable;
use crate::serve::PREFIX;
use crate::tls;
use crate::traffic::{Report, Traffic};
use crate::uds::UnixSocket;
pub use http1::read_first_date;
use preface::{Protocol, read};
pub use seats::Bounds;
use seats::{Seat, Seats};

/// The largest request line with headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The pause after an error of `accept` that is not the client's, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bytes that wait in the system until they can be sent. What is beyond them waits here, where it is counted, and
/// moves in small steps, so that a slow client is told from one that takes nothing.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 32 << 10;

/// The settings of a listener.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most open connections.
    pub bounds: Bounds,
    /// The time limits of a connection.
    pub timeouts: Timeouts,
    /// Tells browsers to come by TLS only, also where this listener does not speak it itself.
    pub hsts: bool,
    /// The address by which clients reach the server, if it is known.
    pub public_url: Option<Arc<str>>,
}

/// The counts of a listener.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    open: Gauge,
    accepted: Counter,
    cut: Family<CutLabels, Counter>,
    traffic: Arc<Traffic>,
}

/// The labels of a connection that was cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    reason: &'static str,
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
            "connections_cut",
            "Connections that the server closed, by the reason",
            self.cut.clone(),
        );
        for cut in Cut::ALL {
            // Every reason is shown before it first happens.
            drop(self.of(cut));
        }
    }

    fn note(&self, cut: Cut) {
        cut.log();
        self.of(cut).inc();
    }

    fn of(&self, cut: Cut) -> impl Deref<Target = Counter> {
        let reason = cut.as_str();
        self.cut.get_or_create(&CutLabels { reason })
    }
}

/// A socket that connections come to.
pub enum Socket {
    /// From the network.
    Tcp(TcpListener),
    /// From the network, with TLS.
    Tls(TcpListener, Reloadable<Arc<tls::Acceptor>>),
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
    Tls(Arc<tls::Acceptor>, TcpStream),
    Unix(UnixStream),
}

/// The bytes of a connection, whatever carries them. All protocols are compiled for this one kind: to compile them
/// for each kind anew takes longer than anything else in this crate, and a call more is nothing beside a read or a write.
type Carrier = Box<dyn Duplex>;

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

impl Stream {
    /// Finds out which protocol the client speaks.
    fn recognise(self) -> BoxFuture<'static, io::Result<(Protocol, Carrier)>> {
        Box::pin(async {
            let (protocol, carrier): (Protocol, Carrier) = match self {
                Self::Tcp(stream) => {
                    prepare(&stream);
                    let (protocol, stream) = read(stream).await?;
                    (protocol, Box::new(stream))
                }
                Self::Tls(acceptor, stream) => {
                    prepare(&stream);
                    let stream = acceptor.accept(stream).await?;
                    let agreed = stream.get_ref().1.alpn_protocol();
                    let protocol = match agreed {
                        Some(tls::HTTP2) => Protocol::Http2,
                        Some(_) | None => Protocol::Http1,
                    };
                    (protocol, Box::new(stream))
                }
                Self::Unix(stream) => {
                    let (protocol, stream) = read(stream).await?;
                    (protocol, Box::new(stream))
                }
            };
            Ok((protocol, carrier))
        })
    }
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

/// The ways to an answer.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Answers whatever comes.
    pub router: Router,
    /// Answers operations over REST, which the listener has found already by counting the request. Absent where the
    /// router has something to check before them, or none of them.
    pub rest: Option<Rest>,
}

impl From<Router> for Routes {
    fn from(router: Router) -> Self {
        Self { router, rest: None }
    }
}

/// A running listener.
#[derive(Debug)]
pub struct Listener {
    address: Option<SocketAddr>,
    stage: watch::Sender<Stage>,
    accepting: JoinHandle<()>,
    seats: Arc<Seats>,
    timeouts: Reloadable<Timeouts>,
}

impl Listener {
    /// Starts to accept. Connections made before this call wait in the socket's queue.
    pub fn start(
        socket: impl Into<Socket>,
        routes: impl Into<Routes>,
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
        let seats = Seats::new(options.bounds);
        let timeouts = Reloadable::new(options.timeouts);
        let is_tls = matches!(socket, Socket::Tls(..));
        let hsts = options.hsts || is_tls;
        let connection = Connection {
            service: Service {
                routes: routes.into(),
                engine,
                traffic: metrics.traffic.clone(),
                security: SecurityHeaders { hsts },
                public_url: options.public_url,
                scheme: if is_tls { "https" } else { "http" },
            },
            timeouts: timeouts.clone(),
            metrics,
            stage: stage.subscribe(),
        };
        let accepting = tokio::spawn(accept(socket, connection, seats.clone()));
        Ok(Self {
            address,
            stage,
            accepting,
            seats,
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
        let left = async {
            // The task ends by itself, except for a bug, which must not keep the process alive.
            let _ = self.accepting.await;
            self.seats.wait_until_empty().await;
        };
        let finished = timeout(limit, left).await.is_ok();
        self.stage.send_replace(Stage::Ended);
        finished
    }
}

/// The way from a request to its answer, the same for all protocols. Cloned for each request.
#[derive(Debug, Clone)]
struct Service {
    routes: Routes,
    engine: Arc<Engine>,
    traffic: Arc<Traffic>,
    security: SecurityHeaders,
    public_url: Option<Arc<str>>,
    scheme: &'static str,
}

impl Service {
    async fn answer(mut self, request: Request) -> Response {
        let passage = self.traffic.begin(request.method(), request.uri().path());
        let challenge = Challenge::of(&request);
        let mut response = match check_host(&request) {
            Ok(()) => self.route(request, passage.operation()).await,
            Err(fault) => self.refuse(&request, &fault),
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            let base = self.public_url.as_deref();
            challenge.complete(response.headers_mut(), base, self.scheme);
        }
        self.security.apply(response.headers_mut());
        passage.answered(response.status());
        response
    }

    /// Has a request answered, on behalf of its client.
    async fn route(&mut self, request: Request, found: Option<&'static Entry>) -> Response {
        let client = self.client(&request);
        let routed = match (&self.routes.rest, found) {
            (Some(rest), Some(entry)) => Either::Left(rest.answer(entry, request).map(Ok)),
            (Some(_), None) | (None, _) => Either::Right(self.routes.router.call(request)),
        };
        let Ok(response) = match client {
            Some(client) => client.scope(routed).await,
            None => routed.await,
        };
        response
    }

    /// Returns the client that a trusted proxy names, if it does.
    fn client(&self, request: &Request) -> Option<Remote> {
        let settings = self.engine.settings();
        if settings.trusted_proxies.is_empty() {
            return None;
        }
        let peer = Remote::current()?.ip()?;
        let client = forwarded_for(peer, request.headers(), &settings.trusted_proxies);
        client.map(Remote::Forwarded)
    }

    /// Returns the address whose connections are counted, if they are. A trusted proxy brings many clients by the
    /// connections of one address, and a process of this machine has none.
    fn counted(&self, remote: Remote) -> Option<IpAddr> {
        let address = remote.ip()?;
        let trusted = &self.engine.settings().trusted_proxies;
        let is_proxy = trusted.iter().any(|network| network.contains(address));
        (!is_proxy).then_some(address)
    }

    fn refuse(&self, request: &Request, fault: &Fault) -> Response {
        self.engine.note_refusal(fault);
        let corr_id = correlate(request.headers(), || self.engine.corr_id());
        error_response(fault, &corr_id.text)
    }
}

/// Refuses a request of HTTP/1.1 that does not name its host exactly once. Programs on its way could
/// each take it for a request to another host.
fn check_host(request: &Request) -> Result<(), Fault> {
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

async fn accept(socket: Socket, connection: Connection, seats: Arc<Seats>) {
    let mut stage = connection.stage.clone();
    let mut stop = pin!(stage.wait_for(|stage| *stage != Stage::Serving));
    loop {
        let next = async {
            let (stream, remote) = socket.accept().await?;
            let seat = seats.take(connection.service.counted(remote)).await;
            Ok((stream, remote, seat))
        };
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => return,
            accepted = next => accepted,
        };
        match accepted {
            Ok((stream, remote, Some(seat))) => {
                let connection = connection.clone();
                tokio::spawn(remote.scope(connection.serve(stream, seat)));
            }
            Ok((_, _, None)) => connection.metrics.note(Cut::Address),
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
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
    async fn serve(self, stream: Stream, seat: Seat) {
        let metrics = self.metrics.clone();
        metrics.accepted.inc();
        metrics.open.inc();
        let cut = tokio::select! {
            biased;
            cut = self.serve_stream(stream, seat.progress()) => cut,
            () = seat.told_to_leave() => Some(Cut::Crowded),
        };
        if let Some(cut) = cut {
            metrics.note(cut);
        }
        metrics.open.dec();
    }

    /// Serves until the client or the drain ends the connection. Returns the reason for which it was cut, if it was.
    async fn serve_stream(mut self, stream: Stream, progress: Arc<Progress>) -> Option<Cut> {
        let timeouts = self.timeouts.get();
        let recognised = tokio::select! {
            biased;
            // The first request is due at once: a connection that asks nothing is of use to nobody.
            recognised = timeout(timeouts.read, stream.recognise()) => recognised,
            // Nothing was asked yet, so nothing is left unanswered.
            _ = self.stage.changed() => return None,
        };
        match recognised {
            Err(_) => Some(Cut::Head),
            Ok(Err(_)) => None,
            Ok(Ok((Protocol::Http1, stream))) => http1::run(self, progress, stream).await,
            Ok(Ok((Protocol::Http2, stream))) => {
                // A box keeps what HTTP/1.1 has no use for out of its connections.
                Box::pin(http2::run(self, progress, stream)).await
            }
        }
    }
}

/// Sets how a connection sends. An old socket that refuses is served all the same.
fn prepare(stream: &TcpStream) {
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
}

#[cfg(test)]
mod tests;
