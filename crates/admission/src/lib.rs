//! The layer between those who ask if something may happen and the host that decides.
//!
//! A [`Host`] decides; it is a store, the [`Minimal`] one, or any other backend that
//! keeps the promises of the trait. It may be slow or unreachable. The [`Guard`] in front of it gives every
//! call a deadline, stops asking for a while when too many calls fail, keeps answers about revocations for
//! a bounded time, and applies the operator's choice when there is no answer: refuse, allow, or use kept
//! answers. Every answer names its source.
//!
//! To add a backend: implement [`Host`] in a crate of its own that sees `asyncgate-core` and
//! `asyncgate-store`, let `asyncgate_store::conformance::exercise_host` be its first test, and give it
//! to [`Guard::new`] where the server is put together. A backend whose scripts repeat a rule must be
//! compared with `asyncgate_core::admission::decide` over random histories.

mod breaker;
mod cache;
mod guard;
mod health;
#[cfg(feature = "conformance")]
mod load;
mod metrics;
mod minimal;
mod settings;
mod tables;
mod tiers;

pub use asyncgate_store::admission::{Admission, Backend, Host, Reply};
pub use breaker::Circuit;
pub use guard::{Answered, Guard, Provenance, Registered, Source, Unavailable};
pub use health::{ComponentHealth, Health, Status};
#[cfg(feature = "conformance")]
pub use load::Load;
pub use minimal::Minimal;
pub use settings::{Component, FailureMode, Settings};
pub use tables::{Rows, Table, Wrong, limits};
pub use tiers::Tiers;
