//! The time of the wall, for what is told in it: the end of a token, the end of an exception.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line takes no part in decisions of the server"
)]
pub fn now_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
