//! Clients of OAuth: which programs may ask the people of a tenant for tokens.

use super::{Actor, Managed, decided, the_tenant};
use crate::{
    Decision, Env,
    identity::{
        Changes, OauthClient, Record, Rejection,
        audit::{Draft, Event},
        oauth::{NewClient, check_client, made},
    },
};

/// Registers a client for good. `tenant` is the record of the tenant. A client has no rights of its own: what it is
/// granted is what a person has, so nothing is given away here.
pub fn register(
    actor: &Actor,
    env: &mut Env,
    tenant: Option<&Record>,
    new: NewClient,
) -> Managed<OauthClient> {
    actor.target(Some(new.tenant))?;
    the_tenant(tenant)?;
    check_client(&new)?;
    let client = made(env, new, None);
    let audit = tell(actor, env, &client, Event::ClientRegistered);
    let put = vec![Record::OauthClient(client.clone())];
    Ok(decided(client, put, audit))
}

/// Removes a client. It gets no more tokens; those that it has are ended apart, by
/// [`revoke_families`](crate::identity::oauth::revoke_families), because there may be many.
pub fn remove(actor: &Actor, env: &mut Env, found: Option<&Record>) -> Managed<OauthClient> {
    let client = removable(actor, found)?;
    let changes = Changes {
        removed: found.map(Record::key).into_iter().collect(),
        audit: tell(actor, env, client, Event::ClientRemoved),
        ..Changes::default()
    };
    let output = client.clone();
    Ok(Decision { changes, output })
}

/// Returns the client that would be removed. Its tokens are ended before it is gone: whoever is cut off in between can begin
/// again, as long as there is a client to name.
pub fn to_remove(actor: &Actor, found: Option<&Record>) -> Managed<OauthClient> {
    Ok(Decision {
        output: removable(actor, found)?.clone(),
        changes: Changes::default(),
    })
}

fn removable<'a>(actor: &Actor, found: Option<&'a Record>) -> Result<&'a OauthClient, Rejection> {
    let Record::OauthClient(client) = actor.sees(found)? else {
        return Err(Rejection::NotFound);
    };
    Ok(client)
}

fn tell(actor: &Actor, env: &mut Env, client: &OauthClient, event: Event) -> Vec<Draft> {
    let (id, scopes) = (client.id.to_string(), client.scopes.to_string());
    let details = [
        ("client_id", id.as_str()),
        ("client_name", &client.name),
        ("scope", &scopes),
    ];
    actor.tell(env, client.tenant, event, &details)
}
