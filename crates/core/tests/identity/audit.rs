//! Audit logs: what a caller sent stays on its line, and nothing can be changed unseen.

use asyncgate_core::{
    Ids, Json, Link, PrincipalKey, PrincipalKind, Stamp, TenantId, Timestamp,
    identity::audit::{Draft, Entry, Event, Log, LogCheck, Severity, cut},
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_767_610_800_000);
const TENANT: TenantId = TenantId::from_bytes([7; 16]);

fn ids() -> Ids {
    Ids::new(Stamp::of_millis(5), 1)
}

fn full() -> Draft {
    let principal = PrincipalKey {
        kind: PrincipalKind::Agent,
        id: "alice".into(),
    };
    Draft::new(&mut ids(), NOW, Some(TENANT), Event::KeyRotated)
        .by(&principal)
        .from_request("10.0.0.1".parse().ok(), Some("curl/8"), Some("corr"))
        .because("asked")
        .with(&[("key_id", "k1"), ("by", "hand")])
}

#[test]
fn events_and_severities_have_the_names_of_the_wire() {
    for event in Event::ALL {
        assert_eq!(event.as_str().parse(), Ok(event));
    }
    for severity in Severity::ALL {
        assert_eq!(severity.as_str().parse(), Ok(severity));
    }
    assert!("".parse::<Event>().is_err());
    assert!("INFO".parse::<Severity>().is_err());
    let numbers = Event::ALL.into_iter().zip(0..);
    assert!(numbers.into_iter().all(|(event, n)| event as i32 == n));
}

#[test]
fn what_cannot_be_seen_is_escaped() {
    for (text, line) in [
        ("plain ünï 🦀", "plain ünï 🦀"),
        ("a\r\nb", "a\\u{d}\\u{a}b"),
        ("\\u{a}", "\\\\u{a}"),
        ("\u{1b}[31m", "\\u{1b}[31m"),
        (
            "\u{85}\u{2028}\u{202e}\u{feff}\u{7f}",
            "\\u{85}\\u{2028}\\u{202e}\\u{feff}\\u{7f}",
        ),
    ] {
        let said = full().because(text);
        assert_eq!(said.reason.as_deref(), Some(line));
    }
}

#[test]
fn details_are_an_object_of_bounded_texts() {
    let long = "x".repeat(10_000);
    let said = full().with(&[("long", &long), ("quote", "\"\n")]);
    let details: std::collections::BTreeMap<String, String> =
        serde_json::from_str(said.details.text()).unwrap();
    assert!(details["long"].len() <= 512 && details["long"].ends_with('…'));
    assert_eq!(details["quote"], "\"\\u{a}");
    let names: Vec<String> = (0..100).map(|n| format!("name{n:03}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "x")).collect();
    let said = full().with(&many);
    assert!(said.details.text().len() < 16 * 40);
    assert!(!said.details.text().contains("name016"));
}

proptest! {
    #[test]
    fn every_text_stays_on_one_bounded_line(text in any::<String>(), times in 1..100_usize) {
        let text = text.repeat(times);
        let said = full().because(&text).with(&[("said", &text)]);
        let said = [said.reason.unwrap(), said.details.text().to_owned()];
        prop_assert!(said[0].len() <= 512);
        for line in said {
            prop_assert!(!line.chars().any(char::is_control), "{line}");
            let hidden = line.contains(['\u{2028}', '\u{2029}', '\u{202e}']);
            prop_assert!(!hidden);
        }
    }
}

fn log(entries: usize) -> (Log, Vec<Entry>) {
    let (mut log, mut ids) = (Log::default(), ids());
    let entries = (0..entries)
        .map(|n| {
            let at = NOW.plus_millis(n as i64);
            log.append(&Draft::new(&mut ids, at, Some(TENANT), Event::ALL[n]))
        })
        .collect();
    (log, entries)
}

fn check(log: Log, entries: &[Entry]) -> Result<(), &'static str> {
    let mut check = LogCheck::new(log);
    entries.iter().try_for_each(|entry| check.push(entry))?;
    check.finish()
}

#[test]
fn a_log_is_checked_from_the_first_entry_that_is_kept() {
    let (mut log, entries) = log(9);
    assert_eq!(check(log, &entries), Ok(()));
    assert_eq!(check(Log::default(), &[]), Ok(()));
    assert_eq!(cut(Some(TENANT), &entries, NOW), None);
    let cut = cut(Some(TENANT), &entries, NOW.plus_millis(4)).unwrap();
    assert_eq!(cut.through, entries[3].place());
    log.cut = cut.through;
    assert_eq!(check(log, &entries[4..]), Ok(()));
    for wrong in [&entries[3..], &entries[5..], &entries[4..8], &entries[..0]] {
        assert!(check(log, wrong).is_err());
    }
}

#[test]
fn the_link_covers_everything_that_an_entry_says() {
    let (log, mut entries) = log(2);
    let mut first = Log::default();
    entries[0] = first.append(&full());
    entries[1] = first.append(&full());
    assert_eq!(check(first, &entries), Ok(()));
    let said = || entries[0].said.clone();
    let mut instead = vec![
        Draft {
            id: asyncgate_core::AuditId::from_bytes([9; 16]),
            ..said()
        },
        Draft {
            tenant: None,
            ..said()
        },
        Draft {
            at: NOW.plus_millis(-1),
            ..said()
        },
        Draft {
            event: Event::KeyRevoked,
            ..said()
        },
        Draft {
            severity: Severity::Critical,
            ..said()
        },
        Draft {
            principal: None,
            ..said()
        },
        Draft { ip: None, ..said() },
        Draft {
            user_agent: None,
            reason: Some("curl/8asked".to_owned()),
            ..said()
        },
        Draft {
            reason: None,
            corr_id: Some("askedcorr".to_owned()),
            ..said()
        },
        Draft {
            corr_id: None,
            ..said()
        },
        Draft {
            details: Json::null(),
            ..said()
        },
    ];
    instead.push(said().because("asked "));
    for other in instead {
        let tampered = Entry {
            said: other.clone(),
            ..entries[0].clone()
        };
        assert!(
            check(first, &[tampered, entries[1].clone()]).is_err(),
            "{other:?}"
        );
        // A new link for what was changed does not fit what follows.
        let mut forged = Log::default();
        let forged = forged.append(&other);
        assert!(
            check(first, &[forged, entries[1].clone()]).is_err(),
            "{other:?}"
        );
    }
    assert!(check(log, &entries).is_err());
    let unlinked = Entry {
        link: Link::START,
        ..entries[1].clone()
    };
    assert!(check(first, &[entries[0].clone(), unlinked]).is_err());
}
