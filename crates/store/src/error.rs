//! Failures of a store. In every case but [`Error::Unknown`] nothing was written.

/// A failure of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More work of this caller is waiting than the store will hold for it; try again soon. The store itself is well.
    #[error("too much work is waiting to be written")]
    Busy,
    /// The disk or database below does not accept work now; try again later.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// The disk or database failed while it kept the work: nobody knows yet whether it did.
    #[error("storage failed during a commit: {0}")]
    Unknown(String),
    /// Stored data cannot be read back as what it should be. An operator must look.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
    /// Transactions kept colliding with others; try again.
    #[error("too many conflicting transactions")]
    Conflict,
}
