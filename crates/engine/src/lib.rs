//! The canonical operations: authorise, transact, answer.
//!
//! Facades decide nothing: they find an operation in the [`registry`], hand it the caller and the input
//! as they came, and encode the answer or the [`Fault`]. Every call takes the way of the module `call`.

mod authorise;
mod batch;
mod budget;
mod call;
mod call_limits;
mod caller;
mod client_limits;
mod clock;
mod domains;
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
mod rate_headers;
mod refusals;
mod registry;
pub mod schema;
mod settings;
mod sign;
mod sweep;
mod touches;
mod view;

pub use asyncgate_core::{Principal, PrincipalKind, TenantId, json::has_unfit_number};
pub use asyncgate_warrants::Network;
pub use budget::{Budget, Grant, Holder};
pub use call::{execute, hold};
pub use caller::{Authenticator, Caller, RequestContext, Role};
pub use clock::{Clock, Entropy};
pub use domains::{DomainAnswer, DomainRequest, Domains};
pub use engine::Engine;
pub use events::{Event, Events, Subscription};
pub use fault::Fault;
pub use ingress::{Ingress, Ingresses, LimitBy, Message, Provider, Received, Secret};
pub use input::decode;
pub use mailbox::{MessageStream, Streamed};
pub use operations::{Descriptor, Execute};
pub use origin::{CorrId, Remote};
pub use rate_headers::{Header, rate_headers};
pub use refusals::{Client, Window, Windows};
pub use registry::{Answer, Answered, Call, Entry, Source, registry};
pub use settings::{Bodies, Durability, Settings};
pub use sign::Signer;
pub use touches::Touches;
