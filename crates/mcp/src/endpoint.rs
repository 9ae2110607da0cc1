//! The streamable HTTP transport: one endpoint, one POST per message, no streams of our own.
//!
//! The order of the checks is fixed: `Origin`, credential, method, query, media types, size, JSON,
//! envelope. So a stranger learns nothing but that a credential is missing.
//!
//! A request that fails before JSON-RPC is reached gets the error answer of all facades; one that
//! fails in it, a JSON-RPC error.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_edge::{
    BodyLimits, Keeper, WholeBody, add_headers, coding, correlate, error_response, json_response,
    read_body, request_context, response, set_corr_id, status,
};
use asyncgate_engine::{Fault, with_rate_headers};
use axum::{
    Router,
    body::{Body, HttpBody as _},
    response::Response,
    routing::any,
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request as HttpRequest, StatusCode, header, request::Parts,
};

use crate::{
    Options,
    backend::{Backend, Guard},
    batch,
    client::Client,
    dispatch::Dispatcher,
    era::{self, Era, admit},
    headers::Routing,
    jsonrpc::{self, Body as Messages, Error, ErrorCode, Message, Notification, Request},
    origin::Origins,
    toolsets::Toolsets,
    wire,
};

/// The most bytes of a message that are read to tell a stranger what it may not call.
const MOST_OF_A_STRANGER: usize = 64 * 1024;

/// The path of the endpoint.
pub const PATH: &str = "/mcp";

/// Mounts the endpoint.
pub(crate) fn mount<B: Backend, G: Guard<B::Caller>>(
    dispatcher: Arc<Dispatcher<B>>,
    guard: G,
    options: Options,
) -> Router {
    let endpoint = Arc::new(Endpoint {
        origins: Origins::new(&options.allowed_origins),
        realm: options.realm.replace(['"', '\\'], ""),
        toolsets: options.toolsets,
        dispatcher,
        guard,
    });
    let serve = move |request| {
        let endpoint = Arc::clone(&endpoint);
        async move { endpoint.serve(request).await }
    };
    Router::new().route(PATH, any(serve))
}

struct Endpoint<B, G> {
    dispatcher: Arc<Dispatcher<B>>,
    guard: G,
    origins: Origins,
    realm: String,
    /// The toolsets that clients are shown that do not choose.
    toolsets: Option<Toolsets>,
}

/// A request that does not come as far as JSON-RPC.
struct Refusal {
    status: StatusCode,
    fault: Box<Fault>,
    header: Option<(header::HeaderName, String)>,
}

/// The answer to a POST.
struct Answer {
    status: StatusCode,
    json: Option<Vec<u8>>,
}

/// The form in which a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    EventStream,
}

impl<B: Backend, G: Guard<B::Caller>> Endpoint<B, G> {
    async fn serve(&self, request: HttpRequest<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let mut corr_id = correlate(&parts.headers, || self.dispatcher.corr_id());
        // The id names this exchange, which may hold many calls: a message in it may have another.
        corr_id.given = false;
        let answering = self.post(&parts, body, &corr_id.text);
        let (answer, headers) = with_rate_headers(corr_id.scope(answering)).await;
        let mut response = match answer {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(&corr_id.text),
        };
        add_headers(response.headers_mut(), &headers);
        set_corr_id(&mut response, &corr_id.text);
        response
    }

    async fn post(&self, parts: &Parts, body: Body, corr_id: &str) -> Result<Response, Refusal> {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = parts;
        if !self.origins.allow(headers) {
            let message = "This origin may not call this server.";
            return Err(Refusal::new(Fault::new(Code::Forbidden, message)));
        }
        let context = request_context(headers);
        let caller = match self.guard.check(&context).await {
            Ok(caller) => caller,
            Err(fault) => {
                let fault = self.refuse_stranger(headers, body, fault).await;
                return Err(self.unauthenticated(context.credential.is_some(), fault));
            }
        };
        if method != Method::POST {
            let message =
                "Only POST is served here: there is no session to end and no stream to open.";
            let refusal = Refusal::new(Fault::new(Code::MethodNotAllowed, message));
            return Err(refusal.with(header::ALLOW, "POST"));
        }
        let asked = Toolsets::asked(uri.query());
        let asked = asked.map_err(|error| Refusal::new(Fault::bad_request(error.to_string())))?;
        let client = Client {
            caller,
            toolsets: asked.or(self.toolsets),
        };
        let form = form(headers)?;
        check_content_type(headers)?;
        let most = self.dispatcher.max_message_bytes;
        let limits = self.dispatcher.body_limits(Some(&client.caller), most);
        let keeper = limits.keeper();
        let body = read(headers, body, limits).await.map_err(|fault| {
            let tool = Routing::read(headers).tool();
            Refusal::new(self.dispatcher.refuse(tool.as_deref(), fault))
        })?;
        let answer = self.answer(&client, headers, &body.bytes, corr_id).await;
        // A message that called no tool has not been told of limits yet.
        self.dispatcher.note_limits(&client.caller).await;
        Ok(answer.into_response(form, &keeper))
    }

    /// Gives a refused credential the code of the plane whose tool was called. A stranger's message is
    /// looked into for that, but only if it is small, so that strangers cannot make the server keep much.
    async fn refuse_stranger(&self, headers: &HeaderMap, body: Body, fault: Fault) -> Fault {
        if let Some(tool) = Routing::read(headers).tool() {
            return self.dispatcher.refuse(Some(&tool), fault);
        }
        let announced = body.size_hint().upper();
        let mut message = Bytes::new();
        if announced.is_some_and(|bytes| bytes <= MOST_OF_A_STRANGER as u64) {
            let limits = self.dispatcher.body_limits(None, MOST_OF_A_STRANGER);
            let read = read(headers, body, limits).await;
            message = read.map(|body| body.bytes).unwrap_or_default();
        }
        let tool = era::called_tool(&message);
        self.dispatcher.refuse(tool.as_deref(), fault)
    }

    async fn answer(
        &self,
        client: &Client<B::Caller>,
        headers: &HeaderMap,
        body: &[u8],
        corr_id: &str,
    ) -> Answer {
        let routing = Routing::read(headers);
        let raw = match jsonrpc::read_body(body) {
            Ok(Messages::One(raw)) => raw,
            Ok(Messages::Batch(messages)) => {
                let version = routing.version.unwrap_or(era::UNNAMED);
                if let Err(error) = batch::check(&messages, version) {
                    return Answer::malformed(None, &error);
                }
                let json = batch::answer(&self.dispatcher, client, &messages, corr_id).await;
                return json.map_or(Answer::accepted(), |json| Answer::new(StatusCode::OK, json));
            }
            Err(error) => return Answer::malformed(None, &error),
        };
        match jsonrpc::read_message(raw) {
            Ok(Message::Request(request)) => {
                self.request(client, &request, &routing, corr_id).await
            }
            Ok(Message::Notification(notification)) => accept(&notification, &routing),
            Ok(Message::Response) => accept_response(&routing),
            Err(unreadable) => Answer::malformed(unreadable.id, &unreadable.error),
        }
    }

    async fn request(
        &self,
        client: &Client<B::Caller>,
        request: &Request<'_>,
        routing: &Routing<'_>,
        corr_id: &str,
    ) -> Answer {
        let admitted = match admit(request, Some(routing)) {
            Ok(admitted) => admitted,
            Err(error) => return Answer::malformed(Some(request.id), &error),
        };
        let reply = self.dispatcher.answer(client, &admitted, corr_id).await;
        let unknown_method = reply.failure == Some(ErrorCode::MethodNotFound);
        let status = if unknown_method && admitted.era == Era::Stateless {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        Answer::new(status, reply.json)
    }

    /// Refuses a caller that is not known. `tried` says that it gave a credential.
    fn unauthenticated(&self, tried: bool, fault: Fault) -> Refusal {
        let refusal = Refusal::new(fault);
        if refusal.status != StatusCode::UNAUTHORIZED {
            return refusal;
        }
        let realm = &self.realm;
        let error = if tried {
            r#", error="invalid_token""#
        } else {
            ""
        };
        let challenge = format!(r#"Bearer realm="{realm}"{error}"#);
        refusal.with(header::WWW_AUTHENTICATE, challenge)
    }
}

async fn read(headers: &HeaderMap, body: Body, limits: BodyLimits) -> Result<WholeBody, Fault> {
    read_body(body, coding(headers)?, limits).await
}

/// Accepts a notification, which needs no answer and has no effect on a server without state.
fn accept(notification: &Notification<'_>, routing: &Routing<'_>) -> Answer {
    tracing::trace!(method = %notification.method, "notification dropped");
    match unspoken(routing) {
        Some(error) => Answer::malformed(None, &error),
        None => Answer::accepted(),
    }
}

/// Accepts or refuses a response. The server asks clients nothing, so there is no question to it; the
/// older era tolerates that.
fn accept_response(routing: &Routing<'_>) -> Answer {
    if routing.version == Some(era::STATELESS) {
        let error = Error::invalid_request("a client sends requests and notifications only");
        return Answer::malformed(None, &error);
    }
    unspoken(routing).map_or(Answer::accepted(), |error| Answer::malformed(None, &error))
}

fn unspoken(routing: &Routing<'_>) -> Option<Error> {
    let version = routing.version?;
    (!era::supported().contains(&version)).then(|| era::unsupported_version(version))
}

fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(media_type)
        .peekable();
    if accepted.peek().is_none() {
        return Ok(Form::Json);
    }
    let accepted: Vec<String> = accepted.collect();
    let any_of = |types: [&str; 3]| types.iter().any(|one| accepted.iter().any(|it| it == one));
    if any_of(["application/json", "application/*", "*/*"]) {
        return Ok(Form::Json);
    }
    if any_of(["text/event-stream", "text/*", "*/*"]) {
        return Ok(Form::EventStream);
    }
    Err(Refusal::bad(
        StatusCode::NOT_ACCEPTABLE,
        "Answers come as application/json or text/event-stream.",
    ))
}

/// Refuses bodies that are not JSON: a page can send other types across origins without asking first.
fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    if value.is_some_and(|value| media_type(value) == "application/json") {
        return Ok(());
    }
    Err(Refusal::bad(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Send application/json.",
    ))
}

fn media_type(value: &str) -> String {
    let bare = value.split(';').next().unwrap_or_default();
    bare.trim().to_ascii_lowercase()
}

impl Refusal {
    fn new(fault: Fault) -> Self {
        Self {
            status: status(fault.code),
            fault: Box::new(fault),
            header: None,
        }
    }

    /// A refusal by a status that no code stands for.
    fn bad(status: StatusCode, message: &'static str) -> Self {
        Self {
            status,
            ..Self::new(Fault::bad_request(message))
        }
    }

    fn with(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.header = Some((name, value.into()));
        self
    }

    fn into_response(self, corr_id: &str) -> Response {
        let mut response = error_response(&self.fault, corr_id);
        *response.status_mut() = self.status;
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl Answer {
    fn new(status: StatusCode, json: Vec<u8>) -> Self {
        Self {
            status,
            json: Some(json),
        }
    }

    fn accepted() -> Self {
        Self {
            status: StatusCode::ACCEPTED,
            json: None,
        }
    }

    /// An answer to a message that is itself wrong.
    fn malformed(id: Option<&serde_json::value::RawValue>, error: &Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, jsonrpc::error_answer(id, error))
    }

    /// Returns the answer in the form that the client wants. Its bytes count until they are sent.
    fn into_response(self, form: Form, keeper: &Keeper) -> Response {
        let Some(json) = self.json else {
            let mut response = response(Body::empty());
            *response.status_mut() = self.status;
            return response;
        };
        if form == Form::Json || self.status != StatusCode::OK {
            return json_response(self.status, keeper.keep(json));
        }
        let mut response = response(Body::from(keeper.keep(event(json))));
        let stream = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, stream);
        response
    }
}

/// Returns a message as the one event of a stream.
fn event(json: Vec<u8>) -> Vec<u8> {
    let mut event = b"event: message\ndata: ".to_vec();
    event.extend_from_slice(&wire::on_one_line(json));
    event.extend_from_slice(b"\n\n");
    event
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
