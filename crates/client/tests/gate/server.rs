//! A real server in this process: the engine over the memory store behind REST, with a clock that
//! stands still until it is moved.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use asyncgate_client::{
    Client, Retry,
    api::{CreateTaskInput, GetTaskInput, TaskRecord},
};
pub use asyncgate_engine::fakes::ADMIN_KEY as KEY;
use asyncgate_engine::{
    Settings,
    fakes::{FakeKeys, TestEngine},
};
use serde_json::value::RawValue;
use tokio::net::TcpListener;

/// The longest time that an event may take on a machine that is busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server and the engine behind it.
pub struct Gate {
    engine: TestEngine,
    pub addr: SocketAddr,
}

impl Gate {
    pub async fn start() -> Self {
        Self::before(TestEngine::default()).await
    }

    /// Ends this server and starts another over the same store.
    pub async fn restart(self) -> Self {
        let TestEngine {
            engine,
            store,
            clock,
            ..
        } = self.engine;
        engine.drain();
        Self::before(TestEngine::over(store, clock, Settings::default())).await
    }

    async fn before(engine: TestEngine) -> Self {
        let options = asyncgate_rest::Options {
            max_body_bytes: 2 << 20,
        };
        let router =
            asyncgate_rest::Rest::new(Arc::clone(&engine.engine), Arc::new(FakeKeys), options)
                .router();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { engine, addr }
    }

    /// Lets the server's time pass and acts on the deadlines that came.
    pub async fn advance(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).expect("a short time");
        self.engine.advance(millis).await;
    }

    pub fn client(&self) -> Client {
        client(self.addr)
    }

    /// The types of all receipts, in ledger order.
    pub async fn ledger(&self) -> Vec<String> {
        let receipts = self.engine.ledger().await.into_iter();
        receipts
            .map(|receipt| receipt.receipt_type.as_str().to_owned())
            .collect()
    }

    /// The number of receipts of a type.
    pub async fn count(&self, receipt_type: &str) -> usize {
        let ledger = self.ledger().await;
        ledger.iter().filter(|found| *found == receipt_type).count()
    }
}

/// A client that does not wait long before it tries again.
pub fn client(addr: SocketAddr) -> Client {
    Client::builder(format!("http://{addr}"))
        .key(KEY)
        .retry(quick())
        .build()
        .expect("a client")
}

pub fn quick() -> Retry {
    Retry {
        attempts: 5,
        total: PATIENCE,
        first: Duration::from_millis(2),
        longest: Duration::from_millis(20),
    }
}

pub fn task(task_type: &str, payload: &str) -> CreateTaskInput {
    CreateTaskInput {
        task_type: task_type.to_owned(),
        payload: Some(RawValue::from_string(payload.to_owned()).expect("JSON")),
        principal_id: Some("alice".to_owned()),
        ..Default::default()
    }
}

pub async fn create(client: &Client, task_type: &str, payload: &str) -> String {
    let created = client.create_task(&task(task_type, payload)).await;
    created.expect("a task").task_id
}

/// Waits for a task's end.
pub async fn ended(client: &Client, task_id: &str) -> TaskRecord {
    let input = GetTaskInput {
        task_id: task_id.to_owned(),
        ..Default::default()
    };
    let record = client.wait_for_task(&input, PATIENCE).await;
    let record = record.expect("a task");
    assert!(
        asyncgate_client::has_ended(record.status),
        "the task has not ended: {:?}",
        record.status
    );
    record
}

pub async fn now(client: &Client, task_id: &str) -> TaskRecord {
    let input = GetTaskInput {
        task_id: task_id.to_owned(),
        ..Default::default()
    };
    client.get_task(&input).await.expect("a task")
}
