//! The streamable HTTP transport: one endpoint, one POST per message, no streams of our own.
//!
//! The order of the checks is fixed: `Origin`, credential, method, media types, size, JSON,
//! envelope. So a stranger learns nothing but that a credential is missing.
//!
//! What fails before JSON-RPC is reached is answered as REST answers it, with the error body of
//! all planes; what fails in it, with a JSON-RPC error.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_engine::{Coding, CorrId, Fault, Inflate};
use axum::{Router, body::Body, response::Response, routing::any};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{
    Options,
    backend::{Backend, Guard},
    batch,
    dispatch::Dispatcher,
    era::{self, Era, admit},
    headers::Routing,
    jsonrpc::{self, Body as Messages, Error, ErrorCode, Message, Notification, Request},
    origin::Origins,
    wire,
};

/// Where the endpoint is.
pub const PATH: &str = "/mcp";

const CORR_ID: &str = "x-corr-id";

/// Mounts the endpoint.
pub(crate) fn mount<B: Backend, G: Guard<B::Caller>>(
    dispatcher: Arc<Dispatcher<B>>,
    guard: G,
    options: Options,
) -> Router {
    let endpoint = Arc::new(Endpoint {
        origins: Origins::new(&options.allowed_origins),
        max_body_bytes: dispatcher.max_message_bytes,
        realm: options.realm.replace(['"', '\\'], ""),
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
    max_body_bytes: usize,
    realm: String,
}

/// A request that does not come as far as JSON-RPC.
struct Refusal {
    status: StatusCode,
    fault: Box<Fault>,
    header: Option<(header::HeaderName, String)>,
}

/// What a POST is answered with.
struct Answer {
    status: StatusCode,
    json: Option<Vec<u8>>,
}

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    EventStream,
}

impl<B: Backend, G: Guard<B::Caller>> Endpoint<B, G> {
    async fn serve(&self, request: HttpRequest<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let corr_id = given_corr_id(&parts.headers).unwrap_or_else(|| self.dispatcher.corr_id());
        // It names this exchange, which may hold many calls, and no message in it.
        let known_by = CorrId {
            text: corr_id.clone(),
            given: false,
        };
        let answering = async {
            let answered = self.post(&parts.method, &parts.headers, body, &corr_id);
            match answered.await {
                Ok(response) => response,
                Err(refusal) => refusal.into_response(&corr_id),
            }
        };
        let mut response = known_by.scope(answering).await;
        if let Ok(value) = HeaderValue::from_str(&corr_id) {
            response.headers_mut().insert(CORR_ID, value);
        }
        response
    }

    async fn post(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Body,
        corr_id: &str,
    ) -> Result<Response, Refusal> {
        if !self.origins.allow(headers) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                Fault::new(Code::Forbidden, "This origin may not call this server."),
            ));
        }
        let bearer = bearer(headers);
        let checked = self.guard.check(bearer).await;
        let refuse = |fault| {
            let tool = Routing::read(headers).tool();
            self.dispatcher.refuse(tool.as_deref(), fault)
        };
        let caller = checked.map_err(|fault| self.unauthenticated(bearer, refuse(fault)))?;
        if method != Method::POST {
            let message =
                "Only POST is served here: there is no session to end and no stream to open.";
            let fault = Fault::new(Code::MethodNotAllowed, message);
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, fault);
            return Err(refusal.with(header::ALLOW, "POST"));
        }
        let form = form(headers)?;
        check_content_type(headers)?;
        let body = self.read(headers, body).await;
        let body = body.map_err(|fault| {
            let fault = refuse(fault);
            Refusal::new(status(fault.code), fault)
        })?;
        let answer = self.answer(&caller, headers, &body, corr_id).await;
        Ok(answer.into_response(form))
    }

    /// Reads a body that has at most as many bytes as any message may, unpacked.
    async fn read(&self, headers: &HeaderMap, mut body: Body) -> Result<Bytes, Fault> {
        let limit = self.max_body_bytes;
        let codings = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(coding) = Coding::named(codings.map(HeaderValue::as_bytes))? else {
            let collected = Limited::new(body, limit).collect().await;
            return collected.map(|body| body.to_bytes()).map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return Fault::too_large(limit);
                }
                unreadable()
            });
        };
        let mut inflate = Inflate::new(coding, limit, self.dispatcher.bodies().ratio_cap);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(|_| unreadable())?.into_data() {
                inflate.feed(&data)?;
            }
        }
        inflate.finish()
    }

    async fn answer(
        &self,
        caller: &B::Caller,
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
                let json = batch::answer(&self.dispatcher, caller, &messages, corr_id).await;
                return json.map_or(Answer::accepted(), |json| Answer::new(StatusCode::OK, json));
            }
            Err(error) => return Answer::malformed(None, &error),
        };
        match jsonrpc::read_message(raw) {
            Ok(Message::Request(request)) => {
                self.request(caller, &request, &routing, corr_id).await
            }
            Ok(Message::Notification(notification)) => accept(&notification, &routing),
            Ok(Message::Response) => accept_response(&routing),
            Err(unreadable) => Answer::malformed(unreadable.id, &unreadable.error),
        }
    }

    async fn request(
        &self,
        caller: &B::Caller,
        request: &Request<'_>,
        routing: &Routing<'_>,
        corr_id: &str,
    ) -> Answer {
        let admitted = match admit(request, Some(routing)) {
            Ok(admitted) => admitted,
            Err(error) => return Answer::malformed(Some(request.id), &error),
        };
        let reply = self.dispatcher.answer(caller, &admitted, corr_id).await;
        let unknown_method = reply.failure == Some(ErrorCode::MethodNotFound);
        let status = if unknown_method && admitted.era == Era::Stateless {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        Answer::new(status, reply.json)
    }

    fn unauthenticated(&self, bearer: Option<&str>, fault: Fault) -> Refusal {
        let realm = &self.realm;
        let retry_after = fault.retry_after_seconds;
        let refusal = Refusal::new(status(fault.code), fault);
        if refusal.status == StatusCode::UNAUTHORIZED {
            let error = bearer.map_or("", |_| r#", error="invalid_token""#);
            let challenge = format!(r#"Bearer realm="{realm}"{error}"#);
            return refusal.with(header::WWW_AUTHENTICATE, challenge);
        }
        match retry_after {
            Some(seconds) => refusal.with(header::RETRY_AFTER, seconds.to_string()),
            None => refusal,
        }
    }
}

/// Notifications need no answer and have no effect on a server without state.
fn accept(notification: &Notification<'_>, routing: &Routing<'_>) -> Answer {
    tracing::trace!(method = %notification.method, "notification dropped");
    match unspoken(routing) {
        Some(error) => Answer::malformed(None, &error),
        None => Answer::accepted(),
    }
}

/// We ask clients nothing, so an answer of theirs has no question. The older era tolerates that.
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

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credential) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(credential.trim())
}

fn given_corr_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(CORR_ID)?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    ((1..=128).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_owned())
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

/// A page can send other types across origins without asking first, so only this one is read.
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

fn unreadable() -> Fault {
    Fault::bad_request("the body could not be read")
}

/// The status of what does not come as far as JSON-RPC.
fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl Refusal {
    fn new(status: StatusCode, fault: Fault) -> Self {
        Self {
            status,
            fault: Box::new(fault),
            header: None,
        }
    }

    fn bad(status: StatusCode, message: &'static str) -> Self {
        Self::new(status, Fault::bad_request(message))
    }

    fn with(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.header = Some((name, value.into()));
        self
    }

    fn into_response(self, corr_id: &str) -> Response {
        wire::log_fault(&self.fault, "mcp", corr_id);
        let body = wire::error_body(&self.fault, corr_id);
        let json = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Answer::new(self.status, json).into_response(Form::Json);
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

    /// The message itself was wrong.
    fn malformed(id: Option<&serde_json::value::RawValue>, error: &Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, jsonrpc::error_answer(id, error))
    }

    fn into_response(self, form: Form) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        let Some(json) = self.json else {
            return response;
        };
        let streamed = form == Form::EventStream && self.status == StatusCode::OK;
        let (media_type, body) = if streamed {
            ("text/event-stream", event(json))
        } else {
            ("application/json", json)
        };
        *response.body_mut() = Body::from(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// A message as the one event of a stream.
fn event(json: Vec<u8>) -> Vec<u8> {
    let mut event = b"event: message\ndata: ".to_vec();
    event.extend_from_slice(&wire::on_one_line(json));
    event.extend_from_slice(b"\n\n");
    event
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
