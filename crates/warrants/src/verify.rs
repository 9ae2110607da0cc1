//! Verifying that a chain of warrants allows a call.

use serde_json::{Map, Value as Json};

use crate::{
    cbor::{Head, Malformed, Reader},
    chain::{CHAIN, check_link, check_root},
    constraint::Violation,
    extension::{HostCheck, Moment, host_checks},
    pop::{Arguments, arguments, proves},
    warrant::{CHAIN_BYTES, Grant, PublicKey, Warrant, WarrantId},
};

/// The cases in which revocation is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationPolicy {
    /// Checked if a warrant of the chain asks for it.
    Marked,
    /// Always checked.
    Always,
}

/// The settings of the verifier.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The keys that may issue the first warrant of a chain.
    pub trusted_roots: Vec<PublicKey>,
    /// True if every call needs the holder's proof.
    pub require_pop: bool,
    /// The cases in which revocation is checked.
    pub revocation: RevocationPolicy,
    /// The largest accepted difference between clocks.
    pub clock_skew_secs: u64,
}

/// A call to verify.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The chain, root first. A single element may also be a whole stack.
    pub warrants: &'a [Vec<u8>],
    /// The tool.
    pub tool: &'a str,
    /// Its arguments.
    pub args: &'a Map<String, Json>,
    /// The holder's proof.
    pub pop: Option<&'a [u8; 64]>,
    /// The time, in seconds since 1970.
    pub now: i64,
}

macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// Its name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

names! {
    /// The checks of a verification.
    CheckName {
        /// The issuer signed the warrant.
        Signature = "signature",
        /// The root is trusted, and each warrant follows from its parent.
        Chain = "chain",
        /// The warrant is valid now.
        Time = "time",
        /// The tool is allowed.
        Tool = "tool",
        /// The arguments are allowed.
        Constraints = "constraints",
        /// The holder makes the call.
        Pop = "pop",
        /// Nothing is revoked.
        Revocation = "revocation",
        /// The rate is within its limit.
        RateLimit = "rate_limit",
        /// The nonce is new.
        Nonce = "nonce",
    }
}

names! {
    /// The reasons of a refusal.
    Reason {
        /// The bytes are no chain of warrants.
        Malformed = "malformed",
        /// The first warrant is from somebody who is not trusted.
        UntrustedRoot = "untrusted_root",
        /// A warrant was not signed by its issuer.
        InvalidSignature = "invalid_signature",
        /// A warrant does not follow from the one before it.
        ChainBroken = "chain_broken",
        /// A warrant is too old.
        Expired = "expired",
        /// A warrant is from the future.
        NotYetValid = "not_yet_valid",
        /// The warrant is not for this tool.
        ToolNotAllowed = "tool_not_allowed",
        /// The arguments are not allowed.
        ConstraintViolation = "constraint_violation",
        /// The warrant asks for something that cannot be checked here.
        UnsupportedConstraint = "unsupported_constraint",
        /// The holder's proof is missing.
        PopMissing = "pop_missing",
        /// The holder's proof is wrong or old.
        PopInvalid = "pop_invalid",
        /// An extension has invalid content.
        ExtensionInvalid = "extension_invalid",
        /// Something in the chain was revoked.
        Revoked = "revoked",
        /// There were too many calls.
        RateLimited = "rate_limited",
        /// The nonce was used before.
        Replay = "replay",
        /// The host could not be asked.
        HostUnavailable = "host_unavailable",
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The check.
    pub name: CheckName,
    /// The warrant that was checked.
    pub warrant: WarrantId,
    /// True if it passed.
    pub passed: bool,
    /// The defect, if it failed.
    pub detail: Option<String>,
}

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for programs.
    pub reason: Reason,
    /// The reason, for people.
    pub message: String,
}

/// The state of the holder's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pop {
    /// The holder proved that it makes the call.
    Verified,
    /// There is no proof: anybody who has the warrant could have sent the call.
    Absent,
}

/// The outcome of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The ids of the chain, root first. Empty if it could not be read.
    pub chain: Vec<WarrantId>,
    /// The key that holds the last warrant.
    pub holder: Option<PublicKey>,
    /// The end of the last warrant, in seconds since 1970.
    pub expires_at: Option<u64>,
    /// The state of the holder's proof.
    pub pop: Pop,
    /// Every check that was made, in order. The list ends with the first failure.
    pub checks: Vec<Check>,
    /// The refusal. `None` means that the call is allowed, if the host agrees.
    pub refusal: Option<Refusal>,
    /// The questions for the host, in order. Empty if the call is refused.
    pub host: Vec<HostCheck>,
}

impl Verification {
    fn refused(reason: Reason, message: String) -> Self {
        Self {
            chain: Vec::new(),
            holder: None,
            expires_at: None,
            pop: Pop::Absent,
            checks: Vec::new(),
            refusal: Some(Refusal { reason, message }),
            host: Vec::new(),
        }
    }
}

/// Verifies everything about a call that needs no stored state.
pub fn verify(policy: &Policy, call: &Call<'_>) -> Verification {
    let chain = match read_chain(call.warrants) {
        Ok(chain) => chain,
        Err(Malformed(why)) => return Verification::refused(Reason::Malformed, why.to_owned()),
    };
    let mut verifier = Verifier {
        policy,
        call,
        args: arguments(call.args),
        checks: Vec::new(),
        pop: Pop::Absent,
    };
    let outcome = verifier.check(&chain);
    let leaf = chain.last();
    let (refusal, host) = match outcome {
        Ok(host) => (None, host),
        Err(refusal) => (Some(refusal), Vec::new()),
    };
    Verification {
        chain: chain.iter().map(|warrant| warrant.id).collect(),
        holder: leaf.map(|warrant| warrant.holder),
        expires_at: leaf.map(|warrant| warrant.expires_at),
        pop: verifier.pop,
        checks: verifier.checks,
        refusal,
        host,
    }
}

/// Reads the chain: one warrant in each element, or all of them in one stack.
fn read_chain(warrants: &[Vec<u8>]) -> Result<Vec<Warrant>, Malformed> {
    let size: usize = warrants.iter().map(Vec::len).sum();
    if size > CHAIN_BYTES {
        return Err(Malformed("the chain is too large"));
    }
    let mut chain = Vec::new();
    for bytes in warrants {
        let mut reader = Reader::new(bytes);
        let count = match stack_length(&reader)? {
            Some(count) if warrants.len() == 1 => {
                reader.array()?;
                count
            }
            Some(_) => return Err(Malformed("a stack stands within a chain")),
            None => 1,
        };
        // Checked before reading: each warrant costs a signature check.
        if chain.len() + count > CHAIN {
            return Err(Malformed("the chain is too long"));
        }
        for _ in 0..count {
            chain.push(Warrant::read(&mut reader)?);
        }
        reader.finish()?;
    }
    if chain.is_empty() {
        return Err(Malformed("there is no warrant"));
    }
    Ok(chain)
}

/// Returns the length of a stack. A warrant is a list that begins with a number; a stack is a list of
/// lists.
fn stack_length(reader: &Reader<'_>) -> Result<Option<usize>, Malformed> {
    let mut ahead = reader.clone();
    let length = ahead.array()?;
    // An empty list is a stack without warrants, which is refused later with a clear message.
    let stack = length == 0 || matches!(ahead.peek()?, Head::Array(_));
    Ok(stack.then_some(length))
}

struct Verifier<'a> {
    policy: &'a Policy,
    call: &'a Call<'a>,
    args: Arguments,
    checks: Vec<Check>,
    pop: Pop,
}

type Outcome<T = ()> = Result<T, Refusal>;

impl Verifier<'_> {
    fn check(&mut self, chain: &[Warrant]) -> Outcome<Vec<HostCheck>> {
        // Signatures first: nothing else in a warrant means anything until it is known to be genuine.
        for warrant in chain {
            let genuine = warrant.is_genuine().then_some(());
            let found =
                genuine.ok_or((Reason::InvalidSignature, "not signed by its issuer".into()));
            self.note(CheckName::Signature, warrant, found)?;
        }
        self.check_chain(chain)?;
        for warrant in chain {
            self.note(CheckName::Time, warrant, self.time(warrant))?;
        }
        let Some(leaf) = chain.last() else {
            return Ok(Vec::new());
        };
        self.note(CheckName::Tool, leaf, self.tool(leaf))?;
        for warrant in chain {
            self.note(CheckName::Constraints, warrant, self.constraints(warrant))?;
        }
        self.check_pop(leaf)?;
        self.host_checks(chain)
    }

    /// Records a check, and stops at the first failure.
    fn note(
        &mut self,
        name: CheckName,
        warrant: &Warrant,
        found: Result<(), (Reason, String)>,
    ) -> Outcome {
        let detail = found.as_ref().err().map(|(_, detail)| detail.clone());
        self.checks.push(Check {
            name,
            warrant: warrant.id,
            passed: found.is_ok(),
            detail,
        });
        found.map_err(|(reason, detail)| Refusal {
            reason,
            message: format!("{}: {detail}", warrant.id),
        })
    }

    fn check_chain(&mut self, chain: &[Warrant]) -> Outcome {
        let mut before: Option<&Warrant> = None;
        for (at, warrant) in chain.iter().enumerate() {
            let linked = match before {
                None if !self.policy.trusted_roots.contains(&warrant.issuer) => {
                    let why = "its issuer is not a trusted root".to_owned();
                    Err((Reason::UntrustedRoot, why))
                }
                None => check_root(warrant).map_err(|why| (Reason::ChainBroken, why.to_owned())),
                Some(parent) => {
                    // State is kept by warrant id, so one id must not stand for two warrants of a chain.
                    let again = chain.iter().take(at).any(|other| other.id == warrant.id);
                    let linked = if again {
                        Err("its id stands twice in the chain")
                    } else {
                        check_link(parent, warrant)
                    };
                    linked.map_err(|why| (Reason::ChainBroken, why.to_owned()))
                }
            };
            self.note(CheckName::Chain, warrant, linked)?;
            before = Some(warrant);
        }
        Ok(())
    }

    fn time(&self, warrant: &Warrant) -> Result<(), (Reason, String)> {
        let now = u64::try_from(self.call.now).unwrap_or(0);
        let skew = self.policy.clock_skew_secs;
        if now >= warrant.expires_at.saturating_add(skew) {
            let why = format!("expired at {}", warrant.expires_at);
            return Err((Reason::Expired, why));
        }
        if warrant.issued_at > now.saturating_add(skew) {
            let why = format!("issued at {}, which is yet to come", warrant.issued_at);
            return Err((Reason::NotYetValid, why));
        }
        Ok(())
    }

    fn tool(&self, leaf: &Warrant) -> Result<(), (Reason, String)> {
        let why = match &leaf.grant {
            Grant::Issuer { .. } => "it allows to issue, but no calls",
            Grant::Execution { tools } => {
                if tools.contains_key(self.call.tool) || tools.contains_key("*") {
                    return Ok(());
                }
                "it does not allow this tool"
            }
        };
        Err((Reason::ToolNotAllowed, why.to_owned()))
    }

    /// Checks the constraints of every warrant, not only of the last: then a mistake in comparing two
    /// constraints lets nothing through.
    fn constraints(&self, warrant: &Warrant) -> Result<(), (Reason, String)> {
        if warrant.needs_approval {
            let why = "it needs the approval of others, which cannot be given here";
            return Err((Reason::UnsupportedConstraint, why.to_owned()));
        }
        let Grant::Execution { tools } = &warrant.grant else {
            return Ok(());
        };
        let Some(set) = tools.get(self.call.tool).or_else(|| tools.get("*")) else {
            let why = "it does not allow this tool".to_owned();
            return Err((Reason::ToolNotAllowed, why));
        };
        set.allows(&self.args).map_err(|violation| match violation {
            Violation::Unknown(name) => (
                Reason::ConstraintViolation,
                format!("the argument {name:?} is not among those allowed"),
            ),
            Violation::Missing(name) => (
                Reason::ConstraintViolation,
                format!("the argument {name:?} is missing"),
            ),
            Violation::Refused(name) => (
                Reason::ConstraintViolation,
                format!("the value of the argument {name:?} is not allowed"),
            ),
            Violation::Unsupported(name) => (
                Reason::UnsupportedConstraint,
                format!("the constraint on the argument {name:?} cannot be checked here"),
            ),
        })
    }

    fn check_pop(&mut self, leaf: &Warrant) -> Outcome {
        let Call { tool, now, .. } = *self.call;
        let found = match self.call.pop {
            None if self.policy.require_pop => {
                let why = "the holder's proof is missing".to_owned();
                Err((Reason::PopMissing, why))
            }
            None => return Ok(()),
            Some(proof) if proves(leaf, tool, &self.args, proof, now) => {
                self.pop = Pop::Verified;
                Ok(())
            }
            Some(_) => {
                let why = "the holder did not sign this call within the last minute".to_owned();
                Err((Reason::PopInvalid, why))
            }
        };
        self.note(CheckName::Pop, leaf, found)
    }

    fn host_checks(&mut self, chain: &[Warrant]) -> Outcome<Vec<HostCheck>> {
        let always = self.policy.revocation == RevocationPolicy::Always;
        let moment = Moment {
            tool: self.call.tool,
            now: self.call.now,
            skew: self.policy.clock_skew_secs,
        };
        host_checks(chain, always, moment).map_err(|invalid| {
            let detail = format!("{} is invalid: {}", invalid.extension, invalid.why);
            self.checks.push(Check {
                name: invalid.check,
                warrant: invalid.warrant,
                passed: false,
                detail: Some(detail.clone()),
            });
            Refusal {
                reason: Reason::ExtensionInvalid,
                message: format!("{}: {detail}", invalid.warrant),
            }
        })
    }
}
