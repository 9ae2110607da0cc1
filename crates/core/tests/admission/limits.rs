use asyncgate_core::admission::{
    DOMAINS_POLICY, Flaw, Limits, Policy, Rule, Tier, Tiered, UnknownPolicy, Window,
};

use crate::world::bucket;

fn rule(rule: Rule) -> Policy {
    Policy::Rule {
        rule,
        shadow: false,
    }
}

fn window() -> Policy {
    rule(Rule::Window(Window::new(3, 60).unwrap()))
}

#[test]
fn the_tiers_are_built_in() {
    let limits = Limits::default();
    for (tier, capacity, fill_secs) in [
        (Tier::Standard, 100, 600),
        (Tier::Trusted, 500, 600),
        (Tier::Batch, 1_000, 600),
        (Tier::Throttled, 10, 600),
    ] {
        let by_name = limits.resolve(tier.as_str(), Tier::Standard).unwrap();
        let by_tier = limits.resolve("client", tier).unwrap();
        assert_eq!(by_name.rule, by_tier.rule);
        assert_eq!(by_name.policy, by_tier.policy, "they share their rows");
        assert_eq!((by_name.tier, by_tier.tier), (None, Some(tier)));
        let Rule::Bucket(bucket) = by_tier.rule else {
            panic!("{tier:?} is no bucket");
        };
        assert_eq!(
            (bucket.capacity(), bucket.fill_secs()),
            (capacity, fill_secs)
        );
        assert!(bucket.overdraw());
        assert_eq!(Tier::named(tier.as_str()), Some(tier));
    }
    let domains = limits.resolve(DOMAINS_POLICY, Tier::Standard).unwrap();
    let Rule::Bucket(bucket) = domains.rule else {
        panic!("it is no bucket");
    };
    assert!(bucket.capacity() == 1_000 && !bucket.overdraw());
    assert_eq!(limits.resolve("none", Tier::Standard), Err(UnknownPolicy));
    assert_eq!(limits.tier("anyone"), Tier::Standard);
}

#[test]
fn settings_add_to_what_is_built_in_and_may_replace_it() {
    let policies = [
        ("api".to_owned(), window()),
        ("standard".to_owned(), rule(bucket(7, 1))),
    ];
    let clients = [
        (Tier::Trusted, "a".to_owned()),
        (Tier::Batch, "b".to_owned()),
    ];
    let limits = Limits::new(policies, clients).unwrap();
    assert_eq!(
        limits.resolve("client", Tier::Standard).unwrap().rule,
        bucket(7, 1)
    );
    assert_eq!(
        limits.resolve("api", Tier::Standard).unwrap().rule.limit(),
        3
    );
    assert_eq!(
        (limits.tier("a"), limits.tier("b")),
        (Tier::Trusted, Tier::Batch)
    );
}

#[test]
fn what_is_wrong_is_told_with_the_policy_that_it_is_about() {
    let tiered = |name: &str| {
        let mut tiered = Tiered::default();
        tiered.0[Tier::Batch as usize] = name.into();
        Policy::Tiered {
            tiered,
            shadow: false,
        }
    };
    let flaws = |policies: Vec<(&str, Policy)>, clients: Vec<(Tier, &str)>| {
        let policies = policies
            .into_iter()
            .map(|(name, policy)| (name.to_owned(), policy));
        let clients = clients
            .into_iter()
            .map(|(tier, client)| (tier, client.to_owned()));
        Limits::new(policies, clients).unwrap_err()
    };
    let missing = |named: &str| Flaw::NoBucket {
        tier: "batch",
        named: named.to_owned(),
    };
    let found = flaws(
        vec![
            ("t", tiered("nothing")),
            ("w", window()),
            ("u", tiered("w")),
        ],
        vec![],
    );
    let expected = [
        ("t".to_owned(), missing("nothing")),
        ("u".to_owned(), missing("w")),
    ];
    assert_eq!(found, expected);
    // Replacing a built-in bucket by another kind of rule breaks the policy that chooses it.
    assert!(!flaws(vec![("trusted", window())], vec![]).is_empty());
    for name in ["", "a b", "a:b", "ä", "x\n", &"x".repeat(65)] {
        assert_eq!(flaws(vec![(name, window())], vec![])[0].1, Flaw::PolicyName);
    }
    let twice = flaws(vec![], vec![(Tier::Batch, "x"), (Tier::Trusted, "x")]);
    let client = "x".to_owned();
    assert_eq!(twice, [(String::new(), Flaw::TwoTiers { client })]);
}

#[test]
fn a_policy_is_tried_out_if_it_or_its_bucket_is() {
    let tried = Policy::Rule {
        rule: bucket(1, 1),
        shadow: true,
    };
    let limits = Limits::new([("trusted".to_owned(), tried)], []).unwrap();
    assert!(limits.resolve("client", Tier::Trusted).unwrap().shadow);
    assert!(!limits.resolve("client", Tier::Standard).unwrap().shadow);
}
