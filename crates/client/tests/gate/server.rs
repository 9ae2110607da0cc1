//! A real server in this process: the engine over the memory store behind REST, with a clock that
//! stands still until it is moved.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use asyncgate_client::{
    Client, Retry,
    api::{Code, CreateTaskInput, GetTaskInput, TaskRecord},
};
use asyncgate_engine::{
    Authenticator, Caller, Clock, Engine, Fault, Principal, PrincipalKind, RequestContext, Role,
    Settings, TenantId,
    fakes::{Counter, FakeClock},
};
use asyncgate_store::{ReceiptFilter, SeqPage, Store, memory::MemoryStore};
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

pub const KEY: &str = "key";
const TENANT: TenantId = TenantId::from_bytes([7; 16]);

struct OneKey;

impl Authenticator for OneKey {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let admin = Caller {
            tenant: TENANT,
            principal: Principal::new(PrincipalKind::Service, "admin"),
            role: Role::Admin,
        };
        let known = (request.credential == Some(KEY)).then_some(admin);
        let answer = known.ok_or_else(|| Fault::new(Code::Unauthorized, "the key is not known"));
        Box::pin(std::future::ready(answer))
    }
}

/// A server and what is behind it.
pub struct Gate {
    store: Arc<MemoryStore>,
    clock: Arc<FakeClock>,
    engine: Arc<Engine>,
    pub addr: SocketAddr,
}

impl Gate {
    pub async fn start() -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(FakeClock::at(1_767_610_800_000));
        Self::over(store, clock).await
    }

    /// Ends this server and starts another over the same store.
    pub async fn restart(self) -> Self {
        self.engine.drain();
        Self::over(self.store, self.clock).await
    }

    async fn over(store: Arc<MemoryStore>, clock: Arc<FakeClock>) -> Self {
        let engine = Arc::new(Engine::new(
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(Counter::default()),
            Settings::default(),
        ));
        let options = asyncgate_rest::Options {
            max_body_bytes: 2 << 20,
        };
        let router = asyncgate_rest::router(Arc::clone(&engine), Arc::new(OneKey), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            store,
            clock,
            engine,
            addr,
        }
    }

    /// Lets the server's time pass and acts on the deadlines that came.
    pub async fn advance(&self, time: Duration) {
        let millis = i64::try_from(time.as_millis()).expect("a short time");
        self.clock.advance(millis);
        for acted in [
            self.engine.act_on_deadlines().await,
            self.engine.act_on_messages().await,
        ] {
            acted.expect("the memory store does not fail");
        }
    }

    pub fn client(&self) -> Client {
        client(self.addr)
    }

    /// The types of all receipts, in ledger order.
    pub async fn ledger(&self) -> Vec<String> {
        let page = SeqPage {
            after: 0,
            limit: 10_000,
        };
        let found = self.store.receipts(TENANT, ReceiptFilter::All, page).await;
        found
            .expect("the memory store does not fail")
            .iter()
            .map(|found| found.receipt.receipt_type.as_str().to_owned())
            .collect()
    }

    /// How many receipts of a type there are.
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
        total: Duration::from_secs(10),
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
    let record = client.wait_for_task(&input, Duration::from_secs(10)).await;
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
