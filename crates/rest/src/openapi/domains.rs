//! Requests about domains, in the words of the deployed signers. Only their schemas are used: the crate
//! of domains reads the bodies itself, as JavaScript would.
#![expect(dead_code, reason = "only the schemas of these types are used")]

use asyncgate_engine::schema;
use schemars::JsonSchema;
use serde_json::json;

use super::{
    beside::open,
    components::Components,
    route::{self, Answer, Body, Route, parameter},
};
use crate::domains::DOMAIN_PATHS;

/// The largest number that JavaScript holds exactly.
const MAX_NUMBER: u64 = (1 << 53) - 1;

const DOC: &str = "The body and the answers are those of ODIS signers; extra fields are ignored. Who holds the \
    key of the domain's address signs the request (EIP-712), and each nonce counts once.";

/// Describes the routes.
pub(super) fn routes(components: &mut Components) -> Vec<Route> {
    let [sign, quota, disable, status] = DOMAIN_PATHS;
    let requests = [
        (
            sign,
            "domain_sign",
            "Use an attempt on a domain.",
            schema::input::<SignRequest>(),
        ),
        (
            quota,
            "domain_quota_status",
            "Read the state of a domain.",
            schema::input::<QuotaStatusRequest>(),
        ),
        (
            disable,
            "domain_disable",
            "End a domain for ever.",
            schema::input::<DisableRequest>(),
        ),
    ];
    let answered = components.output(schema::output::<DomainAnswer>());
    let mut routes = Vec::new();
    for (path, id, summary, input) in requests {
        let (name, input) = components.input(input);
        let mut parameters = Vec::new();
        if path == sign {
            let version = json!({
                "type": "string", "pattern": "^[0-9]+$",
                "description": "The version of the key to use. Default: the newest.",
            });
            parameters.push(parameter("header", "odis-key-version", false, version));
        }
        routes.push(Route {
            method: "post",
            tag: route::DOMAINS,
            description: DOC.to_owned(),
            parameters,
            body: Some(Body {
                schema: components.add(&name, input),
                required: true,
                example: None,
            }),
            answers: REFUSALS.iter().fold(
                vec![Answer::done(answered.clone())],
                |mut answers, (status, description)| {
                    answers.push(Answer {
                        status: *status,
                        description,
                        ..Answer::done(answered.clone())
                    });
                    answers
                },
            ),
            ..open(path, id, summary)
        });
    }
    routes.push(Route {
        tag: route::DOMAINS,
        answers: vec![Answer::done(
            components.output(schema::output::<DomainService>()),
        )],
        ..open(
            status,
            "domain_service",
            "Read the version and the keys of the evaluator.",
        )
    });
    routes
}

/// The refusals, by status.
const REFUSALS: [(u16, &str); 7] = [
    (400, "The body or the key version is not one of a request"),
    (401, "The signature or the nonce is missing or wrong"),
    (403, "The domain is disabled"),
    (413, "The body is too large"),
    (
        429,
        "It is too early, or no attempt is left; see Retry-After",
    ),
    (
        500,
        "The state of the domain is out of reach; nothing was decided",
    ),
    (503, "This server serves no domains"),
];

/// A value that may be undefined. It is there in both cases, and the signature covers it.
#[derive(JsonSchema)]
struct OptionalText {
    /// True if the value counts.
    defined: bool,
    /// The value; empty if undefined.
    value: String,
}

/// A number that may be undefined. It is there in both cases, and the signature covers it.
#[derive(JsonSchema)]
struct OptionalNumber {
    /// True if the value counts.
    defined: bool,
    /// The value; 0 if undefined.
    #[schemars(range(max = MAX_NUMBER))]
    value: u64,
}

/// A boolean that may be undefined. It is there in both cases, and the signature covers it.
#[derive(JsonSchema)]
struct OptionalFlag {
    /// True if the value counts.
    defined: bool,
    /// The value; false if undefined.
    value: bool,
}

/// Attempts of a domain that have one delay.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct DomainStage {
    /// Seconds from the timer to the first attempt of each batch.
    #[schemars(range(max = MAX_NUMBER))]
    delay: u64,
    /// True if an attempt sets the timer to its own time. Default true.
    reset_timer: OptionalFlag,
    /// Attempts without a delay between them. Default 1.
    batch_size: OptionalNumber,
    /// The number of batches. Default 1.
    repetitions: OptionalNumber,
}

/// A domain.
#[derive(JsonSchema)]
struct Domain {
    /// The name of this type of domain, such as `ODIS Sequential Delay Domain`.
    name: String,
    /// Always `1`.
    version: String,
    /// The limit.
    stages: Vec<DomainStage>,
    /// The address whose signature requests need.
    address: OptionalText,
    /// Separates domains that are otherwise equal.
    salt: OptionalText,
}

/// The signature and the nonce of a request.
#[derive(JsonSchema)]
struct DomainOptions {
    /// The signature over the request without this field.
    signature: OptionalText,
    /// A number not below the domain's counter.
    nonce: OptionalNumber,
}

/// A request to use an attempt.
#[derive(JsonSchema)]
#[schemars(rename = "DomainSignInput", rename_all = "camelCase")]
struct SignRequest {
    /// `DomainRestrictedSignatureRequest`.
    r#type: String,
    /// The domain.
    domain: Domain,
    /// The signature and the nonce.
    options: DomainOptions,
    /// The client's name for its session.
    #[schemars(rename = "sessionID")]
    session_id: OptionalText,
    /// The message to evaluate.
    blinded_message: String,
}

/// A request to read the state of a domain.
#[derive(JsonSchema)]
#[schemars(rename = "DomainQuotaStatusInput")]
struct QuotaStatusRequest {
    /// `DomainQuotaStatusRequest`.
    r#type: String,
    /// The domain.
    domain: Domain,
    /// The signature and the nonce.
    options: DomainOptions,
    /// The client's name for its session.
    #[schemars(rename = "sessionID")]
    session_id: OptionalText,
}

/// A request to end a domain.
#[derive(JsonSchema)]
#[schemars(rename = "DomainDisableInput")]
struct DisableRequest {
    /// `DisableDomainRequest`.
    r#type: String,
    /// The domain.
    domain: Domain,
    /// The signature and the nonce.
    options: DomainOptions,
    /// The client's name for its session.
    #[schemars(rename = "sessionID")]
    session_id: OptionalText,
}

/// The answer to a request about a domain.
#[derive(JsonSchema)]
struct DomainAnswer {
    /// True if the request was served.
    success: bool,
    /// The version of the server.
    version: String,
    /// The problem, if it was not.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The evaluation, if there is an evaluator.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    /// The state of the domain, once it was read.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    status: Option<DomainStatus>,
}

/// The state of a domain.
#[derive(JsonSchema)]
struct DomainStatus {
    /// The start of the next delay, in seconds since 1970.
    timer: i64,
    /// The attempts accepted so far.
    counter: u64,
    /// True if it is ended.
    disabled: bool,
    /// The server's time, in seconds since 1970.
    now: i64,
}

/// The evaluator behind domains.
#[derive(JsonSchema)]
struct DomainService {
    /// The version of the server.
    version: String,
    /// The name of the evaluator.
    evaluator: String,
    /// Its public keys.
    keys: Vec<DomainKey>,
}

/// A public key.
#[derive(JsonSchema)]
struct DomainKey {
    /// Its version.
    version: u64,
    /// The key, in hexadecimal digits.
    public_key: String,
}
