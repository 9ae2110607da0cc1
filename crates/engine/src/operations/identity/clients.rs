//! Clients of OAuth.

use asyncgate_api::{
    CreateOauthClient, CreatedOauthClient, GetOauthClient, ListOauthClients,
    ListOauthClientsOutput, OauthClientRecord, RemoveOauthClient, RemovedOauthClient,
};
use asyncgate_core::{
    RecordId,
    identity::{Find, OauthClient, Record, RecordKind, manage::clients, oauth::NewClient},
};
use asyncgate_store::identity::Owner;

use super::{Execute, Executed, keys::named, reading, unknown};
use crate::{
    Caller, Engine, Fault, input,
    oauth::{client_secret, hash},
    view,
};

impl Execute for CreateOauthClient {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let tenant = tenant.await?;
        let secret = match input.confidential {
            true => Some(client_secret(engine)?),
            false => None,
        };
        let scopes = input.scopes.into_iter().map(view::core_scope);
        let new = NewClient {
            tenant,
            name: input.client_name,
            redirect_uris: input.redirect_uris,
            scopes: scopes.collect(),
            secret_hash: secret.as_ref().map(|secret| hash(secret.reveal())),
        };
        let actor = Engine::actor(caller);
        let reads = reading(vec![Find::tenant(tenant)]);
        let registered = engine.manage(caller, reads, move |env, snapshot| {
            let tenant = snapshot.first_record();
            clients::register(&actor, env, tenant, new.clone())
        });
        let client = shown(registered.await?);
        Ok(CreatedOauthClient {
            client_id: client.client_id,
            client_secret: secret.map(|secret| secret.reveal().to_owned()),
            client_name: client.client_name,
            tenant_id: client.tenant_id,
            redirect_uris: client.redirect_uris,
            scopes: client.scopes,
            confidential: client.confidential,
            created_at: client.created_at,
        })
    }

    fn created(_: &CreatedOauthClient) -> bool {
        true
    }
}

impl Execute for ListOauthClients {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let owner = Owner::Tenant(tenant.await?);
        let page = (input.limit, input.cursor.as_deref());
        let listed = engine.page_of(RecordKind::OauthClient, owner, page);
        let (found, next_cursor) = listed.await?;
        let now = engine.now();
        let found = found.into_iter().filter_map(Record::into_client);
        let known = found.filter(|client| client.is_current(now));
        Ok(ListOauthClientsOutput {
            clients: known.map(shown).collect(),
            next_cursor,
        })
    }
}

impl Execute for GetOauthClient {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.client_id)?;
        let found = engine.store.identity().record(find).await?;
        let client = found.and_then(Record::into_client);
        let client = client.filter(|client| client.is_current(engine.now()));
        client.map(shown).ok_or_else(unknown)
    }
}

impl Execute for RemoveOauthClient {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.client_id)?;
        let actor = Engine::actor(caller);
        let looked = engine.manage(caller, reading(vec![find.clone()]), move |_, snapshot| {
            clients::to_remove(&actor, snapshot.first_record())
        });
        let client = looked.await?;
        let end = || engine.end_tokens_of(client.tenant, client.id);
        let ended = end().await?;
        let actor = Engine::actor(caller);
        let removed = engine.manage(caller, reading(vec![find]), move |env, snapshot| {
            clients::remove(&actor, env, snapshot.first_record())
        });
        let client = removed.await?;
        // Logins that were finished meanwhile.
        let ended = ended + end().await?;
        Ok(RemovedOauthClient {
            client_id: client.id.to_string(),
            tokens_revoked: ended as u64,
        })
    }
}

fn find(caller: &Caller, tenant_id: Option<&str>, client_id: &str) -> Result<Find, Fault> {
    let id: RecordId = input::id("client_id", client_id)?;
    named(caller, tenant_id, RecordKind::OauthClient, id)
}

fn shown(client: OauthClient) -> OauthClientRecord {
    OauthClientRecord {
        client_id: client.id.to_string(),
        client_name: client.name,
        tenant_id: client.tenant.to_string(),
        redirect_uris: client.redirect_uris,
        scopes: view::scopes(client.scopes),
        confidential: client.secret_hash.is_some(),
        dynamic: client.expires_at.is_some(),
        created_at: client.created_at.to_string(),
        expires_at: client.expires_at.map(|end| end.to_string()),
        document: client.document,
    }
}
