//! Tenuo warrants: signed, expiring rights to call tools, handed on and narrowed from holder to holder.
//!
//! [`verify`] takes a chain of warrants and a call, and decides if the chain allows the call: signatures,
//! links, times, the tool, its arguments, and the holder's proof. Questions that need stored state
//! (revocation, rates, nonces) are returned as [`HostCheck`]s, for every extension on any warrant of the
//! chain: handing a warrant on does not remove what it asks for.
//!
//! Invariants: nothing here does I/O or reads a clock; no input makes it panic, recurse without bound or
//! use more memory than a small multiple of its size; everything that it does not understand is refused.

mod cbor;
mod chain;
mod constraint;
mod extension;
mod pop;
mod value;
mod verify;
mod warrant;

pub use constraint::Network;
pub use extension::{HostCheck, MAX_NONCE_SECS, Subject, SubjectKind};
pub use pop::proof_message;
pub use verify::{
    Call, Check, CheckName, Policy, Pop, Reason, Refusal, RevocationPolicy, Verification, verify,
};
pub use warrant::{PublicKey, WarrantId};
