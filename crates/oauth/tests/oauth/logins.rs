//! The login page, and everything that a hostile page or a guesser might try on it.

use std::sync::atomic::Ordering;

use asyncgate_core::{
    TenantId,
    identity::{IdentityLink, Role, audit::Event},
};
use asyncgate_engine::Remote;
use serde_json::json;

use super::world::{PASSWORD, REDIRECT, World, authorize, local, log_in, sent_to_client};

#[tokio::test]
async fn a_wrong_name_and_a_wrong_password_look_alike_and_cost_the_same() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mut pages = Vec::new();
    for (name, password) in [
        ("ada", "wrong"),
        ("nobody", PASSWORD),
        ("", ""),
        ("ADA", PASSWORD),
    ] {
        let mut browser = world.browser();
        let page = browser.get(&authorize(&client, &[])).await;
        let before = world.keyring.compared.load(Ordering::Relaxed);
        let answer = log_in(&mut browser, &page, name, password).await;
        assert_eq!(world.keyring.compared.load(Ordering::Relaxed), before + 1);
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("The name or the password is wrong."));
        let hidden = answer.hidden("login");
        pages.push(answer.body.replace(&hidden, ""));
        // The page can be tried again as it is.
        world.clock.advance(60_000);
        let answer = log_in(&mut browser, &answer, "ada", PASSWORD).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        world.clock.advance(60_000);
    }
    assert!(pages.windows(2).all(|two| two[0] == two[1]));
    assert!(world.events().await.contains(&Event::AuthFailure));
}

#[tokio::test]
async fn a_login_goes_on_only_in_the_browser_in_which_it_began() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mut victim = world.browser();
    let mut attacker = world.browser();
    let page = attacker.get(&authorize(&client, &[])).await;
    // The attacker has the victim's browser send the attacker's form.
    let answer = log_in(&mut victim, &page, "ada", PASSWORD).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()),
        (400, "invalid_request".to_owned())
    );
    // The victim has a login of its own under way.
    let own = victim.get(&authorize(&client, &[])).await;
    let answer = log_in(&mut victim, &page, "ada", PASSWORD).await;
    assert_eq!(answer.status, 400);
    // Somebody else's cookie under the right name is no help.
    let name = attacker.cookies.keys().next().unwrap().clone();
    let value = victim.cookies.values().next().unwrap().clone();
    victim.cookies.insert(name, value);
    assert_eq!(
        log_in(&mut victim, &page, "ada", PASSWORD).await.status,
        400
    );
    assert_eq!(log_in(&mut victim, &own, "ada", PASSWORD).await.status, 303);
}

#[tokio::test]
async fn what_a_form_says_of_its_login_cannot_be_changed() {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};

    let world = World::new().await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    let sealed = page.hidden("login");
    let (text, mac) = sealed.split_once('.').unwrap();
    let text = String::from_utf8(BASE64.decode(text).unwrap()).unwrap();
    assert!(text.contains("client.example"), "{text}");
    let evil = text.replace("client.example", "evil.example");
    let forged = format!("{}.{mac}", BASE64.encode(evil));
    let without = BASE64.encode(&text);
    for login in [forged.as_str(), &without, &format!("{without}."), "", "x"] {
        let form = [
            ("login", login),
            ("username", "ada"),
            ("password", PASSWORD),
        ];
        let answer = browser.post("/oauth/login", &form).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()),
            (400, "invalid_request".to_owned())
        );
    }
    // What is kept in a form is no cookie of somebody who comes back from a provider.
    let id = browser.cookies.values().next().unwrap().clone();
    for value in browser.cookies.values_mut() {
        *value = sealed.clone();
    }
    let answer = browser
        .get(&format!("/oauth/callback/acme?code=x&state={id}"))
        .await;
    assert_eq!(answer.error(), "invalid_request");
}

#[tokio::test]
async fn a_login_has_ten_minutes() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    world.clock.advance(600_000);
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert_eq!(answer.error(), "invalid_request");
}

#[tokio::test]
async fn guesses_are_few_and_one_guesser_does_not_lock_others_out() {
    let world = World::new().await;
    let client = world.client(false).await;
    let tries = async |address: [u8; 4], password: &str| {
        let mut browser = world.browser();
        let page = browser.get(&authorize(&client, &[])).await;
        let remote = Remote::Network((address, 4_000).into());
        let answer = remote
            .scope(log_in(&mut browser, &page, "ada", password))
            .await;
        (
            answer.status.as_u16(),
            answer.header("retry-after").to_owned(),
        )
    };
    let guesser = [192, 0, 2, 1];
    for _ in 0..5 {
        assert_eq!(tries(guesser, "guess").await.0, 403);
    }
    let before = world.keyring.compared.load(Ordering::Relaxed);
    let (status, retry_after) = tries(guesser, PASSWORD).await;
    assert_eq!(status, 429);
    assert!((1..=61).contains(&retry_after.parse().unwrap()));
    assert_eq!(
        world.keyring.compared.load(Ordering::Relaxed),
        before,
        "nothing is hashed"
    );
    assert_eq!(tries([192, 0, 2, 2], PASSWORD).await.0, 303);
    world.clock.advance(61_000);
    assert_eq!(tries(guesser, PASSWORD).await.0, 303);
}

#[tokio::test]
async fn a_password_of_another_tenant_or_without_rights_lets_nobody_in() {
    let world = World::new().await;
    let client = world.client(false).await;
    world
        .let_in(IdentityLink {
            tenant: TenantId::from_bytes([9; 16]),
            ..local("eve")
        })
        .await;
    world
        .let_in(IdentityLink {
            role: Role::Worker,
            ..local("bob")
        })
        .await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    assert_eq!(
        log_in(&mut browser, &page, "eve", PASSWORD).await.status,
        403
    );
    let answer = log_in(&mut browser, &page, "bob", PASSWORD).await;
    assert_eq!(sent_to_client(&answer)["error"], "access_denied");
}

#[tokio::test]
async fn a_page_runs_nothing_and_names_the_client_as_text() {
    let world = World::new().await;
    let input = json!({
        "client_name": "\"><script>alert(1)</script>",
        "redirect_uris": [REDIRECT],
        "scopes": ["tasks:read", "tasks:write"],
    });
    let client = world.admin("create_oauth_client", input).await.unwrap();
    let page = world.browser().get(&authorize(&client, &[])).await;
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self' https://client.example;",
        "style-src 'sha256-",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
}

#[tokio::test]
async fn a_client_that_is_removed_during_a_login_gets_nothing() {
    let world = World::new().await;
    let client = world.client(false).await;
    let mut browser = world.browser();
    let page = browser.get(&authorize(&client, &[])).await;
    let id = json!({"client_id": client["client_id"]});
    world.admin("remove_oauth_client", id).await.unwrap();
    let answer = log_in(&mut browser, &page, "ada", PASSWORD).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()),
        (400, "invalid_request".to_owned())
    );
    assert_eq!(answer.header("location"), "");
}
