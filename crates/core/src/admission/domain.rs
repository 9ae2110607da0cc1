//! Domains: sequences of delays that describe themselves. The rules of their requests are in the
//! crate `asyncgate-domains`; this file has only the state that is stored for each domain.

use super::Progress;

/// The state of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DomainState {
    /// The progress through its stages.
    pub progress: Progress,
    /// True if it was disabled, which is for ever.
    pub disabled: bool,
}
