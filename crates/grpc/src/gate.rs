//! The gate before the service: who calls, under which correlation id, and how much may be read.

use std::{convert::Infallible, sync::Arc};

use asyncgate_api::{self as api, Code, Operation as _, Spec};
use asyncgate_engine::{Authenticator, Caller, Engine, Fault};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use tonic::Status;
use tower::Service as _;

use crate::{body::Timely, pb::mailbox_server::MailboxServer, service::Mailbox, status::status};

pub(crate) const CORR_ID: &str = "x-corr-id";

/// What a message may have around its payload.
const AROUND_PAYLOAD_BYTES: usize = 64 << 10;
/// What a batch may have in all.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// A call that passed the gate. The service finds it among the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    pub(crate) caller: Caller,
    pub(crate) corr_id: String,
}

pub(crate) struct Gate {
    engine: Arc<Engine>,
    auth: Arc<dyn Authenticator>,
    server: MailboxServer<Mailbox>,
}

impl Gate {
    pub(crate) fn new(engine: Arc<Engine>, auth: Arc<dyn Authenticator>) -> Self {
        let server = MailboxServer::new(Mailbox::new(Arc::clone(&engine)));
        Self {
            engine,
            auth,
            server,
        }
    }

    /// Answers a call. The credential is checked before any of the message is read.
    pub(crate) async fn pass(&self, request: Request<Body>) -> Response<Body> {
        let given = text(request.headers(), CORR_ID);
        let corr_id = self.engine.corr_id_or(given);
        let mut response = match operation(request.uri().path()) {
            // There is no such method, which anyone may know.
            None => self.call(request, 0, &corr_id).await,
            Some((spec, limit)) => self.call_as(spec, limit, request, &corr_id).await,
        };
        if let Ok(corr_id) = HeaderValue::from_str(&corr_id) {
            response.headers_mut().insert(CORR_ID, corr_id);
        }
        response
    }

    async fn call_as(
        &self,
        spec: &Spec,
        limit: Limit,
        mut request: Request<Body>,
        corr_id: &str,
    ) -> Response<Body> {
        let refuse = |fault| status(&self.engine.refuse(spec, fault), corr_id).into_http();
        let caller = match self.auth.authenticate(bearer(request.headers())).await {
            Ok(caller) => caller,
            Err(fault) => return refuse(fault),
        };
        request.extensions_mut().insert(Passed {
            caller,
            corr_id: corr_id.to_owned(),
        });
        let bytes = match limit {
            Limit::Message => {
                let payload = self.engine.settings().policy.mailbox.max_payload_bytes;
                payload.saturating_add(AROUND_PAYLOAD_BYTES)
            }
            Limit::Batch => MAX_BATCH_BYTES,
        };
        let response = self.call(request, bytes, corr_id).await;
        match refused_by_tonic(&response) {
            // What is not implemented, such as a compression, clients know how to do without.
            None | Some(tonic::Code::Unimplemented) => response,
            Some(tonic::Code::OutOfRange) => {
                let message = format!("the message is larger than {bytes} bytes");
                refuse(Fault::new(Code::TooLarge, message).with("limit", bytes))
            }
            Some(_) => refuse(Fault::bad_request("the message cannot be decoded")),
        }
    }

    async fn call(
        &self,
        request: Request<Body>,
        max_bytes: usize,
        corr_id: &str,
    ) -> Response<Body> {
        let mut server = self.server.clone().max_decoding_message_size(max_bytes);
        let request = request.map(|body| Timely::new(body, corr_id.to_owned()));
        let Ok::<_, Infallible>(response) = server.call(request).await;
        response.map(Body::new)
    }
}

/// How much of a request is read.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Message,
    Batch,
}

/// The operation behind a method, and how much it may be told.
fn operation(path: &str) -> Option<(&'static Spec, Limit)> {
    let (_, method) = path.rsplit_once('/')?;
    let limit = match method {
        "SendBatch" | "AckBatch" => Limit::Batch,
        _ => Limit::Message,
    };
    let spec = match method {
        "Send" => &api::SendMessage::SPEC,
        "SendBatch" => &api::SendMessages::SPEC,
        "Recv" | "RecvStream" => &api::ReceiveMessages::SPEC,
        "Ack" => &api::AckMessage::SPEC,
        "AckBatch" => &api::AckMessages::SPEC,
        "Nack" => &api::NackMessage::SPEC,
        "Extend" => &api::ExtendMessage::SPEC,
        "Peek" => &api::PeekMessages::SPEC,
        "Purge" => &api::PurgeTopic::SPEC,
        "Topics" => &api::ListTopics::SPEC,
        "Dlq" => &api::ListDeadLetters::SPEC,
        "DlqReprocess" => &api::ReprocessDeadLetters::SPEC,
        "Heads" => &api::GetMailboxHeads::SPEC,
        _ => return None,
    };
    Some((spec, limit))
}

/// The code of a refusal that came from tonic, before the service was reached: those of the service
/// have details.
fn refused_by_tonic(response: &Response<Body>) -> Option<tonic::Code> {
    let headers = response.headers();
    if headers.contains_key("grpc-status-details-bin") {
        return None;
    }
    let status = Status::from_header_map(headers)?;
    (status.code() != tonic::Code::Ok).then(|| status.code())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = text(headers, header::AUTHORIZATION.as_str())?;
    let (scheme, credential) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| credential.trim())
}
