//! Narrowing: deciding that a child allows nothing that its parent does not.
//!
//! A "yes" must be right; a "no" may be too careful. The pairs that are compared are the protocol's.

use super::{Constraint, ConstraintSet, pattern};
use crate::value::Value;

impl Constraint {
    /// Returns true if this constraint allows every value that `child` allows.
    pub fn covers(&self, child: &Self) -> bool {
        if self == child {
            return true;
        }
        match (self, child) {
            (Self::Wildcard, _) => true,
            (Self::Exact(_) | Self::Unsupported(..), _) => false,
            (_, Self::Exact(value)) => self.covers_value(value),
            (Self::Pattern(parent), Self::Pattern(child)) => pattern::covers(parent, child),
            (Self::OneOf(parent), Self::OneOf(child))
            | (Self::Subset(parent), Self::Subset(child)) => subset(child, parent),
            (Self::NotOneOf(parent), Self::NotOneOf(child))
            | (Self::Contains(parent), Self::Contains(child)) => subset(parent, child),
            (Self::Range(parent), Self::Range(child)) => parent.covers(child),
            (Self::Cidr(parent), Self::Cidr(child)) => parent.covers(child),
            (Self::UrlPattern(parent), Self::UrlPattern(child)) => parent.covers(child),
            (Self::UrlSafe(parent), Self::UrlSafe(child)) => parent.covers(child),
            (Self::Subpath(parent), Self::Subpath(child)) => parent.covers(child),
            (Self::Subpath(_), Self::Subset(allowed)) => {
                allowed.iter().all(|value| self.covers_value(value))
            }
            (Self::Shlex(parent), Self::Shlex(child)) => subset(child, parent),
            (Self::All(parent), Self::All(child)) => {
                // An empty child has no answer for any value, and must not count as narrower than its parent.
                !child.is_empty()
                    && parent
                        .iter()
                        .all(|part| child.iter().any(|c| part.covers(c)))
            }
            (Self::Any(parent), Self::Any(child)) => child
                .iter()
                .all(|part| parent.iter().any(|p| p.covers(part))),
            (Self::Not(parent), Self::Not(child)) => child.covers(parent),
            _ => false,
        }
    }

    fn covers_value(&self, value: &Value) -> bool {
        // The protocol does not compare these with an exact value.
        let paired = !matches!(
            self,
            Self::NotOneOf(_) | Self::Contains(_) | Self::Subset(_) | Self::Any(_) | Self::Not(_)
        );
        paired && self.allows(value) == Ok(true)
    }
}

fn subset<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    part.iter().all(|item| whole.contains(item))
}

impl ConstraintSet {
    /// Returns true if this set allows all arguments that `child` allows: every constraint is kept or
    /// narrowed. None may be added, because a constraint on an argument also permits that argument.
    pub fn covers(&self, child: &Self) -> bool {
        let kept = self.constraints.iter().all(|(name, parent)| {
            let child = child.constraints.get(name);
            child.is_some_and(|child| parent.covers(child))
        });
        let none_added =
            self.constraints.is_empty() || child.constraints.len() == self.constraints.len();
        kept && none_added && (self.allow_unknown || !child.allow_unknown)
    }
}
