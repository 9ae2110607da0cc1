//! Where domains are kept: in the store, beside everything else.

use std::sync::{Arc, Mutex, PoisonError};

use asyncgate_core::admission::{DomainState, Progress};
use asyncgate_domains::{Decision, Evaluator, Hash, Limiter, Rules, State};
use asyncgate_engine::Clock;
use asyncgate_rest::{Decide, DomainStates, Domains, StateLost};
use asyncgate_store::Store;
use futures_util::future::BoxFuture;

use crate::config;

/// What the routes of domains need.
pub fn for_domains(
    settings: &config::Domains,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
) -> Domains {
    let evaluator: Box<dyn Evaluator> = match &settings.evaluator {
        Some(evaluator) => Box::new(evaluator.clone()),
        None => Box::new(Limiter),
    };
    Domains {
        rules: Rules {
            compat: settings.compat,
            evaluator,
            version: env!("CARGO_PKG_VERSION"),
        },
        states: Arc::new(Stored { store, clock }),
        enabled: settings.enabled,
        client_policy: settings.client_policy.clone(),
    }
}

struct Stored {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl DomainStates for Stored {
    fn load(&self, domain: Hash) -> BoxFuture<'_, Result<Option<State>, StateLost>> {
        Box::pin(async move {
            let found = self.store.admission().domain(domain).await;
            let found = found.map_err(|error| StateLost(error.to_string()))?;
            Ok(found.map(state))
        })
    }

    fn decide(&self, domain: Hash, decide: Decide) -> BoxFuture<'_, Result<Decision, StateLost>> {
        let decided = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&decided);
        let run = move |before: Option<DomainState>| {
            let decision = decide(before.map(state));
            let after = decision.state.map(row);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
            after
        };
        Box::pin(async move {
            let (store, now) = (self.store.admission(), self.clock.now());
            let written = store.decide_domain(now, domain, Box::new(run)).await;
            written.map_err(|error| StateLost(error.to_string()))?;
            let decision = decided
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            decision.ok_or_else(|| StateLost("the store did not decide".to_owned()))
        })
    }
}

const fn state(row: DomainState) -> State {
    State {
        timer: row.progress.timer,
        counter: row.progress.counter,
        disabled: row.disabled,
    }
}

const fn row(state: State) -> DomainState {
    DomainState {
        progress: Progress {
            counter: state.counter,
            timer: state.timer,
        },
        disabled: state.disabled,
    }
}
