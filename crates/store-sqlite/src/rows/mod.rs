//! Rows of the two large tables, read and written.

pub(crate) mod checksum;
pub(crate) mod receipt;
pub(crate) mod task;
