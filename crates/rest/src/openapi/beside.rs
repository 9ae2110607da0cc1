//! The routes that stand beside the registry: streams, ingress, domains, and those for operators.

use asyncgate_api::{Code, IngressOutput, Liveness, Operation as _, Readiness, ReceiveMessages};
use asyncgate_engine::schema;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{
    components::Components,
    domains, operation,
    route::{self, Answer, Body, Credential, JSON, Route, parameter},
};
use crate::{
    ingress::{INGRESS_CODES, INGRESS_PATH},
    routes::DOCUMENT,
    stream,
};

/// The path of the events for admins. The server has the route, because it knows the events.
pub const EVENTS: &str = "/v1/events";
/// The path that tells whether the process is alive. The server has the route.
pub const HEALTHZ: &str = "/healthz";
/// The path that tells whether the server takes new work. The server has the route.
pub const READYZ: &str = "/readyz";
/// The path of the metrics. The server has the route.
pub const METRICS: &str = "/metrics";

const EVENTS_DOC: &str =
    "Server-sent events for admins, of their own tenant and of the server: first the present state, then what changes. The stream ends with the credential.

- mailbox.health {service, ok, profile, ts}
- mailbox.readyz {ready, missing, notices, ts}
- mailbox.dlq.moved {topic_class, reason, count, ts}
- mailbox.dlq.reprocessed and mailbox.dlq.forgotten {topic_class, count, ts}
- mailbox.purged {topic_class, waiting, dead, ts}
- mailbox.scanner.requeue {shard, count, ts}
- mailbox.auth.revoked {scope, samples, window_s, ts}
- server.clock.stepped {step_ms, skew_ms, ts}
- admission.revocation and admission.tier {event, tenant_id, principal_kind, principal_id, ...}

A reader that is too slow loses the oldest events and is told how many in a comment.";

const INGRESS_DOC: &str = "Makes a task of the body, which is any JSON object with a nonce and a timestamp. \
    The sender shows no key: it signs the raw body. Settings say which ingresses there are, and how each is \
    limited. An ingress may have a provider (GitHub, Stripe, Standard Webhooks): then the provider's own headers \
    and bodies are taken. Refused messages change nothing; one that is refused for its rate may be sent again as it \
    is, after the time that msg and Retry-After tell.";

/// Describes the routes.
pub(super) fn routes(components: &mut Components) -> Vec<Route> {
    let mut routes = vec![streaming(components), ingress(components)];
    routes.extend(domains::routes(components));
    let alive = components.output(schema::output::<Liveness>());
    let ready = components.output(schema::output::<Readiness>());
    routes.extend([
        Route {
            answers: vec![Answer::done(alive)],
            ..open(HEALTHZ, "healthz", "Say that the process is alive.")
        },
        Route {
            answers: vec![
                Answer::done(ready.clone()),
                Answer {
                    status: 503,
                    description: "Not ready; nothing that brings new work is taken",
                    ..Answer::done(ready)
                },
            ],
            ..open(READYZ, "readyz", "Say whether the server takes new work.")
        },
        Route {
            answers: vec![Answer {
                media: "application/openmetrics-text",
                ..Answer::done(json!({ "type": "string" }))
            }],
            description:
                "Needs no credential. Settings may give it an address of its own; then it is \
                not found here."
                    .to_owned(),
            codes: vec![Code::NotFound],
            ..open(METRICS, "metrics", "Read the metrics, for Prometheus.")
        },
        Route {
            answers: vec![Answer::done(json!({ "type": "object" }))],
            ..open(DOCUMENT, "openapi", "Read this document.")
        },
        events(),
    ]);
    routes
}

/// Begins the description of a route that takes nothing and needs no credential.
pub(super) fn open(path: &'static str, id: &'static str, summary: &'static str) -> Route {
    Route {
        path,
        method: "get",
        id,
        tag: route::SERVER,
        summary,
        description: "Needs no credential.".to_owned(),
        deprecated: false,
        credential: Credential::None,
        parameters: Vec::new(),
        body: None,
        answers: Vec::new(),
        codes: Vec::new(),
    }
}

/// Describes the stream, which takes the input of receiving and answers line by line.
fn streaming(components: &mut Components) -> Route {
    let receiving = asyncgate_engine::registry()
        .iter()
        .find(|entry| entry.spec.name == ReceiveMessages::SPEC.name);
    let receiving = receiving.map(|entry| operation::route(entry, components));
    Route {
        method: "post",
        tag: route::MAILBOX,
        description: stream::DOC.to_owned(),
        credential: Credential::Key,
        body: receiving.and_then(|receiving| receiving.body),
        answers: vec![Answer {
            description: "A message on each line; an empty line every 15 seconds of silence",
            media: "application/x-ndjson",
            ..Answer::done(json!({ "$ref": "#/components/schemas/Envelope" }))
        }],
        codes: ReceiveMessages::SPEC.codes(),
        ..open(
            stream::PATH,
            "mailbox_recv_stream",
            "Receive messages of a topic as they come.",
        )
    }
}

fn events() -> Route {
    Route {
        description: EVENTS_DOC.to_owned(),
        credential: Credential::Key,
        answers: vec![Answer {
            description: "Events, until you close it",
            media: "text/event-stream",
            ..Answer::done(json!({ "type": "string" }))
        }],
        codes: vec![
            Code::ECapAuth,
            Code::Unauthorized,
            Code::ECapScope,
            Code::Forbidden,
            Code::TenantSuspended,
            Code::Internal,
            Code::HostUnavailable,
            Code::Unavailable,
        ],
        ..open(EVENTS, "events", "Be told what happens (admin).")
    }
}

/// A message of a sender that signs. All of it is the payload of the task.
#[derive(JsonSchema)]
#[schemars(rename = "IngressInput")]
struct Message {
    /// A name for this message that the sender uses once. Needed unless the ingress has a provider.
    #[schemars(length(min = 1, max = 128))]
    #[expect(dead_code, reason = "only the schema is used")]
    nonce: Option<String>,
    /// The sender's time: seconds since 1970, or a text in RFC 3339. Needed unless the ingress has a provider.
    #[expect(dead_code, reason = "only the schema is used")]
    timestamp: Option<Time>,
    /// Anything else.
    #[schemars(flatten)]
    #[expect(dead_code, reason = "only the schema is used")]
    more: Map<String, Value>,
}

/// A time in either form.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum Time {
    #[expect(dead_code, reason = "only the schema is used")]
    Seconds(i64),
    #[expect(dead_code, reason = "only the schema is used")]
    Text(#[schemars(extend("format" = "date-time"))] String),
}

fn ingress(components: &mut Components) -> Route {
    let (name, input) = components.input(schema::input::<Message>());
    let name_of_ingress = json!({ "type": "string", "description": "The name of the ingress." });
    Route {
        method: "post",
        tag: route::INGRESS,
        description: INGRESS_DOC.to_owned(),
        credential: Credential::Signature,
        parameters: vec![parameter("path", "name", true, name_of_ingress)],
        body: Some(Body {
            schema: components.add(&name, input),
            required: true,
            example: None,
        }),
        answers: vec![Answer {
            media: JSON,
            ..Answer::done(components.output(schema::output::<IngressOutput>()))
        }],
        codes: INGRESS_CODES.to_vec(),
        ..open(
            INGRESS_PATH,
            "ingress",
            "Hand over a task with a signature.",
        )
    }
}
