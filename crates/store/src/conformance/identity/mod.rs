//! The cases of identity: records are found by what they say, audit logs are whole.

mod audit;
mod driver;
mod records;

use super::Case;

pub use driver::{IdentityDriver, api_key, code, draft, family, link, macaroon, tenant_record};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = records::cases();
    cases.extend(audit::cases());
    cases
}
