//! `asyncgate serve`: puts the parts together, runs them, and takes them apart in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_auth::{Auth, PlainKey};
use asyncgate_edge::correlated;
use asyncgate_engine::{Authenticator, CryptoMetrics, Engine};
use asyncgate_rest::Rest;
use axum::Router;
use axum::middleware::from_fn_with_state;
use futures_util::future::join_all;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

use crate::config::Settings;
use crate::events;
use crate::listen::{Bounds, Listener, Metrics, Options, Routes, Socket};
use crate::loopback;
use crate::node::{Node, for_mcp};
use crate::oauth;
use crate::ops::{self, Vitals as _};
use crate::output;
use crate::progress::Timeouts;
use crate::readiness::Monitor;
use crate::reload::Running;
use crate::secrets::warn_of_open_doors;
use crate::signals::{Signals, Wish};
use crate::supervise::keep;
use crate::tls::Tls;
use crate::uds::UnixSocket;

/// The prefix of the names of metrics that only this server has.
pub const PREFIX: &str = "asyncgate";

/// The time that the last transaction of the deadline watch may take.
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Serves until a signal asks to stop.
pub async fn serve(settings: Settings, mut running: Running) -> anyhow::Result<()> {
    // Signals come first: from here on none of them kills the process in the middle of something.
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    // A certificate that cannot be used stops the start before anything listens.
    let crypto = CryptoMetrics::default();
    let open = |options| Tls::open(options, crypto.clone());
    let tls = settings.tls.as_ref().map(open).transpose()?;
    // A port that is taken must not leave a new database and key behind.
    let sockets = Sockets::bind(&settings, tls.as_ref())?;
    let node = Node::open(&settings, crypto)?;
    warn_of_open_doors(&settings);
    let auth = node.authenticator(&settings)?;
    if let Some(key) = auth.begin().await? {
        show_once(&key);
    }
    let monitor = Arc::new(node.monitor());
    let background = node.background();
    let tending = tokio::spawn({
        let (auth, restarts) = (auth.clone(), node.restarts.clone());
        async move { keep("credentials", restarts, || auth.tend()).await }
    });
    let watching = tokio::spawn({
        let (monitor, restarts) = (monitor.clone(), node.restarts.clone());
        async move { keep("monitor", restarts, || monitor.watch()).await }
    });
    let registry = registry(&node, &auth, &monitor);
    let oauth = oauth::facade(&settings, &node.engine);
    let (rest, routes) = routes(&settings, &node, Arc::new(auth), &monitor);
    let routes = (rest, routes.merge(oauth.router()));
    let listeners = sockets.serve(&settings, &node.engine, routes, &monitor, registry)?;
    monitor.bound();
    let address = listeners.iter().find_map(Listener::address);
    let address = address.context("nothing listens on the network")?;
    running.announce();
    warn_of_clear_text(&settings);
    let pq_mode = settings.tls.as_ref().map(|tls| tls.pq.as_str());
    tracing::info!(%address, pq_mode, version = env!("CARGO_PKG_VERSION"), "serving");
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    output::say(&format!("listening on {scheme}://{address}"))?;

    while signals.next().await == Wish::Reload {
        running.reload(|settings| {
            node.reload(settings);
            oauth::reload(&oauth, settings);
            for listener in &listeners {
                listener.set_timeouts(timeouts(settings));
            }
        });
        node.reload_secrets(running.settings());
        if let Some(tls) = &tls {
            tls.reload();
        }
    }
    monitor.draining();
    // Somebody at a terminal wants an end, and has no balancer that must look elsewhere first.
    let grace = match signals.interrupted() {
        true => Duration::ZERO,
        false => settings.drain_grace,
    };
    let drained = drain(grace, &settings, &node.engine, listeners);
    let finished = tokio::select! {
        finished = drained => finished,
        // An operator who asks twice does not want to wait.
        () = second_stop(&mut signals) => false,
    };
    node.engine.drain();
    // Background work stops by itself when the engine drains; a transaction may be under way.
    let last = async { tokio::join!(background, watching, tending) };
    let _ = tokio::time::timeout(LAST_SWEEP, last).await;
    if finished {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped; requests that did not finish in time were cut");
    }
    Ok(())
}

/// Takes the listeners out of service. At first new work is refused, and whoever holds work can settle it;
/// then everything that waits is released, and requests in flight may finish. Returns true if all did.
///
/// It takes at most [`Settings::drain_grace`] and [`Settings::drain_timeout`], whatever clients do.
async fn drain(
    grace: Duration,
    settings: &Settings,
    engine: &Engine,
    listeners: Vec<Listener>,
) -> bool {
    tracing::info!(
        grace_seconds = grace.as_secs_f64(),
        "stopping: new work is refused, and work that was handed out can be settled"
    );
    sleep(grace).await;
    tracing::info!("stopping: requests in flight may finish");
    engine.drain();
    let drains = listeners
        .into_iter()
        .map(|listener| listener.drain(settings.drain_timeout));
    join_all(drains).await.into_iter().all(|finished| finished)
}

/// Warns of credentials that others on the network could read.
fn warn_of_clear_text(settings: &Settings) {
    if settings.tls.is_none() && !settings.bind.ip().is_loopback() {
        tracing::warn!(
            bind = %settings.bind,
            "other machines can reach bind, and tls.enabled is false: credentials and payloads travel in \
             clear text unless a proxy in front of this server speaks TLS"
        );
    }
}

/// The connections that may wait to be accepted; the system may allow fewer. If that many come at once, the next has to
/// ask again, which takes it a second.
const WAITING_CONNECTIONS: u32 = 4_096;

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A server that was just stopped leaves connections behind, which keep its address for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CONNECTIONS)
}

/// The sockets of the server. Connections wait in their queues until somebody serves them.
struct Sockets {
    main: Socket,
    unix: Option<UnixSocket>,
    metrics: Option<TcpListener>,
}

impl Sockets {
    fn bind(settings: &Settings, tls: Option<&Tls>) -> anyhow::Result<Self> {
        let tcp = |address| listen(address).with_context(|| format!("cannot listen on {address}"));
        let main = tcp(settings.bind)?;
        let main = match tls {
            Some(tls) => Socket::Tls(main, tls.acceptor()),
            None => main.into(),
        };
        let metrics = match settings.metrics_addr {
            Some(address) => Some(tcp(address)?),
            None => None,
        };
        let unix = settings
            .uds_path
            .as_deref()
            .map(|path| UnixSocket::bind(path, &settings.uds_allow_uids))
            .transpose()?;
        Ok(Self {
            main,
            unix,
            metrics,
        })
    }

    /// Starts a listener on every socket; that of the main address comes first.
    fn serve(
        self,
        settings: &Settings,
        engine: &Arc<Engine>,
        (rest, routes): (Rest, Router),
        monitor: &Arc<Monitor>,
        mut registry: Registry,
    ) -> anyhow::Result<Vec<Listener>> {
        let counts = Metrics::default();
        counts.register(&mut registry);
        let correlate = from_fn_with_state(engine.clone(), correlated);
        let health = ops::health(monitor.clone()).layer(correlate.clone());
        let metrics = ops::metrics(monitor.clone(), registry).layer(correlate);
        let complete = |routes: Router| {
            let mut all = routes.merge(health.clone());
            // Metrics with an address of their own are only for those who can reach that address.
            if self.metrics.is_none() {
                all = all.merge(metrics.clone());
            }
            asyncgate_rest::refuse_methods(all, engine.clone())
        };
        // No web page can reach a socket file, and its clients name any host.
        let unix = Routes {
            router: complete(routes.clone()),
            rest: Some(rest.clone()),
        };
        let main = match settings.allow_insecure_dev {
            // Nothing may pass by the check of the host.
            true => complete(loopback::only(routes, engine.clone())).into(),
            false => Routes {
                router: complete(routes),
                rest: Some(rest),
            },
        };
        let aside = health.clone().merge(metrics.clone());
        let aside = asyncgate_rest::refuse_methods(aside, engine.clone());
        let start = |socket: Socket, routes| {
            Listener::start(
                socket,
                routes,
                engine.clone(),
                options(settings),
                counts.clone(),
            )
        };
        let mut listeners = vec![start(self.main, main)?];
        if let Some(socket) = self.unix {
            listeners.push(start(socket.into(), unix)?);
            tracing::info!("serving on uds.path too");
        }
        if let Some(socket) = self.metrics {
            let address = socket.local_addr()?;
            listeners.push(start(socket.into(), aside.into())?);
            tracing::info!(metrics = %address, "serving metrics");
        }
        Ok(listeners)
    }
}

fn routes(
    settings: &Settings,
    node: &Node,
    auth: Arc<dyn Authenticator>,
    monitor: &Arc<Monitor>,
) -> (Rest, Router) {
    let engine = &node.engine;
    let options = asyncgate_rest::Options {
        max_body_bytes: settings.max_body_bytes,
    };
    let rest = Rest::new(engine.clone(), auth.clone(), options);
    let mcp = asyncgate_mcp::router(engine.clone(), auth.clone(), for_mcp(settings));
    let grpc = asyncgate_grpc::router(engine.clone(), auth.clone(), for_grpc(monitor.clone()));
    let events = events::router(engine.clone(), auth, monitor.clone());
    let domains = asyncgate_rest::domain_router(engine.clone());
    let ingress = asyncgate_rest::ingress_router(engine.clone());
    let all = rest
        .router()
        .merge(mcp)
        .merge(grpc)
        .merge(events)
        .merge(domains)
        .merge(ingress);
    (rest, all)
}

fn for_grpc(monitor: Arc<Monitor>) -> asyncgate_grpc::Options {
    asyncgate_grpc::Options {
        serving: Arc::new(move || monitor.readiness().is_ready()),
    }
}

/// Returns all metrics but those of the listeners.
fn registry(node: &Node, auth: &Auth, monitor: &Monitor) -> Registry {
    let engine = &node.engine;
    let mut registry = Registry::default();
    engine.register_mailbox_metrics(&mut registry);
    auth.register_metrics(&mut registry);
    registry.register(
        "service_restarts",
        "Times that background work ended by a defect and began again",
        node.restarts.clone(),
    );
    let settings = engine.settings();
    let profile = Info::new([
        ("profile", settings.profile),
        ("dlq_profile", settings.durability.dlq_profile()),
    ]);
    registry.register("mailbox_profile", "How the mailbox is deployed", profile);
    let own = registry.sub_registry_with_prefix(PREFIX);
    engine.register_metrics(own);
    monitor.register_metrics(own);
    registry
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Wish::Stop {}
}

/// Shows the first key. It does not go through the log, which others may collect and keep.
fn show_once(key: &PlainKey) {
    output::mutter(&format!(
        "asyncgate: this is the admin API key; it is shown only now. \
         Commands take it from ASYNCGATE_API_KEY.\n\n    {}\n",
        key.reveal()
    ));
}

fn options(settings: &Settings) -> Options {
    Options {
        bounds: Bounds {
            all: settings.max_connections,
            per_address: settings.max_connections_per_address,
        },
        timeouts: timeouts(settings),
        hsts: settings.hsts,
        public_url: settings.public_url.as_deref().map(Arc::from),
    }
}

fn timeouts(settings: &Settings) -> Timeouts {
    Timeouts {
        read: settings.read_timeout,
        request: settings.request_timeout,
        write: settings.write_timeout,
        idle: settings.idle_timeout,
        bytes_per_second: settings.min_transfer_rate,
    }
}
