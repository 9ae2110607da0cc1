//! The server that a token is meant for (RFC 8707).

use super::{ErrorCode, Refusal, redirect::is_plain};

/// The most bytes of the name of a resource.
const MAX_BYTES: usize = 2_048;

/// Accepts the name of a resource that is this server, whose address is `own`, or a part of it.
///
/// A token for somebody else could be shown here by them, so none is made.
pub fn resource<'a>(own: &str, asked: Option<&'a str>) -> Result<Option<&'a str>, Refusal> {
    let Some(asked) = asked else {
        return Ok(None);
    };
    let own = own.trim_end_matches('/');
    let below = asked.strip_prefix(own);
    let is_ours = below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    let is_plain = asked.len() <= MAX_BYTES && asked.bytes().all(is_plain);
    if is_ours && is_plain {
        return Ok(Some(asked));
    }
    Err(Refusal::new(
        ErrorCode::InvalidTarget,
        "resource must be the address of this server, or one below it, without a fragment",
    ))
}
