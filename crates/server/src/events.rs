//! `GET /v1/events`: the events of a tenant and of the server as they happen, as server-sent events, for the
//! tenant's admins only.
//!
//! A reader first gets the present state, then the changes. It may be slow: events that it misses are
//! lost, and it is told how many.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asyncgate_edge::{add_headers, answer, correlate, request_context, response};
use asyncgate_engine::{Authenticator, Caller, Engine, Event, Fault, RequestContext, Subscription};
use asyncgate_rest::EVENTS;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};

use crate::readiness::Monitor;

/// The longest silence: a comment breaks it, so that neither side takes the other for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct App {
    engine: Arc<Engine>,
    keys: Arc<dyn Authenticator>,
    monitor: Arc<Monitor>,
}

/// Returns the route.
pub fn router(engine: Arc<Engine>, keys: Arc<dyn Authenticator>, monitor: Arc<Monitor>) -> Router {
    let app = App {
        engine,
        keys,
        monitor,
    };
    Router::new().route(EVENTS, get(serve)).with_state(app)
}

async fn serve(State(app): State<App>, headers: HeaderMap) -> Response {
    let corr_id = correlate(&headers, || app.engine.corr_id());
    let following = async {
        let context = request_context(&headers);
        let admitted = app.admit(&context).await;
        let caller = admitted.inspect_err(|fault| app.engine.note_refusal(fault))?;
        let mut response = app.follow(&caller, app.keys.until_ended(&context));
        let limits = app.engine.limit_headers(&caller).await;
        add_headers(response.headers_mut(), &limits);
        Ok(response)
    };
    answer(&corr_id, following).await
}

impl App {
    /// Refuses everybody but those who may follow events.
    async fn admit(&self, context: &RequestContext<'_>) -> Result<Caller, Fault> {
        let caller = self.keys.authenticate(context).await?;
        self.engine.admit_to_events(&caller).await?;
        Ok(caller)
    }

    /// Answers with the present state and all events that follow, until the credential ends.
    fn follow(&self, caller: &Caller, ended: BoxFuture<'static, ()>) -> Response {
        // Subscribed before the state is read, so that no change falls in between.
        let subscription = self.engine.events().subscribe(caller.tenant);
        let mut first = String::new();
        for event in self.monitor.events() {
            first.push_str(&encode(&event));
        }
        let events = stream::unfold(
            (Some(first), subscription, Arc::clone(&self.engine)),
            |(first, mut subscription, engine)| async move {
                let text = match first {
                    Some(first) => first,
                    None => next(&mut subscription, &engine).await?,
                };
                Some((Ok::<_, Infallible>(text), (None, subscription, engine)))
            },
        );
        let mut response = response(Body::from_stream(events.take_until(ended)));
        let stream = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, stream);
        response
    }
}

/// Returns the next text of the stream, or nothing once the server stops.
async fn next(subscription: &mut Subscription, engine: &Engine) -> Option<String> {
    tokio::select! {
        // Events come first: those before a drain shall reach the reader.
        biased;
        found = subscription.next() => {
            let (lost, found) = found?;
            let notice = match lost {
                0 => String::new(),
                lost => format!(": {lost} events were lost\n\n"),
            };
            Some(notice + &encode(&found))
        }
        () = engine.drained() => None,
        () = tokio::time::sleep(HEARTBEAT) => Some(": still here\n\n".to_owned()),
    }
}

fn encode(event: &Event) -> String {
    format!("event: {}\ndata: {}\n\n", event.topic, event.body)
}
