//! Ledgers outside the server: writing one to a file, verifying one without trust in its source, and
//! telling a task's story from its receipts alone.
//!
//! Invariants: a ledger that [`Verifier`] accepts is one that the rules of `core` could have written
//! and that its head's signature covers whole; otherwise the verifier names the place of the first
//! receipt that is wrong. The answer is the same for receipts from a file and one by one. No input
//! panics, and memory holds at most one line at a time plus less than a hundred bytes for each receipt.
//! `docs/LEDGER.md` describes the format, for verifiers in other languages.

mod blocks;
mod broken;
mod chains;
mod digest;
mod export;
mod file;
mod line;
mod read;
mod record;
mod report;
mod seal;
mod standing;
mod story;
mod time;
mod verify;

pub use blocks::MAX_LINE_BYTES;
pub use broken::{Break, Failure, Kind};
pub use chains::{BrokenChain, ChainReport, ChainVerifier};
pub use export::{Export, ExportError, FORMAT, Header, VERSION};
pub use file::{Progress, verify_export, verify_export_with};
pub use read::{Entry, Reader};
pub use record::record;
pub use report::{KeyUse, Report};
pub use seal::{NotAKey, PublicKey};
pub use standing::Standings;
pub use story::Story;
pub use verify::{Expectations, KnownHead, Verifier};
