//! What a login grants, and to whom.

use asyncgate_core::{
    TenantId,
    identity::{
        Find, IdentityLink, Record, Role, Scope, Scopes,
        audit::Event,
        oauth::{AuthorizationRequest, CODE_TTL_MS, ErrorCode, LoginRefusal},
    },
};

use super::world::{Registrar, World, asking, new_person};

#[test]
fn a_code_stands_for_what_the_client_asks_for_and_the_person_has() {
    for (role, scopes, asked, granted) in [
        (
            Role::Agent,
            None,
            &[Scope::TasksRead, Scope::AdminRead][..],
            &[Scope::TasksRead][..],
        ),
        // A wide scope covers narrow ones.
        (
            Role::Admin,
            Some(Scopes::of(&[Scope::AdminRead])),
            &[Scope::TasksRead, Scope::TasksWrite],
            &[Scope::TasksRead],
        ),
        // A scope that the role cannot have gives nothing.
        (
            Role::Agent,
            Some(Scopes::of(&[Scope::AdminRead, Scope::TasksWrite])),
            &[Scope::TasksRead, Scope::TasksWrite, Scope::AdminRead],
            &[Scope::TasksWrite],
        ),
        (
            Role::Admin,
            None,
            &[Scope::TasksRead, Scope::TasksWrite, Scope::AdminRead],
            &[Scope::TasksRead, Scope::TasksWrite, Scope::AdminRead],
        ),
    ] {
        let mut world = World::new();
        let client = world.register(Registrar::Admin);
        let person = world.let_in(IdentityLink {
            role,
            scopes,
            ..new_person("ada")
        });
        let asked = AuthorizationRequest {
            scopes: Scopes::of(asked),
            ..asking(&client)
        };
        let grant = world.log_in(&asked, &person, "code").unwrap();
        assert_eq!(grant.scopes, Scopes::of(granted));
        assert_eq!((grant.client, grant.identity), (client.id, person.id));
        assert_eq!((&grant.principal, grant.role), (&person.principal, role));
    }
}

#[test]
fn a_code_lives_for_a_minute() {
    let mut world = World::new();
    let client = world.register(Registrar::Admin);
    let person = world.let_in(new_person("ada"));
    world.log_in(&asking(&client), &person, "code").unwrap();
    let Some(Record::AuthorizationCode(code)) = world.find(&Find::code("code")) else {
        panic!("there is a code");
    };
    assert_eq!(CODE_TTL_MS, 60_000);
    assert_eq!(code.expires_at, world.now.plus_millis(60_000));
    assert_eq!(code.family, None);
    assert_eq!(world.events.last(), Some(&Event::AuthSuccess));
}

#[test]
fn nobody_gets_a_code_without_leave() {
    let mut world = World::new();
    let client = world.register(Registrar::Admin);
    let person = world.let_in(new_person("ada"));
    let worker = world.let_in(IdentityLink {
        role: Role::Worker,
        ..new_person("bob")
    });
    let request = asking(&client);
    let nothing = world.log_in(&request, &worker, "a");
    assert_eq!(nothing, Err(LoginRefusal::NoScopes));

    let elsewhere = AuthorizationRequest {
        redirect_uri: "https://evil.example".to_owned(),
        ..request.clone()
    };
    let refused = world.log_in(&elsewhere, &person, "b");
    assert_eq!(refused, Err(LoginRefusal::NoClient));
    assert_eq!(LoginRefusal::NoClient.code(), None, "it is told nobody");

    world.suspend(true);
    let suspended = world.log_in(&request, &person, "c");
    assert_eq!(suspended, Err(LoginRefusal::Suspended));
    world.suspend(false);

    // The leave to enter another tenant is none for this one.
    let other = IdentityLink {
        tenant: TenantId::from_bytes([7; 16]),
        ..person.clone()
    };
    let record = Record::IdentityLink(other);
    world.records.insert(record.key(), record);
    let stranger = world.log_in(&request, &person, "d");
    assert_eq!(stranger, Err(LoginRefusal::NoLeave));
    world
        .records
        .remove(&Record::IdentityLink(person.clone()).key());
    let gone = world.log_in(&request, &person, "e");
    assert_eq!(gone, Err(LoginRefusal::NoLeave));
    assert_eq!(LoginRefusal::NoLeave.code(), Some(ErrorCode::AccessDenied));
    for hash in ["a", "b", "c", "d", "e"] {
        assert_eq!(world.find(&Find::code(hash)), None);
    }
}
