//! People: by what a provider of identities, or a password, says of them.
//!
//! People without a provider have a password here: see [`people`](crate::identity::manage::people), which lets people in.
//! A forgotten password is replaced by removing the person and adding them again; tokens that were issued before are not
//! refreshed then, because the leave that they were granted by is gone.

use crate::identity::IdentityLink;

/// Returns the leave by which a person enters. The provider's own name for them counts before their e-mail address,
/// which may be given to somebody else one day. `by_email` must be absent unless the provider verified the address.
pub fn enter<'a>(
    by_subject: Option<&'a IdentityLink>,
    by_email: Option<&'a IdentityLink>,
) -> Option<&'a IdentityLink> {
    by_subject.or(by_email)
}
