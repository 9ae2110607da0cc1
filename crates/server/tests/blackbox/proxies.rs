//! Clients behind proxies: whose word about them counts.

use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually};
use crate::http::Request;
use crate::ingress::{HOOKS, launch, message, signed};

fn bucket(server: &Server, forwarded: &[&str], nonce: &str) -> String {
    let request = signed("hooks", message(nonce).to_string());
    let request = forwarded.iter().fold(request, |request, value| {
        request.header("X-Forwarded-For", value)
    });
    let answer = server.send_bare(&request);
    answer.expect(200);
    answer.header("x-ratelimit-bucket").unwrap().to_owned()
}

#[test]
fn only_a_trusted_proxy_says_who_the_client_is() {
    let launch = launch(HOOKS);
    let server = launch.start();
    assert_eq!(bucket(&server, &["203.0.113.9"], "a"), "client:127.0.0.1");

    let trusting =
        format!("{HOOKS}\n[server]\ntrusted_proxies = [\"127.0.0.0/8\", \"fd00::/8\"]\n");
    std::fs::write(launch.dir().join("a.toml"), trusting).unwrap();
    server.signal("HUP");
    let mut n = 0;
    eventually("the proxy is trusted", || {
        n += 1;
        let found = bucket(&server, &["203.0.113.9"], &format!("b{n}"));
        (found == "client:203.0.113.9").then_some(())
    });
    for (n, (forwarded, client)) in [
        (&["1.2.3.4, 203.0.113.9"][..], "203.0.113.9"),
        (&["1.2.3.4", "203.0.113.9, 127.0.0.2"], "203.0.113.9"),
        (&["2001:db8::7, fd00::1"], "2001:db8::7"),
        (&["1.2.3.4, nonsense"], "127.0.0.1"),
        (&[], "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let found = bucket(&server, forwarded, &format!("c{n}"));
        assert_eq!(found, format!("client:{client}"), "{forwarded:?}");
    }

    // The log and the limits of domains know the client too.
    let wrong = Request::get("/v1/tasks").bearer("wrong");
    let wrong = wrong
        .header("X-Forwarded-For", "203.0.113.77")
        .header("X-Corr-Id", "of-77");
    server.send_bare(&wrong).refused(401, "UNAUTHORIZED");
    let log = server.logged("of-77");
    let line = log.lines().find(|line| line.contains("of-77")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["remote_addr"], "203.0.113.77");
}

#[test]
fn clients_of_domains_are_told_apart_behind_a_proxy() {
    let settings = "
        [limits.policies.one]
        kind = \"fixed_window\"
        limit = 1
        window_secs = 7776000
        [domains]
        client_policy = \"one\"
        [server]
        trusted_proxies = [\"127.0.0.1\"]
    ";
    let server = Launch::new().file("a.toml", settings).start();
    let ask = |client: &str| {
        let request = Request::post("/domain/quotaStatus", json!({}).to_string());
        server
            .send_bare(&request.header("X-Forwarded-For", client))
            .status
    };
    assert_eq!(
        ask("203.0.113.1"),
        400,
        "malformed, but not refused for its rate"
    );
    assert_eq!(ask("203.0.113.1"), 429);
    assert_eq!(ask("203.0.113.2"), 400);
}

#[test]
fn a_proxy_that_is_no_address_stops_the_start() {
    let ended = Launch::new()
        .set("server.trusted_proxies=localhost")
        .refused();
    let complaint = ended.complaint();
    assert!(complaint.contains("server.trusted_proxies"), "{complaint}");
}
