//! A whole run at the level `trace`, with good and bad uses of every secret that there is. Then none of them is found
//! where it does not belong: not in the log, the audit log, the metrics, the events, the settings that are shown, what
//! commands print, nor in the files. What payloads say is in the database and nowhere else.

use std::path::Path;

use serde_json::json;

use crate::credentials::Following;
use crate::harness::{DEADLINE, Launch, Server, eventually, run};
use crate::http::{Request, Response};
use crate::secrets_search::{Place, Secrets};
use crate::secrets_story::{
    BILL_QUERY, BILL_SECRET, BILL_TOKEN, FILED_SECRET, HOOK_SECRET, PROVIDER_SECRET,
    REDIS_PASSWORD, SEED, SHARED_KEY, Story,
};
use crate::{oauth, quotas};

/// The settings of the run, with an address for bills.
fn settings(bills: &str) -> String {
    format!(
        "[ingress.hooks]\n\
         secrets = [\"env:HOOK_SECRET\", \"{FILED_SECRET}\"]\n\
         [domains]\n\
         evaluator = \"poprf-ristretto255\"\n\
         keys = [{{ version = 1, seed = \"env:SEED\" }}]\n\
         [metering]\n\
         interval_seconds = 1\n\
         [billing]\n\
         webhook_url = \"http://{bills}/{BILL_TOKEN}?key={BILL_QUERY}\"\n\
         webhook_secret = \"env:BILL_SECRET\"\n"
    )
}

fn launch() -> Launch {
    let shared = Launch::without_key().env("ASYNCGATE_API_KEY", SHARED_KEY);
    shared.set("log.level=trace")
}

/// Everything that a server tells its operators over HTTP.
fn told(server: &Server) -> Vec<(&'static str, String)> {
    let get = |target: &str| -> Response { server.get(target) };
    let audited = eventually("refusals are audited", || {
        let audited = get("/v1/admin/audit?limit=1000").text().to_owned();
        let all = ["auth_failure", "key_rotated", "token_reuse_detected"];
        all.iter()
            .all(|event| audited.contains(event))
            .then_some(audited)
    });
    vec![
        ("the audit log", audited),
        (
            "the audit log of the server",
            get("/v1/admin/audit?tenant_id=none&limit=1000")
                .text()
                .to_owned(),
        ),
        ("the metrics", get("/metrics").text().to_owned()),
        ("the settings", get("/v1/config").text().to_owned()),
        ("the keys", get("/v1/admin/keys").text().to_owned()),
        ("the clients", get("/admin/oauth/clients").text().to_owned()),
        ("the people", get("/v1/admin/identities").text().to_owned()),
    ]
}

/// The settings as `config show` prints them.
fn shown(launch: &Launch, file: &Path) -> String {
    let mut said = String::new();
    for more in [&[][..], &["--json"]] {
        let mut command = launch.bare_command();
        command
            .args(["config", "show", "--config"])
            .arg(file)
            .args(more);
        let ended = run(command);
        assert!(ended.status.success(), "{ended:?}");
        said += &ended.stdout;
        said += &ended.stderr;
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_whole_run_is_found_where_it_does_not_belong() {
    let (bills, billed) = quotas::receiver(1);
    let settings = settings(&bills.to_string());
    let launch = launch()
        .env("HOOK_SECRET", HOOK_SECRET)
        .env("SEED", SEED)
        .env("BILL_SECRET", BILL_SECRET)
        .file("s.toml", &settings);
    let mut story = Story::begin(&launch);
    let events = Request::get("/v1/events").bearer(SHARED_KEY);
    let events = Following::open(&story.server, events);
    assert!(story.show(SHARED_KEY).await);
    story.show_and_spoil("shared key", SHARED_KEY).await;
    story.keys().await;
    story.macaroons().await;
    story.tokens().await;
    story.passwords();
    story.command_line_login();
    story.content_of_tasks();
    story.content_of_messages().await;
    story.hooks();
    story.reload(&settings);
    story.commands();
    // The first one is not answered, so it comes again.
    for _ in 0..2 {
        billed.recv_timeout(DEADLINE).unwrap();
    }
    let shown = shown(&launch, &launch.dir().join("s.toml"));
    let seen = told(&story.server);
    for file in ["macaroon.key", "token.key", "ledger.key"] {
        let content = std::fs::read(launch.data().join(file)).unwrap();
        // What stands at its beginning is in every key of the kind.
        let secret = &content[content.len() / 2..];
        let place = match file {
            "macaroon.key" => "data/macaroon.key",
            "token.key" => "data/token.key",
            _ => "data/ledger.key",
        };
        story.secrets.add(file, secret, Place::File(place));
    }
    let Story {
        server,
        secrets,
        said,
    } = story;
    // While the server runs, the newest commits are in the log of the database.
    secrets.are_only_where_they_belong(launch.dir());
    let log = server.stop().stderr;
    let events = events.until_its_end();
    secrets.are_only_where_they_belong(launch.dir());
    for (place, text, sign) in [
        ("the log", &log, "auth.denied"),
        ("what is shown of the settings", &shown, "webhook_secret"),
        ("what commands said", &said, "UNAUTHORIZED"),
        ("the events", &events, "mailbox.readyz"),
    ] {
        assert!(text.contains(sign), "{place}: {text}");
        secrets.are_not_in(place, text);
    }
    for level in ["trace", "debug"] {
        let sign = format!("\"level\":\"{level}\"");
        let told = log.to_lowercase().matches(&sign).count();
        assert!(told > 0, "nothing at {level}");
    }
    for (place, text) in &seen {
        assert!(text.len() > 20, "{place}: {text}");
        secrets.are_not_in(place, text);
    }
    secrets.would_be_found(&seen[0].1.as_bytes()[..500]);
}

/// What stands elsewhere is reached with a secret, too, and tells of it when it is not reached.
#[test]
fn secrets_for_others_are_not_told_when_they_cannot_be_reached() {
    let settings = "[[security.oauth.providers]]\nname = \"acme\"\nclient_id = \"us\"\n\
         client_secret = \"env:PROVIDER_SECRET\"\n\
         discovery_url = \"http://127.0.0.1:9/.well-known/openid-configuration\"\n";
    let redis = format!("redis://user:{REDIS_PASSWORD}@127.0.0.1:9/3");
    let launch = launch()
        .env("PROVIDER_SECRET", PROVIDER_SECRET)
        .env("ASYNCGATE_ADMISSION_BACKEND", &redis)
        .file("s.toml", settings);
    let server = launch.start();
    let mut secrets = Secrets::default();
    secrets.add("redis password", REDIS_PASSWORD, Place::Nowhere);
    secrets.add("provider secret", PROVIDER_SECRET, Place::Nowhere);
    secrets.add("shared key", SHARED_KEY, Place::Nowhere);
    let nonce = json!({"namespace": "ab".repeat(32), "nonce": "AgID", "ttl_secs": 60});
    let answer = server.post("/v1/host/nonces/check", &nonce);
    answer.refused(503, "HOST_UNAVAILABLE");
    let client = oauth::register_for(&server, false, &["tasks:read"]);
    let answer = server.send_bare(&oauth::beginning(&client));
    assert!(answer.status >= 300, "{answer:?}");
    let health = server.get("/v1/host/health").text().to_owned();
    let told = [
        ("the health", health),
        ("the settings", server.get("/v1/config").text().to_owned()),
        ("the metrics", server.get("/metrics").text().to_owned()),
        (
            "what is shown",
            shown(&launch, &launch.dir().join("s.toml")),
        ),
        ("the log", server.stop().stderr),
    ];
    for (place, text) in &told {
        assert!(text.len() > 20, "{place}: {text}");
        secrets.are_not_in(place, text);
    }
    secrets.are_only_where_they_belong(launch.dir());
}
