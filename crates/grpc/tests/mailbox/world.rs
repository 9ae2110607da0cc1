//! An engine on the memory store and fake time, behind the facade, with generated clients.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use asyncgate_engine::{
    Engine, Settings,
    fakes::{ADMIN_KEY, FakeClock, FakeKeys, START_MS, TestEngine},
};
use asyncgate_grpc::{
    Options,
    pb::{self, mailbox_client::MailboxClient},
};
use axum::Router;
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

pub struct World {
    pub engine: Arc<Engine>,
    pub router: Router,
    pub serving: Arc<AtomicBool>,
    inner: TestEngine,
}

impl World {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let inner = TestEngine::new(settings, FakeClock::at(START_MS));
        let engine = Arc::clone(&inner.engine);
        let serving = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&serving);
        let options = Options {
            serving: Arc::new(move || told.load(Ordering::Relaxed)),
        };
        let router = asyncgate_grpc::router(Arc::clone(&engine), Arc::new(FakeKeys), options);
        Self {
            engine,
            router,
            serving,
            inner,
        }
    }

    pub fn client(&self) -> MailboxClient<Router> {
        MailboxClient::new(self.router.clone())
    }

    /// Lets time pass, and acts on the deadlines that came.
    pub async fn advance(&self, millis: i64) {
        self.inner.advance(millis).await;
    }

    /// Sends a message and answers its id.
    pub async fn send(&self, topic: &str, idem_key: &str) -> String {
        let request = as_admin(message(topic, idem_key));
        self.client()
            .send(request)
            .await
            .unwrap()
            .into_inner()
            .msg_id
    }

    /// Receives the messages of a topic.
    pub async fn recv(&self, topic: &str) -> Vec<pb::Envelope> {
        let request = pb::RecvRequest {
            topic: topic.to_owned(),
            ..pb::RecvRequest::default()
        };
        let received = self.client().recv(as_admin(request)).await.unwrap();
        received.into_inner().messages
    }
}

pub fn message(topic: &str, idem_key: &str) -> pb::SendRequest {
    pb::SendRequest {
        topic: topic.to_owned(),
        idem_key: idem_key.to_owned(),
        payload: format!("payload of {idem_key}").into(),
        ..pb::SendRequest::default()
    }
}

pub fn as_admin<T>(message: T) -> Request<T> {
    with_key(ADMIN_KEY, message)
}

pub fn with_key<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {key}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// The status and the code of a refusal. It must name a correlation id, in two places.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (tonic::Code, String, Status) {
    let status = answer.unwrap_err();
    let info = status.get_details_error_info().expect("ErrorInfo");
    assert_eq!(info.domain, "asyncgate");
    let corr_id = status.metadata().get("x-corr-id").unwrap();
    assert_eq!(info.metadata["corr_id"], corr_id.to_str().unwrap());
    (status.code(), info.reason, status)
}
