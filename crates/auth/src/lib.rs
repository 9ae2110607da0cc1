//! Who is let in: the authenticator over the store, and the secrets of the server.
//!
//! [`Auth`] turns a credential into a caller, whichever kind it is: the shared key of the settings, a stored API key,
//! an access token, a macaroon. [`ServerKeyring`] makes credentials and keeps what they are checked with. Both know the
//! records behind credentials as they were read last: a change that is made here counts at once, one that is made
//! elsewhere within the time to live.
//!
//! Invariants: no secret is stored or logged; nothing here reads a clock or draws a random number but through what the
//! server hands over; a wrong credential costs a digest and not a slow hash.

mod api_keys;
mod auth;
mod denied;
mod digest;
mod ends;
#[cfg(feature = "fakes")]
pub mod fakes;
mod files;
mod hash;
mod key_file;
mod keyring;
mod known;
mod lookups;
mod macaroons;
mod machine;
mod notes;
mod open;
mod plain_key;
mod proofs;
mod records;
mod root_key;
mod shared_key;
mod signing;
mod tend;
mod tokens;
mod verify;

pub use auth::{Auth, platform_admin};
pub use files::{Files, MemoryFiles};
pub use hash::{HashCost, NotHashed};
pub use keyring::ServerKeyring;
pub use machine::{Machine, NoRandomness};
pub use open::{Error, Settings};
pub use plain_key::{PlainKey, lookup_id};
pub use signing::{NoSigningKey, NotRotated, SigningKeys};
