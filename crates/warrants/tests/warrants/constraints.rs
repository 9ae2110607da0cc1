//! The values that each constraint allows, and the narrower one of two constraints.

use asyncgate_warrants::Reason;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    build::{Draft, Item, constraint, exact, map, pattern, text, texts, wildcard},
    call, reason,
};

fn list(key: &str, kind: i64, items: Item) -> Item {
    constraint(kind, map(&[(key, items)]))
}

fn one_of(values: &[&str]) -> Item {
    list("values", 4, texts(values))
}

fn range(min: Option<f64>, max: Option<f64>, inclusive: bool) -> Item {
    let bound = |bound: Option<f64>| bound.map_or(Item::Null, Item::Float);
    let inclusive = Item::Bool(inclusive);
    let fields = [
        ("min", bound(min)),
        ("max", bound(max)),
        ("min_inclusive", inclusive.clone()),
        ("max_inclusive", inclusive),
    ];
    constraint(3, map(&fields))
}

fn subpath(root: &str, case_sensitive: bool, allow_equal: bool) -> Item {
    let fields = [
        ("root", text(root)),
        ("case_sensitive", Item::Bool(case_sensitive)),
        ("allow_equal", Item::Bool(allow_equal)),
    ];
    constraint(17, map(&fields))
}

fn regex(pattern: &str) -> Item {
    constraint(5, map(&[("pattern", text(pattern))]))
}

fn cidr(network: &str) -> Item {
    constraint(8, text(network))
}

fn url(pattern: &str) -> Item {
    constraint(9, text(pattern))
}

fn url_safe(fields: &[(&str, Item)]) -> Item {
    constraint(18, map(fields))
}

fn shlex(allowed: &[&str]) -> Item {
    list("allow", 128, texts(allowed))
}

fn not(inner: Item) -> Item {
    list("constraint", 14, inner)
}

fn all(parts: Vec<Item>) -> Item {
    list("constraints", 12, Item::List(parts))
}

fn any_of(parts: Vec<Item>) -> Item {
    list("constraints", 13, Item::List(parts))
}

fn asked(constraint: &Item, value: &Value) -> Option<Reason> {
    let warrant = Draft::root().path(constraint.clone()).sign();
    reason(&call(&[warrant], "read_file", json!({"path": value})))
}

fn allows(constraint: &Item, value: &Value) -> bool {
    let found = asked(constraint, value);
    assert!(
        matches!(found, None | Some(Reason::ConstraintViolation)),
        "{constraint:?} {value}: {found:?}"
    );
    found.is_none()
}

#[test]
fn each_constraint_allows_what_it_says() {
    let public_url = url_safe(&[]);
    let own_url = url_safe(&[
        ("allow_domains", texts(&["*.example.com"])),
        ("deny_domains", texts(&["bad.example.com"])),
        ("allow_ports", Item::List(vec![Item::Int(443)])),
    ]);
    let cases: Vec<(Item, Vec<Value>, Vec<Value>)> = vec![
        (wildcard(), vec![json!(null), json!({"a": [1]})], vec![]),
        (
            exact(text("a")),
            vec![json!("a")],
            vec![json!("A"), json!(["a"]), json!(null)],
        ),
        (
            exact(Item::Int(1)),
            vec![json!(1)],
            vec![json!(1.0), json!("1"), json!(true)],
        ),
        (
            exact(Item::Int(-5)),
            vec![json!(-5)],
            vec![json!(5), json!(-4)],
        ),
        (exact(Item::Float(1.0)), vec![json!(1.0)], vec![json!(1)]),
        (exact(Item::Null), vec![json!(null)], vec![json!(false)]),
        (
            exact(map(&[("k", Item::List(vec![Item::Bool(true)]))])),
            vec![json!({"k": [true]})],
            vec![json!({"k": [true], "l": 1})],
        ),
        (
            pattern("/data/*"),
            vec![json!("/data/"), json!("/data/a/b")],
            vec![json!("/dat"), json!("x/data/a"), json!(1)],
        ),
        (pattern("*"), vec![json!(""), json!("é/\n")], vec![json!(1)]),
        (
            pattern("*a*b"),
            vec![json!("ab"), json!("xaxbab")],
            vec![json!("aba"), json!("b")],
        ),
        (
            pattern("a?c"),
            vec![json!("abc"), json!("aéc")],
            vec![json!("ac"), json!("abbc")],
        ),
        (
            pattern("[a-c]x"),
            vec![json!("ax"), json!("cx")],
            vec![json!("dx"), json!("x"), json!("-x")],
        ),
        (
            pattern("[!a-c]"),
            vec![json!("d"), json!("-")],
            vec![json!("b"), json!("")],
        ),
        (
            pattern("[]-]"),
            vec![json!("]"), json!("-")],
            vec![json!("a")],
        ),
        (pattern("a.c"), vec![json!("a.c")], vec![json!("abc")]),
        (
            range(Some(1.0), Some(2.0), true),
            vec![json!(1), json!(2.0)],
            vec![json!(0.9), json!(3), json!("1")],
        ),
        (
            range(Some(1.0), Some(2.0), false),
            vec![json!(1.5)],
            vec![json!(1), json!(2)],
        ),
        (
            range(None, None, true),
            vec![json!(1e300), json!(-1)],
            vec![json!("1"), json!(null)],
        ),
        (
            one_of(&["a", "b"]),
            vec![json!("b")],
            vec![json!("c"), json!(["a"])],
        ),
        (one_of(&[]), vec![], vec![json!("c")]),
        (
            list("excluded", 7, texts(&["a"])),
            vec![json!("b"), json!(1)],
            vec![json!("a")],
        ),
        (
            regex("^[a-z]+$"),
            vec![json!("abc")],
            vec![json!("ABC"), json!(""), json!(1)],
        ),
        (
            regex("^\\w+@(\\w+\\.)+[a-z]{2,9}$"),
            vec![json!("é_1@b.c.example")],
            vec![json!("@b.example"), json!("a@b.")],
        ),
        (regex("b"), vec![json!("abc")], vec![json!("ac")]),
        (
            cidr("10.0.0.0/8"),
            vec![json!("10.255.0.1")],
            vec![
                json!("11.0.0.1"),
                json!("::ffff:10.0.0.1"),
                json!("10.0.0"),
                json!("010.0.0.1"),
                json!(10),
            ],
        ),
        (
            cidr("10.1.2.3"),
            vec![json!("10.1.2.3")],
            vec![json!("10.1.2.4")],
        ),
        (
            cidr("0.0.0.0/0"),
            vec![json!("255.255.255.255")],
            vec![json!("::1")],
        ),
        (
            cidr("2001:db8::/33"),
            vec![json!("2001:db8:7fff::1")],
            vec![json!("2001:db8:8000::1")],
        ),
        (cidr("::/0"), vec![json!("ffff::")], vec![json!("1.2.3.4")]),
        (
            list("required", 10, texts(&["a"])),
            vec![json!(["b", "a"])],
            vec![json!(["b"]), json!("a"), json!([])],
        ),
        (
            list("allowed", 11, texts(&["a", "b"])),
            vec![json!([]), json!(["a"])],
            vec![json!(["a", "c"]), json!("a")],
        ),
        (
            all(vec![pattern("/a*"), pattern("*b")]),
            vec![json!("/ab")],
            vec![json!("/a"), json!("b")],
        ),
        (
            any_of(vec![pattern("/a*"), pattern("*b")]),
            vec![json!("/a"), json!("b")],
            vec![json!("c")],
        ),
        (any_of(vec![]), vec![], vec![json!("c")]),
        (
            not(pattern("/a*")),
            vec![json!("b"), json!(1)],
            vec![json!("/a")],
        ),
        (
            not(not(exact(text("a")))),
            vec![json!("a")],
            vec![json!("b")],
        ),
        (
            subpath("/home/a/", true, true),
            vec![
                json!("/home/a"),
                json!("/home/a/b"),
                json!("/home//a/./b/../c"),
                json!(["/home/a/x", "/home/a/y"]),
            ],
            vec![
                json!("/home/ab"),
                json!("/home/a/../b"),
                json!("home/a/b"),
                json!("/home/A/b"),
                json!("/home/a/b\u{0}"),
                json!(["/home/a/x", "/etc"]),
                json!(["/home/a/x", 1]),
                json!([]),
                json!("/home/a\\..\\..\\etc"),
            ],
        ),
        (
            subpath("/a", true, false),
            vec![json!("/a/b")],
            vec![json!("/a"), json!("/a/"), json!("/a/b/..")],
        ),
        (
            subpath("/A", false, true),
            vec![json!("/a/B")],
            vec![json!("/b")],
        ),
        (
            subpath("/", true, true),
            vec![json!("/"), json!("/x")],
            vec![json!("x"), json!("")],
        ),
        (
            subpath("C:\\w", true, true),
            vec![json!("C:/w/x"), json!("C:\\w\\x")],
            vec![json!("D:/w/x"), json!("C:/v")],
        ),
        (
            shlex(&["ls", "/bin/cat"]),
            vec![json!("ls"), json!("ls -l /tmp"), json!("/bin/cat x")],
            vec![
                json!(""),
                json!("rm x"),
                json!("ls; rm x"),
                json!("ls $(x)"),
                json!("ls\nrm"),
                json!("ls 'a'"),
                json!("/bin/ls"),
                json!("X=1 ls"),
                json!("ls|rm"),
                json!("ls &"),
                json!("ls >x"),
            ],
        ),
        (
            url("https://api.example.com/v1/*"),
            vec![
                json!("https://api.example.com/v1/users?x=1"),
                json!("HTTPS://API.example.com:8443/v1/"),
            ],
            vec![
                json!("http://api.example.com/v1/users"),
                json!("https://api.example.com/v2"),
                json!("https://api.example.com.evil.com/v1/x"),
                json!("https://evil.com/v1/x"),
                json!("https://api.example.com@evil.com/v1/x"),
                json!("https://api.example.com/v1/../v2"),
                json!("https://api.example.com/v1/%2e%2e/v2"),
                json!("https://api.example.com\\v1/x"),
                json!("/v1/x"),
            ],
        ),
        (
            url("*://*.example.com:444"),
            vec![
                json!("ftp://a.example.com:444/x"),
                json!("https://example.com:444"),
            ],
            vec![
                json!("https://example.com"),
                json!("https://aexample.com:444"),
            ],
        ),
        (
            public_url,
            vec![
                json!("https://example.com/x"),
                json!("http://8.8.8.8:8080"),
                json!("http://[2606:4700::1111]/"),
            ],
            [
                "ftp://example.com",
                "http://localhost",
                "http://LOCALHOST./",
                "http://a.localhost",
                "http://127.0.0.1",
                "http://127.1",
                "http://2130706433",
                "http://0x7f000001",
                "http://0177.0.0.1",
                "http://10.0.0.1",
                "http://172.16.0.1",
                "http://192.168.1.1",
                "http://100.64.0.1",
                "http://169.254.1.1",
                "http://169.254.169.254",
                "http://metadata.google.internal/x",
                "http://100.100.100.200",
                "http://[::1]",
                "http://[::ffff:127.0.0.1]",
                "http://[64:ff9b::7f00:1]",
                "http://[fd00:ec2::254]",
                "http://[fe80::1]",
                "http://[2002:7f00:1::]",
                "http://0.0.0.0",
                "http://224.0.0.1",
                "http://255.255.255.255",
                "http://[::]",
                "http://user@example.com",
                "http://exa%6dple.com",
                "http://ex\u{e4}mple.com",
                "http://",
                "http:///x",
                "javascript:alert(1)",
                "http://example.com:0",
                "http://example.com:99999",
                "http://a..b",
                "http://[::1",
            ]
            .map(Value::from)
            .to_vec(),
        ),
        (
            own_url,
            vec![
                json!("https://example.com"),
                json!("https://a.example.com/x"),
            ],
            vec![
                json!("https://example.org"),
                json!("https://bad.example.com"),
                json!("https://a.example.com:444"),
                json!("http://a.example.com"),
                json!("https://8.8.8.8"),
            ],
        ),
    ];
    for (constraint, good, bad) in cases {
        for value in good {
            assert!(allows(&constraint, &value), "{constraint:?} {value}");
        }
        for value in bad {
            assert!(!allows(&constraint, &value), "{constraint:?} {value}");
        }
    }
}

/// A negation does not allow a value that cannot be read.
#[test]
fn a_doubt_is_never_an_answer() {
    for (inner, value) in [
        (cidr("10.0.0.0/8"), "not an address"),
        (url("https://a.example/*"), "https://a.example\\@b"),
        (url_safe(&[]), "http://ex%61mple.com"),
        (pattern("a*"), &"b".repeat(5_000)[..]),
        (regex("a"), &"b".repeat(5_000)),
    ] {
        assert_eq!(
            asked(&not(inner), &json!(value)),
            Some(Reason::ConstraintViolation)
        );
    }
    for odd in [
        pattern("a**"),
        pattern("[a"),
        regex("("),
        regex(&"(a{1000}){1000}".repeat(3)),
        all(vec![]),
        url("https://*/x"),
        url("no scheme"),
        url_safe(&[("deny_domains", texts(&["a*b"]))]),
        url_safe(&[("allow_domains", texts(&["exa%6dple.com"]))]),
        constraint(128, map(&[("custom", text("data"))])),
    ] {
        for asks in [odd.clone(), not(odd)] {
            assert_eq!(
                asked(&asks, &json!("a")),
                Some(Reason::UnsupportedConstraint),
                "{asks:?}"
            );
        }
    }
}

fn narrows(parent: &Item, child: &Item) -> bool {
    let root = Draft::root().path(parent.clone()).sign();
    let leaf = Draft::child(&root, 2).path(child.clone()).sign();
    let verification = call(&[root, leaf], "read_file", json!({"path": "\u{1}"}));
    reason(&verification) != Some(Reason::ChainBroken)
}

#[test]
fn what_is_narrower_and_what_is_not() {
    let subset = |values: &[&str]| list("allowed", 11, texts(values));
    let contains = |values: &[&str]| list("required", 10, texts(values));
    let excludes = |values: &[&str]| list("excluded", 7, texts(values));
    for (parent, child, expected) in [
        (wildcard(), regex("("), true),
        (pattern("*"), wildcard(), false),
        (exact(text("a")), exact(text("b")), false),
        (pattern("a*"), pattern("ab*"), true),
        (pattern("a*"), pattern("*a"), false),
        (pattern("a*"), pattern("a"), true),
        (pattern("ab*"), pattern("a*"), false),
        (pattern("*b"), pattern("*ab"), true),
        (pattern("*ab"), pattern("*b"), false),
        (pattern("*]"), pattern("*[a]"), false),
        (pattern("*a*"), pattern("*a*"), true),
        (pattern("*a*"), pattern("*ab*"), false),
        (pattern("a?"), pattern("ab"), false),
        (pattern("a*"), exact(text("ab")), true),
        (pattern("a*"), exact(text("b")), false),
        (regex("a"), regex("a"), true),
        (regex("a"), regex("ab"), false),
        (regex("^a"), exact(text("ab")), true),
        (one_of(&["a", "b"]), one_of(&["a"]), true),
        (one_of(&["a"]), one_of(&["a", "b"]), false),
        (one_of(&["a"]), exact(text("a")), true),
        (one_of(&["a"]), excludes(&["b"]), false),
        (excludes(&["a"]), excludes(&["a", "b"]), true),
        (excludes(&["a", "b"]), excludes(&["a"]), false),
        (contains(&["a"]), contains(&["a", "b"]), true),
        (contains(&["a", "b"]), contains(&["a"]), false),
        (subset(&["a", "b"]), subset(&["a"]), true),
        (subset(&["a"]), subset(&["a", "b"]), false),
        (
            range(Some(0.0), Some(9.0), true),
            range(Some(1.0), Some(8.0), true),
            true,
        ),
        (
            range(Some(0.0), Some(9.0), true),
            range(Some(0.0), Some(9.0), false),
            true,
        ),
        (
            range(Some(0.0), Some(9.0), false),
            range(Some(0.0), Some(9.0), true),
            false,
        ),
        (
            range(Some(0.0), None, true),
            range(None, Some(9.0), true),
            false,
        ),
        (
            range(None, Some(9.0), true),
            range(Some(0.0), None, true),
            false,
        ),
        (range(Some(0.0), Some(9.0), true), exact(Item::Int(9)), true),
        (
            range(Some(0.0), Some(9.0), false),
            exact(Item::Int(9)),
            false,
        ),
        (range(Some(0.0), Some(9.0), true), exact(text("9")), false),
        (cidr("10.0.0.0/8"), cidr("10.1.0.0/16"), true),
        (cidr("10.1.0.0/16"), cidr("10.0.0.0/8"), false),
        (cidr("10.0.0.0/8"), cidr("11.0.0.0/16"), false),
        (cidr("0.0.0.0/0"), cidr("::/0"), false),
        (cidr("10.0.0.0/8"), exact(text("10.9.9.9")), true),
        (subpath("/a", true, true), subpath("/a/b", true, true), true),
        (subpath("/a", true, true), subpath("/ab", true, true), false),
        (subpath("/a", true, true), subpath("/a", false, true), false),
        (subpath("/a", true, false), subpath("/a", true, true), false),
        (
            subpath("/a", true, false),
            subpath("/a/b", true, true),
            true,
        ),
        (
            subpath("/a", false, true),
            subpath("/A/b", true, true),
            true,
        ),
        (subpath("/a", true, true), subset(&["/a/x"]), true),
        (subpath("/a", true, true), subset(&["/b"]), false),
        (subpath("/a", true, true), exact(text("/a/x")), true),
        (subpath("/a", true, true), exact(text("/a/../b")), false),
        (shlex(&["ls", "cat"]), shlex(&["ls"]), true),
        (shlex(&["ls"]), shlex(&["ls", "cat"]), false),
        (url("*://*.a.com/x/*"), url("https://b.a.com/x/y/*"), true),
        (url("https://*.a.com"), url("https://*.b.a.com"), true),
        (url("https://*.b.a.com"), url("https://*.a.com"), false),
        (url("https://a.com"), url("*://a.com"), false),
        (url("https://a.com:444"), url("https://a.com"), false),
        (url("https://a.com/x/*"), url("https://a.com"), false),
        (
            url("https://a.com/x/*"),
            exact(text("https://a.com/x/y")),
            true,
        ),
        (
            url_safe(&[]),
            url_safe(&[("schemes", texts(&["https"]))]),
            true,
        ),
        (
            url_safe(&[]),
            url_safe(&[("schemes", texts(&["ftp"]))]),
            false,
        ),
        (
            url_safe(&[]),
            url_safe(&[("block_private", Item::Bool(false))]),
            false,
        ),
        (
            url_safe(&[]),
            url_safe(&[("block_internal_tlds", Item::Bool(true))]),
            true,
        ),
        (
            url_safe(&[("allow_domains", texts(&["*.a.com"]))]),
            url_safe(&[]),
            false,
        ),
        (
            url_safe(&[("allow_domains", texts(&["*.a.com"]))]),
            url_safe(&[("allow_domains", texts(&["b.a.com"]))]),
            true,
        ),
        (
            url_safe(&[("deny_domains", texts(&["b.a.com"]))]),
            url_safe(&[]),
            false,
        ),
        (
            url_safe(&[("deny_domains", texts(&["b.a.com"]))]),
            url_safe(&[("deny_domains", texts(&["*.a.com"]))]),
            true,
        ),
        (
            all(vec![pattern("a*")]),
            all(vec![pattern("ab*"), pattern("*c")]),
            true,
        ),
        (
            all(vec![pattern("a*"), pattern("*c")]),
            all(vec![pattern("a*")]),
            false,
        ),
        (
            all(vec![pattern("a*"), pattern("*c")]),
            exact(text("abc")),
            true,
        ),
        (
            any_of(vec![pattern("a*"), pattern("b*")]),
            any_of(vec![pattern("ax*")]),
            true,
        ),
        (
            any_of(vec![pattern("a*")]),
            any_of(vec![pattern("a*"), pattern("b*")]),
            false,
        ),
        (not(pattern("ab*")), not(pattern("a*")), true),
        (not(pattern("a*")), not(pattern("ab*")), false),
        (not(pattern("a*")), exact(text("b")), false),
    ] {
        assert_eq!(
            narrows(&parent, &child),
            expected,
            "{parent:?} -> {child:?}"
        );
    }
}

fn leaf() -> impl Strategy<Value = Item> {
    let word = "[ab]{0,2}";
    prop_oneof![
        Just(wildcard()),
        word.prop_map(|word| exact(text(&word))),
        "[ab?*\\[\\]!-]{0,5}".prop_map(|word| pattern(&word)),
        "[ab]{0,2}\\*?".prop_map(|word| pattern(&word)),
        prop::collection::vec(word, 0..3).prop_map(|words| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            one_of(&words)
        }),
        prop::collection::vec(word, 0..3).prop_map(|words| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            list("excluded", 7, texts(&words))
        }),
        "/[ab/.]{0,4}".prop_map(|path| subpath(&path, true, path.len() % 2 == 0)),
    ]
}

fn tree() -> impl Strategy<Value = Item> {
    leaf().prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(all),
            prop::collection::vec(inner.clone(), 0..3).prop_map(any_of),
            inner.prop_map(not),
        ]
    })
}

proptest! {
    /// The one property that everything depends on: a parent allows all that its child allows.
    #[test]
    fn narrower_means_narrower(parent in tree(), child in tree(), value in "/?[ab/.]{0,4}") {
        if narrows(&parent, &child) && asked(&child, &json!(value)).is_none() {
            prop_assert_eq!(asked(&parent, &json!(value)), None);
        }
    }

    #[test]
    fn everything_covers_itself(constraint in tree()) {
        prop_assert!(narrows(&constraint, &constraint));
    }
}
