//! Clients that a document describes: where it may be, what it may say, and what is kept of it.

use std::net::IpAddr;

use asyncgate_core::{
    TenantId,
    identity::{
        OauthClient, Record, Scope, Scopes,
        audit::Event,
        oauth::{
            BadClient, BadDocument, ClientName, NewClient, Reach, Statement, check_statement,
            describe, document_client_id, is_up_to_date,
        },
    },
};

use super::world::{DAY_MS, World, new_client};

const ADDRESS: &str = "https://app.example/client.json";

#[test]
fn a_name_is_an_id_or_the_address_of_a_document() {
    let id = "0190a0b0-0000-7000-8000-000000000000";
    for (text, expected) in [
        (id, Some(ClientName::Id(id.parse().unwrap()))),
        (ADDRESS, Some(ClientName::Document(ADDRESS.to_owned()))),
        (
            "http://localhost/c",
            Some(ClientName::Document("http://localhost/c".to_owned())),
        ),
        ("HTTPS://app.example/c", None),
        ("ftp://app.example/c", None),
        ("nonsense", None),
        ("", None),
    ] {
        assert_eq!(ClientName::parse(text), expected, "{text}");
    }
}

#[test]
fn documents_are_at_plain_addresses_of_the_internet() {
    // For each: on the public internet only, and with the own machine.
    for (address, public, near) in [
        (ADDRESS, true, true),
        ("https://app.example/", true, true),
        ("https://app.example:8443/a/b?v=1", true, true),
        ("https://app.example/.well-known/c", true, true),
        ("https://app.example/a..b/...", true, true),
        ("https://app.example", false, false),
        ("https://app.example?c", false, false),
        ("https://app.example/a/./c", false, false),
        ("https://app.example/../c", false, false),
        ("https://app.example/%2e%2E/c", false, false),
        ("https://app.example/.%2e", false, false),
        ("https://app.example/c#", false, false),
        ("https://user:pw@app.example/c", false, false),
        ("https://app.example/a b", false, false),
        ("http://app.example/c", false, false),
        ("http://localhost.app.example/c", false, false),
        ("http://127.0.0.1:5000/c", false, true),
        ("http://localhost/c", false, true),
        ("https://localhost/c", false, true),
        ("https://[::1]/c", false, true),
    ] {
        for (reach, expected) in [(Reach::Public, public), (Reach::PublicAndOwnMachine, near)] {
            let checked = reach.check(address);
            assert_eq!(checked.is_ok(), expected, "{reach:?} {address}");
        }
    }
    let long = format!("https://app.example/{}", "x".repeat(2_048));
    assert_eq!(Reach::Public.check(&long), Err(BadDocument::Address));
}

#[test]
fn every_address_of_a_host_must_be_allowed() {
    let is_public = |address: IpAddr| address == IpAddr::from([93, 184, 216, 34]);
    for (found, public, near) in [
        (&["93.184.216.34"][..], true, true),
        (&["93.184.216.34", "93.184.216.34"], true, true),
        (&["127.0.0.1"], false, true),
        (&["127.0.0.1", "::1"], false, true),
        (&["10.0.0.1"], false, false),
        (&["93.184.216.34", "10.0.0.1"], false, false),
        (&["127.0.0.1", "93.184.216.34"], false, false),
        (&["127.0.0.1", "10.0.0.1"], false, false),
        (&[], false, false),
    ] {
        let found: Vec<IpAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
        for (reach, expected) in [(Reach::Public, public), (Reach::PublicAndOwnMachine, near)] {
            let allowed = reach.allows(&found, is_public);
            assert_eq!(allowed, expected, "{reach:?} {found:?}");
        }
    }
}

#[test]
fn a_document_speaks_for_its_own_address_and_has_no_secret() {
    let good = Statement {
        client_id: Some(ADDRESS),
        auth_method: Some("none"),
        has_secret: false,
    };
    let other = Err(BadDocument::OtherName);
    let secret = Err(BadDocument::Secret);
    for (said, expected) in [
        (good, Ok(())),
        (
            Statement {
                auth_method: None,
                ..good
            },
            Ok(()),
        ),
        (
            Statement {
                client_id: None,
                ..good
            },
            other.clone(),
        ),
        (
            Statement {
                client_id: Some(""),
                ..good
            },
            other.clone(),
        ),
        (
            Statement {
                client_id: Some("https://app.example/client.json/"),
                ..good
            },
            other.clone(),
        ),
        (
            Statement {
                client_id: Some("https://APP.example/client.json"),
                ..good
            },
            other,
        ),
        (
            Statement {
                has_secret: true,
                ..good
            },
            secret.clone(),
        ),
        (
            Statement {
                auth_method: Some("client_secret_post"),
                ..good
            },
            secret.clone(),
        ),
        (
            Statement {
                auth_method: Some("private_key_jwt"),
                ..good
            },
            secret,
        ),
    ] {
        assert_eq!(check_statement(ADDRESS, &said), expected, "{said:?}");
    }
}

#[test]
fn a_client_has_one_record_for_each_tenant() {
    let (one, two) = (TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16]));
    let id = document_client_id(one, ADDRESS);
    assert_eq!(id, document_client_id(one, ADDRESS));
    assert_ne!(id, document_client_id(two, ADDRESS));
    assert_ne!(
        id,
        document_client_id(one, "https://app.example/client.jso")
    );
    let text = id.to_string();
    assert_eq!(&text[14..15], "8", "a UUID of version 8: {text}");
}

/// Takes a document up, and returns the client with the events that tell of it.
fn described(
    world: &mut World,
    known: Option<&OauthClient>,
    new: NewClient,
) -> (OauthClient, Vec<Event>, usize) {
    let decision = describe(&mut world.env(), ADDRESS, known, new).unwrap();
    let events = decision.changes.audit.iter().map(|draft| draft.event);
    for record in &decision.changes.put {
        assert_eq!(*record, Record::OauthClient(decision.output.clone()));
    }
    let events = events.collect();
    (decision.output, events, decision.changes.put.len())
}

#[test]
fn a_described_client_is_kept_like_one_that_registered_itself() {
    let mut world = World::new();
    let wish = NewClient {
        scopes: Scopes::of(&[Scope::TasksRead, Scope::AdminWrite, Scope::PlatformAdmin]),
        secret_hash: Some("a secret".to_owned()),
        ..new_client()
    };
    let (client, events, _) = described(&mut world, None, wish.clone());
    assert_eq!(events, [Event::ClientRegistered]);
    assert_eq!(client.scopes, Scopes::of(&[Scope::TasksRead]));
    assert_eq!(client.secret_hash, None);
    assert_eq!(client.public_name(), ADDRESS);
    assert_eq!(client.expires_at, Some(world.now.plus_millis(DAY_MS)));
    assert!(is_up_to_date(&client, &wish, world.now));

    // The same again changes nothing, and late in its life only that.
    let (same, events, put) = described(&mut world, Some(&client), wish.clone());
    assert_eq!((&same, events.len(), put), (&client, 0, 0));
    world.advance(DAY_MS - 1);
    assert!(!is_up_to_date(&client, &wish, world.now));
    let (later, events, put) = described(&mut world, Some(&client), wish.clone());
    assert_eq!((events.len(), put), (0, 1));
    assert_eq!(later.expires_at, Some(world.now.plus_millis(DAY_MS)));
    assert_eq!(later.created_at, client.created_at);

    // What it says now counts, and its tokens keep it for as long as before.
    let used = OauthClient {
        expires_at: Some(world.now.plus_millis(90 * DAY_MS)),
        ..client.clone()
    };
    let moved = NewClient {
        redirect_uris: vec!["https://app.example/new".to_owned()],
        ..wish
    };
    assert!(!is_up_to_date(&used, &moved, world.now));
    let (changed, events, _) = described(&mut world, Some(&used), moved.clone());
    assert_eq!(events, [Event::ClientRegistered]);
    assert_eq!(changed.redirect_uris, moved.redirect_uris);
    assert_eq!(
        (changed.id, changed.expires_at),
        (client.id, used.expires_at)
    );

    let unfit = NewClient {
        redirect_uris: Vec::new(),
        ..moved
    };
    let refused = describe(&mut world.env(), ADDRESS, None, unfit);
    assert_eq!(refused.map(|_| ()), Err(BadClient::Redirects));
}
