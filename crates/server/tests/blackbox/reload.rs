//! SIGHUP: what is applied, what waits for a restart, and what is refused.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::harness::{Launch, eventually};
use crate::http::Request;
use crate::oauth;

const BEFORE: &str = r#"
bind = "127.0.0.1:0"
[mailbox]
ready_shards = 8
[log]
format = "json"
"#;

const AFTER: &str = r#"
bind = "127.0.0.1:1"
[limits]
max_body_bytes = "1KiB"
[mailbox]
max_bytes = "1KiB"
ready_shards = 4
[log]
format = "text"
"#;

#[test]
fn a_hang_up_applies_what_is_safe_and_names_what_must_wait() {
    let launch = Launch::new().bind(None).file("s.toml", BEFORE);
    let server = launch.start();
    let send = |key: &str| {
        let payload = "eHh4".repeat(1_000);
        json!({"topic": "t", "idem_key": key, "payload_b64": payload})
    };
    server.post("/v1/send", &send("a")).expect(200);
    launch.clone().file("s.toml", AFTER);
    server.signal("HUP");
    let mut tries = 0;
    eventually("the new limit is in force", || {
        // A repetition of what was accepted before is answered as such.
        tries += 1;
        let sent = server.post("/v1/send", &send(&tries.to_string()));
        (sent.status == 413).then_some(())
    });
    // The lines come after the settings are in force.
    let find = |key: &str| {
        eventually(key, || {
            let log = server.log();
            let told = |line: &&str| line.contains("config.reload") && line.contains(key);
            log.lines().find(told).map(str::to_owned)
        })
    };
    assert!(find("limits.max_body_bytes").contains("1KiB"));
    for waits in ["\"bind\"", "mailbox.ready_shards"] {
        let line = find(waits);
        let warned = line.contains("next start") && line.contains("WARN");
        assert!(warned, "{line}");
    }
    // The log itself has changed its looks.
    server.signal("HUP");
    let line = find("nothing to apply");
    assert!(!line.starts_with('{'), "{line}");
}

#[test]
fn a_secret_that_changes_is_not_shown() {
    let launch = Launch::without_key().file("s.toml", "api_key = \"first-key-of-the-file\"\n");
    let server = launch.start();
    launch
        .clone()
        .file("s.toml", "api_key = \"second-key-of-the-file\"\n");
    server.signal("HUP");
    let log = server.logged("***");
    assert!(!log.contains("key-of-the-file"), "{log}");
}

#[test]
fn a_mistake_changes_nothing_at_all() {
    let launch = Launch::new().file("s.toml", "[limits]\nmax_body_bytes = \"1MiB\"\n");
    let server = launch.start();
    launch.clone().file(
        "s.toml",
        "[limits]\nmax_body_bytes = \"600KiB\"\n[mailbox]\nt_replay = \"1s\"\n",
    );
    server.signal("HUP");
    let log = server.logged("stay as they were");
    assert!(log.contains("mailbox.t_replay"), "{log}");
    let payload = "eHh4".repeat(250_000);
    let large = json!({"topic": "t", "idem_key": "k", "payload_b64": payload});
    server.post("/v1/send", &large).expect(200);
}

/// Returns the address of a server that answers everything with what is made of its address.
pub fn serve_json(make: fn(&str) -> Value) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let body = make(&format!("http://{address}")).to_string();
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head).unwrap();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    address
}

/// A provider that says where its pages are, and nothing else.
fn provider() -> SocketAddr {
    serve_json(|base| {
        json!({
            "issuer": base, "authorization_endpoint": format!("{base}/login"),
            "token_endpoint": format!("{base}/token"), "jwks_uri": format!("{base}/keys"),
        })
    })
}

fn with_provider(name: &str, at: SocketAddr) -> String {
    format!(
        "[[security.oauth.providers]]\nname = \"{name}\"\n\
         discovery_url = \"http://{at}/.well-known/openid-configuration\"\n\
         client_id = \"gate\"\nclient_secret = \"the-secret-of-the-provider\"\n"
    )
}

#[test]
fn providers_come_and_go_and_a_login_under_way_ends_at_its_client() {
    let (old, new) = (provider(), provider());
    let launch = Launch::new().file("s.toml", &with_provider("old", old));
    let server = launch.start();
    let client = oauth::register(&server, false);
    let begin = || server.send_bare(&Request::get(&oauth::authorize(&client)));
    let sent = begin();
    let location = sent.header("location").unwrap();
    assert!(
        location.starts_with(&format!("http://{old}/login")),
        "{sent:?}"
    );
    let state = location.split("&state=").nth(1).unwrap();
    let state = state.split('&').next().unwrap().to_owned();
    let cookie = sent.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();

    launch.clone().file("s.toml", &with_provider("new", new));
    server.signal("HUP");
    eventually("people are sent to the new provider", || {
        let location = begin().header("location").unwrap().to_owned();
        location
            .starts_with(&format!("http://{new}/login"))
            .then_some(())
    });
    let back = format!("/oauth/callback/old?code=c&state={state}");
    let ended = server.send_bare(&Request::get(&back).header("Cookie", &cookie));
    let location = ended.header("location").unwrap();
    assert_eq!(ended.status, 302, "{ended:?}");
    assert!(location.starts_with(oauth::REDIRECT), "{location}");
    assert!(location.contains("error=access_denied"), "{location}");

    launch
        .clone()
        .file("s.toml", "[security.oauth]\nenabled = false\n");
    server.signal("HUP");
    eventually("OAuth is off", || (begin().status == 404).then_some(()));
    assert_eq!(server.send_bare(&Request::get("/oauth/jwks")).status, 404);
    assert!(!server.log().contains("the-secret-of-the-provider"));
}
