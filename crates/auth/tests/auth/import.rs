//! The key file of older versions is taken over once.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_auth::{Files, MemoryFiles};
use asyncgate_core::TenantId;
use asyncgate_core::identity::{
    DEFAULT_TENANT, Find, Record, RecordKind, Role, TenantRecord, TenantTier,
};
use asyncgate_engine::Keyring as _;
use asyncgate_store::Store as _;
use asyncgate_store::identity::{Owner, RecordFilter};
use serde_json::{Value, json};

use crate::world::World;

const OTHER: &str = "00000000-0000-7000-8000-0000000000aa";

/// Makes a key and the entry of it in an old file.
async fn entry(world: &World, tenant: &str, role: &str, check: bool) -> (String, Value) {
    let minted = world.at.keyring.api_key().await.unwrap();
    let mut entry = json!({
        "id": minted.lookup_id,
        "tenant_id": tenant,
        "principal": {"kind": "service", "id": "admin"},
        "role": role,
        "hash": minted.hash,
        "created_at": "2026-01-05T11:00:00.000Z",
    });
    if check {
        entry["check"] = minted.check.into();
    }
    (minted.secret.reveal().to_owned(), entry)
}

fn write(files: &dyn Files, keys: &[&Value]) {
    let content = json!({"version": 1, "keys": keys});
    let content = content.to_string();
    files.replace("keys.json", content.as_bytes()).unwrap();
}

async fn keys_in(world: &World) -> Vec<Record> {
    let filter = RecordFilter {
        kind: RecordKind::ApiKey,
        owner: Owner::Anyone,
        after: None,
        limit: 100,
    };
    world.at.store.identity().records(filter).await.unwrap()
}

#[tokio::test]
async fn old_keys_are_taken_over_and_their_file_is_set_aside() {
    let world = World::new().await;
    let default = DEFAULT_TENANT.to_string();
    let (admin, first) = entry(&world, &default, "admin", true).await;
    let (worker, second) = entry(&world, OTHER, "worker", false).await;
    let (agent, third) = entry(&world, OTHER, "agent", true).await;
    let (other_admin, fourth) = entry(&world, OTHER, "admin", true).await;
    write(world.files.as_ref(), &[&first, &second, &third, &fourth]);
    assert!(world.begin().await.is_none(), "the old key is good");
    assert!(world.files.read("keys.json").unwrap().is_none());
    assert!(world.files.read("keys.json.imported").unwrap().is_some());

    let caller = world.check(&admin).await.unwrap();
    assert_eq!((caller.tenant, caller.role), (DEFAULT_TENANT, Role::Admin));
    assert!(caller.runs_the_platform(), "it ran the server");
    for (key, role) in [
        (&worker, Role::Worker),
        (&agent, Role::Agent),
        (&other_admin, Role::Admin),
    ] {
        let caller = world.check(key).await.unwrap();
        assert_eq!(
            (caller.tenant.to_string().as_str(), caller.role),
            (OTHER, role)
        );
        assert!(!caller.runs_the_platform());
    }
    let id: TenantId = OTHER.parse().unwrap();
    let found = world.find(Find::tenant(id)).await;
    let Some(Record::Tenant(TenantRecord { tier, .. })) = found else {
        panic!("{found:?}");
    };
    assert_eq!(tier, TenantTier::Enterprise);

    // Somebody puts the file back: nothing is made twice, and nothing comes back to life.
    let Some(Record::ApiKey(key)) = world.find(Find::key(&agent[4..16])).await else {
        panic!("it is stored");
    };
    world.revoke(&key).await;
    write(world.files.as_ref(), &[&first, &third]);
    assert!(world.begin().await.is_none());
    assert_eq!(keys_in(&world).await.len(), 4);
    assert_eq!(world.code(&agent).await, Some(Code::Unauthorized));
    assert_eq!(world.code(&admin).await, None);
}

#[tokio::test]
async fn an_empty_file_does_not_keep_everybody_out() {
    let world = World::new().await;
    write(world.files.as_ref(), &[]);
    let fresh = world.begin().await.unwrap();
    assert_eq!(world.code(fresh.reveal()).await, None);
}

#[tokio::test]
async fn a_file_that_was_edited_into_nonsense_stops_the_start_and_stays() {
    let world = World::new().await;
    let default = DEFAULT_TENANT.to_string();
    let (_, good) = entry(&world, &default, "admin", true).await;
    let with = |name: &str, value: Value| {
        let mut entry = good.clone();
        entry[name] = value;
        json!({"version": 1, "keys": [entry]}).to_string()
    };
    for broken in [
        String::new(),
        "{}".to_owned(),
        json!({"version": 2, "keys": []}).to_string(),
        json!({"version": 1, "keys": [{}]}).to_string(),
        json!({"version": 1, "keys": [], "x": 1}).to_string(),
        with("hash", "argon".into()),
        with("check", "x".into()),
        with("tenant_id", "x".into()),
        with("role", "system".into()),
        with("created_at", "yesterday".into()),
        with("principal", json!({"kind": "nobody", "id": "x"})),
    ] {
        let files = Arc::new(MemoryFiles::default());
        files.replace("keys.json", broken.as_bytes()).unwrap();
        let world = world.beside(files);
        let message = world.at.auth.begin().await.unwrap_err().to_string();
        assert!(
            message.contains("keys.json") && !message.contains('\n'),
            "{message}"
        );
        let kept = world.files.read("keys.json").unwrap();
        assert_eq!(kept.unwrap(), broken.as_bytes());
    }
    assert!(keys_in(&world).await.is_empty());
}
