//! A deterministic simulator of the whole engine on the in-memory store, with fake time.
//!
//! Agents and workers of several tenants call the real operations, with JSON or with typed values: in some
//! worlds on tasks, in some on messages and in some on both. Meanwhile calls are delayed, duplicated and
//! lost, the process crashes between commit and answer, the wall clock jumps and the queue before the
//! writer overflows. In some worlds callers show credentials to the real authenticator, and operators suspend
//! tenants and revoke and rotate credentials, on this instance and on another. Everything follows from a seed. After each step a model that learns only from commits
//! checks the commits, the answers and the waits; from time to time it is compared with the store. A
//! failing run is shrunk to a short schedule, which is kept and replayed for ever.
//!
//! The queue before the writer has worlds of its own (`queue.rs`).

mod asked;
mod cast;
mod clock;
mod deed;
mod entrance;
mod generate;
mod hash;
mod keyring;
mod model;
mod mutant;
mod queue;
mod rng;
mod run;
mod schedule;
mod shrink;
mod step;
mod store;
mod violation;
mod world;

pub use deed::{Deed, Place};
pub use mutant::Mutant;
pub use queue::{QueueDefect, explore_queue};
pub use run::{AUDIT_EVERY, Failure, STEPS_PER_WORLD, explore, replay};
pub use schedule::{Schedule, Setup};
pub use shrink::shrink;
pub use step::{Op, Step};
pub use violation::Violation;
