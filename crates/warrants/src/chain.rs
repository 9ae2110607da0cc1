//! Links of a chain: a child is issued by its parent's holder and gives no more than its parent.

use crate::{
    constraint::ConstraintSet,
    warrant::{Grant, Warrant},
};

/// The most warrants in a chain.
pub(crate) const CHAIN: usize = 64;

/// Checks the first warrant. Its issuer is trusted, so it must really be the beginning: if it had a
/// parent, the extensions of that parent would not be checked.
pub(crate) fn check_root(root: &Warrant) -> Result<(), &'static str> {
    if root.parent_hash.is_some() || root.depth != 0 {
        return Err("the first warrant is not a root: send the whole chain");
    }
    Ok(())
}

/// Checks a child against its parent.
pub(crate) fn check_link(parent: &Warrant, child: &Warrant) -> Result<(), &'static str> {
    let rules = [
        (
            child.issuer == parent.holder,
            "it was not issued by the holder of its parent",
        ),
        (
            child.parent_hash == Some(parent.payload_hash()),
            "its parent_hash is not that of the warrant before it",
        ),
        (
            Some(child.depth) == parent.depth.checked_add(1),
            "its depth is not one more than its parent's",
        ),
        (
            child.depth <= u32::from(parent.max_depth),
            "its depth is more than its parent's max_depth",
        ),
        (
            child.max_depth <= parent.max_depth,
            "its max_depth is more than its parent's",
        ),
        (
            child.depth <= u32::from(child.max_depth),
            "its depth is more than its max_depth",
        ),
        (
            child.issued_at >= parent.issued_at,
            "it was issued before its parent",
        ),
        (
            child.expires_at <= parent.expires_at,
            "it expires after its parent",
        ),
        (
            !is_more(parent.clearance, child.clearance),
            "its clearance is more than its parent's",
        ),
    ];
    if let Some((_, broken)) = rules.into_iter().find(|(holds, _)| !holds) {
        return Err(broken);
    }
    check_grant(parent, child)
}

fn is_more(parent: Option<u8>, child: Option<u8>) -> bool {
    matches!((parent, child), (Some(parent), Some(child)) if child > parent)
}

fn check_grant(parent: &Warrant, child: &Warrant) -> Result<(), &'static str> {
    match (&parent.grant, &child.grant) {
        (Grant::Execution { tools: parent }, Grant::Execution { tools: child }) => {
            let narrower = child.iter().all(|(name, set)| {
                // A tool that is named has its own constraints; the wildcard only covers the others.
                let covering = parent.get(name).or_else(|| parent.get("*"));
                covering.is_some_and(|covering| covering.covers(set))
            });
            narrower
                .then_some(())
                .ok_or("it allows what its parent does not")
        }
        (Grant::Execution { .. }, Grant::Issuer { .. }) => {
            Err("its parent allows calls, but not to issue")
        }
        (
            Grant::Issuer { tools, bounds, .. },
            Grant::Issuer {
                tools: child_tools,
                bounds: child_bounds,
                ..
            },
        ) => check_issuer(tools, bounds.as_ref(), child_tools, child_bounds.as_ref()),
        (
            Grant::Issuer {
                tools,
                max_issue_depth,
                bounds,
            },
            Grant::Execution { tools: child_tools },
        ) => {
            if !child_tools.keys().all(|name| issuable(tools, name)) {
                return Err("it allows a tool that its issuer may not give");
            }
            let within = |set: &ConstraintSet| bounds.as_ref().is_none_or(|b| b.covers(set));
            if !child_tools.values().all(within) {
                return Err("it allows what is out of its issuer's bounds");
            }
            if max_issue_depth.is_some_and(|most| child.depth > most) {
                return Err("its depth is more than its issuer's max_issue_depth");
            }
            // A planner must not give itself the right to act.
            if child.holder == parent.holder || child.holder == parent.issuer {
                return Err("its issuer gave it to itself");
            }
            Ok(())
        }
    }
}

fn check_issuer(
    tools: &[String],
    bounds: Option<&ConstraintSet>,
    child_tools: &[String],
    child_bounds: Option<&ConstraintSet>,
) -> Result<(), &'static str> {
    if !child_tools.iter().all(|name| issuable(tools, name)) {
        return Err("it may give a tool that its parent may not");
    }
    // A child without bounds is wider than any parent with bounds.
    let within = |bounds: &ConstraintSet| child_bounds.is_some_and(|child| bounds.covers(child));
    if !bounds.is_none_or(within) {
        return Err("its bounds are wider than its parent's");
    }
    Ok(())
}

fn issuable(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool == name || tool == "*")
}
