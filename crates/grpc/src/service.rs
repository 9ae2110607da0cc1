//! The methods. Each is an operation of the engine; what they mean is written there.

use std::sync::Arc;

use asyncgate_api as api;
use asyncgate_engine::{Engine, Execute, Fault, execute};
use tonic::{Request, Response, Status};

use crate::{
    convert::Decode,
    gate::{CORR_ID, Passed},
    pb::{self, mailbox_server},
    status::status,
    stream::{self, Envelopes},
};

const IDEMPOTENCY_MODE: &str = "x-idempotency-mode";

pub(crate) struct Mailbox {
    engine: Arc<Engine>,
}

type Answer<T> = Result<Response<T>, Status>;

impl Mailbox {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Runs an operation.
    async fn run<O, M, A>(&self, request: Request<M>) -> Answer<A>
    where
        O: Execute,
        M: Decode<O::Input>,
        A: From<O::Output>,
    {
        let (passed, message) = open(request)?;
        self.execute::<O, A>(&passed, message.decode()).await
    }

    async fn execute<O, A>(&self, passed: &Passed, input: Result<O::Input, Fault>) -> Answer<A>
    where
        O: Execute,
        A: From<O::Output>,
    {
        let done = match input {
            Ok(input) => execute::<O>(&self.engine, &passed.caller, input).await,
            Err(fault) => Err(self.engine.refuse(&O::SPEC, fault)),
        };
        match done {
            Ok(output) => Ok(Response::new(A::from(output))),
            Err(fault) => Err(status(&fault, &passed.corr_id)),
        }
    }
}

/// The message, and who sends it.
fn open<M>(mut request: Request<M>) -> Result<(Passed, M), Status> {
    let passed = request.extensions_mut().remove::<Passed>();
    let passed = passed.ok_or_else(|| Status::internal("the call did not pass the gate"))?;
    Ok((passed, request.into_inner()))
}

/// Metadata that stands for a field of the message.
fn given<M>(request: &Request<M>, name: &str) -> Option<String> {
    let value = request.metadata().get(name)?;
    // What is no text is not left out: it is refused like any value that the field cannot have.
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[tonic::async_trait]
impl mailbox_server::Mailbox for Mailbox {
    async fn send(&self, request: Request<pb::SendRequest>) -> Answer<pb::SendResponse> {
        let corr_id = given(&request, CORR_ID);
        let mode = given(&request, IDEMPOTENCY_MODE);
        let (passed, message) = open(request)?;
        let input = message.decode().and_then(|mut input: api::SendInput| {
            input.corr_id = input.corr_id.or(corr_id);
            if let Some(mode) = mode {
                input.idempotency_mode = Some(crate::convert::idempotency_mode(&mode)?);
            }
            Ok(input)
        });
        self.execute::<api::SendMessage, _>(&passed, input).await
    }

    async fn recv(&self, request: Request<pb::RecvRequest>) -> Answer<pb::RecvResponse> {
        self.run::<api::ReceiveMessages, _, _>(request).await
    }

    type RecvStreamStream = Envelopes;

    async fn recv_stream(&self, request: Request<pb::RecvRequest>) -> Answer<Envelopes> {
        let (passed, message) = open(request)?;
        let Passed { caller, corr_id } = passed;
        let opened = match message.decode() {
            Ok(input) => stream::open(Arc::clone(&self.engine), caller, input).await,
            Err(fault) => Err(fault),
        };
        match opened {
            Ok(envelopes) => Ok(Response::new(envelopes)),
            Err(fault) => Err(status(&fault, &corr_id)),
        }
    }

    async fn ack(&self, request: Request<pb::AckRequest>) -> Answer<pb::AckResponse> {
        self.run::<api::AckMessage, _, _>(request).await
    }

    async fn nack(&self, request: Request<pb::NackRequest>) -> Answer<pb::AckResponse> {
        self.run::<api::NackMessage, _, _>(request).await
    }

    async fn send_batch(
        &self,
        request: Request<pb::SendBatchRequest>,
    ) -> Answer<pb::SendBatchResponse> {
        self.run::<api::SendMessages, _, _>(request).await
    }

    async fn ack_batch(
        &self,
        request: Request<pb::AckBatchRequest>,
    ) -> Answer<pb::AckBatchResponse> {
        self.run::<api::AckMessages, _, _>(request).await
    }

    async fn extend(&self, request: Request<pb::ExtendRequest>) -> Answer<pb::ExtendResponse> {
        self.run::<api::ExtendMessage, _, _>(request).await
    }

    async fn peek(&self, request: Request<pb::PeekRequest>) -> Answer<pb::RecvResponse> {
        self.run::<api::PeekMessages, _, _>(request).await
    }

    async fn purge(&self, request: Request<pb::PurgeRequest>) -> Answer<pb::PurgeResponse> {
        self.run::<api::PurgeTopic, _, _>(request).await
    }

    async fn topics(&self, request: Request<pb::TopicsRequest>) -> Answer<pb::TopicsResponse> {
        self.run::<api::ListTopics, _, _>(request).await
    }

    async fn dlq(&self, request: Request<pb::DlqRequest>) -> Answer<pb::DlqResponse> {
        self.run::<api::ListDeadLetters, _, _>(request).await
    }

    async fn dlq_reprocess(
        &self,
        request: Request<pb::DlqReprocessRequest>,
    ) -> Answer<pb::DlqReprocessResponse> {
        self.run::<api::ReprocessDeadLetters, _, _>(request).await
    }

    async fn heads(&self, request: Request<pb::HeadsRequest>) -> Answer<pb::HeadsResponse> {
        self.run::<api::GetMailboxHeads, _, _>(request).await
    }
}
