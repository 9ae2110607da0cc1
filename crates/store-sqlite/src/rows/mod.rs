//! The rows of the two large tables: how they are read and written.

pub(crate) mod checksum;
mod more;
pub(crate) mod receipt;
pub(crate) mod task;
