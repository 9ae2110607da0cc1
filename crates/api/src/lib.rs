//! The wire contract: every operation's input, output and spec, and the error codes.
//!
//! This crate is all that a client needs. It has no rules: a value that parses here may still be
//! refused by the engine.

mod admission;
mod code;
mod leases;
mod mailbox;
mod operation;
mod payload;
mod principal;
mod receipts;
mod server;
mod tasks;

pub use admission::*;
pub use code::{Code, ErrorBody};
pub use leases::*;
pub use mailbox::*;
pub use operation::{Access, Effect, Method, Operation, Plane, Spec};
pub use payload::Payload;
pub use principal::{Principal, PrincipalKind};
pub use receipts::*;
pub use server::*;
pub use tasks::*;
