//! Extensions that need stored state: revocation, rates and nonces.
//!
//! The state is kept under the id of the warrant that carries the extension, so all holders of that
//! warrant, or of one derived from it, share the state.

use sha2::{Digest, Sha256};

use crate::{
    cbor::{Malformed, Reader},
    verify::{CheckName, Reason},
    warrant::{PublicKey, Warrant, WarrantId},
};

/// The key of an extension, and the check that it asks for.
type Extension = (&'static str, CheckName);

const REVOCABLE: Extension = ("tenuo.revocable", CheckName::Revocation);
const RATE_LIMIT: Extension = ("tenuo.rate_limit", CheckName::RateLimit);
const NONCE: Extension = ("tenuo.nonce", CheckName::Nonce);

/// The longest time for which a host remembers a nonce, in seconds, besides the leeway for clocks.
pub const MAX_NONCE_SECS: u64 = 7_776_000;

/// The kinds of things that can be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// One warrant, and all warrants derived from it.
    WarrantId,
    /// All warrants that a key issued.
    IssuerKey,
    /// All warrants that a key holds.
    HolderKey,
}

/// Something that may have been revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject {
    /// The kind of thing.
    pub kind: SubjectKind,
    /// SHA-256 of the id or key.
    pub hash: [u8; 32],
}

/// A question to the host, which has stored state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostCheck {
    /// Asks if something is revoked.
    Revocation {
        /// The warrant in question.
        warrant: WarrantId,
        /// The thing that may be revoked.
        subject: Subject,
    },
    /// Asks if one more call is within a rate.
    Rate {
        /// The warrant that carries the limit.
        warrant: WarrantId,
        /// The counter.
        namespace: [u8; 32],
        /// The calls allowed in a window.
        limit: u64,
        /// The length of a window.
        window_secs: u64,
    },
    /// Asks if a nonce is new.
    Nonce {
        /// The warrant that carries the nonce.
        warrant: WarrantId,
        /// The space within which it must be new.
        namespace: [u8; 32],
        /// The nonce, of 16 to 64 bytes.
        nonce: Vec<u8>,
        /// The time for which it must be remembered.
        ttl_secs: u64,
    },
}

impl HostCheck {
    /// Returns the warrant that the question is about.
    pub const fn warrant(&self) -> WarrantId {
        match self {
            Self::Revocation { warrant, .. }
            | Self::Rate { warrant, .. }
            | Self::Nonce { warrant, .. } => *warrant,
        }
    }

    /// Returns the name of the check in answers.
    pub const fn name(&self) -> CheckName {
        match self {
            Self::Revocation { .. } => CheckName::Revocation,
            Self::Rate { .. } => CheckName::RateLimit,
            Self::Nonce { .. } => CheckName::Nonce,
        }
    }

    /// Returns the reason of the refusal if the host says no.
    pub const fn refusal(&self) -> Reason {
        match self {
            Self::Revocation { .. } => Reason::Revoked,
            Self::Rate { .. } => Reason::RateLimited,
            Self::Nonce { .. } => Reason::Replay,
        }
    }
}

/// A defect of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub warrant: WarrantId,
    pub check: CheckName,
    pub extension: &'static str,
    pub why: &'static str,
}

/// The tool and the time of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub tool: &'a str,
    pub now: i64,
    pub skew: u64,
}

/// Returns all questions that a chain asks, in the order in which the host must answer them: revocation
/// first, then rates, which count every attempt, and nonces last, which are used only if all else passed.
pub(crate) fn host_checks(
    chain: &[Warrant],
    always_revocable: bool,
    moment: Moment<'_>,
) -> Result<Vec<HostCheck>, Invalid> {
    let (mut rates, mut nonces) = (Vec::new(), Vec::new());
    let mut revocable = always_revocable;
    for warrant in chain {
        let read = |(extension, check), read: fn(&[u8]) -> Result<_, Malformed>| {
            let value = warrant.extensions.get(extension);
            let read = value.map(|value| read(value)).transpose();
            read.map_err(|Malformed(why)| Invalid {
                warrant: warrant.id,
                check,
                extension,
                why,
            })
        };
        // One marked warrant makes the whole chain revocable: a child must not escape it.
        revocable |= read(REVOCABLE, Asked::revocable)?.is_some();
        if let Some(Asked::Rate {
            limit,
            window_secs,
            scope,
        }) = read(RATE_LIMIT, Asked::rate)?
        {
            let rate = Rate {
                warrant: warrant.id,
                namespace: namespace(scope, warrant, moment.tool),
                limit,
                window_secs,
            };
            add_rate(&mut rates, rate);
        }
        if let Some(Asked::Nonce { nonce, ttl_secs }) = read(NONCE, Asked::nonce)? {
            // No longer than the warrant itself: an expired warrant needs no protection against replay.
            let ttl_secs = ttl_secs.unwrap_or(u64::MAX).min(time_left(warrant, moment));
            // A nonce that is forgotten too early could be used again, and nobody would notice.
            if ttl_secs > MAX_NONCE_SECS.saturating_add(moment.skew) {
                let (extension, check) = NONCE;
                return Err(Invalid {
                    warrant: warrant.id,
                    check,
                    extension,
                    why: "it must be remembered for more than 7776000 seconds, which no host does; the \
                          warrant must end earlier, or say a shorter time",
                });
            }
            nonces.push(HostCheck::Nonce {
                warrant: warrant.id,
                namespace: namespace(Scope::Warrant, warrant, moment.tool),
                nonce,
                ttl_secs,
            });
        }
    }
    let mut checks = Vec::new();
    if revocable {
        revocations(chain, &mut checks);
    }
    checks.extend(rates.into_iter().map(Rate::check));
    checks.append(&mut nonces);
    Ok(checks)
}

/// A rate that a warrant asks for.
struct Rate {
    warrant: WarrantId,
    namespace: [u8; 32],
    limit: u64,
    window_secs: u64,
}

impl Rate {
    const fn check(self) -> HostCheck {
        HostCheck::Rate {
            warrant: self.warrant,
            namespace: self.namespace,
            limit: self.limit,
            window_secs: self.window_secs,
        }
    }
}

/// Adds a rate. If two warrants count the same calls, the call counts once, against the lower limit.
fn add_rate(rates: &mut Vec<Rate>, rate: Rate) {
    let same = |other: &&mut Rate| {
        (other.namespace, other.window_secs) == (rate.namespace, rate.window_secs)
    };
    match rates.iter_mut().find(same) {
        Some(other) if rate.limit < other.limit => *other = rate,
        Some(_) => {}
        None => rates.push(rate),
    }
}

/// Returns the seconds until no verifier accepts the warrant any more, the clock skew included: a nonce
/// that is forgotten earlier could be used again.
fn time_left(warrant: &Warrant, moment: Moment<'_>) -> u64 {
    let end = warrant.expires_at.saturating_add(moment.skew);
    let now = u64::try_from(moment.now).unwrap_or(0);
    end.saturating_sub(now).max(1)
}

fn revocations(chain: &[Warrant], checks: &mut Vec<HostCheck>) {
    // Neighbours in a chain share a key: the parent's holder is the child's issuer. Each subject is
    // asked about once.
    let mut asked = std::collections::HashSet::new();
    for warrant in chain {
        for (kind, bytes) in [
            (SubjectKind::WarrantId, &warrant.id.0[..]),
            (SubjectKind::IssuerKey, &warrant.issuer),
            (SubjectKind::HolderKey, &warrant.holder),
        ] {
            let hash = Sha256::digest(bytes).into();
            let subject = Subject { kind, hash };
            if asked.insert(subject) {
                let warrant = warrant.id;
                checks.push(HostCheck::Revocation { warrant, subject });
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Warrant,
    Tool,
    Holder,
}

/// Returns the name of a counter. Each part is hashed behind its length, so that different parts never
/// give the same bytes.
fn namespace(scope: Scope, warrant: &Warrant, tool: &str) -> [u8; 32] {
    let hash = |first: &[u8]| {
        let mut hash = Sha256::new();
        for part in [first, tool.as_bytes()] {
            // A tool with a longer name than a warrant can hold is never allowed.
            hash.update(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    };
    match scope {
        Scope::Warrant => Sha256::digest(warrant.id.0).into(),
        Scope::Tool => hash(&warrant.id.0),
        Scope::Holder => {
            let holder: &PublicKey = &warrant.holder;
            hash(holder)
        }
    }
}

/// The content of an extension.
enum Asked {
    Revocable,
    Rate {
        limit: u64,
        window_secs: u64,
        scope: Scope,
    },
    Nonce {
        nonce: Vec<u8>,
        ttl_secs: Option<u64>,
    },
}

impl Asked {
    /// Reads `tenuo.revocable`: nothing, or any one item. Its presence says everything.
    fn revocable(value: &[u8]) -> Result<Self, Malformed> {
        if !value.is_empty() {
            let mut reader = Reader::new(value);
            reader.skip()?;
            reader.finish()?;
        }
        Ok(Self::Revocable)
    }

    /// Reads `tenuo.rate_limit`: `{0: limit, 1: window in seconds, 2: scope}`.
    fn rate(value: &[u8]) -> Result<Self, Malformed> {
        let mut fields = [None; 3];
        numbered(value, |key, reader| {
            let field = usize::try_from(key)
                .ok()
                .and_then(|key| fields.get_mut(key));
            once(field, reader.unsigned()?)
        })?;
        let [Some(limit), Some(window_secs), Some(scope)] = fields else {
            return Err(Malformed("a key is missing"));
        };
        if limit == 0 || window_secs == 0 {
            return Err(Malformed("the limit and the window must be at least 1"));
        }
        let scope = match scope {
            0 => Scope::Warrant,
            1 => Scope::Tool,
            2 => Scope::Holder,
            _ => return Err(Malformed("the scope must be 0, 1 or 2")),
        };
        Ok(Self::Rate {
            limit,
            window_secs,
            scope,
        })
    }

    /// Reads `tenuo.nonce`: `{0: nonce, 1: seconds to remember it}`, by default as long as the warrant lasts.
    fn nonce(value: &[u8]) -> Result<Self, Malformed> {
        let (mut nonce, mut ttl_secs) = (None, None);
        numbered(value, |key, reader| match key {
            0 => once(Some(&mut nonce), reader.bytes_or_numbers()?),
            1 if reader.null()? => Ok(()),
            1 => once(Some(&mut ttl_secs), reader.unsigned()?),
            _ => once(None::<&mut Option<()>>, ()),
        })?;
        let nonce: Vec<u8> = nonce.ok_or(Malformed("a key is missing"))?;
        if !(16..=64).contains(&nonce.len()) {
            return Err(Malformed("a nonce has 16 to 64 bytes"));
        }
        if ttl_secs == Some(0) {
            return Err(Malformed(
                "a nonce must be remembered for at least a second",
            ));
        }
        Ok(Self::Nonce { nonce, ttl_secs })
    }
}

/// Calls `read` for each key of the map in `value`.
fn numbered<'a>(
    value: &'a [u8],
    mut read: impl FnMut(u64, &mut Reader<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(value);
    for _ in 0..reader.map()? {
        let key = reader.unsigned()?;
        read(key, &mut reader)?;
    }
    reader.finish()
}

fn once<T>(slot: Option<&mut Option<T>>, value: T) -> Result<(), Malformed> {
    let slot = slot.ok_or(Malformed("a key is unknown"))?;
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("a key stands twice")),
    }
}
