//! The methods. Each runs an operation of the engine, which is where its meaning is written.

use std::sync::Arc;

use asyncgate_api::{self as api, Operation as _, Spec};
use asyncgate_edge::{BodyLimits, keep_grant, request_context};
use asyncgate_engine::{Authenticator, Caller, Engine, Fault, Typed, hold};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, future::BoxFuture};
use http::{HeaderMap, HeaderName, Response};
use http_body::Frame;
use prost::Message;

use crate::{
    convert::{self, Decode},
    message::{self, Messages},
    pb, ratelimit,
    stream::{self, Session},
};

const IDEMPOTENCY_MODE: HeaderName = HeaderName::from_static("x-idempotency-mode");

/// The outcome of a method.
pub(crate) type Answer = Result<Response<Body>, Fault>;

/// A method of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Send,
    SendBatch,
    SendStream,
    Recv,
    RecvStream,
    Ack,
    AckBatch,
    AckStream,
    Nack,
    Extend,
    Peek,
    GetMessage,
    DeleteMessage,
    RedriveMessage,
    Purge,
    Topics,
    Dlq,
    DlqReprocess,
    Heads,
    ShouldRateLimit,
}

/// The one method of Envoy's service.
pub(crate) const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

impl Method {
    /// Returns the method at this path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        if path == RATE_LIMIT {
            return Some(Self::ShouldRateLimit);
        }
        Some(match path.strip_prefix("/ron.mailbox.v1.Mailbox/")? {
            "Send" => Self::Send,
            "SendBatch" => Self::SendBatch,
            "SendStream" => Self::SendStream,
            "Recv" => Self::Recv,
            "RecvStream" => Self::RecvStream,
            "Ack" => Self::Ack,
            "AckBatch" => Self::AckBatch,
            "AckStream" => Self::AckStream,
            "Nack" => Self::Nack,
            "Extend" => Self::Extend,
            "Peek" => Self::Peek,
            "GetMessage" => Self::GetMessage,
            "DeleteMessage" => Self::DeleteMessage,
            "RedriveMessage" => Self::RedriveMessage,
            "Purge" => Self::Purge,
            "Topics" => Self::Topics,
            "Dlq" => Self::Dlq,
            "DlqReprocess" => Self::DlqReprocess,
            "Heads" => Self::Heads,
            _ => return None,
        })
    }

    /// Returns the operation that the method runs.
    pub(crate) const fn spec(self) -> &'static Spec {
        match self {
            Self::Send => &api::SendMessage::SPEC,
            Self::SendBatch | Self::SendStream => &api::SendMessages::SPEC,
            Self::Recv | Self::RecvStream => &api::ReceiveMessages::SPEC,
            Self::Ack => &api::AckMessage::SPEC,
            Self::AckBatch | Self::AckStream => &api::AckMessages::SPEC,
            Self::Nack => &api::NackMessage::SPEC,
            Self::Extend => &api::ExtendMessage::SPEC,
            Self::Peek => &api::PeekMessages::SPEC,
            Self::GetMessage => &api::GetMessage::SPEC,
            Self::DeleteMessage => &api::DeleteMessage::SPEC,
            Self::RedriveMessage => &api::RedriveMessage::SPEC,
            Self::Purge => &api::PurgeTopic::SPEC,
            Self::Topics => &api::ListTopics::SPEC,
            Self::Dlq => &api::ListDeadLetters::SPEC,
            Self::DlqReprocess => &api::ReprocessDeadLetters::SPEC,
            Self::Heads => &api::GetMailboxHeads::SPEC,
            Self::ShouldRateLimit => &api::CheckLimits::SPEC,
        }
    }

    pub(crate) const fn is_batch(self) -> bool {
        matches!(self, Self::SendBatch | Self::AckBatch)
    }
}

/// A call that passed the gate.
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) auth: &'a dyn Authenticator,
    pub(crate) caller: Caller,
    pub(crate) corr_id: &'a str,
    /// The limits on each message of the request.
    pub(crate) limits: BodyLimits,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Call<'_> {
    pub(crate) async fn run(self, method: Method) -> Answer {
        match method {
            Method::Send => self.send().await,
            Method::RecvStream => self.receive().await,
            Method::SendStream => {
                self.engine.note_limits(&self.caller).await;
                Ok(self.stream(method, stream::send))
            }
            Method::AckStream => {
                self.engine.note_limits(&self.caller).await;
                Ok(self.stream(method, stream::ack))
            }
            Method::SendBatch => {
                unary::<api::SendMessages, pb::SendBatchRequest, pb::SendBatchResponse>(self).await
            }
            Method::Recv => {
                unary::<api::ReceiveMessages, pb::RecvRequest, pb::RecvResponse>(self).await
            }
            Method::Ack => unary::<api::AckMessage, pb::AckRequest, pb::AckResponse>(self).await,
            Method::AckBatch => {
                unary::<api::AckMessages, pb::AckBatchRequest, pb::AckBatchResponse>(self).await
            }
            Method::Nack => unary::<api::NackMessage, pb::NackRequest, pb::AckResponse>(self).await,
            Method::Extend => {
                unary::<api::ExtendMessage, pb::ExtendRequest, pb::ExtendResponse>(self).await
            }
            Method::Peek => {
                unary::<api::PeekMessages, pb::PeekRequest, pb::RecvResponse>(self).await
            }
            Method::GetMessage => {
                unary::<api::GetMessage, pb::MessageRequest, pb::MessageRecord>(self).await
            }
            Method::DeleteMessage => {
                unary::<api::DeleteMessage, pb::MessageRequest, pb::AckResponse>(self).await
            }
            Method::RedriveMessage => {
                unary::<api::RedriveMessage, pb::MessageRequest, pb::DlqReprocessResponse>(self)
                    .await
            }
            Method::Purge => {
                unary::<api::PurgeTopic, pb::PurgeRequest, pb::PurgeResponse>(self).await
            }
            Method::Topics => {
                unary::<api::ListTopics, pb::TopicsRequest, pb::TopicsResponse>(self).await
            }
            Method::Dlq => {
                unary::<api::ListDeadLetters, pb::DlqRequest, pb::DlqResponse>(self).await
            }
            Method::DlqReprocess => unary::<
                api::ReprocessDeadLetters,
                pb::DlqReprocessRequest,
                pb::DlqReprocessResponse,
            >(self)
            .await,
            Method::Heads => {
                unary::<api::GetMailboxHeads, pb::HeadsRequest, pb::HeadsResponse>(self).await
            }
            Method::ShouldRateLimit => self.should_rate_limit().await,
        }
    }

    async fn should_rate_limit(self) -> Answer {
        let refuse = |fault| self.engine.refuse(&api::CheckLimits::SPEC, fault);
        let request = message::read(self.body, self.limits).await;
        let request = request.map_err(refuse)?;
        let answer = ratelimit::should_rate_limit(self.engine, &self.caller, request).await?;
        Ok(message::one(message::framed([&answer])))
    }

    async fn send(self) -> Answer {
        let message: Result<pb::SendRequest, Fault> = message::read(self.body, self.limits).await;
        let input = message.and_then(Decode::decode);
        let input = input.and_then(|mut input: api::SendInput| {
            if let Some(mode) = given(&self.headers, &IDEMPOTENCY_MODE) {
                input.idempotency_mode = Some(convert::idempotency_mode(&mode)?);
            }
            Ok(input)
        });
        answer::<api::SendMessage, pb::SendResponse>(self.engine, &self.caller, input).await
    }

    async fn receive(self) -> Answer {
        let refuse = self.refusal(&api::ReceiveMessages::SPEC);
        let ended = self.until_ended();
        let message: Result<pb::RecvRequest, Fault> = message::read(self.body, self.limits).await;
        let input = message.and_then(Decode::decode);
        let frames = stream::receive(self.engine, &self.caller, input).await?;
        Ok(message::many(stream::until(ended, refuse, frames)))
    }

    /// Answers with a stream, which goes on for as long as the request.
    fn stream<S>(self, method: Method, answer: impl FnOnce(Session) -> S) -> Response<Body>
    where
        S: Stream<Item = Frame<Bytes>> + Send + 'static,
    {
        let refuse = self.refusal(method.spec());
        let ended = self.until_ended();
        let frames = answer(Session {
            engine: Arc::clone(self.engine),
            caller: self.caller,
            corr_id: self.corr_id.to_owned(),
            messages: Messages::new(self.body, self.limits),
        });
        message::many(stream::until(ended, refuse, frames))
    }

    /// Waits for the end of the caller's credential.
    fn until_ended(&self) -> BoxFuture<'static, ()> {
        self.auth.until_ended(&request_context(&self.headers))
    }

    /// Returns what makes the last frame of a stream whose credential has ended.
    fn refusal(&self, spec: &'static Spec) -> impl FnOnce() -> Frame<Bytes> + Send + 'static {
        let (engine, corr_id) = (Arc::clone(self.engine), self.corr_id.to_owned());
        move || {
            let fault = engine.refuse(spec, Fault::credential_ended());
            Frame::trailers(stream::failure(&fault, &corr_id))
        }
    }
}

/// Reads one message, runs one operation and answers with one message.
async fn unary<O, M, A>(call: Call<'_>) -> Answer
where
    O: Typed,
    M: Message + Default + Decode<O::Input>,
    A: Message + From<O::Output>,
{
    let message: Result<M, Fault> = message::read(call.body, call.limits).await;
    answer::<O, A>(
        call.engine,
        &call.caller,
        message.and_then(|message| Decode::decode(message)),
    )
    .await
}

async fn answer<O, A>(engine: &Engine, caller: &Caller, input: Result<O::Input, Fault>) -> Answer
where
    O: Typed,
    A: Message + From<O::Output>,
{
    let output = O::run(engine, caller, input).await?;
    let framed = message::framed([&A::from(output)]);
    let grant = hold(engine, caller, &O::SPEC, framed.len());
    let grant = grant.map_err(|fault| engine.refuse(&O::SPEC, fault))?;
    Ok(message::one(keep_grant(framed, grant)))
}

/// Returns metadata that stands for a field of the message.
fn given(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    // A value that is no text is not ignored: it is refused like any value that the field cannot have.
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}
