//! Twins: engines with the same fake time and ids, each behind one facade.

use std::{collections::VecDeque, sync::Arc};

use asyncgate_api::{Method, Plane};
use asyncgate_core::{Policy, Timestamp};
use asyncgate_engine::{
    Authenticator, Entry, Settings,
    fakes::{ADMIN_KEY, FakeKeys, TENANT, TestEngine},
    registry,
};
use asyncgate_store::Store as _;
use axum::{
    Router,
    body::{Body, BodyDataStream, to_bytes},
    http::{HeaderMap, Request, Response, StatusCode},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::grpc;

/// What came back, without what differs between protocols by design.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The output.
    Answer(Value),
    /// The code of the refusal.
    Refused(String),
}

/// An engine behind one facade.
pub struct Twin {
    engine: TestEngine,
    router: Router,
    protocol: Protocol,
    credential: Option<String>,
}

#[derive(Clone, Copy)]
enum Protocol {
    Rest,
    Mcp,
    /// For the mailbox; the rest of the script goes by REST.
    Grpc,
}

impl Twin {
    pub fn rest() -> Self {
        Self::new(Protocol::Rest)
    }

    pub fn mcp() -> Self {
        Self::new(Protocol::Mcp)
    }

    pub fn grpc() -> Self {
        Self::new(Protocol::Grpc)
    }

    /// Returns an engine behind each facade, whose credentials `auth` knows.
    pub fn all_with(auth: &Arc<dyn Authenticator>) -> [Self; 3] {
        let protocols = [Protocol::Rest, Protocol::Mcp, Protocol::Grpc];
        protocols.map(|protocol| Self::with(protocol, Arc::clone(auth)))
    }

    fn new(protocol: Protocol) -> Self {
        Self::with(protocol, Arc::new(FakeKeys))
    }

    fn with(protocol: Protocol, auth: Arc<dyn Authenticator>) -> Self {
        let twin = TestEngine::default();
        let engine = Arc::clone(&twin.engine);
        let rest = |auth| {
            let max_body_bytes = 2 << 20;
            let options = asyncgate_rest::Options { max_body_bytes };
            asyncgate_rest::Rest::new(Arc::clone(&engine), auth, options).router()
        };
        let router = match protocol {
            Protocol::Rest => rest(auth),
            Protocol::Grpc => {
                let options = asyncgate_grpc::Options {
                    serving: Arc::new(|| true),
                };
                let grpc = asyncgate_grpc::router(Arc::clone(&engine), Arc::clone(&auth), options);
                rest(auth).merge(grpc)
            }
            Protocol::Mcp => {
                let options = asyncgate_mcp::Options::default();
                asyncgate_mcp::router(Arc::clone(&engine), auth, options)
            }
        };
        Self {
            engine: twin,
            router,
            protocol,
            credential: Some(ADMIN_KEY.to_owned()),
        }
    }

    /// Lets topics hold no more messages than this.
    pub fn with_small_topics(self, topic_capacity: u32) -> Self {
        let mut policy = Policy::default();
        policy.mailbox.topic_capacity = topic_capacity;
        self.engine.engine.reload(Settings {
            policy: Arc::new(policy),
            ..Settings::default()
        });
        self
    }

    pub fn without_credential(mut self) -> Self {
        self.credential = None;
        self
    }

    /// Calls with this credential from now on.
    pub fn show(&mut self, credential: &str) -> &Self {
        self.credential = Some(credential.to_owned());
        self
    }

    /// Returns true if the facade offers an operation.
    pub fn offers(&self, entry: &Entry) -> bool {
        match self.protocol {
            Protocol::Rest => true,
            Protocol::Mcp => entry.spec.tool.is_some(),
            Protocol::Grpc => entry.spec.plane == Plane::Mailbox,
        }
    }

    /// Lets time pass, and acts on the deadlines that came.
    pub async fn advance(&self, millis: i64) {
        if millis > 0 {
            self.engine.advance(millis).await;
        }
    }

    pub async fn call(&self, operation: &str, input: &Value) -> Outcome {
        let entry = registry()
            .iter()
            .find(|entry| entry.spec.name == operation)
            .unwrap_or_else(|| panic!("no operation {operation}"));
        // A fixed correlation id: drawing one would shift the ids of one twin.
        let by_grpc = matches!(self.protocol, Protocol::Grpc) && entry.spec.plane == Plane::Mailbox;
        let mut request = match self.protocol {
            Protocol::Grpc if by_grpc => match grpc::request(operation, input) {
                Ok(request) => request,
                Err(inexpressible) => return inexpressible,
            },
            Protocol::Rest | Protocol::Grpc => rest_request(entry, input),
            Protocol::Mcp => mcp_request(entry, input),
        };
        let headers = request.headers_mut();
        headers.insert("x-corr-id", "parity".parse().expect("a header value"));
        if let Some(key) = &self.credential {
            let value = format!("Bearer {key}").parse().expect("a header value");
            headers.insert("authorization", value);
        }
        let response = self
            .router
            .clone()
            .oneshot(request)
            .await
            .expect("infallible");
        let failed = !response.status().is_success();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        if by_grpc {
            return grpc::outcome(operation, &parts.headers, &bytes);
        }
        let body: Value = serde_json::from_slice(&bytes).expect("a JSON body");
        match self.protocol {
            _ if failed => refused(&body),
            Protocol::Rest | Protocol::Grpc => Outcome::Answer(body),
            Protocol::Mcp => mcp_outcome(&body),
        }
    }

    /// Sends JSON to a route.
    pub async fn post(&self, path: &str, headers: &[(&'static str, &str)], body: &Value) -> Got {
        self.post_text(path, headers, &body.to_string()).await
    }

    pub async fn post_text(&self, path: &str, headers: &[(&'static str, &str)], body: &str) -> Got {
        let response = self.send(path, headers, body).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("a body");
        Got {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).expect("a JSON body"),
        }
    }

    /// Opens a stream of lines.
    pub async fn stream(&self, path: &str, body: &Value) -> Lines {
        let response = self.send(path, &[], &body.to_string()).await;
        let (parts, body) = response.into_parts();
        let content_type = parts.headers["content-type"].to_str().expect("a text");
        Lines {
            status: parts.status,
            content_type: content_type.to_owned(),
            body: body.into_data_stream(),
            lines: VecDeque::new(),
        }
    }

    async fn send(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Response<Body> {
        let mut request = Request::post(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.credential {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = request
            .body(Body::from(body.to_owned()))
            .expect("a request");
        let answered = self.router.clone().oneshot(request);
        answered.await.expect("infallible")
    }

    pub fn drain(&self) {
        self.engine.engine.drain();
    }

    /// How many messages receivers have.
    pub async fn inflight(&self) -> u64 {
        let load = self.engine.store.mailbox().load(Timestamp::default()).await;
        load.expect("the memory store does not fail").inflight()
    }

    /// All messages, as the store has them, with hashes.
    pub async fn messages(&self) -> Vec<Value> {
        let found = self
            .engine
            .store
            .mailbox()
            .messages(TENANT, None, 10_000)
            .await;
        found
            .expect("the memory store does not fail")
            .iter()
            .map(|message| {
                json!({
                    "id": message.id.to_string(),
                    "attempt": message.attempt,
                    "state": format!("{:?}", message.state),
                    "hash": message.hash_chain.to_string(),
                    "link": message.chain_head().link.to_string(),
                    "reason": message.reason,
                })
            })
            .collect()
    }

    /// The whole ledger, as the store has it, with hashes.
    pub async fn ledger(&self) -> Vec<Value> {
        let receipts = self.engine.ledger().await;
        receipts
            .iter()
            .map(|receipt| {
                json!({
                    "id": receipt.id.to_string(),
                    "type": receipt.receipt_type.as_str(),
                    "hash": receipt.hash(),
                    "at": receipt.created_at.as_millis(),
                    "body": receipt.body.text(),
                })
            })
            .collect()
    }
}

/// An answer to a request that a test made by hand.
pub struct Got {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A stream of lines that is being read.
pub struct Lines {
    pub status: StatusCode,
    pub content_type: String,
    body: BodyDataStream,
    lines: VecDeque<String>,
}

impl Lines {
    /// The next line.
    pub async fn line(&mut self) -> Value {
        while self.lines.is_empty() {
            assert!(!self.ended().await, "the stream has ended");
        }
        let line = self.lines.pop_front().expect("a line");
        serde_json::from_str(&line).expect("a JSON line")
    }

    /// Reads on. True when the stream has ended.
    pub async fn ended(&mut self) -> bool {
        let Some(data) = self.body.next().await else {
            return true;
        };
        let data = data.expect("data");
        let text = String::from_utf8(data.to_vec()).expect("UTF-8");
        self.lines.extend(text.lines().map(str::to_owned));
        false
    }
}

fn refused(body: &Value) -> Outcome {
    Outcome::Refused(body["code"].as_str().unwrap_or("none").to_owned())
}

fn rest_request(entry: &Entry, input: &Value) -> Request<Body> {
    let spec = entry.spec;
    let mut rest = input.as_object().cloned().unwrap_or_default();
    let mut path = spec.path.to_owned();
    for field in spec.path_fields() {
        let value = rest.remove(field).unwrap_or_else(|| "missing".into());
        path = path.replace(&format!("{{{field}}}"), value.as_str().unwrap_or("missing"));
    }
    let builder = Request::builder().method(spec.method.as_str());
    match spec.method {
        Method::Post | Method::Put | Method::Patch => builder
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(Value::Object(rest).to_string())),
        Method::Get | Method::Delete => {
            let pairs: Vec<String> = rest
                .iter()
                .map(|(name, value)| match value.as_str() {
                    Some(text) => format!("{name}={text}"),
                    None => format!("{name}={value}"),
                })
                .collect();
            builder
                .uri(format!("{path}?{}", pairs.join("&")))
                .body(Body::empty())
        }
    }
    .expect("a request")
}

fn mcp_request(entry: &Entry, input: &Value) -> Request<Body> {
    let message = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": { "name": entry.spec.tool, "arguments": input },
    });
    Request::builder()
        .method("POST")
        .uri("/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .body(Body::from(message.to_string()))
        .expect("a request")
}

fn mcp_outcome(body: &Value) -> Outcome {
    let result = &body["result"];
    if result["isError"] == true {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        return refused(&serde_json::from_str(text).unwrap_or_default());
    }
    assert!(result["structuredContent"].is_object(), "{body}");
    Outcome::Answer(result["structuredContent"].clone())
}
