//! Authorization requests: what stays here, and what is told to the client.

use super::world::{CHALLENGE, LOOPBACK, Setup, World, authorize, local, sent_to_client};

#[tokio::test]
async fn nobody_is_sent_to_an_address_that_was_not_registered() {
    let world = World::new().await;
    let client = world.client(false).await;
    for (name, value) in [
        ("client_id", ""),
        ("client_id", "unknown"),
        ("client_id", "019a2f6e-0000-7000-8000-000000000001"),
        ("redirect_uri", ""),
        ("redirect_uri", "https://evil.example/"),
        ("redirect_uri", "https://client.example/callback"),
        ("redirect_uri", "https://client.example/callback?kept=1#"),
        ("redirect_uri", "https://client.example/callback?kept=1&x=2"),
        (
            "redirect_uri",
            "https://client.example@evil.example/callback?kept=1",
        ),
        ("redirect_uri", "//evil.example"),
        ("redirect_uri", "javascript:alert(1)"),
        ("redirect_uri", "http://127.0.0.1:7778/cb"),
        ("redirect_uri", "http://localhost:7777/cb"),
    ] {
        let mut browser = world.browser();
        // Even where something else is wrong that the client would be told of.
        let path = authorize(&client, &[(name, value), ("response_type", "token")]);
        let answer = browser.get(&path).await;
        assert_eq!(answer.status, 400, "{name}={value}");
        assert_eq!(answer.error(), "invalid_request");
        assert_eq!(answer.header("location"), "");
        assert!(!answer.body.contains("evil") && browser.cookies.is_empty());
    }
    let twice = format!(
        "{}&redirect_uri=https%3A%2F%2Fevil.example",
        authorize(&client, &[])
    );
    let answer = world.browser().get(&twice).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()),
        (400, "invalid_request".to_owned())
    );
}

#[tokio::test]
async fn other_faults_are_told_to_the_client() {
    let world = World::new().await;
    let client = world.client(false).await;
    for (name, value, error) in [
        ("response_type", "", "invalid_request"),
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge", "", "invalid_request"),
        ("code_challenge", "x", "invalid_request"),
        ("code_challenge_method", "", "invalid_request"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("scope", "tasks:lease", "invalid_scope"),
        ("scope", "openid", "invalid_scope"),
        ("resource", "https://evil.example", "invalid_target"),
        ("provider", "unknown", "invalid_request"),
    ] {
        let answer = world
            .browser()
            .get(&authorize(&client, &[(name, value)]))
            .await;
        assert_eq!(answer.status, 302, "{name}={value}");
        let params = sent_to_client(&answer);
        assert_eq!(params["error"], error, "{name}={value}");
        assert!(!params.contains_key("code"));
    }
    let twice = format!("{}&code_challenge={CHALLENGE}", authorize(&client, &[]));
    let answer = world.browser().get(&twice).await;
    assert_eq!(sent_to_client(&answer)["error"], "invalid_request");
}

#[tokio::test]
async fn a_state_is_not_needed_and_comes_back_as_it_was() {
    let world = World::new().await;
    let client = world.client(false).await;
    let path = authorize(&client, &[("state", ""), ("scope", "nonsense")]);
    let (_, params) = world.browser().get(&path).await.redirect();
    assert!(!params.contains_key("state"));
    let odd = "\u{1f980}\r\nLocation: https://evil.example\"<>&=%00";
    let path = authorize(&client, &[("state", odd), ("scope", "nonsense")]);
    let answer = world.browser().get(&path).await;
    let (_, params) = answer.redirect();
    assert_eq!(params["state"], odd);
    assert!(!answer.header("location").contains("\r"));
}

#[tokio::test]
async fn an_address_without_a_query_gets_one() {
    let world = World::new().await;
    let client = world.client(false).await;
    let path = authorize(
        &client,
        &[("redirect_uri", LOOPBACK), ("scope", "nonsense")],
    );
    let answer = world.browser().get(&path).await;
    let (address, params) = answer.redirect();
    assert_eq!(
        (address.as_str(), params["error"].as_str()),
        (LOOPBACK, "invalid_scope")
    );
}

#[tokio::test]
async fn a_server_without_a_way_to_log_in_says_so() {
    let world = World::with(Setup {
        local_login: false,
        ..Setup::default()
    });
    world.let_in(local("ada")).await;
    let client = world.client(false).await;
    for changed in [&[][..], &[("provider", "local")]] {
        let answer = world.browser().get(&authorize(&client, changed)).await;
        let error = sent_to_client(&answer)["error"].clone();
        assert!(["server_error", "invalid_request"].contains(&error.as_str()));
    }
}

#[tokio::test]
async fn the_public_address_is_the_issuer() {
    let world = World::with(Setup {
        public_url: Some("https://gate.example/".to_owned()),
        ..Setup::default()
    });
    let client = world.client(false).await;
    let path = authorize(&client, &[("scope", "nonsense")]);
    let (_, params) = world.browser().get(&path).await.redirect();
    assert_eq!(params["iss"], "https://gate.example");
    let page = world.browser().get(&authorize(&client, &[])).await;
    assert!(page.header("set-cookie").contains("; Secure"));
}
