//! The key that signs access tokens. It is no record but a file of the server, so all that is decided here is who may
//! have it replaced, and what the audit log says of it.

use super::{Actor, Managed, decided};
use crate::{Env, identity::audit::Event};

/// Lets a platform admin have access tokens signed with another key. The server's own log tells of it, and that of
/// the admin's tenant.
pub fn rotate(actor: &Actor, env: &mut Env, kid: &str) -> Managed<()> {
    actor.must_be_platform_admin()?;
    let details = [("key", "token_key"), ("kid", kid)];
    let logs = [None, Some(actor.tenant)];
    let told = logs.map(|log| actor.draft(env, log, Event::KeyRotated).with(&details));
    Ok(decided((), Vec::new(), told.into()))
}
