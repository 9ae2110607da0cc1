//! The scripts that run on the server. Redis runs each as one atomic step.

use std::sync::OnceLock;

use asyncgate_core::admission::{Asks, Together};

use crate::resp::{Args, Kind};

/// A script that decides. All of these share the text of `common.lua`.
macro_rules! decision {
    ($name:literal) => {
        Script::new(
            concat!(include_str!("scripts/common.lua"), include_str!($name)),
            Kind::List,
        )
    };
}

/// Decides any question.
pub(crate) static ADMIT: Script = decision!("scripts/admit.lua");
/// Decides a batch: buckets and nonces of many callers.
pub(crate) static BATCH: Script = decision!("scripts/batch.lua");
/// Decides nonces that do not depend on each other.
pub(crate) static NONCES: Script = decision!("scripts/nonces.lua");
pub(crate) static REVOKE: Script = Script::new(include_str!("scripts/revoke.lua"), Kind::List);
pub(crate) static UNREVOKE: Script = Script::new(include_str!("scripts/unrevoke.lua"), Kind::Int);
pub(crate) static REVOCATIONS: Script =
    Script::new(include_str!("scripts/revocations.lua"), Kind::List);

pub(crate) static ALL: [&Script; 6] = [&ADMIT, &BATCH, &NONCES, &REVOKE, &UNREVOKE, &REVOCATIONS];

/// Returns the script for a question: the shorter one if it is enough. Both take the same arguments.
pub(crate) fn for_question(asks: &Asks) -> &'static Script {
    let only_nonces = asks.counters.is_empty() && asks.limits.is_empty();
    match only_nonces && asks.together == Together::Each {
        true => &NONCES,
        false => &ADMIT,
    }
}

/// A script. The server's name for it is a digest, which is known once a connection has loaded it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    /// The kind of its answers.
    pub(crate) kind: Kind,
    digest: OnceLock<Args>,
}

impl Script {
    const fn new(text: &'static str, kind: Kind) -> Self {
        Self {
            text,
            kind,
            digest: OnceLock::new(),
        }
    }

    /// Returns the request that loads it.
    pub(crate) fn load(&self) -> Args {
        Args::of([b"SCRIPT", b"LOAD", self.text.as_bytes()])
    }

    /// Remembers its digest, which is the same on every server.
    pub(crate) fn set_digest(&self, digest: &[u8]) {
        self.digest.get_or_init(|| Args::of([b"EVALSHA", digest]));
    }

    /// Returns the head of a call by its digest, or by its text while the digest is unknown.
    pub(crate) fn by_digest(&self) -> Args {
        let known = self.digest.get().cloned();
        known.unwrap_or_else(|| self.by_text())
    }

    /// Returns the head of a call that works on a server which has not loaded it.
    pub(crate) fn by_text(&self) -> Args {
        Args::of([b"EVAL", self.text.as_bytes()])
    }
}
