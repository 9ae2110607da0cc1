//! Every operation of identity through the client.

use asyncgate_client::{Client, api::*};
use futures_util::TryStreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ID: &str = "0190a0b0-0000-7000-8000-000000000000";

fn input<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an input")
}

/// Calls each of them once. The tests of the engine tell what they do; here it counts that each reaches its route, so
/// most of them are about things that do not exist.
pub async fn call_everything(client: &Client) {
    let who = client.whoami().await.expect("an identity");
    assert_eq!(who.role.as_str(), "admin");

    let w1 = json!({ "kind": "worker", "id": "w1" });
    let key = input::<CreateKeyInput>(json!({ "principal": w1, "role": "worker" }));
    drop(client.create_key(&key).await);
    drop(client.rotate_key(&input(json!({ "key_id": ID }))).await);
    drop(client.revoke_key(&input(json!({ "key_id": ID }))).await);
    drop(client.keys(ListKeysInput::default()).try_next().await);
    let w1 = json!({ "principal": w1 });
    drop(client.rotate_all_keys(&input(w1.clone())).await);
    drop(client.revoke_all_credentials(&input(w1)).await);
    drop(client.rotate_token_key().await);

    drop(
        client
            .create_tenant(&input(json!({ "name": "acme" })))
            .await,
    );
    drop(client.tenants(ListTenantsInput::default()).try_next().await);
    let tenant = json!({ "tenant_id": ID });
    drop(client.get_tenant(&input(tenant.clone())).await);
    drop(client.change_tenant(&input(tenant.clone())).await);
    drop(client.get_usage(&UsageInput::default()).await);
    drop(
        client
            .usage_events(ListUsageEventsInput::default())
            .try_next()
            .await,
    );
    let until = json!({ "tenant_id": ID, "reason": "r", "until": "2030-01-01T00:00:00Z" });
    drop(client.grant_bypass(&input(until.clone())).await);
    drop(client.end_bypass(&input(tenant.clone())).await);
    let mut stricter = until;
    stricter["quotas"] = json!({ "api_calls_per_hour": 1 });
    drop(client.throttle_tenant(&input(stricter)).await);
    drop(client.end_throttle(&input(tenant)).await);

    let alice = json!({ "kind": "agent", "id": "alice" });
    let macaroon = json!({ "principal": alice, "caveats": ["op = send"] });
    drop(client.create_macaroon(&input(macaroon)).await);
    drop(
        client
            .revoke_macaroon(&input(json!({ "macaroon_id": ID })))
            .await,
    );

    let person = json!({ "provider": "p", "subject": "s", "principal": alice, "role": "agent" });
    drop(client.add_identity(&input(person)).await);
    drop(
        client
            .identities(ListIdentitiesInput::default())
            .try_next()
            .await,
    );
    drop(
        client
            .get_identity(&input(json!({ "identity_id": ID })))
            .await,
    );
    drop(
        client
            .remove_identity(&input(json!({ "identity_id": ID })))
            .await,
    );

    let program = json!({
        "client_name": "c", "redirect_uris": ["https://c.example/cb"], "scopes": ["tasks:read"],
    });
    drop(client.create_oauth_client(&input(program)).await);
    drop(
        client
            .oauth_clients(ListOauthClientsInput::default())
            .try_next()
            .await,
    );
    drop(
        client
            .get_oauth_client(&input(json!({ "client_id": ID })))
            .await,
    );
    drop(
        client
            .remove_oauth_client(&input(json!({ "client_id": ID })))
            .await,
    );

    drop(client.audit(ListAuditInput::default()).try_next().await);
}
