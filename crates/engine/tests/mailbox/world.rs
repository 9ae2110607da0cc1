//! An engine with a clock that runs, and calls of the mailbox's operations.

use std::{ops::Deref, sync::Arc};

use asyncgate_api::Code;
use asyncgate_core::{
    Policy,
    mailbox::{self, TopicClasses, TopicPattern},
};
use asyncgate_engine::{
    Caller, Clock as _, Fault, Role, Settings, Source,
    fakes::{FakeClock, START_MS, TENANT, TestEngine, caller},
    registry,
};
use asyncgate_store::Store as _;
use serde_json::{Value, json};

#[derive(Clone)]
pub struct World(TestEngine);

impl Deref for World {
    type Target = TestEngine;

    fn deref(&self) -> &TestEngine {
        &self.0
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut mailbox::Policy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy.mailbox);
        let settings = Settings {
            policy: Arc::new(policy),
            topic_classes: TopicClasses::new([(
                TopicPattern::new("user:*"),
                "user_inbox".to_owned(),
            )]),
            ..Settings::default()
        };
        Self(TestEngine::new(settings, FakeClock::running_from(START_MS)))
    }

    pub fn caller(&self) -> Caller {
        caller(Role::Admin)
    }

    pub async fn call_as(&self, role: Role, operation: &str, input: Value) -> Result<Value, Fault> {
        self.0.call(role, operation, &input).await
    }

    /// Calls as somebody else, of whatever tenant.
    pub async fn call_for(
        &self,
        caller: &Caller,
        operation: &str,
        input: &Value,
    ) -> Result<Value, Fault> {
        let mut entries = registry().iter();
        let entry = entries.find(|entry| entry.spec.name == operation).unwrap();
        let json = input.to_string();
        let answer = (entry.call)(&self.engine, caller, Source::Json(json.as_bytes())).await?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    pub async fn call(&self, operation: &str, input: Value) -> Result<Value, Fault> {
        self.call_as(Role::Admin, operation, input).await
    }

    /// Returns the answer of a call that must succeed.
    pub async fn done(&self, operation: &str, input: Value) -> Value {
        let shown = input.to_string();
        let answer = self.call(operation, input).await;
        answer.unwrap_or_else(|fault| panic!("{operation} {shown}: {fault:?}"))
    }

    /// Returns the fault of a call that must be refused.
    pub async fn refused(&self, operation: &str, input: Value, code: Code) -> Fault {
        let shown = input.to_string();
        match self.call(operation, input).await {
            Ok(answer) => panic!("{operation} {shown}: {answer}"),
            Err(fault) => {
                assert_eq!(fault.code, code, "{operation} {shown}: {fault:?}");
                fault
            }
        }
    }

    pub async fn send(&self, topic: &str, key: &str) -> String {
        let input = json!({ "topic": topic, "idem_key": key, "payload_b64": "aGk=" });
        text(&self.done("mailbox_send", input).await["msg_id"])
    }

    pub async fn recv(&self, topic: &str) -> Vec<Value> {
        let answer = self.done("mailbox_recv", json!({ "topic": topic })).await;
        answer["messages"].as_array().unwrap().clone()
    }

    /// Returns the state of one topic.
    pub async fn topic(&self, topic: &str) -> Value {
        let topics = self.done("mailbox_topics", json!({})).await;
        let mut topics = topics["topics"].as_array().unwrap().iter();
        let found = topics.find(|state| state["topic"] == topic);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Lets time pass, and acts on the deadlines that came.
    pub async fn pass(&self, millis: i64) {
        self.clock.advance(millis);
        self.engine.act_on_messages().await.unwrap();
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

impl World {
    /// Changes a stored message without its hash.
    pub async fn damage(&self, id: asyncgate_core::MessageId) {
        let reads = asyncgate_store::mailbox::Reads {
            messages: vec![id],
            ..Default::default()
        };
        let job = asyncgate_store::Job::<asyncgate_store::Messages> {
            tenant: TENANT,
            reads,
            now: self.clock.now(),
            weight: 0,
            decide: Box::new(|_, snapshot| {
                let mut changes = mailbox::Changes::default();
                for mut message in snapshot.messages {
                    let before = Some(message.standing());
                    Arc::make_mut(&mut message.attrs).insert("damaged".to_owned(), String::new());
                    let write = mailbox::MessageWrite { message, before };
                    changes.messages.push(write);
                }
                Some(changes)
            }),
        };
        self.store.transact(job.into()).await.unwrap();
    }
}
