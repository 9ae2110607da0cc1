//! Ledgers outside the server: writing one to a file, checking one without trusting who gave it,
//! and telling a task's story from its receipts alone.
//!
//! Invariants: what [`Verifier`] accepts is a ledger that the rules of `core` could have written and
//! that its head's signature covers whole; the first receipt that is not says so by its place. The
//! answer does not depend on how the receipts came, from a file or one by one. No input panics, and
//! no input makes more than one line at a time, plus less than a hundred bytes a receipt, stay in memory.
//! The format is described in `docs/LEDGER.md` for those who verify in another language.

mod broken;
mod chains;
mod digest;
mod export;
mod file;
mod line;
mod lines;
mod read;
mod record;
mod report;
mod seal;
mod standing;
mod story;
mod time;
mod verify;

pub use broken::{Break, Failure, Kind};
pub use chains::{BrokenChain, ChainReport, ChainVerifier};
pub use export::{Export, ExportError, FORMAT, Header, VERSION};
pub use file::{Progress, verify_export, verify_export_with};
pub use lines::MAX_LINE_BYTES;
pub use read::{Entry, Reader};
pub use record::record;
pub use report::{KeyUse, Report};
pub use seal::{NotAKey, PublicKey};
pub use standing::Standings;
pub use story::Story;
pub use verify::{Expectations, KnownHead, Verifier};
