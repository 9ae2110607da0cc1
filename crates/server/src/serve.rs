//! `asyncgate serve`: puts the parts together, runs them, and takes them apart in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_edge::correlated;
use asyncgate_engine::{Authenticator, Engine};
use axum::Router;
use axum::middleware::from_fn_with_state;
use futures_util::future::join_all;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::config::Settings;
use crate::events;
use crate::keys::{Keys, Token};
use crate::listen::{Listener, Metrics, Options, Socket};
use crate::loopback;
use crate::node::{Node, for_mcp};
use crate::ops::{self, Vitals as _};
use crate::output;
use crate::progress::Timeouts;
use crate::readiness::Monitor;
use crate::reload::Running;
use crate::signals::{Signals, Wish};
use crate::supervise::keep;
use crate::tls;
use crate::uds::UnixSocket;

/// The prefix of the names of metrics that only this server has.
pub const PREFIX: &str = "asyncgate";

/// The time that the last transaction of the deadline watch may take.
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Serves until a signal asks to stop.
pub async fn serve(settings: Settings, mut running: Running) -> anyhow::Result<()> {
    // Signals come first: from here on none of them kills the process in the middle of something.
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    // A port that is taken must not leave a new database and key behind.
    let sockets = Sockets::bind(&settings).await?;
    let node = Node::open(&settings)?;
    let (keys, fresh) = Keys::open(&settings, &node.clock)?;
    if let Some(token) = &fresh {
        show_once(token);
    }
    let monitor = Arc::new(node.monitor());
    let background = node.background();
    let watching = tokio::spawn({
        let (monitor, restarts) = (monitor.clone(), node.restarts.clone());
        async move { keep("monitor", restarts, || monitor.watch()).await }
    });
    let registry = registry(&node, &keys);
    let routes = routes(&settings, &node, Arc::new(keys), &monitor);
    let listeners = sockets.serve(&settings, &node.engine, routes, &monitor, registry)?;
    monitor.bound();
    let address = listeners.iter().find_map(Listener::address);
    let address = address.context("nothing listens on the network")?;
    running.announce();
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "serving");
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    output::say(&format!("listening on {scheme}://{address}"))?;

    while signals.next().await == Wish::Reload {
        running.reload(|settings| {
            node.reload(settings);
            for listener in &listeners {
                listener.set_timeouts(timeouts(settings));
            }
        });
    }
    tracing::info!("stopping: requests in flight may finish");
    monitor.draining();
    node.engine.drain();
    let all = join_all(
        listeners
            .into_iter()
            .map(|listener| listener.drain(settings.drain_timeout)),
    );
    let finished = tokio::select! {
        finished = all => finished.into_iter().all(|finished| finished),
        // An operator who asks twice does not want to wait.
        () = second_stop(&mut signals) => false,
    };
    // Background work stops by itself when the engine drains; a transaction may be under way.
    let last = async { tokio::join!(background, watching) };
    let _ = tokio::time::timeout(LAST_SWEEP, last).await;
    if finished {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped; requests that did not finish in time were cut");
    }
    Ok(())
}

/// The sockets of the server. Connections wait in their queues until somebody serves them.
struct Sockets {
    main: Socket,
    unix: Option<UnixSocket>,
    metrics: Option<TcpListener>,
}

impl Sockets {
    async fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let tcp = |address| async move {
            TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address}"))
        };
        // A certificate that cannot be used stops the start before anything listens.
        let acceptor = settings.tls.as_ref().map(tls::acceptor).transpose()?;
        let main = tcp(settings.bind).await?;
        let main = match acceptor {
            Some(acceptor) => Socket::Tls(main, acceptor),
            None => main.into(),
        };
        let metrics = match settings.metrics_addr {
            Some(address) => Some(tcp(address).await?),
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
        routes: Router,
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
        let unix = complete(routes.clone());
        let main = complete(match settings.allow_insecure_dev {
            true => loopback::only(routes, engine.clone()),
            false => routes,
        });
        let aside = health.clone().merge(metrics.clone());
        let aside = asyncgate_rest::refuse_methods(aside, engine.clone());
        let start = |socket: Socket, router| {
            Listener::start(socket, router, options(settings), counts.clone())
        };
        let mut listeners = vec![start(self.main, main)?];
        if let Some(socket) = self.unix {
            listeners.push(start(socket.into(), unix)?);
            tracing::info!("serving on uds.path too");
        }
        if let Some(socket) = self.metrics {
            let address = socket.local_addr()?;
            listeners.push(start(socket.into(), aside)?);
            tracing::info!(metrics = %address, "serving metrics");
        }
        Ok(listeners)
    }
}

fn routes(
    settings: &Settings,
    node: &Node,
    keys: Arc<dyn Authenticator>,
    monitor: &Arc<Monitor>,
) -> Router {
    let engine = &node.engine;
    let options = asyncgate_rest::Options {
        max_body_bytes: settings.max_body_bytes,
    };
    let rest = asyncgate_rest::router(engine.clone(), keys.clone(), options);
    let mcp = asyncgate_mcp::router(engine.clone(), keys.clone(), for_mcp(settings));
    let grpc = asyncgate_grpc::router(engine.clone(), keys.clone(), for_grpc(monitor.clone()));
    let events = events::router(engine.clone(), keys, monitor.clone());
    let domains = asyncgate_rest::domain_router(engine.clone());
    let ingress = asyncgate_rest::ingress_router(engine.clone());
    rest.merge(mcp)
        .merge(grpc)
        .merge(events)
        .merge(domains)
        .merge(ingress)
}

fn for_grpc(monitor: Arc<Monitor>) -> asyncgate_grpc::Options {
    asyncgate_grpc::Options {
        serving: Arc::new(move || monitor.readiness().is_ready()),
    }
}

/// Returns all metrics but those of the listeners.
fn registry(node: &Node, keys: &Keys) -> Registry {
    let engine = &node.engine;
    let mut registry = Registry::default();
    engine.register_mailbox_metrics(&mut registry);
    keys.register_metrics(&mut registry);
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
    engine.register_metrics(registry.sub_registry_with_prefix(PREFIX));
    registry
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Wish::Stop {}
}

/// Shows the first key. It does not go through the log, which others may collect and keep.
fn show_once(token: &Token) {
    output::complain(&format!(
        "this is the admin API key; it is shown only now:\n\n    {}\n",
        token.reveal()
    ));
}

fn options(settings: &Settings) -> Options {
    Options {
        connections: settings.max_connections,
        timeouts: timeouts(settings),
        hsts: settings.hsts,
    }
}

fn timeouts(settings: &Settings) -> Timeouts {
    Timeouts {
        read: settings.read_timeout,
        request: settings.request_timeout,
        write: settings.write_timeout,
        idle: settings.idle_timeout,
    }
}
