//! `asyncgate serve`: puts the parts together, runs them, and takes them apart in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_engine::{Authenticator, Engine};
use asyncgate_store::Health;
use axum::Router;
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::config::Settings;
use crate::keys::{Keys, Token};
use crate::listen::{Limits, Listener, Metrics};
use crate::node::{Node, for_engine, for_mcp};
use crate::ops::{self, Readiness, Vitals};
use crate::output;
use crate::pulse::Patience;
use crate::reload::Running;
use crate::signals::{Signals, Wish};

/// How long the last transaction of the deadline watch may take.
const LAST_SWEEP: Duration = Duration::from_secs(1);

/// Serves until a signal asks to stop.
pub async fn serve(settings: Settings, mut running: Running) -> anyhow::Result<()> {
    // Before anything can be in the middle of something.
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    // A port that is taken must not leave a new database and key behind.
    let socket = TcpListener::bind(settings.bind)
        .await
        .with_context(|| format!("cannot listen on {}", settings.bind))?;
    let node = Node::open(&settings)?;
    let (keys, fresh) = Keys::open(&settings, &node.clock)?;
    if let Some(token) = &fresh {
        tell(token);
    }
    let vitals = Arc::new(State::new(node.engine.clone()));
    let metrics = Metrics::default();
    let keys: Arc<dyn Authenticator> = Arc::new(keys);
    let router = routes(&settings, &node.engine, keys.clone())
        .merge(asyncgate_grpc::router(
            node.engine.clone(),
            keys,
            for_grpc(vitals.clone()),
        ))
        .merge(ops::router(
            vitals.clone(),
            registry(&metrics, &node.engine),
        ));
    let background = node.background();
    let listener = Listener::start(socket, router, limits(&settings), metrics)?;
    tracing::info!(address = %listener.address(), version = env!("CARGO_PKG_VERSION"), "serving");
    output::say(&format!("listening on http://{}", listener.address()))?;

    while signals.next().await == Wish::Reload {
        if let Some(settings) = running.reload() {
            node.engine.reload(for_engine(&settings));
        }
    }
    tracing::info!("stopping: requests in flight may finish");
    vitals.draining.store(true, Ordering::Relaxed);
    node.engine.drain();
    let finished = tokio::select! {
        finished = listener.drain(settings.drain_timeout) => finished,
        // Whoever asks twice does not want to wait.
        () = second_stop(&mut signals) => false,
    };
    // It stops by itself when the engine drains; a transaction of its own may be under way.
    let _ = tokio::time::timeout(LAST_SWEEP, background).await;
    if finished {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped; requests that did not finish in time were cut");
    }
    Ok(())
}

fn routes(settings: &Settings, engine: &Arc<Engine>, keys: Arc<dyn Authenticator>) -> Router {
    let options = asyncgate_rest::Options {
        max_body_bytes: settings.max_body_bytes,
    };
    let rest = asyncgate_rest::router(engine.clone(), keys.clone(), options);
    rest.merge(asyncgate_mcp::router(
        engine.clone(),
        keys,
        for_mcp(settings),
    ))
}

fn for_grpc(vitals: Arc<State>) -> asyncgate_grpc::Options {
    asyncgate_grpc::Options {
        serving: Arc::new(move || vitals.readiness() == Readiness::Ready),
    }
}

fn registry(metrics: &Metrics, engine: &Engine) -> Registry {
    let mut registry = Registry::default();
    engine.register_mailbox_metrics(&mut registry);
    let own = registry.sub_registry_with_prefix("asyncgate");
    metrics.register(own);
    engine.register_metrics(own);
    registry
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Wish::Stop {}
}

/// Shows the first key. It goes around the log, which others may collect and keep.
fn tell(token: &Token) {
    output::complain(&format!(
        "this is the admin API key; it is shown only now:\n\n    {}\n",
        token.reveal()
    ));
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        connections: settings.max_connections,
        patience: Patience {
            head: settings.header_timeout,
            answer: settings.request_timeout,
            silence: settings.keep_alive,
        },
    }
}

/// What `/readyz` and `/metrics` tell.
struct State {
    engine: Arc<Engine>,
    draining: AtomicBool,
}

impl State {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            draining: AtomicBool::new(false),
        }
    }
}

impl Vitals for State {
    fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Relaxed) {
            return Readiness::NotReady("the server is stopping".to_owned());
        }
        match self.engine.health() {
            Health::Ready => Readiness::Ready,
            Health::Failing(reason) => Readiness::NotReady(reason),
        }
    }

    fn corr_id(&self, given: Option<&str>) -> String {
        self.engine.corr_id_or(given)
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.engine.refresh_metrics())
    }
}
