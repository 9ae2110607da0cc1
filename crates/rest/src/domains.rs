//! `/domain/*` and `/status`: requests about sequential delay domains, as ODIS clients send them.
//!
//! They stand apart from the registry: their bodies, texts and status codes are those of the deployed
//! signers, and the signature in the body is the credential.

use std::{fmt, sync::Arc};

use asyncgate_api::Code;
use asyncgate_domains::{Admitted, Answer, Decision, Hash, Kind, Problem, Rules, State};
use asyncgate_engine::{Clock, Coding, Engine, Fault};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header},
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::{
    input,
    routes::{CORR_ID, json_response, stamp},
};

/// The routes of domains.
pub const DOMAIN_PATHS: [&str; 4] = [
    "/domain/sign",
    "/domain/quotaStatus",
    "/domain/disable",
    "/status",
];

/// The largest body, as the deployed signers have it.
const MAX_BODY_BYTES: usize = 200 << 10;
/// The header that asks for a key, and says which was used.
const KEY_VERSION: HeaderName = HeaderName::from_static("odis-key-version");

/// The rule to run within a transaction. A store may run it again with what it finds then.
pub type Decide = Arc<dyn Fn(Option<State>) -> Decision + Send + Sync>;

/// Where domains are kept.
///
/// Contract: `decide` loads the state, runs the rule, and stores the decision's state if it has one, in one
/// atomic step; it answers once that is durable. On `Err`, nothing is known to have been stored. `load` sees
/// all that was answered before it was called. A state is kept for ever: a domain that is forgotten could be
/// used again from its first stage.
pub trait DomainStates: Send + Sync {
    /// How a domain stands.
    fn load(&self, domain: Hash) -> BoxFuture<'_, Result<Option<State>, StateLost>>;

    /// Decides about a domain.
    fn decide(&self, domain: Hash, decide: Decide) -> BoxFuture<'_, Result<Decision, StateLost>>;
}

/// The state could not be read or stored; why is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateLost(pub String);

/// What the routes need.
pub struct Domains {
    /// How requests are decided.
    pub rules: Rules,
    /// Where domains are kept.
    pub states: Arc<dyn DomainStates>,
    /// Whether they are served at all.
    pub enabled: bool,
    /// The policy that limits requests by the address of the client, if one does.
    pub client_policy: Option<String>,
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domains")
            .field("rules", &self.rules)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

struct App {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    domains: Domains,
}

/// The routes of domains.
pub fn domain_router(engine: Arc<Engine>, clock: Arc<dyn Clock>, domains: Domains) -> Router {
    let app = Arc::new(App {
        engine,
        clock,
        domains,
    });
    let [sign, quota, disable, status_path] = DOMAIN_PATHS;
    let mut router = Router::new();
    for (path, kind) in [
        (sign, Kind::Sign),
        (quota, Kind::QuotaStatus),
        (disable, Kind::Disable),
    ] {
        let app = Arc::clone(&app);
        let serve = move |request: Request<Body>| {
            let app = Arc::clone(&app);
            async move { app.serve(kind, request).await }
        };
        router = router.route(path, post(serve));
    }
    let status = move |request: Request<Body>| std::future::ready(app.status(&request));
    router.route(status_path, get(status))
}

impl App {
    async fn serve(&self, kind: Kind, request: Request<Body>) -> Response<Body> {
        let corr_id = self.corr_id(request.headers());
        let answer = self.answer(kind, request, &corr_id).await;
        let body = serde_json::to_vec(&answer.body).unwrap_or_default();
        let status = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_response(status, Body::from(body));
        stamp(&mut response, &corr_id);
        let headers = response.headers_mut();
        if let Some(seconds) = answer.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(version) = answer.key_version {
            headers.insert(KEY_VERSION, version.into());
        }
        response
    }

    async fn answer(&self, kind: Kind, request: Request<Body>, corr_id: &str) -> Answer {
        let rules = &self.domains.rules;
        if !self.domains.enabled {
            return rules.refuse(Problem::Unavailable);
        }
        if let Some(refused) = self.refuse_client().await {
            return refused;
        }
        let (parts, body) = request.into_parts();
        let body = match self.read(&parts.headers, body).await {
            Ok(body) => body,
            Err(fault) => {
                let mut answer = rules.refuse(Problem::InvalidInput);
                answer.code = fault.code.http_status();
                return answer;
            }
        };
        // What is no text is no number either, and is refused as one.
        let version = parts.headers.get(KEY_VERSION);
        let version = version.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let admitted = rules.admit(kind, &body, version.as_deref());
        let admitted = match admitted {
            Ok(admitted) => Arc::new(admitted),
            Err(problem) => return rules.refuse(problem),
        };
        match self.decide(&admitted).await {
            Ok(decision) => rules.respond(&admitted, &decision),
            Err(StateLost(cause)) => {
                tracing::error!(corr_id, cause, "the state of a domain is out of reach");
                rules.refuse(if admitted.writes() {
                    Problem::NotStored
                } else {
                    Problem::NotLoaded
                })
            }
        }
    }

    /// The answer to a client that asks too often.
    async fn refuse_client(&self) -> Option<Answer> {
        let policy = self.domains.client_policy.as_deref()?;
        let rules = &self.domains.rules;
        let fault = self.engine.check_client(policy).await.err()?;
        if fault.code != Code::RateLimit {
            return Some(rules.refuse(Problem::NotLoaded));
        }
        let mut answer = rules.refuse(Problem::ExceededQuota);
        answer.retry_after = fault.retry_after_seconds.map(u64::from);
        Some(answer)
    }

    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
        let bodies = self.engine.settings().bodies;
        let codings = headers.get_all(header::CONTENT_ENCODING).iter();
        let coding = Coding::named(codings.map(HeaderValue::as_bytes))?;
        input::read(body, coding, MAX_BODY_BYTES, bodies).await
    }

    async fn decide(&self, admitted: &Arc<Admitted>) -> Result<Decision, StateLost> {
        let now = self.clock.now().as_millis().div_euclid(1_000);
        let (states, domain) = (&self.domains.states, *admitted.domain());
        if !admitted.writes() {
            let state = states.load(domain).await?;
            return Ok(admitted.decide(state, now));
        }
        let admitted = Arc::clone(admitted);
        let decide: Decide = Arc::new(move |state| admitted.decide(state, now));
        states.decide(domain, decide).await
    }

    fn status(&self, request: &Request<Body>) -> Response<Body> {
        let rules = &self.domains.rules;
        let keys = rules.evaluator.keys().into_iter().map(|key| {
            let public = base16ct::lower::encode_string(&key.public);
            json!({"version": key.version, "public_key": public})
        });
        let body = json!({
            "version": rules.version,
            "evaluator": rules.evaluator.name(),
            "keys": keys.collect::<Vec<_>>(),
        });
        let mut response = json_response(StatusCode::OK, Body::from(body.to_string()));
        stamp(&mut response, &self.corr_id(request.headers()));
        response
    }

    fn corr_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get(CORR_ID).and_then(|value| value.to_str().ok());
        self.engine.correlate(given).text
    }
}
