//! Registration of clients by themselves, and the end of the tokens of clients that are gone.

use asyncgate_core::{
    Env, RecordId, TenantId,
    identity::{
        Find, OauthClient, Record, RecordKey, RecordKind, Scopes,
        oauth::{
            ErrorCode, NewClient, STRANGER_SCOPES, describe, document_client_id, is_up_to_date,
            register_stranger, revoke_families,
        },
    },
};
use asyncgate_store::identity::{Reads, RecordFilter, Snapshot};

use super::{Oauth, Visitor, WEIGHT, hash, oauth_fault, take};
use crate::{Engine, Fault, NewSecret};

/// The beginning of every secret of a client, by which people recognise one.
const SECRET_PREFIX: &str = "ags_";
/// The families that are looked at, and revoked, at a time.
const FAMILIES: usize = 100;

/// A client that wants to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// A name for people.
    pub name: String,
    /// The addresses to which codes may be sent.
    pub redirect_uris: Vec<String>,
    /// The scopes that it wants to ask for; absent for all that it can have.
    pub scopes: Option<Scopes>,
    /// True if it can keep a secret.
    pub confidential: bool,
}

/// A client that was registered.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The client.
    pub client: OauthClient,
    /// Its secret, to be shown once.
    pub secret: Option<NewSecret>,
}

/// Makes a secret for a client.
pub(crate) fn client_secret(engine: &Engine) -> Result<NewSecret, Fault> {
    let secret = engine.keyring()?.secret()?;
    Ok(NewSecret::new(format!(
        "{SECRET_PREFIX}{}",
        secret.reveal()
    )))
}

impl Oauth {
    /// Registers a client that nobody vouches for.
    pub async fn register(&self, wish: Registration) -> Result<Registered, Fault> {
        self.bounds.attempts.count_registration(self.now())?;
        let tenant = self.registration_tenant().await?;
        let secret = match wish.confidential {
            true => Some(client_secret(&self.engine)?),
            false => None,
        };
        let new = NewClient {
            tenant,
            name: wish.name,
            redirect_uris: wish.redirect_uris,
            scopes: wish.scopes.unwrap_or(STRANGER_SCOPES),
            secret_hash: secret.as_ref().map(|secret| hash(secret.reveal())),
        };
        let visitor = Visitor::current();
        let decide = move |mut env: Env, _: Snapshot| {
            let registered = register_stranger(&mut env, new.clone());
            Ok(visitor.sign_tried(registered))
        };
        let decided = self
            .engine
            .transact(tenant, WEIGHT, Reads::default(), decide);
        match decided.await? {
            Ok(client) => Ok(Registered { client, secret }),
            Err(bad) => Err(oauth_fault(bad.code(), bad.to_string())),
        }
    }

    /// Counts that a document is fetched, and refuses that if there were too many.
    pub fn count_document(&self) -> Result<(), Fault> {
        self.bounds.attempts.count_document(self.now())
    }

    /// Returns the client that a document describes. Nobody vouches for it.
    pub async fn describe(&self, address: &str, said: Registration) -> Result<OauthClient, Fault> {
        let new = NewClient {
            tenant: self.registration_tenant().await?,
            name: said.name,
            redirect_uris: said.redirect_uris,
            scopes: said.scopes.unwrap_or(STRANGER_SCOPES),
            secret_hash: None,
        };
        let tenant = new.tenant;
        let find = Find::id(RecordKind::OauthClient, document_client_id(tenant, address));
        let known = self.find(find.clone()).await?.and_then(Record::into_client);
        // Most requests are about a client that is known, and need no commit.
        if let Some(known) = known.filter(|known| is_up_to_date(known, &new, self.now())) {
            return Ok(known);
        }
        let (address, visitor) = (address.to_owned(), Visitor::current());
        let decide = move |mut env: Env, snapshot: Snapshot| {
            let [known] = take(snapshot.records);
            let known = known.and_then(Record::into_client);
            let described = describe(&mut env, &address, known.as_ref(), new.clone());
            Ok(visitor.sign_tried(described))
        };
        let reads = Reads {
            records: vec![find],
            ..Reads::default()
        };
        let decided = self.engine.transact(tenant, WEIGHT, reads, decide).await?;
        decided.map_err(|bad| oauth_fault(bad.code(), bad.to_string()))
    }

    /// Returns the tenant of clients that nobody vouches for.
    async fn registration_tenant(&self) -> Result<TenantId, Fault> {
        let tenant = self.tenant(&self.settings.registration_tenant).await?;
        let admitted = tenant.filter(|tenant| tenant.tenant().admit().is_ok());
        let nobody = "no tenant takes clients that register themselves";
        let refused = || oauth_fault(ErrorCode::AccessDenied, nobody);
        Ok(admitted.ok_or_else(refused)?.id)
    }
}

impl Engine {
    /// Revokes all tokens of a client that is gone. It gets no new ones meanwhile. Returns how many logins it ended.
    pub(crate) async fn end_tokens_of(
        &self,
        tenant: TenantId,
        client: RecordId,
    ) -> Result<usize, Fault> {
        let mut filter = RecordFilter::of_tenant(RecordKind::TokenFamily, tenant, FAMILIES);
        let mut ended = 0;
        loop {
            let page = self.store.identity().records(filter.clone()).await?;
            filter.after = page.last().map(|record| record.key().id);
            let is_full = page.len() == FAMILIES;
            let families = page.into_iter().filter_map(Record::into_family);
            let of_client = families.filter(|family| family.grant.client == client);
            let ids: Vec<RecordId> = of_client.map(|family| family.id).collect();
            ended += self.end_families(tenant, ids).await?;
            if !is_full {
                return Ok(ended);
            }
        }
    }

    async fn end_families(&self, tenant: TenantId, ids: Vec<RecordId>) -> Result<usize, Fault> {
        if ids.is_empty() {
            return Ok(0);
        }
        let find = |id: &RecordId| Find::within(tenant, RecordKind::TokenFamily, *id);
        let reads = Reads {
            records: ids.iter().map(find).collect(),
            ..Reads::default()
        };
        let visitor = Visitor::current();
        let decide = move |mut env: Env, snapshot: Snapshot| {
            let found = snapshot.records.into_iter().flatten();
            let families = found.filter_map(Record::into_family);
            let decision = revoke_families(&mut env, families, "the client was removed");
            Ok(visitor.sign_all(decision))
        };
        let ended = self.transact(tenant, WEIGHT, reads, decide).await?;
        for id in ids {
            let kind = RecordKind::TokenFamily;
            self.keyring()?.forget(RecordKey { kind, id });
        }
        Ok(ended)
    }
}
