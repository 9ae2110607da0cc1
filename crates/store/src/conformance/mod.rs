//! The conformance suite: everything that a backend must do, as small cases on a fresh store each.
//!
//! It is compiled only for tests (feature `conformance`). A backend's test calls [`exercise`]; the
//! [`Driver`] that the cases use also serves tests that compare or reopen stores.

#![expect(
    clippy::unwrap_used,
    reason = "a case fails by panicking, in its helpers too"
)]

mod admission;
mod batches;
mod claims;
mod classes;
mod content;
mod deadlines;
mod driver;
mod identity;
mod ids;
mod isolation;
mod keys;
mod ledger;
mod lists;
mod mailbox;
mod obligations;
mod outbox;
mod program;
mod sights;
mod transactions;
mod usage;
mod waiting;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::Store;

pub use admission::{
    Breadth, HostDriver, bucket, delay, exercise_host, follow_history, increment, limit, nonce,
    subject, window,
};
pub use driver::{Driver, agent, bare, echo, failure, json, proven, receipt_at, worker};
pub use identity::{IdentityDriver, api_key, code, draft, family, link, macaroon, tenant_record};
pub use mailbox::{ALL, MailDriver, ONE, dead, mail, of_topic};
pub use program::{PATIENCE, Program, eventually, free_port};
pub use usage::meter;

/// More time than any case can take, so that one that waits for ever fails.
const LONGEST_CASE: Duration = Duration::from_secs(180);

/// A case: one thing that a store must do.
struct Case {
    name: &'static str,
    run: fn(Driver) -> BoxFuture<'static, ()>,
}

/// Lists functions as cases under their own names.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::Case {
            name: concat!(module_path!(), "::", stringify!($case)),
            run: |driver| Box::pin($case(driver)),
        }),*]
    };
}
use cases;

/// Runs every case on a store of its own and panics with the names of those that failed.
///
/// # Panics
///
/// If the store does not conform.
pub async fn exercise(make: impl Fn() -> Arc<dyn Store>) {
    let mut failed = Vec::new();
    for case in all() {
        let run = (case.run)(Driver::new(make()));
        let outcome = tokio::spawn(tokio::time::timeout(LONGEST_CASE, run)).await;
        if !matches!(outcome, Ok(Ok(()))) {
            failed.push(case.name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} cases failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

fn all() -> Vec<Case> {
    [
        transactions::cases(),
        batches::cases(),
        claims::cases(),
        classes::cases(),
        deadlines::cases(),
        keys::cases(),
        ids::cases(),
        isolation::cases(),
        ledger::cases(),
        obligations::cases(),
        sights::cases(),
        content::cases(),
        lists::cases(),
        waiting::cases(),
        mailbox::cases(),
        admission::cases(),
        identity::cases(),
        usage::cases(),
        outbox::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
