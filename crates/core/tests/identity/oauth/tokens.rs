//! Exchange, refresh and revocation, one by one.

use asyncgate_core::{
    Timestamp,
    identity::{
        Find, IdentityLink, OauthClient, Record, Role, Scope, Scopes,
        audit::Event,
        oauth::{
            AuthorizationRequest, ErrorCode, Exchange, GrantRefusal, Issued, Lifetimes, Refresh,
            revoke_families,
        },
    },
};

use super::world::{
    DAY_MS, LIVES, OTHER_CHALLENGE, Registrar, World, asking, exchanging, new_person, refreshing,
};

struct Scene {
    world: World,
    client: OauthClient,
    person: IdentityLink,
}

/// A person has logged in, and the client has a code.
fn scene() -> Scene {
    scene_with(Registrar::Admin)
}

fn scene_with(by: Registrar) -> Scene {
    let mut world = World::new();
    let client = world.register(by);
    let person = world.let_in(new_person("ada"));
    world.log_in(&asking(&client), &person, "code").unwrap();
    Scene {
        world,
        client,
        person,
    }
}

impl Scene {
    fn exchange(&mut self) -> Result<Issued, GrantRefusal> {
        let asked = exchanging(&self.client, "refresh 1");
        self.world.exchange("code", &asked)
    }

    fn refresh(&mut self, old: &str, new: &str) -> Result<Issued, GrantRefusal> {
        let asked = refreshing(&self.client, new);
        self.world.refresh(old, &asked)
    }
}

#[test]
fn a_code_gives_tokens() {
    let mut scene = scene();
    let issued = scene.exchange().unwrap();
    assert_eq!(issued.grant.role, Role::Agent);
    assert_eq!(issued.grant.principal, scene.person.principal);
    assert_eq!(issued.grant.identity, scene.person.id);
    assert_eq!(
        issued.scopes,
        Scopes::of(&[Scope::TasksRead, Scope::TasksWrite])
    );
    assert_eq!(issued.issued_at, scene.world.now);
    assert_eq!(
        issued.access_expires_at,
        scene.world.now.plus_millis(LIVES.access_ms)
    );
    let family = scene.world.family(issued.family).unwrap();
    assert_eq!(family.grant, issued.grant);
    assert_eq!(
        family.expires_at,
        scene.world.now.plus_millis(LIVES.refresh_ms)
    );
    assert_eq!(scene.world.events.last(), Some(&Event::TokenIssued));
}

#[test]
fn an_access_token_ends_on_a_whole_second() {
    let mut scene = scene();
    scene.world.advance(999);
    let issued = scene.exchange().unwrap();
    let end = issued.access_expires_at.as_millis();
    assert_eq!(end % 1_000, 0);
    let whole = scene.world.now.plus_millis(LIVES.access_ms).as_millis();
    assert!((0..1_000).contains(&(whole - end)));
}

#[test]
fn a_family_lives_as_long_as_the_longest_of_its_tokens() {
    let mut scene = scene();
    let issued = scene.exchange().unwrap();
    let first = scene.world.family(issued.family).unwrap().expires_at;
    scene.world.advance(DAY_MS);
    scene.refresh("refresh 1", "refresh 2").unwrap();
    let second = scene.world.family(issued.family).unwrap().expires_at;
    assert_eq!(second, first.plus_millis(DAY_MS));
    // Lives that became shorter do not end what is out already.
    let short = Lifetimes {
        access_ms: 1_000,
        refresh_ms: 1_000,
    };
    let mut env = scene.world.env();
    let Some(Record::RefreshToken(token)) = scene.world.find(&Find::refresh_token("refresh 2"))
    else {
        panic!("there is a token");
    };
    let found = asyncgate_core::identity::oauth::FoundToken {
        family: scene.world.family(token.family),
        token: Some(token),
        client: Some(scene.client.clone()),
        tenant: scene.world.tenant(),
        link: Some(scene.person.clone()),
    };
    let asked = refreshing(&scene.client, "refresh 3");
    let decision = asyncgate_core::identity::oauth::refresh(&mut env, found, &asked, short);
    scene.world.apply(decision.changes);
    let third = scene.world.family(issued.family).unwrap().expires_at;
    assert_eq!(third, second);
}

#[test]
fn a_code_is_for_its_client_its_address_its_verifier_and_its_minute() {
    type Change = fn(&mut Exchange, &OauthClient);
    let cases: [(Change, i64, GrantRefusal); 4] = [
        (
            |asked, other| asked.client = other.id,
            0,
            GrantRefusal::OtherClient,
        ),
        (
            |asked, _| asked.redirect_uri = "http://localhost:8080/cb".to_owned(),
            0,
            GrantRefusal::OtherRedirect,
        ),
        (
            |asked, _| asked.challenge = OTHER_CHALLENGE.to_owned(),
            0,
            GrantRefusal::WrongVerifier,
        ),
        (|_, _| {}, 60_000, GrantRefusal::Expired),
    ];
    for (change, later, refusal) in cases {
        let mut scene = scene();
        let other = scene.world.register(Registrar::Admin);
        scene.world.advance(later);
        let mut asked = exchanging(&scene.client, "refresh 1");
        change(&mut asked, &other);
        let before = scene.world.records.clone();
        let refused = scene.world.exchange("code", &asked);
        assert_eq!(refused, Err(refusal));
        assert_eq!(refusal.code(), ErrorCode::InvalidGrant);
        assert_eq!(refusal.description(), GrantRefusal::Unknown.description());
        assert_eq!(scene.world.records, before, "nothing was spoiled");
        if later == 0 {
            scene.world.advance(59_999);
            assert!(scene.exchange().is_ok());
        }
    }
    let mut scene = scene();
    let unknown = exchanging(&scene.client, "refresh 1");
    let refused = scene.world.exchange("another", &unknown);
    assert_eq!(refused, Err(GrantRefusal::Unknown));
}

#[test]
fn a_code_that_comes_twice_ends_what_came_of_it() {
    let mut scene = scene();
    let family = scene.exchange().unwrap().family;
    scene.refresh("refresh 1", "refresh 2").unwrap();
    // Even with a wrong verifier, and after its minute: it has leaked.
    scene.world.advance(70_000);
    let asked = Exchange {
        challenge: OTHER_CHALLENGE.to_owned(),
        ..exchanging(&scene.client, "thief")
    };
    assert_eq!(
        scene.world.exchange("code", &asked),
        Err(GrantRefusal::Reused)
    );
    let ended = scene.world.family(family).unwrap();
    assert_eq!(ended.revoked_at, Some(scene.world.now));
    assert_eq!(scene.world.events.last(), Some(&Event::TokenReuseDetected));
    let refused = scene.refresh("refresh 2", "refresh 3");
    assert_eq!(refused, Err(GrantRefusal::Revoked));
    // Once more changes nothing, and tells nothing new.
    let (told, records) = (scene.world.events.len(), scene.world.records.clone());
    scene.world.advance(5);
    assert_eq!(scene.exchange(), Err(GrantRefusal::Reused));
    assert_eq!(scene.world.records, records);
    assert_eq!(scene.world.events.len(), told);
}

#[test]
fn a_refresh_token_gives_the_next_one_and_lives_anew() {
    let mut scene = scene();
    let first = scene.exchange().unwrap();
    for n in 1..6 {
        scene.world.advance(LIVES.refresh_ms - 1);
        let issued = scene
            .refresh(&format!("refresh {n}"), &format!("refresh {}", n + 1))
            .unwrap();
        assert_eq!(issued.family, first.family);
        assert_eq!(issued.grant, first.grant);
        assert_ne!(issued.token_id, first.token_id);
        assert_eq!(scene.world.events.last(), Some(&Event::TokenRefreshed));
    }
    scene.world.advance(LIVES.refresh_ms);
    assert_eq!(
        scene.refresh("refresh 6", "refresh 7"),
        Err(GrantRefusal::Expired)
    );
}

#[test]
fn a_refresh_token_that_comes_twice_ends_its_family() {
    let mut scene = scene();
    let family = scene.exchange().unwrap().family;
    scene.refresh("refresh 1", "refresh 2").unwrap();
    scene.refresh("refresh 2", "refresh 3").unwrap();
    assert_eq!(
        scene.refresh("refresh 1", "thief"),
        Err(GrantRefusal::Reused)
    );
    assert!(scene.world.family(family).unwrap().revoked_at.is_some());
    assert_eq!(scene.world.events.last(), Some(&Event::TokenReuseDetected));
    assert_eq!(
        scene.refresh("refresh 3", "more"),
        Err(GrantRefusal::Revoked)
    );
}

#[test]
fn a_refresh_can_ask_for_less_and_never_for_more() {
    let mut scene = scene();
    scene.exchange().unwrap();
    let ask = |scope: &str, hash: &str, client: &OauthClient| Refresh {
        scope: Some(scope.to_owned()),
        ..refreshing(client, hash)
    };
    let more = ask("tasks:read admin:read", "refresh 2", &scene.client);
    let refused = scene.world.refresh("refresh 1", &more);
    assert_eq!(refused, Err(GrantRefusal::Scope));
    assert_eq!(GrantRefusal::Scope.code(), ErrorCode::InvalidScope);
    let less = ask("tasks:read", "refresh 2", &scene.client);
    let issued = scene.world.refresh("refresh 1", &less).unwrap();
    assert_eq!(issued.scopes, Scopes::of(&[Scope::TasksRead]));
    // The grant itself stays as wide as it was.
    let all = scene.refresh("refresh 2", "refresh 3").unwrap();
    assert_eq!(all.scopes, all.grant.scopes);
    assert_eq!(
        all.scopes,
        Scopes::of(&[Scope::TasksRead, Scope::TasksWrite])
    );
}

#[test]
fn a_refresh_token_is_for_its_client() {
    let mut scene = scene();
    scene.exchange().unwrap();
    let other = scene.world.register(Registrar::Admin);
    let refused = scene
        .world
        .refresh("refresh 1", &refreshing(&other, "refresh 2"));
    assert_eq!(refused, Err(GrantRefusal::OtherClient));
    assert!(scene.refresh("refresh 1", "refresh 2").is_ok());
    let unknown = scene.refresh("nothing", "refresh 3");
    assert_eq!(unknown, Err(GrantRefusal::Unknown));
}

#[test]
fn a_resource_is_agreed_on_once() {
    let asked = |resource: Option<&str>| Exchange {
        resource: resource.map(str::to_owned),
        ..exchanging(&scene().client, "refresh 1")
    };
    let granted = |resource: Option<&str>| {
        let mut scene = scene();
        let request = AuthorizationRequest {
            resource: resource.map(str::to_owned),
            ..asking(&scene.client)
        };
        let login = scene.world.log_in(&request, &scene.person, "bound");
        assert!(login.is_ok());
        scene
    };
    let (here, there) = (
        Some("https://gate.example/mcp"),
        Some("https://gate.example/"),
    );
    for (granted_for, named, expected) in [
        (None, None, Ok(None)),
        (None, here, Ok(here)),
        (here, None, Ok(here)),
        (here, here, Ok(here)),
        (here, there, Err(GrantRefusal::Resource)),
    ] {
        let mut scene = granted(granted_for);
        let issued = scene.world.exchange("bound", &asked(named));
        let resource = issued.map(|issued| issued.grant.resource);
        assert_eq!(resource, expected.map(|text| text.map(str::to_owned)));
        let again = Refresh {
            resource: there.map(str::to_owned),
            ..refreshing(&scene.client, "refresh 2")
        };
        let refused = scene.world.refresh("refresh 1", &again);
        match expected {
            Ok(Some(_)) => assert_eq!(refused, Err(GrantRefusal::Resource)),
            Ok(None) => assert!(refused.is_ok()),
            Err(_) => assert_eq!(refused, Err(GrantRefusal::Unknown)),
        }
    }
    assert_eq!(GrantRefusal::Resource.code(), ErrorCode::InvalidTarget);
}

#[test]
fn whoever_is_not_let_in_any_more_gets_no_tokens() {
    let gone = |scene: &mut Scene, what: &str| match what {
        "person" => {
            let key = Record::IdentityLink(scene.person.clone()).key();
            scene.world.records.remove(&key);
        }
        "client" => {
            let key = Record::OauthClient(scene.client.clone()).key();
            scene.world.records.remove(&key);
        }
        _ => scene.world.suspend(true),
    };
    for (what, refusal) in [
        ("person", GrantRefusal::NoLeave),
        ("client", GrantRefusal::NoClient),
        ("tenant", GrantRefusal::Suspended),
    ] {
        let mut before = scene();
        gone(&mut before, what);
        assert_eq!(before.exchange(), Err(refusal), "{what}");
        let mut after = scene();
        after.exchange().unwrap();
        gone(&mut after, what);
        assert_eq!(
            after.refresh("refresh 1", "refresh 2"),
            Err(refusal),
            "{what}"
        );
    }
    // A suspension that is over leaves everything as it was.
    let mut scene = scene();
    scene.exchange().unwrap();
    scene.world.suspend(true);
    assert!(scene.refresh("refresh 1", "refresh 2").is_err());
    scene.world.suspend(false);
    assert!(scene.refresh("refresh 1", "refresh 2").is_ok());
    assert_eq!(GrantRefusal::NoClient.code(), ErrorCode::InvalidClient);
}

#[test]
fn a_person_who_left_and_came_back_logs_in_again() {
    let mut scene = scene();
    scene.exchange().unwrap();
    let key = Record::IdentityLink(scene.person.clone()).key();
    scene.world.records.remove(&key);
    scene.world.let_in(new_person("ada"));
    let refused = scene.refresh("refresh 1", "refresh 2");
    assert_eq!(refused, Err(GrantRefusal::NoLeave));
}

#[test]
fn a_client_revokes_its_own_and_nothing_of_others() {
    let mut scene = scene();
    let family = scene.exchange().unwrap().family;
    let other = scene.world.register(Registrar::Admin);
    let refused = scene.world.revoke(family, &other);
    assert_eq!(refused, Err(GrantRefusal::OtherClient));
    assert_eq!(scene.world.family(family).unwrap().revoked_at, None);
    let client = scene.client.clone();
    assert_eq!(scene.world.revoke(family, &client), Ok(()));
    let first = scene.world.family(family).unwrap().revoked_at;
    assert_eq!(first, Some(scene.world.now));
    assert_eq!(scene.world.events.last(), Some(&Event::TokenRevoked));
    scene.world.advance(1);
    let told = scene.world.events.len();
    assert_eq!(scene.world.revoke(family, &client), Ok(()));
    assert_eq!(scene.world.family(family).unwrap().revoked_at, first);
    assert_eq!(scene.world.events.len(), told);
    assert_eq!(
        scene.world.revoke(scene.person.id, &client),
        Ok(()),
        "what is unknown is no error"
    );
    let refused = scene.refresh("refresh 1", "refresh 2");
    assert_eq!(refused, Err(GrantRefusal::Revoked));
}

#[test]
fn an_admin_revokes_many_at_once() {
    let mut scene = scene();
    let one = scene.exchange().unwrap().family;
    let request = asking(&scene.client);
    scene
        .world
        .log_in(&request, &scene.person, "code 2")
        .unwrap();
    let asked = exchanging(&scene.client, "other refresh");
    let two = scene.world.exchange("code 2", &asked).unwrap().family;
    let client = scene.client.clone();
    scene.world.revoke(one, &client).unwrap();
    let families = [one, two].map(|id| scene.world.family(id).unwrap());
    let mut env = scene.world.env();
    let decision = revoke_families(&mut env, families, "the client was removed");
    assert_eq!(decision.output, 1, "one was revoked before");
    scene.world.apply(decision.changes);
    assert!(scene.world.family(two).unwrap().revoked_at.is_some());
}

#[test]
fn a_client_that_registered_itself_lives_as_long_as_its_tokens() {
    let mut scene = scene_with(Registrar::Stranger);
    let family = scene.exchange().unwrap().family;
    let end = |scene: &Scene| scene.world.client(scene.client.id).unwrap().expires_at;
    assert_eq!(
        end(&scene),
        Some(scene.world.family(family).unwrap().expires_at)
    );
    scene.world.advance(LIVES.refresh_ms - 1);
    scene.refresh("refresh 1", "refresh 2").unwrap();
    let expected: Timestamp = scene.world.family(family).unwrap().expires_at;
    assert_eq!(end(&scene), Some(expected));
}
