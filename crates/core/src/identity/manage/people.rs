//! People: who may enter a tenant by a provider of identities, and who no longer may.

use super::{Actor, Managed, Rights, decided, must_be_free, the_tenant};
use crate::{
    Decision, Env, TenantId,
    identity::{
        Changes, IdentityLink, Person, Record, Rejection,
        audit::{Draft, Event},
    },
};

/// The wish to let a person in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPerson {
    /// The tenant to enter.
    pub tenant: TenantId,
    /// The name of the provider of identities.
    pub provider: String,
    /// The person, as the provider names them.
    pub person: Person,
    /// What the person may do.
    pub rights: Rights,
    /// The slow hash of the person's password, if the person has one here.
    pub password_hash: Option<String>,
}

/// The name of the provider of people who have a password here. No other provider may have it.
pub const LOCAL: &str = "local";
/// The fewest characters of a password.
pub const MIN_PASSWORD_CHARS: usize = 8;
/// The most bytes of a password.
pub const MAX_PASSWORD_BYTES: usize = 1_024;

/// The reason why a person cannot have a password, or must have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPassword {
    /// Passwords are for people without a provider, who have a name and no other proof.
    #[error(
        "a password is for people of the provider `local`, who need one and are named by subject"
    )]
    Misplaced,
    /// It is easy to guess, or too long to be hashed.
    #[error(
        "a password must have at least {MIN_PASSWORD_CHARS} characters and at most {MAX_PASSWORD_BYTES} bytes"
    )]
    Length,
}

/// Refuses a person who is to be let in with a password that does not fit, or without one that is needed.
pub fn check_password(
    provider: &str,
    person: &Person,
    password: Option<&str>,
) -> Result<(), BadPassword> {
    let fits = match (person, password) {
        (Person::Subject(_), Some(_)) => provider == LOCAL,
        (Person::Email(_), Some(_)) => false,
        (_, None) => provider != LOCAL,
    };
    if !fits {
        return Err(BadPassword::Misplaced);
    }
    let is_usable = |password: &str| {
        password.chars().count() >= MIN_PASSWORD_CHARS && password.len() <= MAX_PASSWORD_BYTES
    };
    match password.is_none_or(is_usable) {
        true => Ok(()),
        false => Err(BadPassword::Length),
    }
}

/// Refuses a wish that cannot be fulfilled whatever the store holds.
pub fn check(actor: &Actor, new: &NewPerson) -> Result<(), Rejection> {
    actor.target(Some(new.tenant))?;
    actor.may_give(&new.rights)
}

/// Lets a person in. `tenant` is the record of the tenant, `taken` the leave that the person has already.
pub fn add(
    actor: &Actor,
    env: &mut Env,
    tenant: Option<&Record>,
    taken: Option<&Record>,
    new: NewPerson,
) -> Managed<IdentityLink> {
    check(actor, &new)?;
    the_tenant(tenant)?;
    must_be_free(taken)?;
    let link = IdentityLink {
        id: env.ids.record(),
        tenant: new.tenant,
        provider: new.provider,
        person: new.person,
        principal: new.rights.principal,
        role: new.rights.role,
        scopes: new.rights.scopes,
        password_hash: new.password_hash,
        created_at: env.now,
    };
    let audit = tell(actor, env, &link, Event::IdentityAdded);
    let put = vec![Record::IdentityLink(link.clone())];
    Ok(decided(link, put, audit))
}

/// Takes a person's leave to enter away. What was granted to clients in the person's name is ended apart, by
/// [`super::incident::revoke`].
pub fn remove(actor: &Actor, env: &mut Env, found: Option<&Record>) -> Managed<IdentityLink> {
    let link = removable(actor, found)?;
    let changes = Changes {
        removed: found.map(Record::key).into_iter().collect(),
        audit: tell(actor, env, link, Event::IdentityRemoved),
        ..Changes::default()
    };
    let output = link.clone();
    Ok(Decision { changes, output })
}

/// Returns the link that would be removed. Its tokens are ended before it is gone: whoever is cut off in between can begin
/// again, as long as there is a link to name.
pub fn to_remove(actor: &Actor, found: Option<&Record>) -> Managed<IdentityLink> {
    Ok(Decision {
        output: removable(actor, found)?.clone(),
        changes: Changes::default(),
    })
}

fn removable<'a>(actor: &Actor, found: Option<&'a Record>) -> Result<&'a IdentityLink, Rejection> {
    let Record::IdentityLink(link) = actor.sees(found)? else {
        return Err(Rejection::NotFound);
    };
    actor.must_have(link.role, link.scopes)?;
    Ok(link)
}

fn tell(actor: &Actor, env: &mut Env, link: &IdentityLink, event: Event) -> Vec<Draft> {
    let (id, principal) = (link.id.to_string(), link.principal.to_string());
    // The person's name at the provider stays out: it is an address as often as not.
    let details = [
        ("identity_id", id.as_str()),
        ("provider", &link.provider),
        ("for", &principal),
        ("role", link.role.as_str()),
    ];
    actor.tell(env, link.tenant, event, &details)
}
