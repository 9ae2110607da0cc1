//! The REST facade: routes from the registry, JSON in and out. No rule lives here.

mod domains;
mod errors;
mod ingress;
mod input;
mod openapi;
mod routes;
mod stream;

pub use domains::{DOMAIN_PATHS, domain_router};
pub use errors::error_response;
pub use ingress::{INGRESS_PATH, ingress_router};
pub use openapi::{EVENTS, openapi};
pub use routes::{CORR_ID, Options, PATHS, refuse_methods, router, stamp};
