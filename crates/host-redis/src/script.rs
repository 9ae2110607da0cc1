//! Scripts that run on the server, each in one step.

use std::sync::OnceLock;

use asyncgate_core::admission::{Asks, Together};

use crate::resp::Args;

/// A script of decisions: they share a beginning.
macro_rules! decision {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/common.lua"),
            include_str!($name)
        ))
    };
}

/// Decides whatever is asked.
pub(crate) static ADMIT: Script = decision!("scripts/admit.lua");
/// Decides about buckets and nonces of many callers.
pub(crate) static SINGLES: Script = decision!("scripts/singles.lua");
/// Decides about nonces, each for itself.
pub(crate) static NONCES: Script = decision!("scripts/nonces.lua");
pub(crate) static REVOKE: Script = Script::new(include_str!("scripts/revoke.lua"));
pub(crate) static UNREVOKE: Script = Script::new(include_str!("scripts/unrevoke.lua"));
pub(crate) static REVOCATIONS: Script = Script::new(include_str!("scripts/revocations.lua"));

pub(crate) static ALL: [&Script; 6] = [&ADMIT, &SINGLES, &NONCES, &REVOKE, &UNREVOKE, &REVOCATIONS];

/// The script for a question: the shorter one if it will do. Both take the same arguments.
pub(crate) fn of(asks: &Asks) -> &'static Script {
    let only_nonces = asks.counters.is_empty() && asks.limits.is_empty();
    match only_nonces && asks.together == Together::Each {
        true => &NONCES,
        false => &ADMIT,
    }
}

/// A script. The server names it by a digest, which every connection learns when it loads it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    by_digest: OnceLock<Args>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self {
            text,
            by_digest: OnceLock::new(),
        }
    }

    /// The request that loads it.
    pub(crate) fn load(&self) -> Args {
        Args::of([b"SCRIPT", b"LOAD", self.text.as_bytes()])
    }

    /// Learns what the server calls it: the same everywhere.
    pub(crate) fn loaded(&self, digest: &[u8]) {
        self.by_digest
            .get_or_init(|| Args::of([b"EVALSHA", digest]));
    }

    /// The head of a call: short once its digest is known.
    pub(crate) fn head(&self) -> Args {
        let known = self.by_digest.get().cloned();
        known.unwrap_or_else(|| self.whole())
    }

    /// The head of a call to a server that may have forgotten it.
    pub(crate) fn whole(&self) -> Args {
        Args::of([b"EVAL", self.text.as_bytes()])
    }
}
