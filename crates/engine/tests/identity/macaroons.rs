use asyncgate_api::Code;
use asyncgate_credentials::macaroon::{Macaroon, RootKey};
use serde_json::{Value, json};

use crate::world::{World, text};

fn wish(caveats: Value) -> Value {
    json!({"principal": {"kind": "agent", "id": "alice"}, "caveats": caveats})
}

#[tokio::test]
async fn the_server_adds_the_end() {
    let world = World::new().await;
    let input = wish(json!(["op = send,recv", "topic = user:42:*"]));
    let made = world.call(&world.admin, "create_macaroon", input).await;
    let end = "2026-01-06T11:00:00.000Z";
    let caveats = [
        "op = send,recv",
        "topic = user:42:*",
        &format!("time < {end}"),
    ];
    assert_eq!(made["caveats"], json!(caveats));
    assert_eq!(made["expires_at"], end);
    assert_eq!(made["location"], "asyncgate");
    let macaroon = Macaroon::decode(&text(&made["macaroon"])).unwrap();
    assert_eq!(macaroon.identifier(), text(&made["identifier"]).as_bytes());
    let inside: Vec<_> = macaroon
        .caveats()
        .iter()
        .map(|it| it.identifier.clone())
        .collect();
    assert_eq!(inside, caveats.map(|caveat| caveat.as_bytes().to_vec()));
    assert!(macaroon.verify(&RootKey::derive(b"of a test")).is_ok());
    assert_eq!(world.events(&world.admin).await[0], "macaroon_minted");
    let log = json!(world.entries(&world.admin, json!({})).await).to_string();
    assert!(!log.contains(&text(&made["macaroon"])));
}

#[tokio::test]
async fn an_earlier_end_of_its_own_counts() {
    let world = World::new().await;
    let input = wish(json!(["time < 2026-01-05T12:00:00Z"]));
    let made = world.call(&world.admin, "create_macaroon", input).await;
    assert_eq!(made["expires_at"], "2026-01-05T12:00:00.000Z");
}

#[tokio::test]
async fn bad_wishes_are_refused() {
    let world = World::new().await;
    let unknown = wish(json!(["op = send", "colour = blue"]));
    let fault = world
        .refused(&world.admin, "create_macaroon", unknown)
        .await;
    assert_eq!(
        (fault.code, &fault.details["index"]),
        (Code::BadRequest, &json!(1))
    );
    let mut too_long = wish(json!([]));
    too_long["expires_in_secs"] = json!(2_592_001);
    let mut system = wish(json!([]));
    system["role"] = json!("system");
    for input in [
        too_long,
        system,
        wish(json!(["time < 2020-01-01T00:00:00Z"])),
        wish(json!(vec!["op = send"; 33])),
        wish(json!([format!("topic = {}", "x".repeat(2_000))])),
    ] {
        world
            .refuses(&world.admin, "create_macaroon", input, Code::BadRequest)
            .await;
    }
}

#[tokio::test]
async fn a_macaroon_is_revoked_by_its_id() {
    let world = World::new().await;
    let made = world
        .call(&world.admin, "create_macaroon", wish(json!([])))
        .await;
    let input = json!({"macaroon_id": made["macaroon_id"]});
    world
        .refuses(
            &world.other,
            "revoke_macaroon",
            input.clone(),
            Code::NotFound,
        )
        .await;
    let revoked = world
        .call(&world.admin, "revoke_macaroon", input.clone())
        .await;
    assert_eq!(world.test.keyring.take_forgotten().len(), 1);
    let again = world.call(&world.root, "revoke_macaroon", input).await;
    assert_eq!(revoked, again);
}
