//! The OpenAPI document says what the server takes: input that it allows is never refused for its form.
//!
//! For every operation, values are made from the schemas of the document and sent to the REST facade.
//! What the state of things refuses is fine; 400 is not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generate;

use std::sync::Arc;

use asyncgate_engine::{
    Role,
    fakes::{ADMIN_KEY, FakeKeys, TestEngine},
    registry,
};
use asyncgate_rest::{
    Options, Rest,
    contract::{Contract, Described},
};
use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use crate::generate::values;

/// Refusals with 400 that no schema can foresee, by their messages.
const UNFORESEEABLE: [&str; 8] = [
    // The place where a list shall go on is that of a thing, which must exist.
    "since_receipt_id names no receipt",
    "cursor names no task",
    // The time must be to come.
    "until is over already",
    "the expiry is not in the future",
    // Caveats have a language of their own.
    "a caveat is not understood",
    // Whether there must be a password depends on the provider.
    "a password is for people of the provider `local`, who need one and are named by subject",
    // OpenAPI cannot tie the parameters of a query to each other.
    "principal_kind needs principal_id",
    "give exactly one of task_id, lease_id and receipt_type",
];

/// A server with a task that the caller holds and a message that it has received.
struct World {
    router: axum::Router,
    /// Fields that name things that exist.
    known: Map<String, Value>,
}

impl World {
    async fn new() -> Self {
        let world = TestEngine::default();
        let call =
            async |name: &str, input: Value| world.call(Role::Admin, name, &input).await.unwrap();
        let task = call("create_task", json!({"type": "t"})).await;
        let held = call("lease_next", json!({})).await;
        let message = json!({"topic": "t", "idem_key": "k", "payload_b64": ""});
        call("mailbox_send", message).await;
        let received = call("mailbox_recv", json!({"topic": "t"})).await;
        let receipts = call("list_receipts", json!({})).await;
        let receipt = &receipts["receipts"][0]["receipt_id"];
        let known = json!({
            "task_id": task["task_id"],
            "lease_id": held["tasks"][0]["lease_id"],
            "msg_id": received["messages"][0]["msg_id"],
            "lease": received["messages"][0]["lease"],
            "receipt_id": receipt,
            "since_receipt_id": receipt,
        });
        Self {
            known: known.as_object().cloned().unwrap(),
            ..Self::empty(world)
        }
    }

    fn empty(world: TestEngine) -> Self {
        let options = Options {
            max_body_bytes: 2 << 20,
        };
        Self {
            router: Rest::new(world.engine, Arc::new(FakeKeys), options).router(),
            known: Map::new(),
        }
    }

    /// Puts the names of things that exist where the input has others.
    fn acquaint(&self, fields: &mut Map<String, Value>) {
        // The caller itself holds the task and the message.
        fields.retain(|name, _| !name.starts_with("worker_"));
        for (name, value) in fields {
            if let Some(known) = self.known.get(name) {
                *value = known.clone();
            }
        }
    }
}

/// The input of an operation: what goes into the path, the query and the body.
#[derive(Debug, Clone)]
struct Input {
    parameters: Map<String, Value>,
    body: Option<Value>,
    /// True if it shall name things that exist.
    acquainted: bool,
}

fn inputs(contract: &Contract, described: Described<'_>) -> BoxedStrategy<Input> {
    let operation = described.operation;
    let mut fields = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut required = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        fields["properties"][name] = parameter["schema"].clone();
        if parameter["required"] == true {
            required.push(name);
        }
    }
    fields["required"] = json!(required);
    let parameters = values(contract, &fields);
    let body = &operation["requestBody"];
    let body = match body.is_null() {
        true => Just(None).boxed(),
        false => {
            let schema = &body["content"]["application/json"]["schema"];
            let given = values(contract, schema).prop_map(Some);
            match body["required"] == true {
                true => given.boxed(),
                false => prop_oneof![1 => Just(None), 4 => given].boxed(),
            }
        }
    };
    let input = |(parameters, body, acquainted): (Value, _, _)| Input {
        parameters: parameters.as_object().cloned().unwrap(),
        body,
        acquainted,
    };
    (parameters, body, any::<bool>()).prop_map(input).boxed()
}

fn encoded(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    let text = text.unwrap_or_else(|| value.to_string());
    utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string()
}

fn request(described: Described<'_>, input: &Input) -> Request<Body> {
    let mut path = described.path.to_owned();
    let mut query = Vec::new();
    for (name, value) in &input.parameters {
        let field = format!("{{{name}}}");
        match path.contains(&field) {
            true => path = path.replace(&field, &encoded(value)),
            false => query.push(format!("{name}={}", encoded(value))),
        }
    }
    let target = match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    };
    let body = input.body.as_ref().map(Value::to_string);
    Request::builder()
        .method(described.method.to_ascii_uppercase().as_str())
        .uri(target)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {ADMIN_KEY}"))
        .body(Body::from(body.unwrap_or_default()))
        .unwrap()
}

async fn send(
    contract: &Contract,
    described: Described<'_>,
    mut input: Input,
) -> Result<(), String> {
    let world = match input.acquainted {
        true => World::new().await,
        false => World::empty(TestEngine::default()),
    };
    if input.acquainted {
        world.acquaint(&mut input.parameters);
        if let Some(Value::Object(body)) = &mut input.body {
            world.acquaint(body);
        }
    }
    let response = world
        .router
        .clone()
        .oneshot(request(described, &input))
        .await
        .unwrap();
    let status = response.status().as_u16();
    if status == 200 && response.headers()["content-type"] != "application/json" {
        // A stream, which has no end.
        return Ok(());
    }
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    contract.check_answer(described.method, described.path, status, &body)?;
    let message = body["message"].as_str().unwrap_or_default();
    match status == 400 && !UNFORESEEABLE.contains(&message) {
        true => Err(format!("{message}: {input:?}")),
        false => Ok(()),
    }
}

#[test]
fn what_the_document_allows_is_never_refused_for_its_form() {
    let contract = Contract::default();
    let names: Vec<&str> = registry().iter().map(|entry| entry.spec.name).collect();
    let mut flaws = Vec::new();
    let mut tried = 0;
    for described in contract.operations() {
        let id = described.operation["operationId"].as_str().unwrap();
        if !names.contains(&id) && id != "mailbox_recv_stream" {
            continue;
        }
        tried += 1;
        let mut runner = TestRunner::new(Config {
            cases: 64,
            failure_persistence: None,
            ..Config::default()
        });
        let outcome = runner.run(&inputs(&contract, described), |input| {
            // Time that only passes when there is nothing else to do: calls that wait end at once.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            let sent = runtime.block_on(send(&contract, described, input));
            sent.map_err(TestCaseError::fail)
        });
        flaws.extend(outcome.err().map(|flaw| format!("{id}: {flaw}")));
    }
    assert_eq!(tried, names.len() + 1);
    assert!(
        flaws.is_empty(),
        "{} operations:\n{}",
        flaws.len(),
        flaws.join("\n")
    );
}

#[test]
fn examples_are_what_the_document_allows() {
    let contract = Contract::default();
    let mut seen = 0;
    for described in contract.operations() {
        let content = &described.operation["requestBody"]["content"]["application/json"];
        let Some(example) = content.get("example") else {
            continue;
        };
        seen += 1;
        let checked = contract.check(&content["schema"], example);
        assert_eq!(checked, Ok(()), "{}", described.path);
    }
    assert!(seen > 10);
}

/// Values that broke the schema themselves would prove nothing.
#[test]
fn values_are_those_that_their_schema_allows() {
    let contract = Contract::default();
    for described in contract.operations() {
        let schema = &described.operation["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() || described.path.starts_with("/domain") {
            continue;
        }
        let mut runner = TestRunner::new(Config {
            cases: 16,
            failure_persistence: None,
            ..Config::default()
        });
        let outcome = runner.run(&values(&contract, schema), |value| {
            contract.check(schema, &value).map_err(TestCaseError::fail)
        });
        assert_eq!(outcome, Ok(()), "{}", described.path);
    }
}
