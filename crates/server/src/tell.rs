//! `GET /v1/events`: what operators are told as it happens, as server-sent events, for admins only.
//!
//! A reader first gets the present state, then what changes. It may be slow: what it misses is lost,
//! counted, and told to it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_api::Code;
use asyncgate_engine::{Authenticator, Engine, Fault, Role, Subscription};
use asyncgate_rest::{CORR_ID, EVENTS, error_response, stamp};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::Value;

use crate::readiness::Monitor;

/// How often something is said although nothing happens, so that neither side takes the other for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct App {
    engine: Arc<Engine>,
    keys: Arc<dyn Authenticator>,
    monitor: Arc<Monitor>,
}

/// The route.
pub fn router(engine: Arc<Engine>, keys: Arc<dyn Authenticator>, monitor: Arc<Monitor>) -> Router {
    let app = App {
        engine,
        keys,
        monitor,
    };
    Router::new().route(EVENTS, get(serve)).with_state(app)
}

async fn serve(State(app): State<App>, request: Request) -> Response {
    let given = request
        .headers()
        .get(CORR_ID)
        .and_then(|value| value.to_str().ok());
    let corr_id = app.engine.correlate(given).text;
    let mut response = match app.admit(request.headers()).await {
        Ok(()) => app.follow(),
        Err(fault) => return error_response(&fault, &corr_id),
    };
    stamp(&mut response, &corr_id);
    response
}

impl App {
    async fn admit(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, credential)| credential.trim());
        let caller = self.keys.authenticate(bearer).await?;
        if caller.role != Role::Admin {
            let fault = Fault::new(Code::Forbidden, "only an admin may read events");
            return Err(fault.with("required_role", "admin"));
        }
        Ok(())
    }

    fn follow(self) -> Response {
        // Subscribed before the state is read, so that no change falls in between.
        let subscription = self.engine.events().subscribe();
        let mut first = String::new();
        for (topic, body) in self.monitor.events() {
            first.push_str(&line(topic, &body));
        }
        let lines = stream::unfold(
            (Some(first), subscription, self.engine),
            |(first, mut subscription, engine)| async move {
                let text = match first {
                    Some(first) => first,
                    None => next(&mut subscription, &engine).await?,
                };
                Some((Ok::<_, Infallible>(text), (None, subscription, engine)))
            },
        );
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
        ];
        (headers, Body::from_stream(lines)).into_response()
    }
}

/// What to say next; nothing once the server stops.
async fn next(subscription: &mut Subscription, engine: &Engine) -> Option<String> {
    tokio::select! {
        biased;
        event = subscription.next() => {
            let (lost, event) = event?;
            let notice = match lost {
                0 => String::new(),
                lost => format!(": {lost} events were lost\n\n"),
            };
            Some(notice + &line(event.topic, &event.body))
        }
        () = engine.drained() => None,
        () = tokio::time::sleep(HEARTBEAT) => Some(": still here\n\n".to_owned()),
    }
}

fn line(topic: &str, body: &Value) -> String {
    format!("event: {topic}\ndata: {body}\n\n")
}
