//! Domains: sequences of delays that describe themselves. The rules of their requests are in the crate
//! `asyncgate-domains`; here is what is remembered of one.

use super::Progress;

/// How a domain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DomainState {
    /// How far it has come.
    pub progress: Progress,
    /// Whether it was disabled, which is for ever.
    pub disabled: bool,
}
