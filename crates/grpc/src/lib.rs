//! gRPC: the mailbox as the service `ron.mailbox.v1.Mailbox`, limits as Envoy's
//! `envoy.service.ratelimit.v3.RateLimitService`, with health and reflection.
//!
//! A call passes the gate, which finds its caller and its limits; `message` takes it out of its frame;
//! `service` turns it into an operation of the engine. Errors have one shape, made in `status`. Health
//! and reflection are tonic's.

mod convert;
mod gate;
mod health;
mod message;
mod ratelimit;
mod service;
mod status;
mod stream;

mod generated {
    #![allow(
        clippy::all,
        clippy::restriction,
        clippy::pedantic,
        missing_debug_implementations,
        reason = "nobody edits generated code"
    )]

    /// The output of `cargo xtask codegen` for `proto/ron/mailbox/v1/mailbox.proto`.
    pub mod pb {
        include!("generated.rs");
    }

    /// The output of `cargo xtask codegen` for `proto/envoy/service/ratelimit/v3/rls.proto`.
    pub mod envoy {
        include!("generated_envoy.rs");
    }
}

pub use generated::{envoy, pb};

use std::{fmt, sync::Arc};

use asyncgate_edge::correlated;
use asyncgate_engine::{Authenticator, Engine};
use axum::{Router, body::Body, middleware::from_fn_with_state, routing::any};
use http::Request;

use crate::{gate::Gate, health::Health, service::RATE_LIMIT};

/// The paths of all methods.
pub const PATHS: [&str; 23] = [
    "/ron.mailbox.v1.Mailbox/Send",
    "/ron.mailbox.v1.Mailbox/SendBatch",
    "/ron.mailbox.v1.Mailbox/SendStream",
    "/ron.mailbox.v1.Mailbox/Recv",
    "/ron.mailbox.v1.Mailbox/RecvStream",
    "/ron.mailbox.v1.Mailbox/Ack",
    "/ron.mailbox.v1.Mailbox/AckBatch",
    "/ron.mailbox.v1.Mailbox/AckStream",
    "/ron.mailbox.v1.Mailbox/Nack",
    "/ron.mailbox.v1.Mailbox/Extend",
    "/ron.mailbox.v1.Mailbox/Peek",
    "/ron.mailbox.v1.Mailbox/GetMessage",
    "/ron.mailbox.v1.Mailbox/DeleteMessage",
    "/ron.mailbox.v1.Mailbox/RedriveMessage",
    "/ron.mailbox.v1.Mailbox/Purge",
    "/ron.mailbox.v1.Mailbox/Topics",
    "/ron.mailbox.v1.Mailbox/Dlq",
    "/ron.mailbox.v1.Mailbox/DlqReprocess",
    "/ron.mailbox.v1.Mailbox/Heads",
    RATE_LIMIT,
    "/grpc.health.v1.Health/{method}",
    "/grpc.reflection.v1.ServerReflection/{method}",
    "/grpc.reflection.v1alpha.ServerReflection/{method}",
];

/// The settings of the facade.
#[derive(Clone)]
pub struct Options {
    /// Returns true if new work is welcome; the health service answers with it.
    pub serving: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}

/// Returns the services as routes, to be served over HTTP/2.
pub fn router(engine: Arc<Engine>, auth: Arc<dyn Authenticator>, options: Options) -> Router {
    let health = Health::server(engine.clone(), options.serving);
    // Tonic's services do not pass the gate, so their answers get their correlation ids here.
    let standard = with_reflection(Router::new())
        .route_service("/grpc.health.v1.Health/{method}", health)
        .layer(from_fn_with_state(engine.clone(), correlated));
    let gate = Arc::new(Gate::new(engine, auth));
    let gate = any(move |request: Request<Body>| {
        let gate = Arc::clone(&gate);
        // The future is large, and routers move it around: a box moves as a pointer.
        Box::pin(async move { gate.pass(request).await })
    });
    Router::new()
        .route("/ron.mailbox.v1.Mailbox/{method}", gate.clone())
        .route(
            "/envoy.service.ratelimit.v3.RateLimitService/{method}",
            gate,
        )
        .merge(standard)
}

/// Adds the service by which tools such as grpcurl ask what there is, in two versions: many tools
/// know only the older one.
fn with_reflection(router: Router) -> Router {
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::DESCRIPTOR)
            .register_encoded_file_descriptor_set(envoy::DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (Ok(v1), Ok(v1alpha)) = (describe().build_v1(), describe().build_v1alpha()) else {
        // Only a file that does not know its own types could fail here, which a test would show.
        return router;
    };
    router
        .route_service("/grpc.reflection.v1.ServerReflection/{method}", v1)
        .route_service(
            "/grpc.reflection.v1alpha.ServerReflection/{method}",
            v1alpha,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_our_services_is_a_method() {
        for path in PATHS {
            let others = path.starts_with("/grpc.");
            assert_eq!(service::Method::at(path).is_none(), others, "{path}");
        }
        // A method of one service is none of another.
        let method = "/ron.mailbox.v1.Mailbox/ShouldRateLimit";
        assert_eq!(service::Method::at(method), None);
    }
}
