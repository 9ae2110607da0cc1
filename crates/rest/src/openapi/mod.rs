//! The OpenAPI 3.1 document: the operations of the registry, and the routes that stand beside them.
//!
//! Every schema has a name under `components`, so that generated clients have one type for one thing.

mod beside;
mod components;
mod dialect;
mod domains;
mod examples;
mod operation;
mod route;
mod ways;

use asyncgate_engine::registry;
use serde_json::{Map, Value, json};

pub use beside::{EVENTS, HEALTHZ, METRICS, READYZ};
use components::Components;
use route::Route;

const ABOUT: &str = "\
Durable tasks with leases, receipts and obligations, a mailbox, and decisions about limits, replay and \
revocation. A success answer means committed and fsynced.

- Show your API key as `Authorization: Bearer <key>`.
- Unknown fields are refused; answers may gain fields.
- Lengths of texts count bytes of UTF-8.
- Every answer has `X-Corr-Id`: yours if you sent one. It names the request in the server's log.
- An error has one body, `Error`; programs match on its `code`. Nothing was changed, except that after \
  HOST_UNAVAILABLE a nonce may be used and a limit charged.
- 429 and 503 have `Retry-After`.";

/// The tags, in the order in which readers see them.
const TAGS: [(&str, &str); 7] = [
    (
        route::TASKS,
        "Work that is handed over, leased, done and proven by receipts.",
    ),
    (
        route::MAILBOX,
        "Messages by topic, delivered at least once.",
    ),
    (
        route::ADMISSION,
        "May this happen now? Nonces, limits, revocations, warrants, tiers.",
    ),
    (
        route::IDENTITY,
        "Who may do what: keys, tenants, macaroons, people, the audit log.",
    ),
    (
        route::INGRESS,
        "A way in for senders that sign what they send.",
    ),
    (
        route::DOMAINS,
        "Sequential delay domains (CIP-40), as ODIS clients send them.",
    ),
    (
        route::SERVER,
        "The server itself: health, settings, metrics.",
    ),
];

/// Returns the whole document.
pub fn openapi() -> Value {
    let mut components = Components::default();
    // Outputs come first: of two schemas with one name, theirs keeps it.
    for entry in registry() {
        components.output((entry.output_schema)());
    }
    let mut paths = Map::new();
    let operations = registry().iter();
    let routes: Vec<Route> = operations
        .map(|entry| operation::route(entry, &mut components))
        .collect();
    let routes = routes.into_iter().chain(beside::routes(&mut components));
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        let method = route.method;
        path[method] = route.describe(&mut components);
    }
    let tags = TAGS.map(|(name, description)| json!({ "name": name, "description": description }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "AsyncGate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [
            { "url": "/", "description": "The server that this document comes from" },
            { "url": "http://127.0.0.1:8080", "description": "A server on this machine, as it starts by default" },
        ],
        "tags": tags,
        "security": [{ route::BEARER: [] }],
        "paths": paths,
        "components": components.describe(),
    })
}

#[cfg(test)]
mod tests;
