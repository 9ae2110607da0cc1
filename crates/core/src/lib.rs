//! The rules of AsyncGate, as total functions over plain data.
//!
//! Nothing here waits, reads a clock, draws randomness or touches a disk: [`Env`] brings the time
//! and the ids, a store brings the rows, and a decision answers with the [`Changes`] to write.
//! The same inputs give the same decision on every backend and in every test.

pub mod admission;
mod chain;
mod change;
mod class;
mod env;
pub mod hex;
mod id;
pub mod identity;
pub mod json;
mod ledger;
mod line;
pub mod mailbox;
pub mod metering;
pub mod obligation;
pub mod outbox;
mod policy;
mod preimage;
mod principal;
pub mod receipt;
mod rejection;
mod relationship;
pub mod task;
mod time;
mod usage;

pub use chain::{Head, Link, NotALink};
pub use change::{Changes, Decision, Delivery, ObligationKey, TaskWrite};
pub use class::{Class, ClassLoad, ClassesInUse, Reach};
pub use env::Env;
pub use id::{
    AuditId, Ids, LeaseId, MessageId, ReceiptId, RecordId, Seq, ShortId, Stamp, TaskId, TenantId,
    UsageEventId,
};

pub use json::Json;
pub use ledger::Ledger;
pub use policy::{Locatability, Policy};
pub use principal::{Principal, PrincipalKey, PrincipalKind};
pub use receipt::{Receipt, ReceiptType};
pub use rejection::Rejection;
pub use relationship::{InstanceSight, Relationship};
pub use task::{Placement, Task};
pub use time::{NotATime, Timestamp};
pub use usage::{Tally, TenantLoad, Usage};
