//! The REST facade: routes from the registry, JSON in and out. No rule lives here.

#[cfg(feature = "contract")]
pub mod contract;
mod domains;
mod ingress;
mod input;
mod openapi;
mod routes;
mod stream;

pub use domains::{DOMAIN_PATHS, domain_router};
pub use ingress::{INGRESS_PATH, ingress_router};
pub use openapi::{EVENTS, HEALTHZ, METRICS, READYZ, openapi};
pub use routes::{Options, PATHS, Rest, refuse_methods};
