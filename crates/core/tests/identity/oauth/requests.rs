//! Authorization requests: what is answered on the spot, what is told to the client, and what is taken.

use asyncgate_core::identity::{
    OauthClient, Scope, Scopes,
    oauth::{self, AuthorizationRequest, ErrorCode, Params, Refusal},
};
use proptest::prelude::*;

use super::world::{CHALLENGE, REDIRECT, Registrar, World};

const OWN: &str = "https://gate.example";

fn client() -> OauthClient {
    World::new().register(Registrar::Admin)
}

/// A good request, with these parameters instead of those of the same name. A parameter without a value is left out.
fn request(client: &OauthClient, changed: &[(&str, Option<&str>)]) -> Params {
    let id = client.id.to_string();
    let good = [
        ("response_type", "code"),
        ("client_id", id.as_str()),
        ("redirect_uri", REDIRECT),
        ("state", "a state &=%\u{1f980}"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("scope", "tasks:read,tasks:write"),
    ];
    let kept = good
        .into_iter()
        .filter(|(name, _)| changed.iter().all(|(changed, _)| changed != name));
    let added = changed
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)));
    kept.chain(added)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn check(client: &OauthClient, params: &Params) -> Result<AuthorizationRequest, Refusal> {
    oauth::check(client, params, OWN)
}

#[test]
fn a_good_request_is_taken_as_it_is() {
    let client = client();
    let params = request(&client, &[("resource", Some("https://gate.example/mcp"))]);
    assert_eq!(
        oauth::client_name(&params),
        Ok(oauth::ClientName::Id(client.id))
    );
    assert_eq!(
        check(&client, &params).unwrap(),
        AuthorizationRequest {
            client: client.id,
            redirect_uri: REDIRECT.to_owned(),
            state: Some("a state &=%\u{1f980}".to_owned()),
            code_challenge: CHALLENGE.to_owned(),
            scopes: Scopes::of(&[Scope::TasksRead, Scope::TasksWrite]),
            resource: Some("https://gate.example/mcp".to_owned()),
        }
    );
}

#[test]
fn without_a_known_client_and_address_nothing_is_sent_anywhere() {
    let client = client();
    for id in [None, Some(""), Some("nobody"), Some("client\u{0}")] {
        let params = request(&client, &[("client_id", id)]);
        let refusal = oauth::client_name(&params).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{id:?}");
    }
    let good = request(&client, &[]);
    let unknown = oauth::redirect_uri(None, &good);
    assert_eq!(unknown.unwrap_err().code, ErrorCode::InvalidRequest);
    for uri in [
        None,
        Some(""),
        Some("https://client.example/callback/"),
        Some("https://client.example/Callback"),
        Some("https://client.example/callback?x"),
        Some("https://client.example/callback#"),
        Some("https://CLIENT.example/callback"),
        Some("https://client.example:443/callback"),
        Some("https://evil.example/callback"),
        Some("http://localhost:8081/cb"),
    ] {
        let params = request(&client, &[("redirect_uri", uri)]);
        let refusal = oauth::redirect_uri(Some(&client), &params).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{uri:?}");
        assert!(check(&client, &params).is_err());
    }
    for name in ["client_id", "redirect_uri"] {
        let mut twice = vec![
            ("client_id".to_owned(), client.id.to_string()),
            ("redirect_uri".to_owned(), REDIRECT.to_owned()),
        ];
        let again = twice.iter().find(|(known, _)| known == name).cloned();
        twice.extend(again);
        let params: Params = twice.into_iter().collect();
        let refused = match name {
            "client_id" => oauth::client_name(&params).err(),
            _ => oauth::redirect_uri(Some(&client), &params).err(),
        };
        assert_eq!(refused.unwrap().code, ErrorCode::InvalidRequest);
    }
}

#[test]
fn other_faults_have_the_names_that_clients_know() {
    let client = client();
    for (name, value, code) in [
        ("response_type", None, ErrorCode::InvalidRequest),
        (
            "response_type",
            Some("token"),
            ErrorCode::UnsupportedResponseType,
        ),
        (
            "response_type",
            Some("code token"),
            ErrorCode::UnsupportedResponseType,
        ),
        ("code_challenge", None, ErrorCode::InvalidRequest),
        ("code_challenge", Some("short"), ErrorCode::InvalidRequest),
        (
            "code_challenge",
            Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"),
            ErrorCode::InvalidRequest,
        ),
        ("code_challenge_method", None, ErrorCode::InvalidRequest),
        (
            "code_challenge_method",
            Some("plain"),
            ErrorCode::InvalidRequest,
        ),
        (
            "code_challenge_method",
            Some("s256"),
            ErrorCode::InvalidRequest,
        ),
        ("scope", Some("tasks:lease"), ErrorCode::InvalidScope),
        (
            "scope",
            Some("tasks:read admin:write"),
            ErrorCode::InvalidScope,
        ),
        (
            "scope",
            Some("tasks:read nonsense"),
            ErrorCode::InvalidScope,
        ),
        ("scope", Some(" , "), ErrorCode::InvalidScope),
        (
            "resource",
            Some("https://evil.example/"),
            ErrorCode::InvalidTarget,
        ),
        (
            "resource",
            Some("https://gate.example/#x"),
            ErrorCode::InvalidTarget,
        ),
    ] {
        let refused = check(&client, &request(&client, &[(name, value)]));
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.code, code, "{name} {value:?}");
        assert!(!refusal.description.contains(value.unwrap_or("\u{0}")));
    }
}

#[test]
fn scopes_are_split_at_spaces_and_commas_and_all_are_asked_for_without_any() {
    let client = client();
    let scopes = |scope| {
        check(&client, &request(&client, &[("scope", scope)]))
            .unwrap()
            .scopes
    };
    let both = Scopes::of(&[Scope::TasksRead, Scope::TasksWrite]);
    for scope in [
        "tasks:read tasks:write",
        "tasks:read,tasks:write",
        "tasks:write, tasks:read ,tasks:read",
    ] {
        assert_eq!(scopes(Some(scope)), both, "{scope}");
    }
    assert_eq!(scopes(None), client.scopes);
    assert_eq!(scopes(Some("")), client.scopes);
}

#[test]
fn challenges_and_verifiers_have_their_forms() {
    // The example of RFC 7636, appendix B.
    assert!(oauth::is_challenge(CHALLENGE));
    assert!(oauth::is_verifier(
        "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    ));
    for length in [0, 42, 129] {
        assert!(!oauth::is_verifier(&"a".repeat(length)), "{length}");
    }
    for length in [43, 128] {
        assert!(oauth::is_verifier(&"~".repeat(length)), "{length}");
    }
    assert!(!oauth::is_verifier(&"+".repeat(43)));
    assert!(!oauth::is_challenge(&"a".repeat(44)));
    assert!(!oauth::is_challenge(&"~".repeat(43)));
}

proptest! {
    /// Whatever a link says, a request that is taken goes to an address that the client registered, asks for nothing
    /// that the client may not ask for, and has a challenge.
    #[test]
    fn nothing_gets_through_that_was_not_registered(
        params in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "response_type", "redirect_uri", "scope", "code_challenge",
                    "code_challenge_method", "resource", "state",
                ]),
                prop_oneof![
                    prop::sample::select(vec![
                        "code", REDIRECT, "S256", CHALLENGE, "tasks:read", "admin:write",
                        "https://evil.example", OWN, "",
                    ]).prop_map(str::to_owned),
                    "\\PC{0,12}",
                ],
            ),
            0..12,
        )
    ) {
        let client = client();
        let params: Params = params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Ok(request) = check(&client, &params) {
            prop_assert!(client.redirect_uris.contains(&request.redirect_uri));
            prop_assert_eq!(request.scopes.and(client.scopes), request.scopes);
            prop_assert_ne!(request.scopes, Scopes::NONE);
            prop_assert!(oauth::is_challenge(&request.code_challenge));
            prop_assert!(request.resource.is_none_or(|resource| resource.starts_with(OWN)));
        }
    }
}
