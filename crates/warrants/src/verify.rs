//! Whether a chain of warrants allows a call, and why not.

use serde_json::{Map, Value as Json};

use crate::{
    cbor::{Head, Malformed, Reader},
    chain::{CHAIN, check_link, check_root},
    constraint::Violation,
    extension::{HostCheck, Moment, host_checks},
    pop::{Arguments, arguments, proves},
    warrant::{CHAIN_BYTES, Grant, PublicKey, Warrant, WarrantId},
};

/// When revocation is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationPolicy {
    /// If a warrant of the chain says so.
    Marked,
    /// Always.
    Always,
}

/// What the verifier goes by.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Who may issue the first warrant of a chain.
    pub trusted_roots: Vec<PublicKey>,
    /// Whether every call needs the holder's proof.
    pub require_pop: bool,
    /// When revocation is asked about.
    pub revocation: RevocationPolicy,
    /// How far clocks may differ.
    pub clock_skew_secs: u64,
}

/// A call that somebody wants to make.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The chain, its root first. A single element may also be a whole stack.
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
    /// What was checked.
    CheckName {
        /// That the issuer signed it.
        Signature = "signature",
        /// That the root is trusted, and each link of the chain.
        Chain = "chain",
        /// That it is valid now.
        Time = "time",
        /// That the tool is allowed.
        Tool = "tool",
        /// That its arguments are.
        Constraints = "constraints",
        /// That the holder makes the call.
        Pop = "pop",
        /// That nothing is revoked.
        Revocation = "revocation",
        /// That the rate is kept.
        RateLimit = "rate_limit",
        /// That the nonce is new.
        Nonce = "nonce",
    }
}

names! {
    /// Why a call is refused.
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
        /// An extension does not say what it must.
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

/// A check that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked.
    pub name: CheckName,
    /// Of which warrant.
    pub warrant: WarrantId,
    /// Whether it held.
    pub passed: bool,
    /// What was found, if it did not.
    pub detail: Option<String>,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// What is known of the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pop {
    /// The holder has proven to make the call.
    Verified,
    /// Anybody could have sent it.
    Absent,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The ids of the chain, its root first. Empty if it could not be read.
    pub chain: Vec<WarrantId>,
    /// Who holds the last warrant.
    pub holder: Option<PublicKey>,
    /// When the last warrant ends, in seconds since 1970.
    pub expires_at: Option<u64>,
    /// What is known of the holder.
    pub pop: Pop,
    /// Every check that was made, in order. It ends with the first that failed.
    pub checks: Vec<Check>,
    /// Why the call is refused. `None` means that it is allowed, if the host says so too.
    pub refusal: Option<Refusal>,
    /// What to ask the host, in order. Empty if the call is refused.
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

/// Verifies a call: all that can be told without a memory.
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

/// Reads the chain: one warrant each, or all of them in one stack.
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

/// A warrant is a list that begins with a number; a stack is a list of lists.
fn stack_length(reader: &Reader<'_>) -> Result<Option<usize>, Malformed> {
    let mut ahead = reader.clone();
    let length = ahead.array()?;
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

    /// Keeps what was found, and stops at the first failure.
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

    /// The constraints of every warrant are asked, not only those of the last: then a mistake in comparing
    /// two of them lets nobody through.
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
