//! Classes of topics and their patterns.

use asyncgate_core::mailbox::{TopicClasses, TopicPattern};
use proptest::prelude::*;

#[test]
fn patterns_fit_what_they_say() {
    let cases: [(&str, &[&str], &[&str]); 11] = [
        ("jobs", &["jobs"], &["", "job", "jobs2", "jobs:1", "Jobs"]),
        (
            "user:*:inbox",
            &["user:42:inbox", "user::inbox"],
            &[
                "user:42",
                "user:42:old:inbox",
                "user:4/2:inbox",
                "user:42:inbox2",
                "xuser:42:inbox",
            ],
        ),
        (
            "user:*",
            &["user:", "user:42", "user:42:inbox", "user:a/b"],
            &["user", "users:42"],
        ),
        ("*", &["", "a", "a:b/c"], &[]),
        ("*:inbox", &["a:inbox", ":inbox"], &["inbox", "a:b:inbox"]),
        ("a/*/c", &["a/b/c"], &["a/b:b/c", "a/b/b/c", "a/b/c/"]),
        (
            "job-*-eu",
            &["job-7-eu", "job---eu"],
            &["job-eu", "job-7:8-eu"],
        ),
        // A star takes more where less is not enough.
        ("*b*c", &["abbc", "bc", "abcbc"], &["ab", "abc:c", "a:bc"]),
        ("*aab", &["aaab"], &["aaa:aab"]),
        ("a:*b:*", &["a:b:", "a:bb:c:d"], &["a:bb", "a:x:b:"]),
        ("é*ü", &["éü", "éöü"], &["é:ü"]),
    ];
    for (pattern, fitting, others) in cases {
        let pattern = TopicPattern::new(pattern);
        for topic in fitting {
            assert!(pattern.fits(topic), "{pattern:?} must fit {topic:?}");
        }
        for topic in others {
            assert!(!pattern.fits(topic), "{pattern:?} must not fit {topic:?}");
        }
    }
}

fn classes(pairs: &[(&str, &str)]) -> TopicClasses {
    let pair = |(class, pattern): &(&str, &str)| (TopicPattern::new(*pattern), (*class).to_owned());
    TopicClasses::new(pairs.iter().map(pair))
}

#[test]
fn a_topic_is_in_every_class_and_counted_in_the_one_that_says_most() {
    let classes = classes(&[
        ("all", "*"),
        ("inbox", "user:*:inbox"),
        ("user", "user:*"),
        ("vip", "user:1:inbox"),
        // As long as the one of `user`: the text of the pattern decides.
        ("other_five", "*user:"),
        ("user", "admin:*"),
    ]);
    let cases: [(&str, &[&str]); 5] = [
        ("user:1:inbox", &["vip", "inbox", "user", "all"]),
        ("user:2:inbox", &["inbox", "user", "all"]),
        ("user:", &["other_five", "user", "all"]),
        ("admin:x", &["user", "all"]),
        ("jobs", &["all"]),
    ];
    for (topic, expected) in cases {
        assert_eq!(classes.all(topic).collect::<Vec<_>>(), expected, "{topic}");
        assert_eq!(classes.first(topic), expected.first().copied(), "{topic}");
    }
    assert_eq!(TopicClasses::default().first("jobs"), None);
}

#[test]
fn the_order_in_which_classes_are_written_does_not_matter() {
    let written = [("a", "x:*"), ("b", "x:*"), ("c", "*:x"), ("d", "x:y")];
    let mut reversed = written;
    reversed.reverse();
    assert_eq!(classes(&written), classes(&reversed));
}

/// What a pattern means, said by trying everything.
fn fits(pattern: &[char], topic: &[char]) -> bool {
    match pattern {
        [] => topic.is_empty(),
        ['*'] => true,
        ['*', after @ ..] => {
            let within = |length: &usize| !topic[..*length].iter().any(|char| ":/".contains(*char));
            (0..=topic.len())
                .filter(within)
                .any(|length| fits(after, &topic[length..]))
        }
        [first, after @ ..] => topic.first() == Some(first) && fits(after, &topic[1..]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn patterns_fit_as_trying_everything_says(pattern in "[ab:/*]{1,8}", topic in "[ab:/]{0,10}") {
        let (chars, letters): (Vec<char>, Vec<char>) =
            (pattern.chars().collect(), topic.chars().collect());
        let expected = fits(&chars, &letters);
        prop_assert_eq!(TopicPattern::new(pattern).fits(&topic), expected);
    }
}
