#![doc = include_str!("../README.md")]
//!
//! **Architecture Invariant:** this crate is all that a client needs. It has no rules: a value that parses
//! here may still be refused by the engine.

mod address;
mod admission;
mod batch;
pub mod bounds;
mod code;
mod forms;
mod identity;
mod ingress;
mod json;
mod leases;
mod mailbox;
mod messages;
mod oauth;
mod operation;
mod payload;
mod principal;
mod receipts;
mod scope;
mod server;
mod task_batches;
mod tasks;
mod toolset;
mod usage;

pub use address::is_public;
pub use admission::*;
pub use batch::{Batch, Refusal};
pub use code::{Code, ErrorBody};
pub use forms::Forms;
pub use identity::*;
pub use ingress::IngressOutput;
pub use json::{Misread, decode, decode_for};
pub use leases::*;
pub use mailbox::*;
pub use messages::*;
pub use oauth::*;
pub use operation::{Access, Effect, Method, Operation, Plane, Spec};
pub use payload::{Payload, Text};
pub use principal::{Principal, PrincipalKind};
pub use receipts::*;
pub use scope::Scope;
pub use server::*;
pub use task_batches::*;
pub use tasks::*;
pub use toolset::Toolset;
pub use usage::*;
