//! The canonical operations: authorise, transact, answer.
//!
//! Facades decode nothing and decide nothing: they find an operation in the [`registry`], hand it
//! the caller and the input as they came, and encode the answer or the [`Fault`].

mod authorise;
mod caller;
mod client;
mod clock;
mod engine;
mod events;
#[cfg(feature = "fakes")]
pub mod fakes;
mod fault;
mod ingress;
mod input;
mod mailbox;
mod metrics;
mod operations;
mod origin;
mod own;
mod rate;
mod registry;
mod settings;
mod sign;
mod sweep;
mod view;

pub use asyncgate_core::{Principal, PrincipalKind, TenantId};
pub use caller::{Authenticator, Caller, RequestContext, Role};
pub use clock::{Clock, Entropy};
pub use engine::Engine;
pub use events::{Event, Events, Subscription};
pub use fault::Fault;
pub use ingress::{Ingress, Ingresses, LimitBy, Received, Secret};
pub use input::decode;
pub use mailbox::{MessageStream, Streamed};
pub use operations::Execute;
pub use origin::{CorrId, Remote, spawn};
pub use rate::rate_headers;
pub use registry::{Answer, Answered, Call, Entry, Source, authorise, execute, registry};
pub use settings::{Bodies, Durability, Settings};
pub use sign::Signer;
