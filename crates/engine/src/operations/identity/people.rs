//! People who may enter a tenant.

use asyncgate_api::{
    AddIdentity, AddIdentityInput, GetIdentity, IdentityRecord, ListIdentities,
    ListIdentitiesOutput, RemoveIdentity, RemovedIdentity,
};
use asyncgate_core::{
    RecordId,
    identity::{
        self, Find, IdentityLink, Person, Record, RecordKind,
        manage::people::{self, NewPerson},
    },
};
use asyncgate_store::identity::Owner;

use super::{
    Execute, Executed, effective,
    incident::{End, Whose},
    keys::{named, two},
    reading, rights, unknown,
};
use crate::{Caller, Engine, Fault, NewSecret, input, view};

impl Execute for AddIdentity {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let person = person(&input)?;
        let password = input.password.map(|password| password.0);
        people::check_password(&input.provider, &person, password.as_deref())
            .map_err(identity::Rejection::from)?;
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let mut new = NewPerson {
            tenant: tenant.await?,
            provider: input::name("provider", input.provider)?,
            person,
            rights: rights(input.principal, &input.role, input.scopes)?,
            password_hash: None,
        };
        let actor = Engine::actor(caller);
        people::check(&actor, &new).map_err(|refused| caller.told(refused.into()))?;
        if let Some(password) = password {
            let hashed = engine.keyring()?.hash(NewSecret::new(password));
            new.password_hash = Some(hashed.await?);
        }
        let by_name = Find::person(new.tenant, &new.provider, &new.person);
        let reads = reading(vec![Find::tenant(new.tenant), by_name]);
        let added = engine.manage(caller, reads, move |env, snapshot| {
            let [tenant, taken] = two(&snapshot.records);
            people::add(&actor, env, tenant, taken, new.clone())
        });
        Ok(shown(added.await?))
    }

    fn created(_: &IdentityRecord) -> bool {
        true
    }
}

impl Execute for ListIdentities {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let owner = Owner::Tenant(tenant.await?);
        let page = (input.limit, input.cursor.as_deref());
        let listed = engine.page_of(RecordKind::IdentityLink, owner, page);
        let (found, next_cursor) = listed.await?;
        let identities = found.into_iter().filter_map(|record| {
            let Record::IdentityLink(link) = record else {
                return None;
            };
            Some(shown(link))
        });
        Ok(ListIdentitiesOutput {
            identities: identities.collect(),
            next_cursor,
        })
    }
}

impl Execute for GetIdentity {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.identity_id)?;
        let found = engine.store.identity().record(find).await?;
        let Some(Record::IdentityLink(link)) = found else {
            return Err(unknown());
        };
        Ok(shown(link))
    }
}

impl Execute for RemoveIdentity {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.identity_id)?;
        let actor = Engine::actor(caller);
        let looked = engine.manage(caller, reading(vec![find.clone()]), move |_, snapshot| {
            people::to_remove(&actor, snapshot.first_record())
        });
        let link = looked.await?;
        let whose = Whose {
            tenant: link.tenant,
            principal: Some(link.principal.clone()),
        };
        let end = || {
            let kinds = &[RecordKind::TokenFamily];
            engine.end_credentials(caller, &whose, kinds, End::Now)
        };
        let ended = end().await?.tokens;
        let actor = Engine::actor(caller);
        let removed = engine.manage(caller, reading(vec![find]), move |env, snapshot| {
            people::remove(&actor, env, snapshot.first_record())
        });
        let link = removed.await?;
        let id = link.id.to_string();
        engine.forget([Record::IdentityLink(link)])?;
        // Logins that were finished meanwhile.
        let ended = ended + end().await?.tokens;
        Ok(RemovedIdentity {
            identity_id: id,
            tokens_revoked: ended,
        })
    }
}

fn find(caller: &Caller, tenant_id: Option<&str>, identity_id: &str) -> Result<Find, Fault> {
    let id: RecordId = input::id("identity_id", identity_id)?;
    named(caller, tenant_id, RecordKind::IdentityLink, id)
}

/// Reads how the provider names the person.
fn person(input: &AddIdentityInput) -> Result<Person, Fault> {
    match (&input.subject, &input.email) {
        (Some(subject), None) => {
            input::check_name("subject", subject)?;
            Ok(Person::Subject(subject.clone()))
        }
        (None, Some(email)) => {
            input::check_name("email", email)?;
            let parts = email.split_once('@');
            let is_address = parts.is_some_and(|(name, host)| {
                let plain = |part: &str| !part.is_empty() && !part.contains(['@', ' ']);
                plain(name) && plain(host)
            });
            match is_address {
                true => Ok(Person::Email(email.clone())),
                false => Err(Fault::bad_request("email is no address").with("field", "email")),
            }
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(Fault::bad_request("give exactly one of subject and email"))
        }
    }
}

fn shown(link: IdentityLink) -> IdentityRecord {
    let (subject, email) = match link.person {
        Person::Subject(subject) => (Some(subject), None),
        Person::Email(email) => (None, Some(email)),
    };
    IdentityRecord {
        identity_id: link.id.to_string(),
        tenant_id: link.tenant.to_string(),
        provider: link.provider,
        subject,
        email,
        principal: view::principal_key(&link.principal),
        role: link.role.as_str().to_owned(),
        scopes: effective(link.role, link.scopes),
        created_at: link.created_at.to_string(),
    }
}
