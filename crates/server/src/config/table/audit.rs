//! Settings of the audit log.

use super::super::key::Key;
use super::{integer, live};

pub(super) static KEYS: &[Key] = &[live(
    "security.audit_logging.retention_days",
    "90",
    integer(1, 36_500),
    "The days for which entries of audit logs are kept.",
)];
