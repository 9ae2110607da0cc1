//! Requests about domains (CIP-40). The signature in the body is their credential, and the crate
//! `asyncgate_domains` has their rules.
//!
//! Invariant: an attempt is answered only when the domain's new state is durable.

use std::sync::{Arc, Mutex, PoisonError};

use asyncgate_api::Code;
use asyncgate_core::{
    Timestamp,
    admission::{DomainState, Progress},
};
use asyncgate_domains::{Admitted, Compat, Decision, Limiter, Problem, Rules, State};
pub use asyncgate_domains::{Answer as DomainAnswer, Kind as DomainRequest};
use asyncgate_store::Error;
use bytes::Bytes;

use crate::{Engine, Fault, operations::unix};

/// The settings of domains.
#[derive(Debug)]
pub struct Domains {
    /// The rules that decide requests.
    pub rules: Rules,
    /// False if every request about a domain is refused.
    pub enabled: bool,
    /// The policy that limits requests by the client's address, if one does.
    pub client_policy: Option<String>,
}

impl Default for Domains {
    fn default() -> Self {
        Self {
            rules: Rules {
                compat: Compat::Odis,
                evaluator: Box::new(Limiter),
                version: env!("CARGO_PKG_VERSION"),
            },
            enabled: true,
            client_policy: None,
        }
    }
}

impl Engine {
    /// Answers a request about a domain. `key_version` is the text of the header `odis-key-version`.
    ///
    /// `body` is awaited only if the client may ask, so that a client over its limit cannot make the
    /// server read.
    pub async fn answer_domain(
        &self,
        kind: DomainRequest,
        key_version: Option<&str>,
        body: impl Future<Output = Result<Bytes, Fault>>,
    ) -> DomainAnswer {
        let domains = Arc::clone(&self.settings().domains);
        let rules = &domains.rules;
        if !domains.enabled {
            return rules.refuse(Problem::Unavailable);
        }
        if let Some(policy) = &domains.client_policy
            && let Err(fault) = self.check_client(policy).await
        {
            return refuse_client(rules, &fault);
        }
        let body = match body.await {
            Ok(body) => body,
            Err(fault) => {
                let mut answer = rules.refuse(Problem::InvalidInput);
                answer.code = fault.code.http_status();
                return answer;
            }
        };
        let admitted = match rules.admit(kind, &body, key_version) {
            Ok(admitted) => Arc::new(admitted),
            Err(problem) => return rules.refuse(problem),
        };
        match self.decide_domain(&admitted).await {
            Ok(decision) => rules.respond(&admitted, &decision),
            Err(error) => {
                tracing::error!(cause = %error, "the state of a domain is out of reach");
                rules.refuse(match admitted.writes() {
                    true => Problem::NotStored,
                    false => Problem::NotLoaded,
                })
            }
        }
    }

    /// Runs the rule on the stored state, and stores the state that it decides.
    async fn decide_domain(&self, admitted: &Arc<Admitted>) -> Result<Decision, Error> {
        let (now, hash, store) = (self.now(), *admitted.domain(), self.store.admission());
        if !admitted.writes() {
            let stored = store.domain(hash).await?;
            return Ok(decide(admitted, stored, now));
        }
        let decided = Arc::new(Mutex::new(None));
        let run = {
            let (admitted, decided) = (Arc::clone(admitted), Arc::clone(&decided));
            move |stored: Option<DomainState>| {
                let decision = decide(&admitted, stored, now);
                let after = decision.state.map(row);
                // A store may decide again on what it finds then; its last decision is the one it wrote.
                *decided.lock().unwrap_or_else(PoisonError::into_inner) = Some(decision);
                after
            }
        };
        store.decide_domain(now, hash, Box::new(run)).await?;
        let mut decided = decided.lock().unwrap_or_else(PoisonError::into_inner);
        let undecided = || Error::Corrupt("the store did not decide".to_owned());
        decided.take().ok_or_else(undecided)
    }
}

/// Makes the answer for a client that asks too often, or whose limit cannot be asked.
fn refuse_client(rules: &Rules, fault: &Fault) -> DomainAnswer {
    if fault.code != Code::RateLimit {
        return rules.refuse(Problem::NotLoaded);
    }
    let mut answer = rules.refuse(Problem::ExceededQuota);
    answer.retry_after = fault.retry_after_seconds.map(u64::from);
    answer
}

fn decide(admitted: &Admitted, stored: Option<DomainState>, now: Timestamp) -> Decision {
    admitted.decide(stored.map(state), unix(now))
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
