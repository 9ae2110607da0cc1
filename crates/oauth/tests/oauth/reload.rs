//! Settings that change while people are on their way.

use asyncgate_core::identity::Person;
use asyncgate_engine::Remote;
use axum::{body::Body, http::Request};
use serde_json::{Value, json};

use super::{
    id_provider::IdProvider,
    world::{PASSWORD, Setup, World, authorize, log_in, person, sent_to_client},
};

fn with(providers: &[(&str, &IdProvider)]) -> Setup {
    let providers = providers.iter();
    Setup {
        providers: providers.map(|(name, at)| at.settings(name)).collect(),
        ..Setup::default()
    }
}

/// A server with one provider, where the person of the provider may enter.
async fn scene() -> (World, IdProvider, Value) {
    let provider = IdProvider::start().await;
    let world = World::with(with(&[("acme", &provider)]));
    let subject = Person::Subject("248289761001".to_owned());
    world.let_in(person("acme", subject)).await;
    let client = world.client(false).await;
    (world, provider, client)
}

#[tokio::test]
async fn a_login_at_a_provider_that_goes_ends_at_the_client_and_the_next_one_goes_elsewhere() {
    let (world, acme, client) = scene().await;
    let other = IdProvider::start().await;
    let mut browser = world.browser();
    let answer = browser.get(&authorize(&client, &[])).await;
    let state = acme.accept(&answer);
    world.reload(with(&[("other", &other)]));
    let back = format!("/oauth/callback/acme?code=good&state={state}");
    let params = sent_to_client(&browser.get(&back).await);
    assert_eq!(params["error"], "access_denied");
    assert!(!params.contains_key("code"));
    assert!(browser.cookies.is_empty(), "the browser forgets the login");
    assert_eq!(
        acme.behaviour.lock().unwrap().reads[2],
        0,
        "nobody is asked"
    );
    let next = world.browser().get(&authorize(&client, &[])).await;
    assert!(next.redirect().0.starts_with(&other.address), "{next:?}");
}

#[tokio::test]
async fn nothing_that_was_meant_for_a_provider_goes_to_another_one_of_its_name() {
    let (world, acme, client) = scene().await;
    let impostor = IdProvider::start().await;
    let mut browser = world.browser();
    let answer = browser.get(&authorize(&client, &[])).await;
    let state = acme.accept(&answer);
    world.reload(with(&[("acme", &impostor)]));
    let back = format!("/oauth/callback/acme?code=good&state={state}");
    let params = sent_to_client(&browser.get(&back).await);
    assert_eq!(params["error"], "access_denied");
    assert_eq!(impostor.behaviour.lock().unwrap().reads, [0, 0, 0]);
}

#[tokio::test]
async fn a_login_goes_on_at_a_provider_that_stays_and_is_not_asked_again_who_it_is() {
    let (world, acme, client) = scene().await;
    let other = IdProvider::start().await;
    let mut browser = world.browser();
    let answer = browser.get(&authorize(&client, &[])).await;
    let state = acme.accept(&answer);
    world.reload(with(&[("acme", &acme), ("other", &other)]));
    let back = format!("/oauth/callback/acme?code=good&state={state}");
    let params = sent_to_client(&browser.get(&back).await);
    assert!(params.contains_key("code"), "{params:?}");
    assert_eq!(acme.behaviour.lock().unwrap().reads, [1, 1, 1]);
    let page = world.browser().get(&authorize(&client, &[])).await;
    assert_eq!(page.status, 200, "there is a choice now");
}

#[tokio::test]
async fn a_page_for_a_password_ends_with_the_setting() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    let provider = IdProvider::start().await;
    world.reload(Setup {
        local_login: false,
        ..with(&[("acme", &provider)])
    });
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert_eq!(answer.status, 303);
    let params = sent_to_client(&answer);
    assert_eq!(params["error"], "access_denied");
    assert!(!params.contains_key("code"));
}

#[tokio::test]
async fn everything_can_be_switched_off_and_on() {
    let world = World::new().await;
    let client = world.client(false).await;
    let code = world.code(&client).await;
    let off = Setup {
        enabled: false,
        ..Setup::default()
    };
    world.reload(off);
    for path in ["/oauth/jwks", "/.well-known/oauth-authorization-server"] {
        assert_eq!(world.browser().get(path).await.status, 404, "{path}");
    }
    assert_eq!(world.exchange(&client, &code, &[]).await.status, 404);
    world.reload(Setup::default());
    assert_eq!(world.exchange(&client, &code, &[]).await.status, 200);
}

#[tokio::test]
async fn a_reload_gives_strangers_no_new_attempts() {
    let world = World::new().await;
    let register = async || {
        let remote = Remote::Network(([192, 0, 2, 1], 4_000).into());
        let body = json!({"redirect_uris": ["https://a.example/"]}).to_string();
        let request = Request::post("/oauth/register").body(Body::from(body));
        let mut browser = world.browser();
        let sent = browser.send(request.unwrap());
        remote.scope(sent).await.status.as_u16()
    };
    for _ in 0..10 {
        assert_eq!(register().await, 201);
    }
    world.reload(Setup::default());
    assert_eq!(register().await, 429);
    world.reload(Setup {
        dynamic_registration: false,
        ..Setup::default()
    });
    assert_eq!(register().await, 404);
}
