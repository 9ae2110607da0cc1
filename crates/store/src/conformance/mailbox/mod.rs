//! The cases of the mailbox.

mod content;
mod deadlines;
mod driver;
mod letters;
mod partitions;
mod sends;
mod topics;
mod transactions;
mod waiting;

use super::Case;

pub use driver::{ALL, MailDriver, ONE, dead, mail, of_topic};

/// Lists functions as cases under their own names.
macro_rules! mail_cases {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::conformance::Case {
            name: concat!(module_path!(), "::", stringify!($case)),
            run: |driver| Box::pin($case($crate::conformance::MailDriver::new(driver))),
        }),*]
    };
}
use mail_cases;

pub(super) fn cases() -> Vec<Case> {
    [
        transactions::cases(),
        sends::cases(),
        topics::cases(),
        letters::cases(),
        partitions::cases(),
        deadlines::cases(),
        content::cases(),
        waiting::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
