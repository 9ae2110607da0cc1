//! What operators and their tools ask: is it alive, is it ready, what does it measure.
//!
//! These answers need no credential: they hold no tenant's data.

use std::sync::Arc;

use asyncgate_rest::CORR_ID;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::json;

/// Whether new work is welcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// It is not, for this reason, which operators may see.
    NotReady(String),
}

/// Where the answers come from.
pub trait Vitals: Send + Sync + 'static {
    /// Whether new work is welcome.
    fn readiness(&self) -> Readiness;

    /// Brings what is not counted as it happens up to date, just before it is shown.
    fn refresh(&self) -> BoxFuture<'_, ()>;

    /// The correlation id that the caller gave, or a new one.
    fn corr_id(&self, given: Option<&str>) -> String;
}

#[derive(Clone)]
struct Ops {
    vitals: Arc<dyn Vitals>,
    registry: Arc<Registry>,
}

/// The routes `/healthz`, `/readyz` and `/metrics`.
pub fn router(vitals: Arc<dyn Vitals>, registry: Registry) -> Router {
    let ops = Ops {
        vitals,
        registry: Arc::new(registry),
    };
    Router::new()
        .route(
            "/healthz",
            get(|| async { answer(StatusCode::OK, &json!({ "status": "ok" })) }),
        )
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(ops.clone(), stamp))
        .with_state(ops)
}

async fn stamp(State(ops): State<Ops>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(CORR_ID)
        .and_then(|value| value.to_str().ok());
    let corr_id = ops.vitals.corr_id(given);
    let mut response = next.run(request).await;
    asyncgate_rest::stamp(&mut response, &corr_id);
    response
}

async fn ready(State(ops): State<Ops>) -> Response {
    match ops.vitals.readiness() {
        Readiness::Ready => answer(StatusCode::OK, &json!({ "status": "ready" })),
        Readiness::NotReady(reason) => {
            let body = json!({ "status": "not_ready", "code": "UNAVAILABLE", "reason": reason });
            let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, &body);
            let seconds = header::HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
            response
        }
    }
}

async fn metrics(State(ops): State<Ops>) -> Response {
    ops.vitals.refresh().await;
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

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    use super::*;

    /// A condition that never changes, and a counter that counts its refreshes.
    struct Fixed(Readiness, Counter);

    impl Vitals for Fixed {
        fn readiness(&self) -> Readiness {
            self.0.clone()
        }

        fn corr_id(&self, given: Option<&str>) -> String {
            given.unwrap_or("new").to_owned()
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
        let router = router(Arc::new(Fixed(readiness, refreshes)), registry);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn alive_is_not_the_same_as_ready() {
        let failing = || Readiness::NotReady("the disk is full".to_owned());
        assert_eq!(get(failing(), "/healthz").await.0, StatusCode::OK);
        let (status, body) = get(failing(), "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("the disk is full"), "{body}");
        let (status, body) = get(Readiness::Ready, "/readyz").await;
        assert_eq!(
            (status, body.as_str()),
            (StatusCode::OK, r#"{"status":"ready"}"#)
        );
    }

    #[tokio::test]
    async fn metrics_are_refreshed_before_they_are_shown() {
        let (status, body) = get(Readiness::Ready, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            body.contains("asyncgate_refreshes_total 1") && body.ends_with("# EOF\n"),
            "{body}"
        );
    }
}
