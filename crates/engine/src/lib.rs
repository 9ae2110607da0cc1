//! The canonical operations: authorise, admit, transact, effects.

mod caller;
mod fault;
mod registry;

pub use caller::{Authenticator, Caller, Role};
pub use fault::Fault;
pub use registry::{Answer, Entry, Source, registry};

/// The engine.
#[derive(Debug)]
pub struct Engine {}
