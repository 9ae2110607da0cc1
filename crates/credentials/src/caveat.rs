//! The conditions of our macaroons, and whether a call meets them.
//!
//! A condition reads `key = value` or `time < value`; spaces around the operator are free. A condition that is
//! not understood is kept: it is refused when somebody tries to make such a macaroon, and denies every call of
//! one that was made elsewhere, because it may forbid what we cannot know.

use std::fmt;

use asyncgate_core::{
    PrincipalKey, TenantId, Timestamp,
    identity::{Scope, Scopes},
};

use crate::macaroon::{RawCaveat, Signature};

/// One condition of a macaroon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caveat {
    /// Only these operations, by name, or these of the mailbox by their sort.
    Op(Vec<String>),
    /// Only this topic or, if `prefix` is set, those whose names begin with it. Bars calls without a topic.
    Topic {
        /// The name, or its beginning.
        name: String,
        /// True if the name may go on.
        prefix: bool,
    },
    /// Only topics of this class of the settings. Bars calls without a topic.
    TopicClass(String),
    /// Only so many calls or bytes, for the macaroon and all that were derived from it.
    Quota {
        /// The unit that is counted.
        unit: QuotaUnit,
        /// The most of them.
        limit: u64,
    },
    /// Only what this scope covers.
    Scope(Scope),
    /// Only in this tenant.
    Tenant(TenantId),
    /// Only as this principal.
    Principal(PrincipalKey),
    /// Only before this time.
    Before(Timestamp),
    /// A condition that somebody else would have to discharge. Nobody can here, so it denies every call.
    ThirdParty(String),
    /// A condition that is not understood. It denies every call.
    Unknown(String),
}

/// The things that a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnit {
    /// Calls.
    Ops,
    /// Bytes of payloads.
    Bytes,
}

/// The sorts of operations on messages, by which `op` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxOp {
    /// Sending.
    Send,
    /// Receiving.
    Recv,
    /// Acknowledging.
    Ack,
    /// Giving back.
    Nack,
    /// Looking after topics and dead letters.
    Admin,
}

impl MailboxOp {
    /// Returns the sort's name in a caveat.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "recv",
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Admin => "admin",
        }
    }
}

/// A topic that a call touches.
#[derive(Debug, Clone, Copy)]
pub struct Topic<'a> {
    /// Its name.
    pub name: &'a str,
    /// The classes of the settings that it is in.
    pub classes: &'a [&'a str],
}

/// A call, as far as caveats speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The sort of operation, if it is one on messages.
    pub mailbox_op: Option<MailboxOp>,
    /// All topics that it touches, once its input was read. Each of them must be allowed; before that, conditions on
    /// topics wait.
    pub topics: Option<&'a [Topic<'a>]>,
    /// What `core::identity::may` returned: the scopes by which the role allows the call, of which one is
    /// enough; empty if it needs none.
    pub scopes: Scopes,
    /// The tenant of the call.
    pub tenant: TenantId,
    /// The principal that acts.
    pub principal: &'a PrincipalKey,
    /// The present.
    pub now: Timestamp,
}

/// Why a call is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialReason {
    /// The macaroon's time is over, so that it is no credential any more.
    Expired,
    /// The macaroon is good, but not for this call.
    NotAllowed,
}

/// The denial of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial<'a> {
    /// The caveat that denies it.
    pub caveat: &'a Caveat,
    /// The reason.
    pub reason: DenialReason,
}

/// Denies a call that does not meet every caveat. Quotas are left to whoever counts: see [`quotas`].
pub fn check<'a>(caveats: &'a [Caveat], call: &Call<'_>) -> Result<(), Denial<'a>> {
    let expired = |caveat: &&Caveat| matches!(caveat, Caveat::Before(end) if call.now >= *end);
    // An expired macaroon is none, whatever else its caveats say.
    if let Some(caveat) = caveats.iter().find(expired) {
        return Err(Denial {
            caveat,
            reason: DenialReason::Expired,
        });
    }
    let mut scopes = call.scopes;
    for caveat in caveats {
        if !caveat.allows(call, &mut scopes) {
            return Err(Denial {
                caveat,
                reason: DenialReason::NotAllowed,
            });
        }
    }
    Ok(())
}

/// Returns the quotas among the caveats, each with the name under which it is counted. The signatures are those
/// that [`crate::macaroon::Macaroon::verify`] returned.
pub fn quotas<'a>(
    caveats: &'a [Caveat],
    signatures: &'a [Signature],
) -> impl Iterator<Item = (QuotaUnit, u64, [u8; 32])> + 'a {
    let signed = caveats.iter().zip(signatures);
    signed.filter_map(|(caveat, signature)| {
        let Caveat::Quota { unit, limit } = caveat else {
            return None;
        };
        Some((*unit, *limit, signature.counter_name()))
    })
}

impl Caveat {
    /// Reads a condition. One that is not understood becomes [`Caveat::Unknown`].
    pub fn parse(text: &str) -> Self {
        parse(text).unwrap_or_else(|| Self::Unknown(text.to_owned()))
    }

    /// Reads a caveat of a macaroon.
    pub fn read(raw: &RawCaveat) -> Self {
        let text = String::from_utf8_lossy(&raw.identifier);
        if raw.third_party.is_some() {
            return Self::ThirdParty(text.into_owned());
        }
        // Bytes that are no text have no meaning here, even if what stands in for them would have one.
        match std::str::from_utf8(&raw.identifier) {
            Ok(text) => Self::parse(text),
            Err(_) => Self::Unknown(text.into_owned()),
        }
    }

    /// Returns true unless the caveat denies every call, whatever the call is.
    pub const fn is_understood(&self) -> bool {
        !matches!(self, Self::ThirdParty(_) | Self::Unknown(_))
    }

    /// Returns true if the call meets this caveat. `scopes` are those that met the caveats before it.
    fn allows(&self, call: &Call<'_>, scopes: &mut Scopes) -> bool {
        let all_topics = |allowed: &dyn Fn(&Topic<'_>) -> bool| {
            let known = |topics: &[Topic<'_>]| !topics.is_empty() && topics.iter().all(allowed);
            call.topics.is_none_or(known)
        };
        match self {
            Self::Op(names) => names.iter().any(|name| {
                name == call.operation || call.mailbox_op.is_some_and(|op| name == op.as_str())
            }),
            Self::Topic { name, prefix: true } => {
                all_topics(&|topic| topic.name.starts_with(name.as_str()))
            }
            Self::Topic {
                name,
                prefix: false,
            } => all_topics(&|topic| topic.name == name),
            Self::TopicClass(class) => all_topics(&|topic| topic.classes.contains(&class.as_str())),
            Self::Tenant(tenant) => call.tenant == *tenant,
            Self::Principal(principal) => call.principal == principal,
            Self::Before(end) => call.now < *end,
            Self::Quota { .. } => true,
            // One scope must meet all such caveats, not one scope for each.
            Self::Scope(scope) => {
                let left = scopes.iter().filter(|needed| scope.covers(*needed));
                *scopes = left.collect();
                call.scopes == Scopes::NONE || *scopes != Scopes::NONE
            }
            Self::ThirdParty(_) | Self::Unknown(_) => false,
        }
    }
}

fn parse(text: &str) -> Option<Caveat> {
    let at = text.find(['=', '<'])?;
    let (key, rest) = text.split_at_checked(at)?;
    let operator = rest.chars().next()?;
    let value = rest.get(1..)?.trim();
    // The quotas have keys of two words, with any space between them.
    let key: Vec<&str> = key.split_whitespace().collect();
    if value.is_empty() {
        return None;
    }
    match (key.as_slice(), operator) {
        (["op"], '=') => ops(value),
        (["topic"], '=') => topic(value),
        (["topic_class"], '=') => Some(Caveat::TopicClass(value.to_owned())),
        (["quota", "ops"], '=') => quota(QuotaUnit::Ops, value),
        (["quota", "bytes"], '=') => quota(QuotaUnit::Bytes, value),
        (["scope"], '=') => value.parse().ok().map(Caveat::Scope),
        (["tenant"], '=') => value.parse().ok().map(Caveat::Tenant),
        (["principal"], '=') => principal(value),
        (["time"], '<') => time(value),
        _ => None,
    }
}

fn ops(value: &str) -> Option<Caveat> {
    let named = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        (!name.is_empty() && name.bytes().all(plain)).then(|| name.to_owned())
    };
    let names: Option<Vec<String>> = value.split(',').map(|name| named(name.trim())).collect();
    names.map(Caveat::Op)
}

fn topic(value: &str) -> Option<Caveat> {
    let (name, prefix) = match value.strip_suffix('*') {
        Some(name) => (name, true),
        None => (value, false),
    };
    // A star elsewhere looks like a pattern that we do not have.
    (!name.contains('*')).then(|| Caveat::Topic {
        name: name.to_owned(),
        prefix,
    })
}

fn quota(unit: QuotaUnit, value: &str) -> Option<Caveat> {
    // `parse` alone would take a sign.
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let limit = value.parse().ok().filter(|_| digits)?;
    Some(Caveat::Quota { unit, limit })
}

fn time(value: &str) -> Option<Caveat> {
    let time: Timestamp = value.parse().ok()?;
    // An offset can move a time out of the years that can be written.
    (time.to_string().parse() == Ok(time)).then_some(Caveat::Before(time))
}

fn principal(value: &str) -> Option<Caveat> {
    let (kind, id) = value.split_once('/')?;
    let kind = kind.parse().ok()?;
    (!id.is_empty()).then(|| {
        Caveat::Principal(PrincipalKey {
            kind,
            id: id.into(),
        })
    })
}

impl fmt::Display for Caveat {
    /// Writes the condition as it is written in a macaroon. What is not understood is written as it came.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Op(names) => write!(f, "op = {}", names.join(",")),
            Self::Topic { name, prefix } => {
                write!(f, "topic = {name}{}", if *prefix { "*" } else { "" })
            }
            Self::TopicClass(class) => write!(f, "topic_class = {class}"),
            Self::Quota { unit, limit } => match unit {
                QuotaUnit::Ops => write!(f, "quota ops = {limit}"),
                QuotaUnit::Bytes => write!(f, "quota bytes = {limit}"),
            },
            Self::Scope(scope) => write!(f, "scope = {scope}"),
            Self::Tenant(tenant) => write!(f, "tenant = {tenant}"),
            Self::Principal(principal) => write!(f, "principal = {principal}"),
            Self::Before(end) => write!(f, "time < {end}"),
            Self::ThirdParty(text) | Self::Unknown(text) => f.write_str(text),
        }
    }
}
