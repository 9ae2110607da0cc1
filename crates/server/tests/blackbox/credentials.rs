//! Credentials that end or are refused: what ends with them, and what operators are told.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use asyncgate_auth::MemoryFiles;
use asyncgate_auth::fakes::{SIGNING_KEYS, TestAuth, settings};
use asyncgate_credentials::jwt::{self, Claims, SigningKey};
use asyncgate_engine::fakes::{FakeClock, START_MS};
use asyncgate_engine::{Keyring as _, Principal, PrincipalKind, Role};
use asyncgate_store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};
use crate::http::Request;

const OTHER_TENANT: &str = "00000000-0000-7000-8000-0000000000aa";

/// Makes a key and the entry of it in the key file of an older version.
fn old_key(tenant: &str, role: &str) -> (String, Value) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::new(FakeClock::at(START_MS));
    let files = Arc::new(MemoryFiles::default());
    let fixture = TestAuth::over(&store, &clock, files, &settings());
    let minted = runtime.block_on(fixture.keyring.api_key()).unwrap();
    let entry = json!({
        "id": minted.lookup_id,
        "tenant_id": tenant,
        "principal": {"kind": "service", "id": "admin"},
        "role": role,
        "hash": minted.hash,
        "check": minted.check,
        "created_at": "2026-01-05T11:00:00.000Z",
    });
    (minted.secret.reveal().to_owned(), entry)
}

/// Puts the key file of an older version into the data directory.
fn with_old_keys(launch: &Launch, keys: &[&Value]) {
    let data = launch.data();
    std::fs::create_dir_all(data).unwrap();
    std::fs::set_permissions(data, Permissions::from_mode(0o700)).unwrap();
    let content = json!({"version": 1, "keys": keys});
    std::fs::write(data.join("keys.json"), content.to_string()).unwrap();
}

/// Returns a token of the other tenant's admin that ends so many seconds from now.
fn token(seconds: i64) -> String {
    let key = SigningKey::from_der(SIGNING_KEYS[0]).unwrap();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(since.as_secs()).unwrap();
    let claims = Claims {
        issuer: "asyncgate".to_owned(),
        audience: vec!["asyncgate-api".to_owned()],
        subject: "someone".to_owned(),
        tenant: OTHER_TENANT.parse().unwrap(),
        principal: Principal::new(PrincipalKind::Service, "admin").key(),
        role: Some(Role::Admin),
        scopes: None,
        expires_at: now + seconds,
        issued_at: now,
        not_before: None,
        client_id: None,
        token_id: None,
        family: None,
    };
    jwt::sign(&key, &claims).unwrap()
}

/// An answer that goes on, after its first line.
pub struct Following(pub BufReader<TcpStream>);

impl Following {
    pub fn open(server: &Server, request: Request) -> Self {
        let request = request.header("Connection", "close");
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(request.head(server.address).as_bytes())
            .unwrap();
        stream.write_all(&request.encoded_body()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        Self(reader)
    }

    /// Waits for the end, and returns everything that came before it. Signs of life do not count.
    pub fn until_its_end(mut self) -> String {
        let (begun, mut text) = (Instant::now(), String::new());
        while self.0.read_line(&mut text).unwrap() > 0 {
            assert!(begun.elapsed() < DEADLINE, "it goes on: {text}");
        }
        text
    }
}

/// The lines of the log about an event.
fn told(log: &str, event: &str) -> Vec<Value> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["event"] == event)
        .collect()
}

#[test]
fn keys_of_older_versions_are_taken_over_once() {
    let launch = Launch::without_key();
    let (admin, first) = old_key("00000000-0000-7000-8000-000000000001", "admin");
    let (worker, second) = old_key(OTHER_TENANT, "worker");
    with_old_keys(&launch, &[&first, &second]);
    let server = launch.start();
    let config = |key: &str| server.send_bare(&Request::get("/v1/config").bearer(key));
    config(&admin).expect(200);
    config(&worker).expect(200);
    assert!(!launch.data().join("keys.json").exists());
    assert!(launch.data().join("keys.json.imported").exists());
    let log = server.stop().stderr;
    assert!(!log.contains("aga_"), "no other key is made: {log}");
    let mut server = launch.start();
    server.use_key(Some(&admin));
    server.get("/v1/config").expect(200);
    server.stop();
}

#[test]
fn events_and_streams_are_of_one_tenant_and_end_with_their_credential() {
    let launch = Launch::without_key();
    let signing_key = launch.dir().join("jwt.pk8");
    std::fs::write(&signing_key, SIGNING_KEYS[0]).unwrap();
    std::fs::set_permissions(&signing_key, Permissions::from_mode(0o600)).unwrap();
    let (first, default) = old_key("00000000-0000-7000-8000-000000000001", "admin");
    // The import makes the tenant.
    let (_, of_other) = old_key(OTHER_TENANT, "agent");
    with_old_keys(&launch, &[&default, &of_other]);
    let path = format!("security.jwt.private_key_path={}", signing_key.display());
    let mut server = launch.set(&path).start();
    server.use_key(Some(&first));

    let wish = json!({"topic": "t"}).to_string();
    let streamed = |key: &str| Request::post("/v1/recv/stream", wish.clone()).bearer(key);
    let ours = Following::open(&server, streamed(&first));
    let other = token(10);
    let theirs = Following::open(&server, streamed(&other));
    let events = Following::open(&server, Request::get("/v1/events").bearer(&other));
    let tier = json!({"tier": "trusted"}).to_string();
    for (client, key) in [("one-of-ours", &first), ("one-of-theirs", &other)] {
        let target = format!("/v1/admin/tiers/{client}");
        let request = Request::new("PUT", &target).body(tier.clone()).bearer(key);
        server.send_bare(&request).expect(200);
    }
    let seen = events.until_its_end();
    assert!(seen.contains("mailbox.readyz"), "{seen}");
    assert!(seen.contains("one-of-theirs"), "{seen}");
    assert!(!seen.contains("one-of-ours"), "{seen}");
    theirs.until_its_end();
    let refused = server.send_bare(&Request::get("/v1/config").bearer(&other));
    refused.refused(401, "UNAUTHORIZED");
    let told = refused.header("WWW-Authenticate").unwrap();
    let metadata = format!(
        "http://{}/.well-known/oauth-protected-resource",
        server.address
    );
    assert!(
        told.starts_with("Bearer ") && told.contains(&metadata),
        "{told}"
    );

    // The other stream goes on, and so does its key.
    server.send_message("t", "a", "aGk=");
    let mut line = String::new();
    let mut ours = ours;
    while !line.contains("\"idem_key\":\"a\"") {
        line.clear();
        assert!(ours.0.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    drop(ours);
    let log = server.stop().stderr;
    assert!(
        !log.contains(&other) && !log.contains(&first[16..]),
        "{log}"
    );
}

#[test]
fn a_macaroon_follows_events_only_if_its_conditions_allow_that() {
    let server = Server::start();
    let follow = |caveat: &str| {
        let principal = json!({"kind": "service", "id": "ops"});
        let wish = json!({"principal": principal, "role": "admin", "caveats": [caveat]});
        let minted = server.post("/v1/admin/macaroons", &wish).expect(201);
        Request::get("/v1/events").bearer(minted["macaroon"].as_str().unwrap())
    };
    for forbids in [
        "op = send",
        "topic = t",
        "scope = tasks:read",
        "quota ops = 0",
    ] {
        let refused = server.send_bare(&follow(forbids));
        assert_eq!(refused.refused(403, "E_CAP_SCOPE")["caveat"], forbids);
    }
    for allows in ["op = events", "scope = admin:read", "quota ops = 1"] {
        Following::open(&server, follow(allows));
    }
}

#[test]
fn a_key_for_tokens_is_made_at_the_first_start_and_kept() {
    let launch = Launch::new();
    let made = |launch: &Launch| {
        let path = launch.data().join("token.key");
        eventually("the key is made", || std::fs::read(&path).ok())
    };
    let server = launch.start();
    let first = made(&launch);
    server.stop();
    let server = launch.start();
    assert_eq!(made(&launch), first);
    server.stop();
}

#[test]
fn files_of_secrets_that_cannot_be_used_stop_the_start() {
    let launch = Launch::new();
    let file = launch.dir().join("secret");
    for (content, mode, told) in [
        (None, 0, "No such file"),
        (Some("x"), 0o644, "others than its owner may read it"),
        (Some("x"), 0o600, "is damaged"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        }
        for setting in ["security.jwt.private_key_path", "auth.macaroon_path"] {
            let launch = Launch::new().set(&format!("{setting}={}", file.display()));
            let complaint = launch.refused().complaint().to_owned();
            assert!(
                complaint.contains(setting) && complaint.contains(told),
                "{complaint}"
            );
        }
    }
}

#[test]
fn a_refused_credential_leaves_a_line_that_does_not_hold_it() {
    // Each comes from an address of its own, since an address has one line a minute.
    let proxy = "server.trusted_proxies=127.0.0.1";
    let server = Launch::new().set(proxy).start();
    let tool = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (n, (request, cause)) in [
        (Request::get("/v1/tasks"), "there is no credential"),
        (
            Request::get("/v1/tasks").bearer("wrong-secret"),
            "it is of no known form",
        ),
        (
            Request::get("/v1/events").bearer("wrong-secret"),
            "it is of no known form",
        ),
        (
            Request::post("/mcp", tool).bearer("wrong-secret"),
            "it is of no known form",
        ),
        (
            Request::post("/v1/send", "{}").bearer("wrong-secret"),
            "it is of no known form",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let corr_id = format!("refused-{n}");
        let client = format!("10.0.0.{n}");
        let request = request.header("X-Forwarded-For", &client);
        let answer = server.send_bare(&request.header("X-Corr-Id", &corr_id));
        assert_eq!(answer.status, 401, "{answer:?}");
        server.logged(&corr_id);
        let lines = told(&server.log(), "auth.denied");
        let lines: Vec<_> = lines
            .iter()
            .filter(|line| line["corr_id"] == *corr_id)
            .collect();
        assert_eq!(lines.len(), 1, "{corr_id}: {lines:?}");
        assert_eq!(lines[0]["cause"], cause);
        assert_eq!(lines[0]["remote_addr"], *client);
    }
    let log = server.stop().stderr;
    assert!(!log.contains("wrong-secret") && !log.contains(KEY), "{log}");
}

#[test]
fn a_flood_of_wrong_credentials_does_not_flood_the_log() {
    let hooks = crate::ingress::launch(crate::ingress::HOOKS);
    let server = hooks.start();
    let wrong = Request::get("/v1/tasks").bearer("wrong-secret");
    let unsigned = Request::post("/v1/ingress/hooks", "{}");
    for _ in 0..50 {
        assert_eq!(server.send_bare(&wrong).status, 401);
        assert_eq!(server.send_bare(&unsigned).status, 401);
    }
    // Every refusal is counted, whether or not it has a line.
    let counted = r#"asyncgate_ingress_messages_total{ingress="hooks",result="INVALID_SIGNATURE"}"#;
    assert_eq!(server.metric(counted), Some(50.0));
    let log = server.stop().stderr;
    for event in ["auth.denied", "ingress.refused"] {
        // A minute may have ended meanwhile.
        let lines = told(&log, event).len();
        assert!((1..=3).contains(&lines), "{event}: {lines} lines");
    }
}

#[test]
fn a_revocation_leaves_a_line() {
    let server = Server::start();
    let subject = json!({"kind": "issuer_key", "hash": "ab".repeat(32)});
    let revoke = json!({"subject": subject});
    for status in [201, 200] {
        server.post("/v1/host/revocations", &revoke).expect(status);
    }
    let target = format!("/v1/host/revocations/issuer_key/{}", "ab".repeat(32));
    server.send(Request::new("DELETE", &target)).expect(200);
    server.logged("revocation_removed");
    let log = server.log();
    for event in ["revocation_added", "revocation_removed"] {
        let lines = told(&log, event);
        assert_eq!(lines.len(), 1, "{event}: {log}");
        assert_eq!(
            lines[0]["subject"],
            format!("issuer_key/{}", "ab".repeat(32))
        );
        assert_eq!(lines[0]["principal"], "service/admin");
    }
}
