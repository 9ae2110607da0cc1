//! Sequential delay domains (CIP-40), byte for byte compatible with the deployed ODIS signers.
//!
//! A domain describes its own limit: stages of attempts with delays between them. The holder of the key
//! of the domain's address signs requests to use an attempt, to read the domain's state, or to disable it.
//!
//! A request takes three steps. [`Rules::admit`] reads the body, the key version and the signature, and
//! needs no state. [`Admitted::decide`] takes the stored state and the time and returns the state to store.
//! Once that is stored, [`Rules::respond`] builds the answer, with the evaluation of the blinded message.
//!
//! Invariants: nothing here does I/O, reads a clock or draws a random number; a refused request stores
//! nothing; no message is evaluated before the attempt that pays for it is stored.

mod answer;
mod decide;
pub mod delay;
mod evaluator;
mod hash;
mod poprf;
mod request;
mod signer;

pub use answer::{Answer, Body, Problem, Status};
pub use decide::{Admitted, Compat, Decision, Rules};
pub use delay::State;
pub use evaluator::{Evaluator, Key, Limiter, Poprf};
pub use hash::{Hash, domain_hash, request_hash, signing_hash};
pub use poprf::SecretKey;
pub use request::{Domain, Kind, Optional, Options, Request, Stage};
pub use signer::{Address, recovers};
