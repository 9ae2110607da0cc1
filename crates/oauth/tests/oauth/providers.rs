//! Logins at a provider of identities.

use asyncgate_core::identity::{Person, audit::Event};
use asyncgate_engine::fakes::START_MS;
use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::{
    browser::{Answer, BASE, Browser},
    id_provider::{Behaviour, IdProvider},
    keyring::read,
    world::{
        LOOPBACK, PASSWORD, REDIRECT, Setup, World, authorize, local, log_in, person,
        sent_to_client,
    },
};

/// A server with one provider, where the person of the provider may enter.
async fn scene() -> (World, IdProvider, Value) {
    let provider = IdProvider::start().await;
    let world = World::with(Setup {
        providers: vec![provider.settings("acme")],
        ..Setup::default()
    });
    let subject = Person::Subject("248289761001".to_owned());
    world.let_in(person("acme", subject)).await;
    let client = world.client(false).await;
    (world, provider, client)
}

/// Begins a login and lets the provider accept it. Returns the way back.
async fn begin(
    world: &World,
    provider: &IdProvider,
    client: &Value,
    browser: &mut Browser,
) -> String {
    let answer = browser.get(&authorize(client, &[])).await;
    assert_eq!(answer.status, 302, "{answer:?}");
    let (_, params) = answer.redirect();
    assert_eq!(
        params["redirect_uri"],
        format!("{BASE}/oauth/callback/acme")
    );
    assert!(world.engine.keyring().is_ok());
    let state = provider.accept(&answer);
    format!("/oauth/callback/acme?code=good&state={state}")
}

/// Logs in at a provider that behaves in some way. Returns where the client is sent.
async fn log_in_at(behave: impl FnOnce(&mut Behaviour)) -> Answer {
    let (world, provider, client) = scene().await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    provider.behave(behave);
    browser.get(&back).await
}

#[tokio::test]
async fn a_person_logs_in_at_the_only_provider() {
    for (alg, kid) in [("RS256", "rsa"), ("ES256", "ec")] {
        let (world, provider, client) = scene().await;
        provider.behave(|behaviour| (behaviour.alg, behaviour.kid) = (alg, kid));
        let mut browser = world.browser();
        let back = begin(&world, &provider, &client, &mut browser).await;
        let answer = browser.get(&back).await;
        assert_eq!(answer.status, 302);
        let code = sent_to_client(&answer)["code"].clone();
        assert!(browser.cookies.is_empty());
        let tokens = world.exchange(&client, &code, &[]).await.json();
        let claims = read(tokens["access_token"].as_str().unwrap(), world.now()).unwrap();
        assert_eq!(&*claims.principal.id, "248289761001");
        // The way back works once: the browser has forgotten the login.
        assert_eq!(browser.get(&back).await.error(), "invalid_request");
        assert_eq!(provider.behaviour.lock().unwrap().reads, [1, 1, 1]);
    }
}

#[tokio::test]
async fn a_person_is_known_by_a_verified_address_too() {
    let provider = IdProvider::start().await;
    let world = World::with(Setup {
        providers: vec![provider.settings("acme")],
        ..Setup::default()
    });
    let email = Person::Email("Ada@X.example".to_owned());
    world.let_in(person("acme", email)).await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    assert!(sent_to_client(&browser.get(&back).await).contains_key("code"));
    for unverified in [json!(false), json!("false"), Value::Null] {
        provider.behave(|behaviour| behaviour.claims = json!({"email_verified": unverified}));
        let back = begin(&world, &provider, &client, &mut browser).await;
        let answer = browser.get(&back).await;
        assert_eq!(sent_to_client(&answer)["error"], "access_denied");
    }
    let events = world.events().await;
    assert!(events.contains(&Event::AuthSuccess) && events.contains(&Event::AuthFailure));
}

#[tokio::test]
async fn a_stranger_is_not_let_in() {
    let answer = log_in_at(|behaviour| behaviour.claims = json!({"sub": "somebody else"})).await;
    let params = sent_to_client(&answer);
    assert_eq!(params["error"], "access_denied");
    assert!(!params.contains_key("code"));
}

#[tokio::test]
async fn a_statement_that_is_not_good_lets_nobody_in() {
    let now = START_MS / 1_000;
    for claims in [
        json!({"nonce": "another login's"}),
        json!({"nonce": null}),
        json!({"aud": "another client"}),
        json!({"aud": ["asyncgate-at-acme", "another"]}),
        json!({"iss": "https://evil.example"}),
        json!({"exp": now - 61}),
        json!({"exp": null}),
        json!({"iat": now + 3_600}),
        json!({"sub": null}),
    ] {
        let answer = log_in_at(|behaviour| behaviour.claims = claims.clone()).await;
        assert_eq!(
            sent_to_client(&answer)["error"],
            "access_denied",
            "{claims}"
        );
    }
    for (alg, kid, forges) in [
        ("none", "rsa", false),
        ("HS256", "rsa", false),
        ("RS256", "rsa", true),
        ("ES256", "ec", true),
        ("ES256", "rsa", false),
        ("RS256", "unknown", false),
    ] {
        let answer = log_in_at(|behaviour| {
            (behaviour.alg, behaviour.kid, behaviour.forges) = (alg, kid, forges);
        });
        assert_eq!(
            sent_to_client(&answer.await)["error"],
            "access_denied",
            "{alg} {kid}"
        );
    }
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_looked_for_once() {
    let (world, provider, client) = scene().await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    assert!(sent_to_client(&browser.get(&back).await).contains_key("code"));
    provider.behave(|behaviour| {
        behaviour.kid = "newer";
        behaviour.published = vec!["newer"];
    });
    // Keys that were just read are not read again at once.
    let back = begin(&world, &provider, &client, &mut browser).await;
    let answer = browser.get(&back).await;
    assert_eq!(sent_to_client(&answer)["error"], "access_denied");
    world.clock.advance(6_000);
    let back = begin(&world, &provider, &client, &mut browser).await;
    assert!(sent_to_client(&browser.get(&back).await).contains_key("code"));
    assert_eq!(provider.behaviour.lock().unwrap().reads[1], 2);
}

#[tokio::test]
async fn a_provider_that_says_no_or_does_not_work_is_told_to_the_client() {
    let (world, provider, client) = scene().await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    let denied = back.replace("code=good", "error=access_denied");
    let answer = browser.get(&denied).await;
    assert_eq!(sent_to_client(&answer)["error"], "access_denied");
    let back = begin(&world, &provider, &client, &mut browser).await;
    let wrong = back.replace("code=good", "code=bad");
    let answer = browser.get(&wrong).await;
    assert_eq!(sent_to_client(&answer)["error"], "temporarily_unavailable");

    let provider = IdProvider::start().await;
    provider.behave(|behaviour| behaviour.is_down = true);
    let world = World::with(Setup {
        providers: vec![provider.settings("acme")],
        ..Setup::default()
    });
    let client = world.client(false).await;
    for _ in 0..3 {
        let answer = world.browser().get(&authorize(&client, &[])).await;
        assert_eq!(sent_to_client(&answer)["error"], "temporarily_unavailable");
    }
    assert_eq!(
        provider.behaviour.lock().unwrap().reads[0],
        1,
        "it is left alone for a while"
    );
    provider.behave(|behaviour| behaviour.is_down = false);
    world.clock.advance(5_000);
    let answer = world.browser().get(&authorize(&client, &[])).await;
    assert!(answer.header("location").starts_with(&provider.address));
}

#[tokio::test]
async fn a_provider_that_speaks_for_another_is_not_asked() {
    let evil = json!({"issuer": "https://accounts.example"});
    let insecure = json!({"token_endpoint": "http://elsewhere.example/token"});
    for metadata in [evil, insecure] {
        let provider = IdProvider::start().await;
        provider.behave(|behaviour| behaviour.metadata = metadata.clone());
        let world = World::with(Setup {
            providers: vec![provider.settings("acme")],
            ..Setup::default()
        });
        let client = world.client(false).await;
        let answer = world.browser().get(&authorize(&client, &[])).await;
        assert_eq!(sent_to_client(&answer)["error"], "temporarily_unavailable");
    }
}

#[tokio::test]
async fn an_answer_comes_from_the_issuer_that_was_asked() {
    let (world, provider, client) = scene().await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    let answer = browser
        .get(&format!("{back}&iss=https%3A%2F%2Fevil.example"))
        .await;
    assert_eq!(sent_to_client(&answer)["error"], "access_denied");
    let back = begin(&world, &provider, &client, &mut browser).await;
    let answer = browser
        .get(&format!("{back}&iss={}", provider.address))
        .await;
    assert!(sent_to_client(&answer).contains_key("code"));
}

#[tokio::test]
async fn a_secret_goes_where_the_provider_wants_it() {
    let provider = IdProvider::start().await;
    let post = json!({"token_endpoint_auth_methods_supported": ["client_secret_post"]});
    provider.behave(|behaviour| behaviour.metadata = post);
    let world = World::with(Setup {
        providers: vec![provider.settings("acme")],
        ..Setup::default()
    });
    let subject = Person::Subject("248289761001".to_owned());
    world.let_in(person("acme", subject)).await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let back = begin(&world, &provider, &client, &mut browser).await;
    assert!(sent_to_client(&browser.get(&back).await).contains_key("code"));
}

#[tokio::test]
async fn whoever_did_not_begin_a_login_does_not_end_it() {
    let (world, provider, client) = scene().await;
    let mut attacker = world.browser();
    let back = begin(&world, &provider, &client, &mut attacker).await;
    // The attacker has the victim's browser come back with the attacker's login.
    let mut victim = world.browser();
    assert_eq!(victim.get(&back).await.error(), "invalid_request");
    let _ = begin(&world, &provider, &client, &mut victim).await;
    assert_eq!(victim.get(&back).await.error(), "invalid_request");
    // Even with the victim's own cookie under the attacker's name.
    let name = attacker.cookies.keys().next().unwrap().clone();
    let own = victim.cookies.values().next().unwrap().clone();
    victim.cookies.insert(name, own);
    assert_eq!(victim.get(&back).await.error(), "invalid_request");

    for odd in [
        "/oauth/callback/acme",
        "/oauth/callback/acme?code=good",
        "/oauth/callback/acme?state=&code=good",
        "/oauth/callback/acme?state=unknown-state-here&code=good",
        "/oauth/callback/unknown?state=x&code=good",
    ] {
        let answer = attacker.get(odd).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()),
            (400, "invalid_request".to_owned())
        );
    }
    let elsewhere = back.replace("/acme", "/other");
    assert_eq!(attacker.get(&elsewhere).await.error(), "invalid_request");
    world.clock.advance(600_000);
    assert_eq!(attacker.get(&back).await.error(), "invalid_request");
}

#[tokio::test]
async fn several_providers_are_offered_as_links() {
    let provider = IdProvider::start().await;
    let world = World::with(Setup {
        providers: vec![provider.settings("acme"), provider.settings("other")],
        ..Setup::default()
    });
    world.let_in(local("ada")).await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    assert_eq!(page.status, 200);
    let links: Vec<String> = page
        .body
        .split("href=\"")
        .skip(1)
        .map(|rest| rest[..rest.find('"').unwrap()].replace("&amp;", "&"))
        .collect();
    assert_eq!(links.len(), 3, "{}", page.body);
    let mut ends = links.iter().map(|link| link.rsplit('=').next().unwrap());
    assert!(ends.by_ref().eq(["acme", "other", "local"]));
    let answer = browser.get(&format!("/oauth/{}", links[0])).await;
    assert!(answer.header("location").starts_with(&provider.address));
    let chosen = browser
        .get(&authorize(&client, &[("provider", "acme")]))
        .await;
    assert!(chosen.header("location").starts_with(&provider.address));
    let page = browser.get(&format!("/oauth/{}", links[2])).await;
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert!(sent_to_client(&answer).contains_key("code"));
}

#[tokio::test]
async fn a_password_works_beside_the_only_provider_if_it_is_asked_for() {
    let (world, _provider, client) = scene().await;
    world.let_in(local("ada")).await;
    let mut browser = world.browser();
    let page = browser
        .get(&authorize(&client, &[("provider", "local")]))
        .await;
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert!(sent_to_client(&answer).contains_key("code"));
}

#[tokio::test]
async fn a_client_that_nobody_looked_at_needs_the_persons_consent() {
    let (world, provider, _) = scene().await;
    let register = async |redirect: &str| {
        let metadata = json!({
            "client_name": "Who <am> I", "redirect_uris": [redirect],
            "token_endpoint_auth_method": "none",
        });
        let request = Request::post("/oauth/register");
        let request = request.body(Body::from(metadata.to_string())).unwrap();
        world.browser().send(request).await.json()
    };
    let client = register(REDIRECT).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    assert_eq!((page.status.as_u16(), page.header("location")), (200, ""));
    assert!(page.body.contains("Who &lt;am&gt; I") && page.body.contains("client.example"));
    let sealed = page.hidden("login");
    let form = [("login", sealed.as_str()), ("provider", "acme")];
    // A page of somebody else cannot agree.
    let answer = world.browser().post("/oauth/consent", &form).await;
    assert_eq!(answer.error(), "invalid_request");
    let denied = [("login", sealed.as_str()), ("deny", "1")];
    let mut other = world.browser();
    other.cookies = browser.cookies.clone();
    let answer = other.post("/oauth/consent", &denied).await;
    assert_eq!(sent_to_client(&answer)["error"], "access_denied");
    let answer = browser.post("/oauth/consent", &form).await;
    assert_eq!(answer.status, 303);
    let state = provider.accept(&answer);
    let back = format!("/oauth/callback/acme?code=good&state={state}");
    assert!(sent_to_client(&browser.get(&back).await).contains_key("code"));
    // What is sent to the person's own machine reaches nobody else, so nobody is asked.
    let client = register(LOOPBACK).await;
    let path = authorize(&client, &[("redirect_uri", LOOPBACK)]);
    let answer = world.browser().get(&path).await;
    assert!(answer.header("location").starts_with(&provider.address));
}

#[tokio::test]
async fn a_request_that_no_cookie_holds_is_told_to_the_client() {
    let (world, _provider, client) = scene().await;
    let long = "s".repeat(5_000);
    let path = authorize(&client, &[("state", &long)]);
    let (_, params) = world.browser().get(&path).await.redirect();
    assert_eq!(params["error"], "invalid_request");
    assert_eq!(params["state"], long);
}
