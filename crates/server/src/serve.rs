//! `asyncgate serve`: puts the parts together, runs them, and takes them apart in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use asyncgate_store::{Health, Store};
use axum::Router;
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::config::Settings;
use crate::keys::{Keys, Token};
use crate::listen::{Limits, Listener, Metrics};
use crate::node::Node;
use crate::ops::{self, Readiness, Vitals};
use crate::output;
use crate::pulse::Patience;
use crate::reload::Running;
use crate::signals::{Signals, Wish};

/// Serves until a signal asks to stop.
pub async fn serve(settings: Settings, mut running: Running) -> anyhow::Result<()> {
    // Before anything can be in the middle of something.
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    // A port that is taken must not leave a new database and key behind.
    let socket = TcpListener::bind(settings.bind)
        .await
        .with_context(|| format!("cannot listen on {}", settings.bind))?;
    let node = Node::open(&settings)?;
    let clock: Arc<dyn Clock> = node.clock.clone();
    let (_keys, fresh) = Keys::open(&settings, &clock)?;
    if let Some(token) = &fresh {
        tell(token);
    }
    let state = Arc::new(State {
        store: node.store.clone(),
        draining: AtomicBool::new(false),
    });
    let metrics = Metrics::default();
    let mut registry = Registry::with_prefix("asyncgate");
    metrics.register(&mut registry);
    node.store.metrics().register(&mut registry);
    let router = Router::new().merge(ops::router(state.clone(), registry));
    let listener = Listener::start(socket, router, limits(&settings), metrics)?;
    tracing::info!(address = %listener.address(), version = env!("CARGO_PKG_VERSION"), "serving");
    output::say(&format!("listening on http://{}", listener.address()))?;

    while signals.next().await == Wish::Reload {
        running.reload();
    }
    tracing::info!("stopping: requests in flight may finish");
    state.draining.store(true, Ordering::Relaxed);
    let finished = tokio::select! {
        finished = listener.drain(settings.drain_timeout) => finished,
        // Whoever asks twice does not want to wait.
        () = second_stop(&mut signals) => false,
    };
    if finished {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped; requests that did not finish in time were cut");
    }
    Ok(())
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

/// Whether work is welcome, for `/readyz`.
struct State {
    store: Arc<dyn Store>,
    draining: AtomicBool,
}

impl Vitals for State {
    fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Relaxed) {
            return Readiness::NotReady("the server is stopping".to_owned());
        }
        match self.store.health() {
            Health::Ready => Readiness::Ready,
            Health::Failing(reason) => Readiness::NotReady(reason),
        }
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
