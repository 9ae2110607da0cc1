//! Deciding about a request.
//!
//! The order is that of the deployed signers: body, key version, signature; then, with the state, nonce and
//! quota. So a stranger learns nothing about a domain's state, and a failed request costs nothing.

use crate::{
    answer::{Answer, Problem, Status},
    delay::{self, State, Verdict},
    evaluator::Evaluator,
    hash::{Hash, domain_hash, signing_hash},
    request::{Kind, Request},
    signer::{Address, recovers},
};

/// The authority to follow where the deployed signers and the text of CIP-40 differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// The deployed signers: domains are named `ODIS Sequential Delay Domain`, the counter counts attempts,
    /// and a disabled domain is answered as out of quota.
    Odis,
    /// The text: domains are named `Sequential Delay Domain`, the counter follows the nonce, and a disabled
    /// domain is answered as disabled. The text sets the counter to the nonce, but then the last request
    /// could be served for ever; so here it becomes the nonce plus one.
    Cip40,
}

impl Compat {
    const fn domain_name(self) -> &'static str {
        match self {
            Self::Odis => "ODIS Sequential Delay Domain",
            Self::Cip40 => "Sequential Delay Domain",
        }
    }
}

/// The settings by which requests are decided.
#[derive(Debug)]
pub struct Rules {
    /// The authority to follow.
    pub compat: Compat,
    /// The evaluator that an attempt pays for.
    pub evaluator: Box<dyn Evaluator>,
    /// The version of the server, for answers.
    pub version: &'static str,
}

/// A request that is well-formed and signed by the key of the domain's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    compat: Compat,
    hash: Hash,
    kind: Kind,
    nonce: Option<u64>,
    stages: Vec<delay::Stage>,
    blinded_message: String,
    key_version: Option<u64>,
}

impl Admitted {
    /// Returns the hash of the domain, under which its state is stored.
    pub const fn domain(&self) -> &Hash {
        &self.hash
    }

    /// Returns true if this request can change the state.
    pub fn writes(&self) -> bool {
        self.kind != Kind::QuotaStatus
    }

    /// Decides, with the stored state and the time in seconds since 1970.
    pub fn decide(&self, stored: Option<State>, now: i64) -> Decision {
        let state = stored.unwrap_or_default();
        match self.kind {
            Kind::Sign => self.decide_attempt(state, now),
            Kind::QuotaStatus => Decision {
                state: None,
                outcome: Outcome::Served(Status::new(state, now)),
            },
            Kind::Disable => {
                let disabled = State {
                    disabled: true,
                    ..state
                };
                Decision {
                    // Disabling twice is a success and writes nothing.
                    state: (disabled != state).then_some(disabled),
                    outcome: Outcome::Served(Status::new(disabled, now)),
                }
            }
        }
    }

    fn decide_attempt(&self, state: State, now: i64) -> Decision {
        let refused = |problem, retry_after| Decision {
            state: None,
            outcome: Outcome::Refused {
                problem,
                status: Status::new(state, now),
                retry_after,
            },
        };
        // The nonce may be ahead of the counter, never behind it: a request that was served is behind it.
        let Some(nonce) = self.nonce.filter(|nonce| *nonce >= state.counter) else {
            return refused(Problem::InvalidNonce, None);
        };
        // The deployed signers have no answer of their own for this: `delay::check` refuses it as quota.
        if state.disabled && self.compat == Compat::Cip40 {
            return refused(Problem::Disabled, None);
        }
        let mut next = match delay::check(&self.stages, state, now) {
            Verdict::Accepted(next) => next,
            Verdict::Refused { not_before } => {
                let wait = not_before.and_then(|at| u64::try_from(at.saturating_sub(now)).ok());
                return refused(Problem::ExceededQuota, wait);
            }
        };
        if self.compat == Compat::Cip40 {
            next.counter = nonce.saturating_add(1);
        }
        Decision {
            state: Some(next),
            outcome: Outcome::Served(Status::new(next, now)),
        }
    }
}

/// The state to store, and the outcome to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The new state of the domain; `None` if it does not change.
    pub state: Option<State>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Served(Status),
    Refused {
        problem: Problem,
        status: Status,
        retry_after: Option<u64>,
    },
}

impl Rules {
    /// Reads a request: its body, the header `odis-key-version`, and the signature.
    pub fn admit(
        &self,
        kind: Kind,
        body: &[u8],
        key_version: Option<&str>,
    ) -> Result<Admitted, Problem> {
        let request = Request::parse(kind, self.compat.domain_name(), body);
        let request = request.ok_or(Problem::InvalidInput)?;
        let mut key = None;
        // Checked before the signature, as the deployed signers do: clients compare the errors.
        if kind == Kind::Sign {
            if !self.evaluator.accepts(&request.blinded_message) {
                return Err(Problem::InvalidInput);
            }
            key = self.evaluator.pick(asked_version(key_version)?)?;
        }
        if !authentic(&request) {
            return Err(Problem::Unauthenticated);
        }
        Ok(Admitted {
            compat: self.compat,
            hash: domain_hash(&request.domain).ok_or(Problem::Unauthenticated)?,
            kind,
            nonce: request.options.nonce.get().copied(),
            stages: request.domain.stages.iter().map(|s| s.resolved()).collect(),
            blinded_message: request.blinded_message,
            key_version: key,
        })
    }

    /// Builds the answer to a decision. Call it only after the decision's state is stored: it evaluates the
    /// message that the attempt has paid for.
    pub fn respond(&self, admitted: &Admitted, decision: &Decision) -> Answer {
        let status = match decision.outcome {
            Outcome::Served(status) => status,
            Outcome::Refused {
                problem,
                status,
                retry_after,
            } => {
                let mut answer = Answer::refused(self.version, problem, Some(status));
                answer.retry_after = retry_after;
                return answer;
            }
        };
        let mut answer = Answer::served(self.version, status);
        if admitted.kind == Kind::Sign {
            let (key, message) = (admitted.key_version, &admitted.blinded_message);
            match self.evaluator.evaluate(key, &admitted.hash, message) {
                Ok(signature) => answer.body.signature = signature,
                Err(problem) => return self.refuse(problem),
            }
            answer.key_version = key;
        }
        answer
    }

    /// Builds the answer to a request that was not admitted, or for which the store failed.
    pub const fn refuse(&self, problem: Problem) -> Answer {
        Answer::refused(self.version, problem, None)
    }
}

/// Returns the version that a header asks for. An empty header, or `undefined`, asks for none.
fn asked_version(header: Option<&str>) -> Result<Option<u64>, Problem> {
    match header.map(str::trim) {
        None | Some("" | "undefined") => Ok(None),
        Some(text) => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let version = text.parse().ok().filter(|_| digits);
            version.map(Some).ok_or(Problem::InvalidKeyVersion)
        }
    }
}

/// Returns true if the request is signed by its domain's address. Without an address or a signature the
/// answer is always false.
fn authentic(request: &Request) -> bool {
    let address = request.domain.address.get();
    let address = address.and_then(|text| Address::parse(text));
    let (Some(address), Some(signature)) = (address, request.options.signature.get()) else {
        return false;
    };
    signing_hash(request).is_some_and(|hash| recovers(&hash, signature, address))
}
