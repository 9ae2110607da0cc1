//! The one way of every call: its steps are taken once and in their order, whatever the form of the call.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
};

use asyncgate_api::{self as api, Code};
use asyncgate_core::admission::{Limits, Policy, Rule, Scope, Window};
use asyncgate_engine::{
    Caller, Descriptor, DomainRequest, Domains, Engine, Execute, Fault, Principal, PrincipalKind,
    Role, Settings, Source, TenantId, decode, execute,
    fakes::{Counter, FakeClock},
    registry,
};
use asyncgate_store::memory::MemoryStore;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Map, Value, json};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

const START: i64 = 1_767_610_800_000;

fn engine(settings: Settings) -> Arc<Engine> {
    Arc::new(Engine::new(
        Arc::new(MemoryStore::new()),
        Arc::new(FakeClock::at(START)),
        Arc::new(Counter::default()),
        settings,
    ))
}

fn caller(role: Role) -> Caller {
    let tenant = TenantId::from_bytes([1; 16]);
    Caller::new(tenant, Principal::new(PrincipalKind::Agent, "ann"), role)
}

async fn call(engine: &Engine, role: Role, operation: &str, input: &Value) -> Result<(), Fault> {
    let mut entries = registry().iter();
    let entry = entries.find(|entry| entry.spec.name == operation).unwrap();
    let (caller, input) = (caller(role), input.to_string());
    let answer = (entry.call)(engine, &caller, Source::Json(input.as_bytes()));
    answer.await.map(drop)
}

async fn typed<O: Execute>(engine: &Engine, role: Role, input: &Value) -> Result<(), Fault> {
    let (caller, input) = (caller(role), input.to_string());
    let input = decode::<O>(Source::Json(input.as_bytes()));
    execute::<O>(engine, &caller, input).await.map(drop)
}

async fn stream(engine: &Arc<Engine>, input: &Value) -> Result<(), Fault> {
    let input = decode::<api::ReceiveMessages>(Source::Json(input.to_string().as_bytes()));
    let opened = engine.receive_stream(&caller(Role::Admin), input).await;
    opened.map(drop)
}

fn metrics(engine: &Engine) -> String {
    let mut registry = Registry::default();
    engine.register_metrics(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// Returns the number of calls of an operation that ended with a code.
fn counted(engine: &Engine, operation: &str, code: &str) -> u32 {
    let sample = format!("requests_total{{operation=\"{operation}\",code=\"{code}\"}} ");
    let text = metrics(engine);
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix(&sample));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Reads from the log what calls touch.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Map<String, Value>>>>);

impl Log {
    /// Begins to listen. Every test of this file does: an event that is met first by a thread without a listener may be
    /// taken for one that nobody wants, on all threads.
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    /// Takes what was logged since the last time: the operation, its topics and its bytes.
    fn take(&self) -> Vec<(String, u64, u64)> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
        let touches = lines.iter().filter(|line| line["event"] == "call.touches");
        let number = |value: &Value| value.as_u64().unwrap();
        touches
            .map(|line| {
                let operation = line["operation"].as_str().unwrap().to_owned();
                (operation, number(&line["topics"]), number(&line["bytes"]))
            })
            .collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Map::from_iter([("event".to_owned(), Value::Null)]));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.0.insert(field.name().to_owned(), text.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

/// Returns every operation whose input has a topic, with an input that it takes.
fn operations_with_a_topic() -> Vec<(&'static str, Value)> {
    let with_topic = registry().iter().filter_map(|entry| {
        let schema = (entry.input_schema)().to_value();
        let sample = sample(&schema, &schema);
        let has_topic = sample.to_string().contains("\"topic\":");
        has_topic.then_some((entry.spec.name, sample))
    });
    with_topic.collect()
}

/// Makes a value of a schema: the fields that must be there, and every topic.
fn sample(schema: &Value, root: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let path = name.strip_prefix('#').unwrap();
        return sample(root.pointer(path).unwrap(), root);
    }
    // Beside properties, a choice says which of them must be there.
    let is_object = schema.get("properties").is_some();
    for choice in ["oneOf", "anyOf", "enum"] {
        if let Some(first) = schema[choice].get(0).filter(|_| !is_object) {
            return match choice {
                "enum" => first.clone(),
                _ => sample(first, root),
            };
        }
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    let kind = schema["type"].get(0).unwrap_or(&schema["type"]);
    match kind.as_str() {
        Some("object") => {
            let required = [&schema["required"], &schema["oneOf"][0]["required"]];
            let required = || required.into_iter().filter_map(Value::as_array).flatten();
            let is_required = |name: &String| required().any(|required| required == name);
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields.filter(|(name, _)| is_required(name) || *name == "topic");
            let fields = fields.map(|(name, field)| (name.clone(), sample(field, root)));
            fields.collect::<Map<_, _>>().into()
        }
        Some("array") => json!([sample(&schema["items"], root)]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        // Text that is base64 too.
        _ => json!("aGk="),
    }
}

#[tokio::test]
async fn every_operation_with_a_topic_states_it_once() {
    let (log, _guard) = Log::start();
    let operations = operations_with_a_topic();
    assert!(operations.len() >= 7, "{operations:?}");
    for (operation, input) in &operations {
        let engine = engine(Settings::default());
        let answer = call(&engine, Role::Admin, operation, input).await;
        answer.unwrap_or_else(|fault| panic!("{operation} {input}: {fault:?}"));
        let touched = log.take();
        let [(name, topics, _)] = touched.as_slice() else {
            panic!("{operation}: {touched:?}");
        };
        assert_eq!((name.as_str(), *topics), (*operation, 1));
    }
}

#[tokio::test]
async fn typed_calls_and_streams_state_their_topics_as_json_does() {
    let (log, _guard) = Log::start();
    let operations = operations_with_a_topic();
    let engine = engine(Settings::default());
    let mut stated = BTreeSet::new();
    macro_rules! call_typed {
        ($($operation:ty),+) => {$(
            let name = <$operation as api::Operation>::SPEC.name;
            let mut found = operations.iter().filter(|(known, _)| *known == name);
            let (_, input) = found.next().unwrap();
            typed::<$operation>(&engine, Role::Admin, input).await.unwrap();
            let touched = log.take();
            assert_eq!(touched.len(), 1, "{name}: {touched:?}");
            assert_eq!((touched[0].0.as_str(), touched[0].1), (name, 1));
            stated.insert(name);
        )+};
    }
    call_typed!(
        api::SendMessage,
        api::SendMessages,
        api::ReceiveMessages,
        api::PeekMessages,
        api::PurgeTopic,
        api::ListDeadLetters,
        api::ReprocessDeadLetters
    );
    assert_eq!(stated.len(), operations.len(), "{operations:?}");
    stream(&engine, &json!({ "topic": "t" })).await.unwrap();
    assert_eq!(log.take(), [("mailbox_recv".to_owned(), 1, 0)]);
}

#[tokio::test]
async fn what_a_call_brings_is_stated_in_bytes() {
    let (log, _guard) = Log::start();
    let engine = engine(Settings::default());
    let message = |key: &str| json!({ "topic": "t", "idem_key": key, "payload_b64": "aGk=" });
    let batch = json!({ "messages": [message("a"), message("b"), message("c")] });
    let task = json!({ "type": "x", "payload": [1, 2] });
    for (operation, input, topics, bytes) in [
        ("mailbox_send", message("d"), 1, 2),
        ("mailbox_send_batch", batch, 3, 6),
        ("create_task", task.clone(), 0, 5),
        ("create_tasks", json!({ "tasks": [task, 7, task] }), 0, 10),
    ] {
        call(&engine, Role::Admin, operation, &input).await.unwrap();
        assert_eq!(log.take(), [(operation.to_owned(), topics, bytes)]);
    }
}

#[tokio::test]
async fn an_unfit_topic_is_refused_in_every_form_and_in_a_batch_alone() {
    let (_log, _guard) = Log::start();
    let engine = engine(Settings::default());
    for (operation, mut input) in operations_with_a_topic() {
        let Some(topic) = input.get_mut("topic") else {
            assert_eq!(operation, "mailbox_send_batch");
            input["messages"][0]["topic"] = json!("");
            call(&engine, Role::Admin, operation, &input).await.unwrap();
            continue;
        };
        *topic = json!("a\nb");
        let refused = call(&engine, Role::Admin, operation, &input).await;
        let fault = refused.unwrap_err();
        assert_eq!(fault.code, Code::ESchema, "{operation}");
        assert!(fault.message.starts_with("topic must have"), "{operation}");
    }
    let unfit = json!({ "topic": "" });
    let refused = typed::<api::PeekMessages>(&engine, Role::Admin, &unfit).await;
    assert_eq!(refused.unwrap_err().code, Code::ESchema);
    let refused = stream(&engine, &unfit).await;
    assert_eq!(refused.unwrap_err().code, Code::ESchema);
}

#[tokio::test]
async fn every_form_is_counted_once_with_its_outcome() {
    let (_log, _guard) = Log::start();
    let engine = engine(Settings::default());
    let (good, bad) = (json!({ "topic": "t" }), json!({ "topics": "t" }));
    for (input, code, calls) in [(&good, "OK", 3), (&bad, "E_SCHEMA", 3)] {
        let done = [
            call(&engine, Role::Admin, "mailbox_recv", input).await,
            typed::<api::ReceiveMessages>(&engine, Role::Admin, input).await,
            stream(&engine, input).await,
        ];
        for done in done {
            let outcome = done.map_or_else(|fault| fault.code.as_str(), |()| "OK");
            assert_eq!(outcome, code);
        }
        assert_eq!(counted(&engine, "mailbox_recv", code), calls);
    }
    ask(&engine).await.unwrap();
    assert_eq!(counted(&engine, "limits_check", "OK"), 1);
}

/// Asks as Envoy does, about what nothing limits.
async fn ask(engine: &Engine) -> Result<(), Fault> {
    let descriptors = [Descriptor {
        entries: vec![("remote_address", "10.0.0.1")],
        cost: 1,
    }];
    let caller = caller(Role::Admin);
    let asked = engine.check_descriptors(&caller, "unknown", &descriptors);
    let verdicts = asked.await?;
    assert!(matches!(verdicts.as_slice(), [None]), "{verdicts:?}");
    Ok(())
}

/// A caller without the right learns nothing about its input, nor what is limited.
#[tokio::test]
async fn the_role_is_checked_before_the_input() {
    let (_log, _guard) = Log::start();
    let engine = engine(Settings::default());
    let bad = json!({ "nonsense": 1 });
    let worker = caller(Role::Worker);
    let asked = engine.check_descriptors(&worker, "", &[]);
    for refused in [
        call(&engine, Role::Worker, "mailbox_purge", &bad).await,
        typed::<api::PurgeTopic>(&engine, Role::Worker, &bad).await,
    ] {
        assert_eq!(refused.unwrap_err().code, Code::ECapScope);
    }
    assert_eq!(asked.await.unwrap_err().code, Code::Forbidden);
}

/// An engine that allows each principal so many calls, and each client two requests about domains.
fn limited(calls: u64) -> Arc<Engine> {
    let policy = |limit| Policy::Rule {
        rule: Rule::Window(Window::new(limit, 3_600).unwrap()),
        shadow: false,
    };
    let policies = [("calls", calls), ("two", 2)];
    let policies = policies.map(|(name, limit)| (name.to_owned(), policy(limit)));
    let limits = Limits::new(policies, []).unwrap();
    let limits = limits.with_call_limits([(Scope::Principal, "calls".to_owned())]);
    engine(Settings {
        limits: Arc::new(limits.unwrap()),
        domains: Arc::new(Domains {
            client_policy: Some("two".to_owned()),
            ..Domains::default()
        }),
        ..Settings::default()
    })
}

#[tokio::test]
async fn every_form_is_charged_once() {
    let (_log, _guard) = Log::start();
    let engine = limited(5);
    let (good, bad) = (json!({ "topic": "t" }), json!({ "topics": "t" }));
    call(&engine, Role::Admin, "mailbox_recv", &good)
        .await
        .unwrap();
    typed::<api::ReceiveMessages>(&engine, Role::Admin, &good)
        .await
        .unwrap();
    stream(&engine, &good).await.unwrap();
    ask(&engine).await.unwrap();
    // Input that cannot be read costs as much.
    let unread = typed::<api::ReceiveMessages>(&engine, Role::Admin, &bad).await;
    assert_eq!(unread.unwrap_err().code, Code::ESchema);
    for refused in [
        call(&engine, Role::Admin, "mailbox_recv", &good).await,
        typed::<api::ReceiveMessages>(&engine, Role::Admin, &good).await,
        stream(&engine, &good).await,
    ] {
        assert_eq!(refused.unwrap_err().code, Code::ESaturated);
    }
    assert_eq!(ask(&engine).await.unwrap_err().code, Code::RateLimit);
}

#[tokio::test]
async fn a_client_without_a_credential_is_counted_but_not_charged_as_a_caller() {
    let (_log, _guard) = Log::start();
    let engine = limited(1);
    let request = async || {
        let body = std::future::ready(Ok("{}".into()));
        let answer = engine.answer_domain(DomainRequest::Sign, None, body);
        answer.await.code
    };
    for code in [400, 400, 429] {
        assert_eq!(request().await, code);
    }
    assert_eq!(counted(&engine, "limits_check", "OK"), 2);
    assert_eq!(counted(&engine, "limits_check", "RATE_LIMIT"), 1);
}
