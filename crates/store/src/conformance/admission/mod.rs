//! The cases of admission. Those of a [`Host`] are for every backend, also one that is no store; the rest is for stores.

mod admitted;
mod decisions;
mod domains;
mod driver;
mod histories;
mod registry;
mod rows;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Case, Driver, LONGEST_CASE};
use crate::admission::Host;

pub use driver::{HostDriver, bucket, delay, increment, limit, nonce, subject, window};
pub use histories::{Breadth, follow_history};

/// A case: one thing that a host must do.
struct HostCase {
    name: &'static str,
    run: fn(HostDriver) -> BoxFuture<'static, ()>,
}

/// Lists functions as cases under their own names.
macro_rules! host_cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::admission::HostCase {
            name: concat!(module_path!(), "::", stringify!($case)),
            run: |driver| Box::pin($case(driver)),
        }),*]
    };
}
use host_cases;

/// Runs every case of admission on a host of its own and panics with the names of those that failed.
///
/// # Panics
///
/// If the host does not conform.
pub async fn exercise_host(make: impl Fn() -> Arc<dyn Host>) {
    let mut failed = Vec::new();
    for case in all() {
        let run = (case.run)(HostDriver::new(make()));
        let outcome = tokio::spawn(tokio::time::timeout(LONGEST_CASE, run)).await;
        if !matches!(outcome, Ok(Ok(()))) {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
}

fn all() -> Vec<HostCase> {
    [decisions::cases(), registry::cases()]
        .into_iter()
        .flatten()
        .collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows::cases();
    cases.extend(domains::cases());
    cases.extend(admitted::cases());
    cases.push(Case {
        name: "admission::every_case_of_a_host",
        run: |driver| Box::pin(every_case_of_a_host(driver)),
    });
    cases
}

/// Runs all cases on one store: each has tenants of its own.
async fn every_case_of_a_host(driver: Driver) {
    let host = Arc::clone(driver.store()).host();
    for (number, case) in (0..).zip(all()) {
        let run = (case.run)(HostDriver::of_tenants(Arc::clone(&host), number));
        let outcome = tokio::spawn(run).await;
        assert!(outcome.is_ok(), "{} failed", case.name);
    }
}
