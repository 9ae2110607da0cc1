//! The acceptance gate G-10 of the mailbox: a credential that is revoked while it is in use stops everywhere, over
//! REST, MCP and gRPC, in calls, in calls that wait and in streams; others go on, and no message is lost.
//!
//! That 30 seconds are enough with the time to live that is the default is shown where a test decides the time, in
//! `crates/auth/tests/auth`: `ending.rs` for what goes on, `keys.rs`, `macaroons.rs` and `tokens.rs` for calls, and `drill.rs`
//! for acknowledgements under way.

use std::io::BufRead as _;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use asyncgate_credentials::macaroon::Macaroon;
use asyncgate_grpc::pb;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Response as Answer, Status, Streaming};

use crate::calls::text;
use crate::credentials::Following;
use crate::grpc::{client, with_bearer};
use crate::harness::{DEADLINE, Launch, Server, eventually};
use crate::http::{Connection, Request, Response};
use crate::mail::id;
use crate::mcp::{Era, carry_to, message, outcome};
use crate::oauth;

/// The longest time for which a revoked credential may still be of use.
const LONGEST: Duration = Duration::from_secs(30);
/// The tenant that everything here belongs to.
const TENANT: &str = "00000000-0000-7000-8000-000000000001";
/// How many waiting calls [`Live::open`] makes.
const WAITS: usize = 5;
const HELLO: &str = "aGVsbG8=";

/// Credentials of one admin that end together.
struct Family {
    name: &'static str,
    secrets: Vec<String>,
    /// The request that ends them.
    revoke: Request,
    /// The code of the refusal by the routes of tasks.
    code: &'static str,
}

/// Makes one family of each kind.
fn families(server: &Server) -> Vec<Family> {
    vec![key(server), macaroons(server), tokens(server)]
}

fn admin(server: &Server, path: &str, body: &Value) -> Value {
    server.post(path, body).expect(201)
}

fn key(server: &Server) -> Family {
    let wish = json!({"principal": {"kind": "service", "id": "ops"}, "role": "admin"});
    let key = admin(server, "/v1/admin/keys", &wish);
    let target = format!("/v1/admin/keys/{}", text(&key["key_id"]));
    Family {
        name: "key",
        secrets: vec![text(&key["key"])],
        revoke: server.with_key(Request::new("DELETE", &target)),
        code: "UNAUTHORIZED",
    }
}

/// A macaroon, and one that its holder made of it without asking anybody.
fn macaroons(server: &Server) -> Family {
    let tenant = format!("tenant = {TENANT}");
    let principal = json!({"kind": "service", "id": "ops"});
    let wish = json!({"principal": principal, "role": "admin", "caveats": [tenant]});
    let minted = admin(server, "/v1/admin/macaroons", &wish);
    let first = text(&minted["macaroon"]);
    let derived = Macaroon::decode(&first).unwrap();
    let derived = derived.attenuate("time < 2199-01-01T00:00:00Z").unwrap();
    let target = format!("/v1/admin/macaroons/{}", text(&minted["macaroon_id"]));
    Family {
        name: "macaroon",
        secrets: vec![first, derived.encode()],
        revoke: server.with_key(Request::new("DELETE", &target)),
        code: "E_CAP_AUTH",
    }
}

/// The tokens of one login: the first access token, and that of a refresh.
fn tokens(server: &Server) -> Family {
    oauth::let_in_as(server, "admin");
    let scopes = [
        "tasks:read",
        "tasks:write",
        "tasks:lease",
        "mailbox:send",
        "mailbox:recv",
        "admin:read",
        "admin:write",
    ];
    let client = oauth::register_for(server, false, &scopes);
    let (page, cookie) = oauth::begin(server, &client);
    let code = oauth::log_in(server, &page, &cookie);
    let first = oauth::exchange(server, &client, &code).expect(200);
    let second = oauth::refresh(server, &client, &text(&first["refresh_token"])).expect(200);
    let pairs = [
        ("client_id", client["client_id"].as_str().unwrap()),
        ("token", second["refresh_token"].as_str().unwrap()),
    ];
    Family {
        name: "token",
        secrets: vec![text(&first["access_token"]), text(&second["access_token"])],
        revoke: oauth::form("/oauth/revoke", &pairs),
        code: "UNAUTHORIZED",
    }
}

/// A call of a tool.
fn tool(name: &str, arguments: &Value) -> Request {
    let params = json!({"name": name, "arguments": arguments});
    let era = Era::Stateless;
    carry_to("/mcp", era, &message(era, 1, "tools/call", params))
}

fn stream(topic: &str) -> Request {
    Request::post("/v1/recv/stream", json!({"topic": topic}).to_string())
}

/// Everything that goes on for longer than a call, with one credential.
struct Live {
    topic: String,
    messages: Following,
    events: Following,
    grpc: Streaming<pb::Envelope>,
    waits: Vec<JoinHandle<Response>>,
    grpc_wait: tokio::task::JoinHandle<Result<Answer<pb::RecvResponse>, Status>>,
}

impl Live {
    async fn open(server: &Server, name: &str, secret: &str, task: &str) -> Self {
        let topic = format!("{name}-stream");
        let grpc = wish(&format!("{name}-grpc"), 0, secret);
        let grpc = client(server).recv_stream(grpc).await.unwrap();
        let nobody = format!("{name}-wait");
        let claim = json!({"worker_id": "w", "wait_seconds": 60});
        let receive = json!({"topic": nobody, "wait_seconds": 60}).to_string();
        let waits = [
            Request::post("/v1/leases/claim", claim.to_string()),
            Request::post("/v1/recv", receive),
            Request::get(&format!("/v1/tasks/{task}?wait_seconds=60")),
            tool("asyncgate_lease_next", &claim),
        ];
        let address = server.address;
        let waits = waits.map(|request| {
            let request = request.bearer(secret);
            thread::spawn(move || {
                let mut connection = Connection::open(address).unwrap();
                connection.send(&request).unwrap()
            })
        });
        let (mut waiting, recv) = (client(server), wish(&nobody, 60, secret));
        Self {
            messages: Following::open(server, stream(&topic).bearer(secret)),
            events: Following::open(server, Request::get("/v1/events").bearer(secret)),
            grpc: grpc.into_inner(),
            waits: waits.into(),
            grpc_wait: tokio::spawn(async move { waiting.recv(recv).await }),
            topic,
        }
    }

    /// Checks that no call that waits was answered.
    fn goes_on_waiting(&self) {
        let answered = self.waits.iter().position(JoinHandle::is_finished);
        assert_eq!(answered, None, "{}", self.topic);
        assert!(!self.grpc_wait.is_finished(), "{}", self.topic);
    }

    /// Checks that messages still come, and that the calls that wait still do.
    fn goes_on(&mut self, server: &Server, name: &str) {
        self.goes_on_waiting();
        server.send_message(&self.topic, name, HELLO);
        let (wanted, mut line) = (format!("\"idem_key\":\"{name}\""), String::new());
        while !line.contains(&wanted) {
            line.clear();
            let read = self.messages.0.read_line(&mut line).unwrap();
            assert!(read > 0, "the stream of {} has ended", self.topic);
        }
    }

    /// Waits until all of it has ended. Nothing was given to anybody by that.
    async fn ends(mut self) {
        for stream in [self.messages, self.events] {
            stream.until_its_end();
        }
        let end = timeout(DEADLINE, self.grpc.message()).await;
        let end = end.expect("the stream over gRPC ends").unwrap_err();
        assert_eq!(end.code(), Code::Unauthenticated, "{end:?}");
        for wait in self.waits {
            let answer = wait.join().unwrap().expect(200);
            let answer = match answer.get("jsonrpc") {
                Some(_) => outcome(&answer).unwrap(),
                None => answer,
            };
            for given in ["tasks", "messages"] {
                let given = answer.get(given).and_then(Value::as_array);
                assert!(given.is_none_or(Vec::is_empty), "{answer}");
            }
        }
        let answer = self.grpc_wait.await.unwrap().unwrap().into_inner();
        assert_eq!(answer.messages, []);
    }
}

fn wish(topic: &str, wait_seconds: u32, secret: &str) -> tonic::Request<pb::RecvRequest> {
    let wish = pb::RecvRequest {
        topic: topic.to_owned(),
        wait_seconds: Some(wait_seconds),
        ..pb::RecvRequest::default()
    };
    with_bearer(wish, secret)
}

/// Opens everything with every credential, and waits until all of it is under way.
async fn open_all(server: &Server, families: &[Family]) -> Vec<Vec<Live>> {
    let later = json!({"type": "t", "delay_seconds": 3_600});
    let task = server.create(&later);
    let (mut all, mut credentials) = (Vec::new(), 0);
    for family in families {
        let mut of_family = Vec::new();
        for (n, secret) in family.secrets.iter().enumerate() {
            let name = format!("{}-{n}", family.name);
            of_family.push(Live::open(server, &name, secret, &task).await);
            credentials += 1;
        }
        all.push(of_family);
    }
    let waits = (credentials * WAITS) as f64;
    eventually("all calls wait", || {
        let waiting = server.metric("asyncgate_waiting_calls");
        assert!(waiting <= Some(waits), "{waiting:?}");
        for live in all.iter().flatten() {
            live.goes_on_waiting();
        }
        (waiting == Some(waits)).then_some(())
    });
    all
}

/// The ways to begin something: over REST, with the code of the refusal, and over MCP.
fn beginnings(family: &Family) -> Vec<(Request, &'static str)> {
    let send = json!({"topic": "t", "idem_key": "k", "payload_b64": HELLO}).to_string();
    vec![
        (Request::get("/v1/whoami"), family.code),
        (Request::get("/v1/tasks"), family.code),
        (Request::get("/v1/events"), family.code),
        (Request::post("/v1/send", send), "E_CAP_AUTH"),
        (Request::post("/v1/recv", r#"{"topic":"t"}"#), "E_CAP_AUTH"),
        (stream("t"), "E_CAP_AUTH"),
        (tool("asyncgate_list_tasks", &json!({})), family.code),
        (tool("mailbox_recv", &json!({"topic": "t"})), "E_CAP_AUTH"),
    ]
}

/// Checks that nothing begins any more, with any of the credentials.
async fn nothing_begins(server: &Server, family: &Family) {
    for secret in &family.secrets {
        for (request, code) in beginnings(family) {
            let answer = server.send_bare(&request.bearer(secret));
            assert_eq!(answer.status, 401, "{}: {answer:?}", family.name);
            assert_eq!(answer.json()["code"], code, "{}", family.name);
        }
        let received = client(server).recv(wish("t", 0, secret)).await;
        assert_eq!(received.unwrap_err().code(), Code::Unauthenticated);
        let opened = client(server).recv_stream(wish("t", 0, secret)).await;
        assert_eq!(opened.unwrap_err().code(), Code::Unauthenticated);
    }
}

/// On the server that is told of it, the very next call is refused.
#[tokio::test(flavor = "multi_thread")]
async fn g10_a_revocation_counts_at_once_and_disturbs_nobody_else() {
    // Nothing is read again within this test, so only the revocation itself can end anything.
    let server = Launch::new()
        .set("security.cap_cache_ttl_secs=86400")
        .start();
    let families = families(&server);
    let mut live = open_all(&server, &families).await;
    let mut kept = Vec::new();
    for family in &families {
        let topic = format!("{}-kept", family.name);
        server.send_message(&topic, "first", HELLO);
        server.send_message(&topic, "second", HELLO);
        let receive = json!({"topic": topic, "max_messages": 1, "visibility_ms": 600_000});
        let receive = Request::post("/v1/recv", receive.to_string()).bearer(&family.secrets[0]);
        let received = server.send_bare(&receive).expect(200);
        kept.push((topic, received["messages"][0].clone()));
    }
    for (n, (family, (topic, message))) in families.iter().zip(&kept).enumerate() {
        let answer = server.send_bare(&family.revoke);
        let revoked = Instant::now();
        assert_eq!(answer.status, 200, "{answer:?}");
        nothing_begins(&server, family).await;
        for ended in live.remove(0) {
            ended.ends().await;
        }
        assert!(revoked.elapsed() < LONGEST, "{:?}", revoked.elapsed());
        for other in live.iter_mut().flatten() {
            other.goes_on(&server, &n.to_string());
        }
        // Who holds a message by a credential that ended settles it with another, and the next one comes.
        let ack = json!({"lease": message["lease"]}).to_string();
        let ack = Request::post(&format!("/v1/ack/{}", id(message)), ack);
        let late = ack.clone().bearer(&family.secrets[0]);
        server.send_bare(&late).refused(401, "E_CAP_AUTH");
        server.send(ack).expect(200);
        let next = server.receive_one(topic, 600_000);
        assert_eq!(next["idem_key"], "second");
        server.ack(&next);
    }
}

/// The records are changed behind the back of the server, as another one does that works on the same store. What is
/// written are the rows that a second server wrote when it revoked the credentials, on a copy of the data.
#[tokio::test(flavor = "multi_thread")]
async fn g10_a_revocation_that_the_server_is_not_told_of_counts_soon() {
    let launch = Launch::new().set("security.cap_cache_ttl_secs=1");
    let server = launch.start();
    let families = families(&server);
    server.stop();
    let copy = launch.dir().join("copy");
    copy_data(launch.data(), &copy);
    let elsewhere = launch.clone().data_dir(&copy).start();
    for family in &families {
        let answer = elsewhere.send_bare(&family.revoke);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    elsewhere.stop();

    let server = launch.start();
    let live = open_all(&server, &families).await;
    take_records(launch.data(), &copy);
    let revoked = Instant::now();
    for ended in live.into_iter().flatten() {
        ended.ends().await;
    }
    for family in &families {
        for secret in &family.secrets {
            for (request, _) in beginnings(family) {
                let request = request.bearer(secret);
                eventually("it is refused", || {
                    // Some of them go on for as long as they are let.
                    let mut connection = server.connect();
                    connection
                        .write(request.head(server.address).as_bytes())
                        .unwrap();
                    connection.write(&request.encoded_body()).unwrap();
                    (connection.read_head().unwrap().status == 401).then_some(())
                });
            }
        }
        nothing_begins(&server, family).await;
    }
    assert!(revoked.elapsed() < LONGEST, "{:?}", revoked.elapsed());
}

fn copy_data(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let owner = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, owner).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Writes the records of one database into another, which a server has open.
fn take_records(into: &Path, from: &Path) {
    let database = |folder: &Path| folder.join("asyncgate.db").to_str().unwrap().to_owned();
    let connection = rusqlite::Connection::open(database(into)).unwrap();
    connection.busy_timeout(LONGEST).unwrap();
    connection
        .execute("ATTACH ?1 AS elsewhere", [database(from)])
        .unwrap();
    let taken = connection.execute(
        "INSERT OR REPLACE INTO main.record SELECT * FROM elsewhere.record
         WHERE body NOT IN (SELECT body FROM main.record)",
        [],
    );
    assert!(taken.unwrap() >= 3, "a key, a macaroon and a family");
}
