//! Registration and removal of clients, and the proof that a client is the one it says.

use asyncgate_core::{
    TenantId,
    identity::{
        Record, Rejection, Scope, Scopes,
        audit::Event,
        manage::{Actor, clients},
        oauth::{
            BadClient, BadRedirect, BadSecret, ErrorCode, NewClient, STRANGER_SCOPES, prove_client,
            register_stranger,
        },
    },
};

use super::world::{DAY_MS, Registrar, World, admin, asking, new_client, new_person};

#[test]
fn an_admin_registers_a_client_for_good() {
    let mut world = World::new();
    let client = world.register(Registrar::Admin);
    assert_eq!(world.client(client.id), Some(client.clone()));
    assert_eq!(client.scopes, new_client().scopes);
    assert_eq!(client.expires_at, None);
    assert_eq!(world.events, [Event::ClientRegistered]);
    world.advance(10_000 * DAY_MS);
    assert!(client.is_current(world.now));
}

#[test]
fn a_client_that_registers_itself_acts_for_no_admin_and_is_forgotten() {
    let mut world = World::new();
    let client = world.register(Registrar::Stranger);
    assert_eq!(
        client.scopes,
        Scopes::of(&[Scope::TasksRead, Scope::TasksWrite])
    );
    for scope in [
        Scope::AdminRead,
        Scope::AdminWrite,
        Scope::HostAdmin,
        Scope::PlatformAdmin,
    ] {
        assert!(!STRANGER_SCOPES.cover(scope), "{scope}");
    }
    world.advance(DAY_MS - 1);
    assert!(client.is_current(world.now));
    world.advance(1);
    assert!(!client.is_current(world.now));
}

#[test]
fn a_client_that_registered_itself_stays_while_it_is_used() {
    let mut world = World::new();
    let client = world.register(Registrar::Stranger);
    let person = world.let_in(new_person("ada"));
    world.advance(DAY_MS - 1);
    world.log_in(&asking(&client), &person, "code").unwrap();
    world.advance(DAY_MS - 1);
    assert!(world.client(client.id).unwrap().is_current(world.now));
    world.advance(1);
    assert!(!world.client(client.id).unwrap().is_current(world.now));
    assert!(world.log_in(&asking(&client), &person, "again").is_err());
}

#[test]
fn what_cannot_be_registered_is_named() {
    let with = |change: fn(&mut NewClient)| {
        let mut new = new_client();
        change(&mut new);
        let mut world = World::new();
        let tenant = world.tenant().map(Record::Tenant);
        let refused = clients::register(&admin(), &mut world.env(), tenant.as_ref(), new.clone());
        let Err(Rejection::Client(refusal)) = refused.map(|_| ()) else {
            panic!("it is registered");
        };
        let stranger = register_stranger(&mut world.env(), new);
        assert_eq!(stranger.map(|_| ()), Err(refusal));
        refusal
    };
    for (refusal, code) in [
        (
            with(|new| new.name.clear()),
            ErrorCode::InvalidClientMetadata,
        ),
        (
            with(|new| new.name = "x".repeat(257)),
            ErrorCode::InvalidClientMetadata,
        ),
        (
            with(|new| new.name = "two\nlines".to_owned()),
            ErrorCode::InvalidClientMetadata,
        ),
        (
            with(|new| new.scopes = Scopes::NONE),
            ErrorCode::InvalidClientMetadata,
        ),
        (
            with(|new| new.redirect_uris.clear()),
            ErrorCode::InvalidRedirectUri,
        ),
        (
            with(|new| new.redirect_uris = vec!["https://a.example".to_owned(); 17]),
            ErrorCode::InvalidRedirectUri,
        ),
    ] {
        assert_eq!(refusal.code(), code, "{refusal}");
    }
    let insecure = with(|new| new.redirect_uris.push("http://a.example".to_owned()));
    assert_eq!(insecure, BadClient::Redirect(BadRedirect::Scheme));
    // A stranger who asks for an admin's scopes alone would get nothing.
    let new = NewClient {
        scopes: Scopes::of(&[Scope::AdminWrite]),
        ..new_client()
    };
    let refused = register_stranger(&mut World::new().env(), new);
    assert_eq!(refused.map(|_| ()), Err(BadClient::Scopes));
}

#[test]
fn a_client_is_removed_once_by_an_admin_of_its_tenant() {
    let mut world = World::new();
    let client = world.register(Registrar::Admin);
    let record = Record::OauthClient(client.clone());
    let mut env = world.env();
    let stranger = Actor {
        tenant: TenantId::from_bytes([9; 16]),
        ..admin()
    };
    let unseen = clients::remove(&stranger, &mut env, Some(&record));
    assert_eq!(unseen.map(|_| ()), Err(Rejection::NotFound));
    let decision = clients::remove(&admin(), &mut env, Some(&record)).unwrap();
    world.apply(decision.changes);
    assert_eq!(world.client(client.id), None);
    assert_eq!(
        world.events,
        [Event::ClientRegistered, Event::ClientRemoved]
    );
    let again = clients::remove(&admin(), &mut env, None);
    assert_eq!(again.map(|_| ()), Err(Rejection::NotFound));
}

#[test]
fn a_client_is_registered_in_ones_own_tenant_which_exists() {
    let world_tenant = World::new().tenant().map(Record::Tenant);
    let mut env = World::new().env();
    let gone = clients::register(&admin(), &mut env, None, new_client());
    assert_eq!(gone.map(|_| ()), Err(Rejection::NotFound));
    let elsewhere = NewClient {
        tenant: TenantId::from_bytes([9; 16]),
        ..new_client()
    };
    let crossing = clients::register(&admin(), &mut env, world_tenant.as_ref(), elsewhere);
    assert_eq!(crossing.map(|_| ()), Err(Rejection::AnotherTenant));
}

#[test]
fn a_client_shows_its_secret_and_one_without_shows_none() {
    let mut world = World::new();
    let public = world.register(Registrar::Admin);
    let mut secret = public.clone();
    secret.secret_hash = Some("5ec2e7".to_owned());
    for (client, shown, expected) in [
        (&public, None, Ok(())),
        (&public, Some("5ec2e7"), Err(BadSecret)),
        (&secret, Some("5ec2e7"), Ok(())),
        (&secret, None, Err(BadSecret)),
        (&secret, Some(""), Err(BadSecret)),
        (&secret, Some("5ec2e"), Err(BadSecret)),
        (&secret, Some("5ec2e70"), Err(BadSecret)),
        (&secret, Some("5ec2e8"), Err(BadSecret)),
    ] {
        assert_eq!(prove_client(client, shown), expected, "{shown:?}");
    }
}
