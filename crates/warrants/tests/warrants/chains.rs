//! Chains that we made: the checks, their order, and the rules of a link.

use asyncgate_warrants::{CheckName, Reason, Verification};
use serde_json::json;

use crate::{
    NOW,
    build::{Draft, Item, constraint, exact, id, map, pattern, set, text, texts, wildcard},
    call, policy, public, reading, reason,
};

const BROKEN: Option<Reason> = Some(Reason::ChainBroken);

fn pair(root: Draft, child: impl Fn(Draft) -> Draft) -> [Vec<u8>; 2] {
    let root = root.sign();
    let child = child(Draft::child(&root, 2)).sign();
    [root, child]
}

fn names(verification: &Verification) -> Vec<(&'static str, u8, bool)> {
    let checks = verification.checks.iter();
    checks
        .map(|check| (check.name.as_str(), check.warrant.0[0], check.passed))
        .collect()
}

#[test]
fn every_check_is_told_in_order() {
    let chain = pair(Draft::root(), |child| child);
    let verification = call(&chain, "read_file", json!({"path": "/x"}));
    let expected = [
        ("signature", 0, true),
        ("signature", 2, true),
        ("chain", 0, true),
        ("chain", 2, true),
        ("time", 0, true),
        ("time", 2, true),
        ("tool", 2, true),
        ("constraints", 0, true),
        ("constraints", 2, true),
    ];
    assert_eq!(names(&verification), expected);
    assert_eq!(verification.chain, [id(0), id(2)]);
    assert_eq!(verification.holder, Some(public(3)));
    assert_eq!(verification.expires_at, Some(1_704_070_800));
    assert!(verification.host.is_empty(), "the fast path asks nobody");
}

#[test]
fn the_first_failure_ends_it() {
    let chain = pair(Draft::root(), |child| child.with(18, Item::Int(7)));
    let verification = call(&chain, "read_file", json!({"path": "/x"}));
    let expected = [
        ("signature", 0, true),
        ("signature", 2, true),
        ("chain", 0, true),
        ("chain", 2, false),
    ];
    assert_eq!(names(&verification), expected);
    let refusal = verification.refusal.unwrap();
    assert_eq!(refusal.reason, Reason::ChainBroken);
    assert!(
        refusal.message.contains("tnu_wrt_0202"),
        "{}",
        refusal.message
    );
    assert!(verification.host.is_empty());
    assert_eq!(verification.checks.last().unwrap().name, CheckName::Chain);
}

#[test]
fn a_link_gives_no_more_than_it_has() {
    let wide = |child: Draft| child;
    for (why, chain) in [
        ("issuer", pair(Draft::root(), |child| child.issuer(4))),
        ("holder", pair(Draft::root().holder(4), wide)),
        ("no hash", pair(Draft::root(), |child| child.without(9))),
        (
            "hash",
            pair(Draft::root(), |child| {
                child.with(9, Item::Bytes(vec![0; 32]))
            }),
        ),
        (
            "depth 0",
            pair(Draft::root(), |child| child.with(18, Item::Int(0))),
        ),
        (
            "depth 2",
            pair(Draft::root(), |child| child.with(18, Item::Int(2))),
        ),
        (
            "terminal",
            pair(Draft::root().with(8, Item::Int(0)), |c| {
                c.with(8, Item::Int(0))
            }),
        ),
        (
            "max_depth",
            pair(Draft::root(), |child| child.with(8, Item::Int(4))),
        ),
        (
            "own max_depth",
            pair(Draft::root(), |child| child.with(8, Item::Int(0))),
        ),
        (
            "issued",
            pair(Draft::root(), |child| {
                child.with(6, Item::Int(1_704_067_199))
            }),
        ),
        (
            "expires",
            pair(Draft::root(), |child| {
                child.with(7, Item::Int(1_704_070_801))
            }),
        ),
        (
            "clearance",
            pair(Draft::root().with(17, Item::Int(3)), |c| {
                c.with(17, Item::Int(4))
            }),
        ),
        (
            "another tool",
            pair(Draft::root(), |child| {
                child.tools(&[
                    ("read_file", set(&[("path", wildcard())])),
                    ("write_file", set(&[])),
                ])
            }),
        ),
        (
            "any tool",
            pair(Draft::root(), |child| child.tools(&[("*", set(&[]))])),
        ),
        (
            "no constraint",
            pair(Draft::root(), |child| {
                child.tools(&[("read_file", set(&[]))])
            }),
        ),
        (
            "another argument",
            pair(Draft::root(), |child| {
                child.tools(&[(
                    "read_file",
                    set(&[("path", wildcard()), ("mode", wildcard())]),
                )])
            }),
        ),
        (
            "unknown arguments",
            pair(Draft::root(), |child| {
                let set = map(&[
                    ("constraints", map(&[("path", wildcard())])),
                    ("allow_unknown", Item::Bool(true)),
                ]);
                child.tools(&[("read_file", set)])
            }),
        ),
        ("wider", pair(Draft::root().path(pattern("/a/*")), wide)),
    ] {
        assert_eq!(reading(&chain, "/a/b"), BROKEN, "{why}");
    }
}

#[test]
fn a_link_may_give_less() {
    for (why, chain) in [
        ("the same", pair(Draft::root(), |child| child)),
        (
            "a pattern",
            pair(Draft::root(), |child| child.path(pattern("/a/*"))),
        ),
        (
            "a shorter life",
            pair(Draft::root(), |child| {
                child.with(7, Item::Int(1_704_070_000))
            }),
        ),
        (
            "less depth",
            pair(Draft::root(), |child| child.with(8, Item::Int(1))),
        ),
        (
            "of any tool, one",
            pair(
                Draft::root().tools(&[("*", set(&[("path", pattern("/a*"))]))]),
                |child| child.path(pattern("/a/*")),
            ),
        ),
        (
            "of any arguments, one",
            pair(Draft::root().tools(&[("read_file", set(&[]))]), |child| {
                child.path(exact(text("/a/b")))
            }),
        ),
        ("to itself", pair(Draft::root(), |child| child.holder(2))),
        (
            "the hash as numbers",
            pair(Draft::root(), |child| {
                let Some((_, Item::Bytes(hash))) = child.fields.iter().find(|(key, _)| *key == 9)
                else {
                    panic!("a hash")
                };
                let numbers = hash
                    .iter()
                    .map(|byte| Item::Int(i64::from(*byte)))
                    .collect();
                child.clone().with(9, Item::List(numbers))
            }),
        ),
    ] {
        assert_eq!(reading(&chain, "/a/b"), None, "{why}");
    }
}

/// Two ways to gain rights by handing on, which the reference (0.3.3) does not detect.
#[test]
fn constraints_are_not_shed_by_naming_no_tool() {
    let below_a = set(&[("path", pattern("/a/*"))]);
    let any_path = || set(&[("path", wildcard())]);
    let root = || Draft::root().tools(&[("read_file", below_a.clone()), ("*", any_path())]);
    let chain = pair(root(), |child| child.tools(&[("*", any_path())]));
    assert_eq!(reading(&chain, "/a/b"), None);
    assert_eq!(reading(&chain, "/b"), Some(Reason::ConstraintViolation));

    let nothing = pair(Draft::root().tools(&[]), |child| child);
    assert_eq!(reading(&nothing, "/a/b"), BROKEN);
}

/// Builds a root that may give others the right to read below `/a`.
fn issuer() -> Draft {
    Draft::root()
        .with(2, Item::Int(1))
        .tools(&[])
        .with(11, texts(&["read_file"]))
        .with(14, set(&[("path", pattern("/a/*"))]))
}

#[test]
fn who_may_issue_gives_within_bounds() {
    let reader = |child: Draft| child.path(pattern("/a/b/*"));
    assert_eq!(reading(&pair(issuer(), reader), "/a/b/c"), None);
    for (why, chain) in [
        (
            "another tool",
            pair(issuer(), |c| {
                c.tools(&[("write_file", set(&[("path", pattern("/a/b"))]))])
            }),
        ),
        (
            "out of bounds",
            pair(issuer(), |child| child.path(pattern("/b/*"))),
        ),
        ("to itself", pair(issuer(), |child| reader(child).holder(2))),
        (
            "to its issuer",
            pair(issuer(), |child| reader(child).holder(1)),
        ),
        ("too deep", pair(issuer().with(13, Item::Int(0)), reader)),
        (
            "by one who may only call",
            pair(Draft::root(), |child| {
                child
                    .with(2, Item::Int(1))
                    .tools(&[])
                    .with(11, texts(&["read_file"]))
            }),
        ),
        (
            "bounds dropped",
            pair(issuer(), |child| {
                child
                    .with(2, Item::Int(1))
                    .tools(&[])
                    .with(11, texts(&["read_file"]))
            }),
        ),
        (
            "more to give",
            pair(issuer(), |child| {
                let child = child.with(2, Item::Int(1)).tools(&[]);
                let child = child.with(14, set(&[("path", pattern("/a/*"))]));
                child.with(11, texts(&["read_file", "write_file"]))
            }),
        ),
    ] {
        assert_eq!(reading(&chain, "/a/b/c"), BROKEN, "{why}");
    }
}

#[test]
fn a_chain_begins_at_its_root() {
    let root = Draft::root().sign();
    let lone = Draft::child(&root, 2).issuer(1).sign();
    assert_eq!(
        reading(&[lone], "/x"),
        BROKEN,
        "what its parent asks for is not known"
    );
    let deep = Draft::root().with(18, Item::Int(1)).sign();
    assert_eq!(reading(&[deep], "/x"), BROKEN);
    let stranger = Draft::root().issuer(9).sign();
    assert_eq!(reading(&[stranger], "/x"), Some(Reason::UntrustedRoot));
}

#[test]
fn an_id_stands_once() {
    let chain = pair(Draft::root(), |child| {
        child.with(1, Item::Bytes(vec![0; 16]))
    });
    assert_eq!(reading(&chain, "/x"), BROKEN);
}

#[test]
fn times_have_leeway_at_both_ends() {
    let warrants = [Draft::root().sign()];
    let args = crate::object(json!({"path": "/x"}));
    for (now, expected) in [
        (1_704_067_169, Some(Reason::NotYetValid)),
        (1_704_067_170, None),
        (NOW, None),
        (1_704_070_829, None),
        (1_704_070_830, Some(Reason::Expired)),
        (i64::MAX, Some(Reason::Expired)),
        (-1, Some(Reason::NotYetValid)),
    ] {
        let call = asyncgate_warrants::Call {
            warrants: &warrants,
            tool: "read_file",
            args: &args,
            pop: None,
            now,
        };
        let verification = asyncgate_warrants::verify(&policy(), &call);
        assert_eq!(reason(&verification), expected, "{now}");
    }
}

#[test]
fn a_link_in_the_middle_ends_all_that_follows() {
    let root = Draft::root().sign();
    let middle = Draft::child(&root, 2).with(7, Item::Int(NOW - 60)).sign();
    let leaf = Draft::child(&middle, 3).with(7, Item::Int(NOW - 60)).sign();
    assert_eq!(reading(&[root, middle, leaf], "/x"), Some(Reason::Expired));
}

#[test]
fn a_long_chain_is_walked_to_its_end() {
    let mut chain = vec![Draft::root().with(8, Item::Int(255)).sign()];
    for from in 2..=64 {
        let parent = chain.last().unwrap();
        chain.push(Draft::child(parent, from).with(8, Item::Int(255)).sign());
    }
    assert_eq!(chain.len(), 64);
    assert_eq!(reading(&chain, "/x"), None);
    chain.push(
        Draft::child(chain.last().unwrap(), 65)
            .with(8, Item::Int(255))
            .sign(),
    );
    assert_eq!(reading(&chain, "/x"), Some(Reason::Malformed));
}

#[test]
fn a_stack_is_a_chain_in_one_piece() {
    let chain = pair(Draft::root(), |child| child);
    let stack = [&[0x82], &chain[0][..], &chain[1]].concat();
    assert_eq!(reading(std::slice::from_ref(&stack), "/x"), None);
    for bad in [
        vec![stack.clone(), chain[1].clone()],
        vec![vec![0x80]],
        vec![[&[0x83], &stack[1..]].concat()],
        vec![[&[0x81], &stack[1..]].concat()],
        Vec::new(),
    ] {
        assert_eq!(reading(&bad, "/x"), Some(Reason::Malformed));
    }
}

#[test]
fn approval_that_cannot_be_given_is_not_assumed() {
    let approvers = Item::List(vec![Item::List(vec![
        Item::Int(1),
        Item::Bytes(public(4).to_vec()),
    ])]);
    let unsupported = Some(Reason::UnsupportedConstraint);
    for root in [
        Draft::root().with(15, approvers.clone()),
        Draft::root().with(16, Item::Int(1)),
        Draft::root().extension("tenuo.approval_gates", vec![0xa0]),
    ] {
        assert_eq!(reading(&[root.sign()], "/x"), unsupported);
        // A child that does not repeat the demand is still bound by it.
        assert_eq!(reading(&pair(root, |child| child), "/x"), unsupported);
    }
}

#[test]
fn a_constraint_that_is_not_known_is_refused_wherever_it_stands() {
    let unknown = || constraint(99, map(&[("anything", Item::Null)]));
    let unsupported = Some(Reason::UnsupportedConstraint);
    let one = |item| [Draft::root().path(item).sign()];
    assert_eq!(reading(&one(unknown()), "/x"), unsupported);
    assert_eq!(
        reading(&one(constraint(15, map(&[("expr", text("true"))]))), "/x"),
        unsupported
    );
    // In a list of which all, or one, must hold, it counts unless the other parts decide.
    let several = |kind, parts| one(constraint(kind, map(&[("constraints", Item::List(parts))])));
    let refused = Some(Reason::ConstraintViolation);
    for (kind, other, expected) in [
        (12, wildcard(), unsupported),
        (12, exact(text("/y")), refused),
        (13, wildcard(), None),
        (13, exact(text("/y")), unsupported),
    ] {
        let (first, last) = (vec![unknown(), other.clone()], vec![other, unknown()]);
        assert_eq!(reading(&several(kind, first), "/x"), expected);
        assert_eq!(reading(&several(kind, last), "/x"), expected);
    }
    let not = constraint(14, map(&[("constraint", unknown())]));
    assert_eq!(reading(&one(not), "/x"), unsupported);
    let same = pair(Draft::root().path(unknown()), |child| child.path(unknown()));
    assert_eq!(reading(&same, "/x"), unsupported);
    let dropped = pair(Draft::root().path(unknown()), |child| {
        child.path(exact(text("/x")))
    });
    assert_eq!(reading(&dropped, "/x"), BROKEN);
}
