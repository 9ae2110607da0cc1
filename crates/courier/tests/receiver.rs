//! A receiver that fails, hangs, floods, goes away and comes back: what it is told arrives, signed, once or more, and
//! in order.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use asyncgate_core::{TenantId, outbox::RetryPolicy};
use asyncgate_courier::{Destination, HttpCourier, Secret};
use asyncgate_engine::{
    BILLING, Caller, MeteringSettings, Role, Settings,
    fakes::{FakeClock, START_MS, TENANT, TestEngine, caller},
};
use asyncgate_store::{
    Store as _,
    memory::MemoryStore,
    outbox::{DispatchFilter, Outbox as _},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

/// More time than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "between you and me";

/// What the receiver does with a request.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Answer(u16),
    /// It reads, and says nothing.
    Hang,
    /// It reads, and closes the connection.
    Close,
    /// It answers well, and never stops talking.
    Flood,
    /// It answers well, and stops in the middle of what it says.
    Stall,
}

/// A request as the receiver got it.
#[derive(Debug)]
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(given, _)| given.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn id(&self) -> String {
        self.json()["usage_event_id"].as_str().unwrap().to_owned()
    }
}

/// A receiver on loopback.
struct Receiver {
    address: SocketAddr,
    deeds: Arc<Mutex<VecDeque<Deed>>>,
    /// The tenant of which it does not want to hear.
    unwanted: Arc<Mutex<Option<String>>>,
    got: mpsc::UnboundedReceiver<Got>,
    serving: JoinHandle<()>,
    tell: mpsc::UnboundedSender<Got>,
}

impl Receiver {
    async fn start(deeds: &[Deed]) -> Self {
        let (tell, got) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let deeds: VecDeque<Deed> = deeds.iter().copied().collect();
        let deeds = Arc::new(Mutex::new(deeds));
        let unwanted = Arc::<Mutex<Option<String>>>::default();
        let talking = Talk {
            deeds: deeds.clone(),
            unwanted: unwanted.clone(),
            tell: tell.clone(),
        };
        Self {
            address: listener.local_addr().unwrap(),
            serving: tokio::spawn(serve(listener, talking)),
            deeds,
            unwanted,
            got,
            tell,
        }
    }

    /// Goes away. Whoever connects is refused.
    async fn stop(&mut self) {
        self.serving.abort();
        let ended = (&mut self.serving).await;
        assert!(ended.unwrap_err().is_cancelled());
    }

    async fn come_back(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let talking = Talk {
            deeds: self.deeds.clone(),
            unwanted: self.unwanted.clone(),
            tell: self.tell.clone(),
        };
        self.serving = tokio::spawn(serve(listener, talking));
    }

    async fn next(&mut self) -> Got {
        timeout(PATIENCE, self.got.recv()).await.unwrap().unwrap()
    }
}

/// How the receiver talks.
#[derive(Clone)]
struct Talk {
    deeds: Arc<Mutex<VecDeque<Deed>>>,
    unwanted: Arc<Mutex<Option<String>>>,
    tell: mpsc::UnboundedSender<Got>,
}

impl Talk {
    /// Takes the next deed. Without one it answers well, unless it does not want what it got.
    fn deed(&self, got: &Got) -> Deed {
        let unwanted = self.unwanted.lock().unwrap();
        let is_unwanted = unwanted
            .as_ref()
            .is_some_and(|tenant| got.json()["tenant_id"] == tenant.as_str());
        let usual = if is_unwanted { 400 } else { 204 };
        let deed = self.deeds.lock().unwrap().pop_front();
        deed.unwrap_or(Deed::Answer(usual))
    }
}

async fn serve(listener: TcpListener, talking: Talk) {
    // Connections end with the task that serves them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(talk(stream, talking.clone()));
    }
}

/// Answers the requests of a connection.
async fn talk(mut stream: TcpStream, talking: Talk) {
    while let Some(got) = read(&mut stream).await {
        let deed = talking.deed(&got);
        talking.tell.send(got).unwrap();
        match deed {
            Deed::Answer(status) => {
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Deed::Hang => std::future::pending().await,
            Deed::Close => return,
            Deed::Flood => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n";
                let _ = stream.write_all(head).await;
                while stream.write_all(&[b'x'; 4_096]).await.is_ok() {}
                return;
            }
            Deed::Stall => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nwell";
                let _ = stream.write_all(head).await;
                std::future::pending().await
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Got> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        bytes.push(stream.read_u8().await.ok()?);
    };
    let got = Got {
        head: String::from_utf8(bytes[..end].to_vec()).unwrap(),
        body: Vec::new(),
    };
    let length = got.header("content-length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Got { body, ..got })
}

/// A server that bills.
struct World {
    test: TestEngine,
    sending: JoinHandle<()>,
}

impl World {
    fn new(to: &Receiver) -> Self {
        Self::over(Arc::default(), Arc::new(clock()), to, retries())
    }

    fn over(
        store: Arc<MemoryStore>,
        clock: Arc<FakeClock>,
        to: &Receiver,
        retries: RetryPolicy,
    ) -> Self {
        let destination = Destination {
            address: format!("http://{}/hook", to.address).parse().unwrap(),
            secret: Secret::new(SECRET),
            patience: Duration::from_millis(300),
        };
        let destinations = HashMap::from([(BILLING.to_owned(), destination)]);
        let courier = Arc::new(HttpCourier::new(destinations).unwrap());
        let settings = Settings {
            metering: MeteringSettings {
                bills: true,
                ..MeteringSettings::default()
            },
            retries,
            ..Settings::default()
        };
        let test = TestEngine::prepared(store, clock, settings, |engine| {
            engine.with_courier(courier)
        });
        let engine = test.engine.clone();
        let sending = tokio::spawn(async move { engine.send_dispatches().await });
        Self { test, sending }
    }

    /// Lets the tenant use something, and meters it. Returns the id of the event.
    async fn bill(&self, tenant: TenantId) -> String {
        let caller = Caller {
            tenant,
            ..caller(Role::Admin)
        };
        let task = json!({"type": "echo"});
        let created = self.test.call_as(&caller, "create_task", &task).await;
        created.unwrap();
        let event = self.test.engine.meter(tenant).await.unwrap();
        event.unwrap().id.to_string()
    }

    /// Waits until nothing is on its way.
    async fn settled(&self) {
        let settled = async {
            loop {
                let load = self.test.store.outbox_load().await.unwrap();
                if load.pending == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, settled).await.unwrap();
    }

    /// Ends the sender as a crash does, wherever it is.
    async fn kill(&mut self) {
        self.sending.abort();
        assert!((&mut self.sending).await.unwrap_err().is_cancelled());
    }
}

fn clock() -> FakeClock {
    FakeClock::running_from(START_MS)
}

fn retries() -> RetryPolicy {
    RetryPolicy {
        first_ms: 5,
        longest_ms: 20,
        give_up_after_ms: 3_600_000,
    }
}

#[tokio::test]
async fn events_arrive_signed_and_in_order() {
    let mut receiver = Receiver::start(&[]).await;
    let world = World::new(&receiver);
    let mut expected = Vec::new();
    for _ in 0..20 {
        expected.push(world.bill(TENANT).await);
    }
    for (n, id) in (1..).zip(&expected) {
        let got = receiver.next().await;
        assert_eq!(&got.id(), id);
        let said = got.json();
        assert_eq!(
            (&said["seq"], &said["used"]["tasks_created"]),
            (&json!(n), &json!(1))
        );
        assert_eq!(said["tenant_id"], TENANT.to_string());
        assert_eq!(got.header("content-type"), Some("application/json"));
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(&got.body);
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        let signature = format!("sha256={}", asyncgate_core::hex::encode(&digest));
        assert_eq!(got.header("x-signature-256"), Some(signature.as_str()));
        assert!(got.head.starts_with("POST /hook HTTP/1.1"), "{}", got.head);
    }
    world.settled().await;
}

#[tokio::test]
async fn what_fails_is_sent_again_and_those_behind_it_wait() {
    let deeds = [
        Deed::Answer(500),
        Deed::Hang,
        Deed::Close,
        Deed::Answer(302),
        Deed::Answer(429),
    ];
    let mut receiver = Receiver::start(&deeds).await;
    let world = World::new(&receiver);
    let (first, second) = (world.bill(TENANT).await, world.bill(TENANT).await);
    for _ in 0..=deeds.len() {
        assert_eq!(receiver.next().await.id(), first);
    }
    assert_eq!(receiver.next().await.id(), second);
    world.settled().await;
}

#[tokio::test]
async fn a_receiver_that_does_not_stop_talking_or_stops_too_early_is_not_waited_for() {
    for deed in [Deed::Flood, Deed::Stall] {
        let mut receiver = Receiver::start(&[deed]).await;
        let world = World::new(&receiver);
        let id = world.bill(TENANT).await;
        assert_eq!(receiver.next().await.id(), id);
        // It said 200, and then too much or too little: that is an arrival.
        world.settled().await;
        assert!(receiver.got.try_recv().is_err(), "{deed:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_was_away_gets_everything() {
    let mut receiver = Receiver::start(&[]).await;
    let world = World::new(&receiver);
    let first = world.bill(TENANT).await;
    assert_eq!(receiver.next().await.id(), first);
    receiver.stop().await;
    let mut missed = Vec::new();
    for _ in 0..5 {
        missed.push(world.bill(TENANT).await);
    }
    // It was tried meanwhile, and could not be reached.
    let tried = async {
        loop {
            let pending = DispatchFilter {
                dead: false,
                after: 0,
                limit: 1,
            };
            let found = world.test.store.dispatches(pending).await.unwrap();
            if found[0].attempts >= 3 {
                let said = found[0].last_error.as_deref().unwrap();
                assert!(said.contains("cannot be reached"), "{said}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, tried).await.unwrap();
    receiver.come_back().await;
    for id in missed {
        assert_eq!(receiver.next().await.id(), id);
    }
    world.settled().await;
}

#[tokio::test]
async fn a_server_that_was_killed_sends_again_what_it_was_sending() {
    let mut receiver = Receiver::start(&[Deed::Hang]).await;
    let (store, clock) = (Arc::<MemoryStore>::default(), Arc::new(clock()));
    let mut world = World::over(store.clone(), clock.clone(), &receiver, retries());
    let (first, second) = (world.bill(TENANT).await, world.bill(TENANT).await);
    // The receiver has it, and the server dies before it knows.
    assert_eq!(receiver.next().await.id(), first);
    world.kill().await;
    let again = World::over(store, clock.clone(), &receiver, retries());
    clock.advance(60_000);
    // Whoever looks now finds it due again. A new dispatch wakes the sender, which would sleep on otherwise.
    let third = again.bill(TENANT).await;
    for id in [first, second, third] {
        assert_eq!(receiver.next().await.id(), id);
    }
    again.settled().await;
}

#[tokio::test]
async fn what_is_not_wanted_holds_up_no_other_tenant_and_is_kept() {
    let mut receiver = Receiver::start(&[]).await;
    *receiver.unwanted.lock().unwrap() = Some(TENANT.to_string());
    let retries = RetryPolicy {
        give_up_after_ms: 200,
        ..retries()
    };
    let world = World::over(Arc::default(), Arc::new(clock()), &receiver, retries);
    let mut unwanted = vec![world.bill(TENANT).await, world.bill(TENANT).await];
    let wanted = world.bill(TenantId::from_bytes([8; 16])).await;
    // What stands behind one that is given up is tried in its turn.
    let mut untried = vec![unwanted[1].clone(), wanted.clone()];
    while !untried.is_empty() {
        let got = receiver.next().await.id();
        untried.retain(|id| *id != got);
    }
    world.settled().await;
    let dead = DispatchFilter {
        dead: true,
        after: 0,
        limit: 9,
    };
    for dead in world.test.store.dispatches(dead).await.unwrap() {
        assert_eq!(dead.last_error.as_deref(), Some("answered with 400"));
        let said: Value = serde_json::from_slice(&dead.sent.body).unwrap();
        unwanted.retain(|id| said["usage_event_id"] != id.as_str());
    }
    assert!(unwanted.is_empty(), "they are kept: {unwanted:?}");
}

#[tokio::test]
async fn without_a_destination_everything_waits() {
    let receiver = Receiver::start(&[]).await;
    let mut world = World::new(&receiver);
    world.kill().await;
    let courier = Arc::new(HttpCourier::new(HashMap::new()).unwrap());
    let (store, clock) = (world.test.store.clone(), world.test.clock.clone());
    world.bill(TENANT).await;
    let settings = Settings {
        retries: retries(),
        ..Settings::default()
    };
    let test = TestEngine::prepared(store.clone(), clock, settings, |engine| {
        engine.with_courier(courier.clone())
    });
    let engine = test.engine.clone();
    let sending = tokio::spawn(async move { engine.send_dispatches().await });
    let destination = Destination {
        address: format!("http://{}/", receiver.address).parse().unwrap(),
        secret: Secret::new(SECRET),
        patience: Duration::from_secs(1),
    };
    // It is tried in vain, until the settings have the destination again.
    let failed = async {
        loop {
            let pending = DispatchFilter {
                dead: false,
                after: 0,
                limit: 1,
            };
            if store.dispatches(pending).await.unwrap()[0].attempts > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, failed).await.unwrap();
    let destinations = HashMap::from([(BILLING.to_owned(), destination)]);
    courier.set_destinations(destinations).unwrap();
    let mut receiver = receiver;
    receiver.next().await;
    sending.abort();
    assert_eq!(store.usage_events(TENANT, None, 9).await.unwrap().len(), 1);
}
