//! The bodies that are requests, and those that are not.

use asyncgate_domains::{Kind, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{ADDRESS, NAME, domain, none, some, stage, unsigned};

fn takes(kind: Kind, body: &Value) -> bool {
    Request::parse(kind, NAME, body.to_string().as_bytes()).is_some()
}

fn good(kind: Kind) -> Value {
    unsigned(kind, &domain(ADDRESS, &json!([stage(0, 2, 10)])), 0)
}

const KINDS: [Kind; 3] = [Kind::Sign, Kind::QuotaStatus, Kind::Disable];

#[test]
fn a_request_is_of_one_kind_only() {
    for kind in KINDS {
        for other in KINDS {
            assert_eq!(takes(other, &good(kind)), kind == other);
        }
    }
}

#[test]
fn extra_fields_are_ignored_everywhere() {
    let mut body = good(Kind::Sign);
    for at in [
        "",
        "/domain",
        "/domain/stages/0",
        "/domain/stages/0/batchSize",
        "/options",
        "/options/nonce",
        "/sessionID",
    ] {
        body.pointer_mut(at).unwrap()["extra"] = json!([{"a": 1}]);
    }
    assert!(takes(Kind::Sign, &body));
}

#[test]
fn of_two_equal_fields_the_last_counts() {
    let text = good(Kind::Disable).to_string();
    let first = format!(r#"{{"type":"x",{}"#, &text[1..]);
    assert!(Request::parse(Kind::Disable, NAME, first.as_bytes()).is_some());
    let last = format!(r#"{},"type":"x"}}"#, &text[..text.len() - 1]);
    assert!(Request::parse(Kind::Disable, NAME, last.as_bytes()).is_none());
}

/// Every field, and values that it may not have; `null` stands for any other type.
#[test]
fn every_field_is_needed_and_of_its_type() {
    let paths = [
        "/type",
        "/blindedMessage",
        "/sessionID",
        "/sessionID/defined",
        "/sessionID/value",
        "/domain",
        "/domain/name",
        "/domain/version",
        "/domain/stages",
        "/domain/stages/0/delay",
        "/domain/stages/0/resetTimer",
        "/domain/stages/0/resetTimer/value",
        "/domain/stages/0/batchSize",
        "/domain/stages/0/batchSize/defined",
        "/domain/stages/0/batchSize/value",
        "/domain/stages/0/repetitions",
        "/domain/stages/0/repetitions/value",
        "/domain/address",
        "/domain/address/defined",
        "/domain/address/value",
        "/domain/salt",
        "/domain/salt/value",
        "/options",
        "/options/signature",
        "/options/signature/value",
        "/options/nonce",
        "/options/nonce/defined",
        "/options/nonce/value",
    ];
    for path in paths {
        for wrong in [
            json!(null),
            json!([]),
            json!(-1),
            json!(0.5),
            json!({"defined": true}),
        ] {
            if path == "/domain/stages" && wrong == json!([]) {
                continue;
            }
            let mut body = good(Kind::Sign);
            *body.pointer_mut(path).unwrap() = wrong.clone();
            assert!(!takes(Kind::Sign, &body), "{path} {wrong}");
        }
        let (parent, field) = path.rsplit_once('/').unwrap();
        let mut body = good(Kind::Sign);
        let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.remove(field).unwrap();
        assert!(!takes(Kind::Sign, &body), "without {path}");
    }
}

#[test]
fn numbers_are_exact_integers() {
    for path in [
        "/domain/stages/0/delay",
        "/domain/stages/0/batchSize/value",
        "/domain/stages/0/repetitions/value",
        "/options/nonce/value",
    ] {
        for (number, taken) in [
            (json!(9_007_199_254_740_991_u64), true),
            (json!(9_007_199_254_740_992_u64), false),
            (json!(u64::MAX), false),
            (json!(-1), false),
            (json!(1.5), false),
            (json!(2.0), true),
            (json!("1"), false),
        ] {
            let mut body = good(Kind::Sign);
            *body.pointer_mut(path).unwrap() = number.clone();
            assert_eq!(takes(Kind::Sign, &body), taken, "{path} {number}");
        }
    }
}

#[test]
fn numbers_that_others_cannot_read_are_refused_even_where_they_are_ignored() {
    let digits = "7".repeat(5_000);
    for (number, taken) in [
        ("7", true),
        ("1e999", false),
        (&digits, false),
        (&format!("0.{digits}"), false),
    ] {
        let mut body = good(Kind::Sign).to_string();
        body.insert_str(1, &format!("\"extra\":{number},"));
        let read = Request::parse(Kind::Sign, NAME, body.as_bytes());
        assert_eq!(read.is_some(), taken, "{number}");
    }
}

#[test]
fn only_the_known_domain_is_taken() {
    for (path, value) in [
        ("/domain/name", json!("Sequential Delay Domain")),
        ("/domain/version", json!("2")),
        ("/domain/version", json!(1)),
        ("/type", json!("Disable")),
    ] {
        let mut body = good(Kind::Disable);
        *body.pointer_mut(path).unwrap() = value;
        assert!(!takes(Kind::Disable, &body), "{path}");
    }
}

#[test]
fn no_json_is_no_request() {
    for body in [
        "",
        "{",
        "null",
        "[]",
        "3",
        "{}",
        "\"x\"",
        "\u{feff}{}",
        &"[".repeat(100_000),
    ] {
        assert!(Request::parse(Kind::Sign, NAME, body.as_bytes()).is_none());
    }
    assert!(Request::parse(Kind::Sign, NAME, b"\xff\xfe").is_none());
}

#[test]
fn an_undefined_value_keeps_what_was_written() {
    let mut body = good(Kind::Sign);
    body["options"]["nonce"] = none(7);
    body["domain"]["salt"] = some("0xff");
    let request = crate::parse(Kind::Sign, &body);
    assert_eq!(request.options.nonce.value, 7);
    assert_eq!(request.options.nonce.get(), None);
    assert_eq!(request.domain.salt.get().unwrap(), "0xff");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in KINDS {
            prop_assert!(Request::parse(kind, NAME, &bytes).is_none());
        }
    }
}
