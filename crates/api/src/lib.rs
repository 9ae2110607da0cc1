#![doc = include_str!("../README.md")]
//!
//! **Architecture Invariant:** this crate is all that a client needs. It has no rules: a value that parses
//! here may still be refused by the engine.

mod admission;
mod batch;
pub mod bounds;
mod code;
mod forms;
mod ingress;
mod json;
mod leases;
mod mailbox;
mod messages;
mod operation;
mod payload;
mod principal;
mod receipts;
mod server;
mod tasks;
mod toolset;

pub use admission::*;
pub use batch::{Batch, Refusal};
pub use code::{Code, ErrorBody};
pub use forms::Forms;
pub use ingress::IngressOutput;
pub use json::{Misread, decode};
pub use leases::*;
pub use mailbox::*;
pub use messages::*;
pub use operation::{Access, Effect, Method, Operation, Plane, Spec};
pub use payload::{Payload, Text};
pub use principal::{Principal, PrincipalKind};
pub use receipts::*;
pub use server::*;
pub use tasks::*;
pub use toolset::Toolset;
