//! Signed ingress: who signs gets a task in, once, and as often as its limit allows.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Launch, Server, eventually};
use crate::http::{Request, Response};

const SECRET: &str = "the-secret-of-the-sender";

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    let bytes = mac.finalize().into_bytes();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

pub fn message(nonce: &str) -> Value {
    json!({"nonce": nonce, "timestamp": now(), "metadata": {"actor": "ann"}, "said": "hällo"})
}

pub fn signed(name: &str, body: impl Into<Vec<u8>>) -> Request {
    signed_with(SECRET, name, body)
}

pub fn signed_with(secret: &str, name: &str, body: impl Into<Vec<u8>>) -> Request {
    let body = body.into();
    let signature = signature(secret, &body);
    Request::post(&format!("/v1/ingress/{name}"), body).header("X-Signature-256", &signature)
}

#[track_caller]
fn send(server: &Server, name: &str, body: &Value) -> Response {
    server.send_bare(&signed(name, body.to_string()))
}

#[track_caller]
fn refused(response: &Response, status: u16, code: &str) -> Value {
    let body = response.expect(status);
    assert_eq!(body["ok"], false, "{body}");
    assert_eq!(body["code"], code, "{body}");
    assert_eq!(body["error"], code.to_lowercase(), "{body}");
    assert!(body["msg"].is_string() && body["corr_id"].is_string());
    body
}

pub fn launch(settings: &str) -> Launch {
    let launch = Launch::new().env("HOOK_SECRET", SECRET);
    launch
        .env("OLD_SECRET", "an-older-one")
        .file("a.toml", settings)
}

pub const HOOKS: &str = "
    [limits.policies.few]
    kind = \"token_bucket\"
    capacity = 3
    refill_per_minute = 0.001
    [ingress.hooks]
    secrets = [\"env:OLD_SECRET\", \"env:HOOK_SECRET\"]
    [ingress.few]
    secrets = [\"env:HOOK_SECRET\"]
    policy = \"few\"
    key = \"metadata.actor\"
    task_type = \"mail.arrived\"
    principal = { kind = \"agent\", id = \"post\" }
    max_body_bytes = 500
";

fn tasks(server: &Server) -> usize {
    let listed = server.get("/v1/tasks").expect(200);
    listed["tasks"].as_array().unwrap().len()
}

#[test]
fn what_is_signed_becomes_a_task() {
    let server = launch(HOOKS).start();
    let body = message("n-1").to_string();
    let response = server.send_bare(&signed("hooks", body.clone()).header("X-Corr-Id", "mine"));
    let answer = response.expect(200);
    assert_eq!(answer["ok"], true);
    assert_eq!(
        (&answer["status"], &answer["corr_id"]),
        (&json!("queued"), &json!("mine"))
    );
    assert_eq!(response.header("x-ratelimit-limit"), Some("100"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("99"));
    let bucket = response.header("x-ratelimit-bucket");
    assert_eq!(bucket, Some("client:127.0.0.1"));
    assert!(response.header("ratelimit").is_some());

    let id = answer["task_id"].as_str().unwrap();
    let task = server.get(&format!("/v1/tasks/{id}")).expect(200);
    assert_eq!(task["type"], "ingress.hooks");
    assert_eq!(
        task["payload"],
        serde_json::from_str::<Value>(&body).unwrap()
    );
    let owner = json!({"kind": "service", "id": "hooks"});
    assert_eq!(task["created_by"]["kind"], owner["kind"]);
    assert_eq!(task["created_by"]["id"], owner["id"]);

    // An older secret is as good, and a time may be written out.
    let mut other = message("n-2");
    other["timestamp"] = json!("2000-01-01T00:00:00Z");
    refused(
        &send(&server, "hooks", &other),
        400,
        "TIMESTAMP_OUT_OF_WINDOW",
    );
    let older = signed_with("an-older-one", "hooks", message("n-2").to_string());
    server.send_bare(&older).expect(200);
    assert_eq!(tasks(&server), 2);
}

#[test]
fn refusals_come_in_their_order_and_change_nothing() {
    let server = launch(HOOKS).start();
    let with = |signature: &str, body: &str| {
        let request = Request::post("/v1/ingress/few", body);
        server.send_bare(&request.header("X-Signature-256", signature))
    };
    let long = "x".repeat(501);
    refused(&with("", &long), 413, "TOO_LARGE");
    let nowhere = server.send_bare(&Request::post("/v1/ingress/nowhere", "{"));
    refused(&nowhere, 404, "UNKNOWN_INGRESS");
    let good = message("a").to_string();
    let own = signature(SECRET, good.as_bytes());
    for forged in [
        String::new(),
        "sha256=".to_owned(),
        own.replace("sha256=", "sha1="),
        own[..own.len() - 1].to_owned(),
        signature("another", good.as_bytes()),
        signature(SECRET, b"another"),
    ] {
        refused(&with(&forged, &good), 401, "INVALID_SIGNATURE");
    }
    let none = server.send_bare(&Request::post("/v1/ingress/few", good.clone()));
    refused(&none, 401, "INVALID_SIGNATURE");

    let stale = now() - 302;
    for (body, code) in [
        ("not json".to_owned(), "BAD_REQUEST"),
        ("[1]".to_owned(), "BAD_REQUEST"),
        (json!({"timestamp": now()}).to_string(), "BAD_REQUEST"),
        (
            json!({"nonce": "", "timestamp": now()}).to_string(),
            "BAD_REQUEST",
        ),
        (
            json!({"nonce": "n".repeat(129), "timestamp": now()}).to_string(),
            "BAD_REQUEST",
        ),
        (
            json!({"nonce": "n", "timestamp": "soon"}).to_string(),
            "BAD_REQUEST",
        ),
        (
            json!({"nonce": "n", "timestamp": now()}).to_string(),
            "BAD_REQUEST",
        ),
        (
            json!({"nonce": "n", "timestamp": stale, "metadata": {"actor": "x"}}).to_string(),
            "TIMESTAMP_OUT_OF_WINDOW",
        ),
        (
            json!({"nonce": "n", "timestamp": now() + 400, "metadata": {"actor": "x"}}).to_string(),
            "TIMESTAMP_OUT_OF_WINDOW",
        ),
    ] {
        refused(&server.send_bare(&signed("few", body)), 400, code);
    }
    assert_eq!(tasks(&server), 0);
}

#[test]
fn a_replay_costs_nothing_and_a_refusal_for_rate_uses_no_nonce() {
    let server = launch(HOOKS).start();
    for nonce in ["1", "2"] {
        send(&server, "few", &message(nonce)).expect(200);
    }
    for _ in 0..5 {
        refused(&send(&server, "few", &message("1")), 400, "NONCE_REUSE");
    }
    let last = send(&server, "few", &message("3"));
    assert_eq!(last.header("x-ratelimit-remaining"), Some("0"));
    last.expect(200);
    for _ in 0..2 {
        let over = send(&server, "few", &message("4"));
        let wait = over.header("retry-after").unwrap().to_owned();
        assert_eq!(over.header("x-ratelimit-bucket"), Some("few:ann"));
        let told = refused(&over, 429, "RATE_LIMIT")["msg"].clone();
        assert!(
            told.as_str()
                .unwrap()
                .contains(&format!("in {wait} seconds")),
            "{told}"
        );
    }
    // Another sender has a bucket of its own, and the nonce was never used.
    let mut other = message("4");
    other["metadata"]["actor"] = json!("bob");
    send(&server, "few", &other).expect(200);
    // Nonces are apart by ingress.
    send(&server, "hooks", &message("1")).expect(200);
    assert_eq!(tasks(&server), 5);

    let server = server.restart();
    refused(&send(&server, "few", &message("2")), 400, "NONCE_REUSE");
    refused(&send(&server, "few", &message("5")), 429, "RATE_LIMIT");
    assert_eq!(tasks(&server), 5);
}

#[test]
fn of_many_with_one_nonce_one_comes_in() {
    let server = launch(HOOKS).start();
    let request = signed("hooks", message("once").to_string());
    let accepted = std::thread::scope(|scope| {
        let send = || server.send_bare(&request).status;
        let sent: Vec<_> = (0..16).map(|_| scope.spawn(send)).collect();
        let answers = sent.into_iter().map(|sent| sent.join().unwrap());
        answers.filter(|status| *status == 200).count()
    });
    assert_eq!((accepted, tasks(&server)), (1, 1));
}

#[test]
fn secrets_are_shown_nowhere_and_change_with_a_reload() {
    let launch = launch(HOOKS);
    let server = launch.start();
    send(&server, "hooks", &message("a")).expect(200);
    let shown = server.get("/v1/config");
    assert!(!shown.text().contains(SECRET));
    let next = HOOKS.replace("\"env:HOOK_SECRET\"", "\"the-next-one\"");
    std::fs::write(launch.dir().join("a.toml"), next).unwrap();
    server.signal("HUP");
    let log = server.logged("setting changed");
    for secret in [SECRET, "the-next-one", "an-older-one"] {
        assert!(!log.contains(secret), "{log}");
    }
    // What is logged is about to be in force. What is refused for its signature costs nothing.
    let next = signed_with("the-next-one", "hooks", message("c").to_string());
    eventually("the next secret is in force", || {
        let answer = server.send_bare(&next);
        if answer.status == 200 {
            return Some(());
        }
        refused(&answer, 401, "INVALID_SIGNATURE");
        None
    });
    refused(
        &send(&server, "hooks", &message("b")),
        401,
        "INVALID_SIGNATURE",
    );
}

#[test]
fn an_ingress_that_makes_no_sense_stops_the_start() {
    let wrong = HOOKS.replace("policy = \"few\"", "policy = \"nope\"");
    let ended = launch(&wrong).refused();
    let complaint = ended.complaint();
    assert!(
        complaint.contains("few: there is no policy named nope"),
        "{complaint}"
    );
    assert!(!complaint.contains(SECRET));
}

#[test]
fn every_refusal_is_counted_and_logged_without_what_was_sent() {
    let server = launch(HOOKS).start();
    send(&server, "few", &message("a")).expect(200);
    send(&server, "few", &message("a"));
    let mut stale = message("secret-nonce");
    stale["timestamp"] = json!(now() - 1_000);
    send(&server, "few", &stale);
    for nonce in ["b", "c", "d"] {
        send(&server, "few", &message(nonce));
    }
    server.send_bare(&signed("few", "x".repeat(501)));
    server.send_bare(&signed("few", "[]"));
    server.send_bare(&signed_with("other", "few", message("e").to_string()));
    server.send_bare(&signed("a-name-of-the-sender", message("f").to_string()));
    let log = server.logged("UNKNOWN_INGRESS");
    for (ingress, result) in [
        ("few", "NONCE_REUSE"),
        ("few", "TIMESTAMP_OUT_OF_WINDOW"),
        ("few", "RATE_LIMIT"),
        ("few", "TOO_LARGE"),
        ("few", "BAD_REQUEST"),
        ("few", "INVALID_SIGNATURE"),
        ("unknown", "UNKNOWN_INGRESS"),
    ] {
        let sample = format!(
            "asyncgate_ingress_messages_total{{ingress=\"{ingress}\",result=\"{result}\"}}"
        );
        assert_eq!(server.metric(&sample), Some(1.0), "{sample}");
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut told = lines.filter(|line| line["event"] == "ingress.refused");
        let line = told.find(|line| line["reason"] == result).expect(result);
        assert_eq!(line["ingress"], ingress);
        assert!(line["corr_id"].is_string() && line["remote_addr"].is_string());
    }
    let taken = r#"asyncgate_ingress_messages_total{ingress="few",result="OK"}"#;
    assert_eq!(server.metric(taken), Some(3.0));
    for hidden in ["secret-nonce", "a-name-of-the-sender", SECRET, "h\u{e4}llo"] {
        assert!(!log.contains(hidden), "{hidden}");
    }
}

const PROVIDERS: &str = "
    [ingress.github]
    provider = \"github\"
    secrets = [\"env:HOOK_SECRET\"]
    [ingress.stripe]
    provider = \"stripe\"
    secrets = [\"env:OLD_SECRET\", \"env:HOOK_SECRET\"]
    [ingress.standard]
    provider = \"standard-webhooks\"
    secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]
";

fn hmac(secret: &[u8], content: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(content.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hook(name: &str, body: &str, headers: &[(&str, &str)]) -> Request {
    let request = Request::post(&format!("/v1/ingress/{name}"), body);
    headers.iter().fold(request, |request, (name, value)| {
        request.header(name, value)
    })
}

#[test]
fn the_messages_of_github_are_taken_once() {
    let server = launch(PROVIDERS).start();
    let body = r#"{"zen": "Design for failure."}"#;
    let signature = signature(SECRET, body.as_bytes());
    let sent = |id: &str| {
        let headers = [
            ("X-Hub-Signature-256", signature.as_str()),
            ("X-GitHub-Delivery", id),
        ];
        server.send_bare(&hook("github", body, &headers))
    };
    let answer = sent("72d3162e-cc78-11e3-81ab-4c9367dc0958").expect(200);
    let task = server.get(&format!(
        "/v1/tasks/{}",
        answer["task_id"].as_str().unwrap()
    ));
    assert_eq!(
        task.expect(200)["payload"],
        json!({"zen": "Design for failure."})
    );
    refused(
        &sent("72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        400,
        "NONCE_REUSE",
    );
    sent("another").expect(200);
    let unnamed = hook("github", body, &[("X-Hub-Signature-256", &signature)]);
    refused(&server.send_bare(&unnamed), 400, "BAD_REQUEST");
    let own = hook(
        "github",
        body,
        &[("X-Signature-256", &signature), ("X-GitHub-Delivery", "b")],
    );
    refused(&server.send_bare(&own), 401, "INVALID_SIGNATURE");
}

#[test]
fn the_messages_of_stripe_are_taken_once_and_in_time() {
    let server = launch(PROVIDERS).start();
    let send = |body: &str, time: u64| {
        let signed = hmac(SECRET.as_bytes(), &format!("{time}.{body}"));
        let digits: String = signed.iter().map(|byte| format!("{byte:02x}")).collect();
        let header = format!("t={time},v1={digits},v0=00");
        server.send_bare(&hook("stripe", body, &[("Stripe-Signature", &header)]))
    };
    let event = r#"{"id": "evt_1", "object": "event"}"#;
    send(event, now()).expect(200);
    // Stripe signs a repeated message anew, with another time.
    refused(&send(event, now() - 1), 400, "NONCE_REUSE");
    refused(
        &send(r#"{"id": "evt_2"}"#, now() - 1_000),
        400,
        "TIMESTAMP_OUT_OF_WINDOW",
    );
    refused(&send(r#"{"object": "event"}"#, now()), 400, "BAD_REQUEST");
    let forged = hook("stripe", event, &[("Stripe-Signature", "t=1,v1=00")]);
    refused(&server.send_bare(&forged), 401, "INVALID_SIGNATURE");
}

#[test]
fn standard_webhooks_are_taken_once_and_in_time() {
    let server = launch(PROVIDERS).start();
    let secret = BASE64_STANDARD
        .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .unwrap();
    let body = r#"{"type": "ping"}"#;
    let send = |id: &str, time: u64| {
        let time = time.to_string();
        let signed = hmac(&secret, &format!("{id}.{time}.{body}"));
        let signature = format!("v1a,AAAA v1,{}", BASE64_STANDARD.encode(signed));
        let headers = [
            ("webhook-id", id),
            ("webhook-timestamp", &time),
            ("webhook-signature", &signature),
        ];
        server.send_bare(&hook("standard", body, &headers))
    };
    send("msg_1", now()).expect(200);
    refused(&send("msg_1", now() - 1), 400, "NONCE_REUSE");
    refused(
        &send("msg_2", now() - 1_000),
        400,
        "TIMESTAMP_OUT_OF_WINDOW",
    );
    refused(
        &send("msg_2", now() + 1_000),
        400,
        "TIMESTAMP_OUT_OF_WINDOW",
    );
    send("msg_2", now()).expect(200);
    let old = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        (
            "webhook-signature",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
    ];
    let published = hook("standard", r#"{"test": 2432232314}"#, &old);
    refused(
        &server.send_bare(&published),
        400,
        "TIMESTAMP_OUT_OF_WINDOW",
    );
    let changed = hook("standard", r#"{"test": 2432232315}"#, &old);
    refused(&server.send_bare(&changed), 401, "INVALID_SIGNATURE");
}
