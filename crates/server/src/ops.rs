//! The routes for operators and their tools: `/healthz`, `/readyz` and `/metrics`.
//!
//! These answers need no credential: they hold no tenant's data.

use std::sync::Arc;
use std::time::Duration;

use asyncgate_api::{Code, Liveness};
use asyncgate_edge::json_response;
use asyncgate_rest::{HEALTHZ, METRICS, READYZ};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The server's readiness for new work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The conditions that must hold and do not.
    pub missing: Vec<&'static str>,
    /// The reason, in words that operators may see.
    pub reason: Option<String>,
    /// Remarks that keep nobody from anything.
    pub notices: Vec<Notice>,
}

/// A remark for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The name of its subject.
    pub key: &'static str,
    /// The remark, in words.
    pub text: String,
}

impl Readiness {
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty()
    }
}

/// The time after which to ask again, in seconds.
const RETRY_AFTER: u32 = 5;

/// The source of the answers.
pub trait Vitals: Send + Sync + 'static {
    /// Returns the readiness as it is now.
    fn readiness(&self) -> Readiness;

    /// Brings those metrics up to date that are not counted as things happen.
    fn refresh(&self) -> BoxFuture<'_, ()>;
}

#[derive(Clone)]
struct Ops {
    vitals: Arc<dyn Vitals>,
    registry: Arc<Registry>,
    refreshed: Arc<Mutex<Refreshed>>,
}

/// The last refresh of the metrics.
#[derive(Default)]
struct Refreshed {
    began: Option<Instant>,
    /// The time before which the next one does not begin.
    next: Option<Instant>,
}

/// The part of the time that refreshes may take, as a divisor. Anybody may ask for metrics, and a refresh reads
/// much of the store.
const REFRESH_SHARE: u32 = 10;
/// The longest pause between two refreshes.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Ops {
    /// Brings the metrics up to date as of now or later. Callers who come while there is a refresh or a pause share
    /// the next refresh.
    async fn refresh(&self) {
        let came = Instant::now();
        let mut last = self.refreshed.lock().await;
        if last.began.is_some_and(|began| began > came) {
            return;
        }
        if let Some(next) = last.next {
            sleep_until(next).await;
        }
        let began = Instant::now();
        self.vitals.refresh().await;
        let pause = began.elapsed() * (REFRESH_SHARE - 1);
        last.next = Some(Instant::now() + pause.min(LONGEST_PAUSE));
        last.began = Some(began);
    }
}

/// Returns the routes `/healthz` and `/readyz`.
pub fn health(vitals: Arc<dyn Vitals>) -> Router {
    let alive = || async {
        let status = "ok".to_owned();
        answer(StatusCode::OK, &Liveness { status })
    };
    Router::new()
        .route(HEALTHZ, get(alive))
        .route(READYZ, get(ready))
        .with_state(vitals)
}

/// Returns the route `/metrics`.
pub fn metrics(vitals: Arc<dyn Vitals>, registry: Registry) -> Router {
    let ops = Ops {
        vitals,
        registry: Arc::new(registry),
        refreshed: Arc::default(),
    };
    Router::new().route(METRICS, get(show)).with_state(ops)
}

async fn ready(State(vitals): State<Arc<dyn Vitals>>) -> Response {
    let readiness = vitals.readiness();
    let notices = readiness
        .notices
        .iter()
        .map(|notice| asyncgate_api::Notice {
            key: notice.key.to_owned(),
            text: notice.text.clone(),
        });
    let notices = notices.collect();
    if readiness.is_ready() {
        let body = asyncgate_api::Readiness {
            status: "ready".to_owned(),
            notices,
            ..Default::default()
        };
        return answer(StatusCode::OK, &body);
    }
    let missing = readiness.missing.into_iter().map(str::to_owned);
    let body = asyncgate_api::Readiness {
        status: "not_ready".to_owned(),
        code: Some(Code::Unavailable),
        reason: readiness.reason,
        degraded: Some(true),
        missing: Some(missing.collect()),
        retry_after: Some(RETRY_AFTER),
        notices,
    };
    let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, &body);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, RETRY_AFTER.into());
    response
}

async fn show(State(ops): State<Ops>) -> Response {
    ops.refresh().await;
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &ops.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "cannot encode the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    json_response(status, serde_json::to_vec(body).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use prometheus_client::metrics::counter::Counter;
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;

    /// A condition that never changes, and a counter that counts its refreshes.
    struct Fixed(Readiness, Counter);

    impl Vitals for Fixed {
        fn readiness(&self) -> Readiness {
            self.0.clone()
        }

        fn refresh(&self) -> BoxFuture<'_, ()> {
            self.1.inc();
            Box::pin(async {})
        }
    }

    async fn get(readiness: Readiness, path: &str) -> (StatusCode, String) {
        let refreshes = Counter::default();
        let mut registry = Registry::with_prefix("asyncgate");
        registry.register("refreshes", "Refreshes", refreshes.clone());
        let vitals = Arc::new(Fixed(readiness, refreshes));
        let router = health(vitals.clone()).merge(metrics(vitals, registry));
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_is_not_the_same_as_ready() {
        let failing = || Readiness {
            missing: vec!["shards_ready"],
            reason: Some("the disk is full".to_owned()),
            notices: Vec::new(),
        };
        assert_eq!(get(failing(), "/healthz").await.0, StatusCode::OK);
        let (status, body) = get(failing(), "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["reason"], "the disk is full");
        assert_eq!(body["degraded"], true);
        assert_eq!(body["missing"], json!(["shards_ready"]));
        assert_eq!(body["retry_after"], RETRY_AFTER);
        let (status, body) = get(Readiness::default(), "/readyz").await;
        assert_eq!(
            (status, body.as_str()),
            (StatusCode::OK, r#"{"status":"ready"}"#)
        );
        let noticed = Readiness {
            notices: vec![Notice {
                key: "clock_skew",
                text: "off".to_owned(),
            }],
            ..Readiness::default()
        };
        let (status, body) = get(noticed, "/readyz").await;
        let expected = r#"{"status":"ready","notices":[{"key":"clock_skew","text":"off"}]}"#;
        assert_eq!((status, body.as_str()), (StatusCode::OK, expected));
    }

    #[tokio::test]
    async fn metrics_are_refreshed_before_they_are_shown() {
        let (status, body) = get(Readiness::default(), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            body.contains("asyncgate_refreshes_total 1") && body.ends_with("# EOF\n"),
            "{body}"
        );
    }

    /// A store that takes a while for each refresh.
    struct Slow(Counter);

    const A_WHILE: Duration = Duration::from_millis(20);

    impl Vitals for Slow {
        fn readiness(&self) -> Readiness {
            Readiness::default()
        }

        fn refresh(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {
                tokio::time::sleep(A_WHILE).await;
                self.0.inc();
            })
        }
    }

    #[tokio::test]
    async fn many_who_ask_for_metrics_share_refreshes() {
        let refreshes = Counter::default();
        let router = metrics(Arc::new(Slow(refreshes.clone())), Registry::default());
        let ask = async || {
            let request = Request::get(METRICS).body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        // All of them come before the first refresh is over.
        let all = futures_util::future::join_all((0..100).map(|_| ask()));
        assert!(all.await.iter().all(|answer| answer.status() == 200));
        assert!(refreshes.get() <= 2, "{}", refreshes.get());
        // One after the other, each gets a refresh of its own, with pauses between them.
        let (before, began) = (refreshes.get(), Instant::now());
        for _ in 0..3 {
            ask().await;
        }
        assert_eq!(refreshes.get(), before + 3);
        assert!(began.elapsed() >= 2 * A_WHILE * REFRESH_SHARE);
    }
}
