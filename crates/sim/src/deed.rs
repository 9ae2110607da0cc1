//! The deeds of operators: what changes about tenants and credentials while calls are under way.

use std::fmt;

/// The instance on which an operator did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The instance that is called. It learns of the deed at once.
    Here,
    /// Another instance on the same store. The one that is called learns of the deed when it reads the record again.
    Elsewhere,
}

impl Place {
    const ALL: [(Self, &'static str); 2] = [(Self::Here, "here"), (Self::Elsewhere, "elsewhere")];
}

/// Something that an operator does. Tenants and actors are named by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// A tenant's credentials are refused from now on.
    Suspend(usize),
    /// A tenant's credentials are accepted again.
    Resume(usize),
    /// A tenant may have so many active tasks, and hold so many leases; any number for -1.
    Bound(usize, i64, i64),
    /// An actor's newest credential ends.
    Revoke(usize),
    /// An actor's newest credential is replaced. Both are good for so many seconds more.
    Rotate(usize, u64),
    /// An actor gets another credential, which is good for so many milliseconds; for 0, until it is revoked.
    Issue(usize, i64),
}

impl Deed {
    /// Returns the actor whose credential changes.
    pub const fn actor(self) -> Option<usize> {
        match self {
            Self::Suspend(_) | Self::Resume(_) | Self::Bound(..) => None,
            Self::Revoke(actor) | Self::Rotate(actor, _) | Self::Issue(actor, _) => Some(actor),
        }
    }

    /// Reads the text that a schedule has of a deed and its place.
    pub fn parse(text: &str) -> Option<(Self, Place)> {
        let (deed, place) = text.rsplit_once(' ')?;
        let (place, _) = Place::ALL.into_iter().find(|(_, word)| *word == place)?;
        let mut words = deed.split(' ');
        let (verb, whom) = (words.next()?, words.next()?.parse().ok()?);
        let deed = match verb {
            "suspend" => Self::Suspend(whom),
            "resume" => Self::Resume(whom),
            "bound" => {
                let mut number = || words.next()?.parse().ok();
                Self::Bound(whom, number()?, number()?)
            }
            "revoke" => Self::Revoke(whom),
            "rotate" => Self::Rotate(whom, words.next()?.parse().ok()?),
            "issue" => Self::Issue(whom, words.next()?.parse().ok()?),
            _ => return None,
        };
        words.next().is_none().then_some((deed, place))
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspend(tenant) => write!(f, "suspend {tenant}"),
            Self::Resume(tenant) => write!(f, "resume {tenant}"),
            Self::Bound(tenant, tasks, leases) => write!(f, "bound {tenant} {tasks} {leases}"),
            Self::Revoke(actor) => write!(f, "revoke {actor}"),
            Self::Rotate(actor, seconds) => write!(f, "rotate {actor} {seconds}"),
            Self::Issue(actor, millis) => write!(f, "issue {actor} {millis}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
        })
    }
}
