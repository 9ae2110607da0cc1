//! The routes for operators and their tools: `/healthz`, `/readyz` and `/metrics`.
//!
//! These answers need no credential: they hold no tenant's data.

use std::sync::Arc;

use asyncgate_edge::json_response;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::json;

/// The server's readiness for new work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The conditions that must hold and do not.
    pub missing: Vec<&'static str>,
    /// The reason, in words that operators may see.
    pub reason: Option<String>,
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
}

/// Returns the routes `/healthz` and `/readyz`.
pub fn health(vitals: Arc<dyn Vitals>) -> Router {
    let alive = || async { answer(StatusCode::OK, &json!({ "status": "ok" })) };
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(vitals)
}

/// Returns the route `/metrics`.
pub fn metrics(vitals: Arc<dyn Vitals>, registry: Registry) -> Router {
    let ops = Ops {
        vitals,
        registry: Arc::new(registry),
    };
    Router::new().route("/metrics", get(show)).with_state(ops)
}

async fn ready(State(vitals): State<Arc<dyn Vitals>>) -> Response {
    let readiness = vitals.readiness();
    if readiness.is_ready() {
        return answer(StatusCode::OK, &json!({ "status": "ready" }));
    }
    let body = json!({
        "status": "not_ready",
        "code": "UNAVAILABLE",
        "reason": readiness.reason,
        "degraded": true,
        "missing": readiness.missing,
        "retry_after": RETRY_AFTER,
    });
    let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, &body);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, RETRY_AFTER.into());
    response
}

async fn show(State(ops): State<Ops>) -> Response {
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
    json_response(status, body.to_string())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use prometheus_client::metrics::counter::Counter;
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
}
