//! Good ledgers are found good, from a file and one by one, and the report describes them.

use asyncgate_core::{Link, ReceiptType};
use asyncgate_ledger::{
    Expectations, Kind, KnownHead, PublicKey, Verifier, record, verify_export, verify_export_with,
};

use crate::world::{TENANT, World, bare, eventful, export, key, proven};

fn trusted(seed: u8) -> PublicKey {
    PublicKey::from_bytes(key(seed).verifying_key().to_bytes())
}

#[test]
fn a_ledger_with_every_type_of_receipt_is_good() {
    let world = eventful();
    for receipt_type in ReceiptType::ALL {
        let there = |r: &asyncgate_core::Receipt| r.receipt_type == receipt_type;
        assert!(world.receipts.iter().any(there), "{receipt_type:?}");
    }
    let report = verify_export(world.export().as_bytes(), Expectations::default()).unwrap();
    assert_eq!(report.receipts, world.head.seq);
    assert_eq!(report.link, world.head.link.to_string());
    assert_eq!(report.tasks, 6);
    assert_eq!(report.open_obligations, 2);
    assert_eq!(report.signatures, 3);
    assert_eq!(report.keys.len(), 1);
    assert_eq!(report.keys[0].first_seq, 8);
    assert_eq!(report.signed_by, Some(trusted(1).to_string()));
}

#[test]
fn one_by_one_and_from_a_file_come_to_the_same() {
    let world = eventful();
    let mut verifier = Verifier::new(TENANT, Expectations::default());
    for record in world.records() {
        verifier.push(&record).unwrap();
    }
    let pushed = verifier.finish(&world.ledger_head()).unwrap();
    let read = verify_export(world.export().as_bytes(), Expectations::default()).unwrap();
    assert_eq!(pushed, read);
}

/// A file of many blocks, more than there are threads, with receipts of all sizes across their borders.
#[test]
fn a_file_of_many_blocks_is_followed_in_order() {
    let mut world = World::new();
    for n in 0..1_500 {
        let id = world.create("alice");
        let hold = world.lease(id, "bob");
        let size = if n % 50 == 0 { 60_000 } else { n };
        world.progress(&hold, id, &format!("\"{}\"", "x".repeat(size)));
        world.complete(&hold, id, if n % 3 == 0 { bare() } else { proven() });
        if n % 100 == 0 {
            world.sign();
        }
    }
    let text = world.export();
    assert!(text.len() > 3 << 20);
    let mut last = 0;
    let report = verify_export_with(text.as_bytes(), Expectations::default(), |progress| {
        assert!(progress.receipts >= last && progress.bytes <= text.len() as u64);
        last = progress.receipts;
    })
    .unwrap();
    assert_eq!((report.receipts, last), (world.head.seq, world.head.seq));
    assert_eq!(report.open_obligations, 500);
    assert_eq!(report.signatures, 16);

    // A break in a late block is found there and nowhere else.
    let lines: Vec<&str> = text.lines().collect();
    let late = lines.len() - 100;
    let mut removed = lines.clone();
    removed.remove(late);
    let found = verify_export(removed.join("\n").as_bytes(), Expectations::default());
    let asyncgate_ledger::Failure::Broken(found) = found.unwrap_err() else {
        panic!("a break")
    };
    assert_eq!((found.kind, found.line), (Kind::Gap, Some(late as u64 + 1)));
}

#[test]
fn an_empty_ledger_is_good() {
    let world = World::new();
    let report = verify_export(world.export().as_bytes(), Expectations::default()).unwrap();
    assert_eq!((report.receipts, report.open_obligations), (0, 0));
    assert_eq!(report.first_at, None);
}

#[test]
fn a_key_change_is_reported_and_the_head_must_have_the_trusted_key() {
    let mut world = eventful();
    world.key = key(2);
    world.create("alice");
    let text = world.export();
    let expect = |public_key| Expectations {
        public_key,
        known_head: None,
    };
    for public_key in [None, Some(trusted(2))] {
        let report = verify_export(text.as_bytes(), expect(public_key)).unwrap();
        let keys: Vec<_> = report.keys.iter().map(|used| &used.public_key).collect();
        assert_eq!(keys, [&trusted(1).to_string(), &trusted(2).to_string()]);
    }
    let refused = verify_export(text.as_bytes(), expect(Some(trusted(1)))).unwrap_err();
    assert!(refused.to_string().contains("signed with"), "{refused}");
}

#[test]
fn an_unsigned_head_is_good_only_if_no_key_is_trusted() {
    let world = eventful();
    let mut head = world.ledger_head();
    (head.public_key, head.signature) = (None, None);
    let text = export(&world.records(), &head);
    let report = verify_export(text.as_bytes(), Expectations::default()).unwrap();
    assert_eq!(report.signed_by, None);
    assert_eq!(report.signatures, 2, "those in the ledger are checked");
    let public_key = Some(trusted(1));
    let known_head = None;
    let expectations = Expectations {
        public_key,
        known_head,
    };
    let refused = verify_export(text.as_bytes(), expectations).unwrap_err();
    assert!(refused.to_string().contains("not signed"), "{refused}");
}

#[test]
fn an_earlier_head_must_be_in_the_ledger() {
    let world = eventful();
    let text = world.export();
    let with = |seq, link| {
        let known_head = Some(KnownHead { seq, link });
        let public_key = None;
        verify_export(
            text.as_bytes(),
            Expectations {
                public_key,
                known_head,
            },
        )
    };
    let mut link = Link::START;
    with(0, link).unwrap();
    for receipt in &world.receipts {
        link = link.then(TENANT, receipt);
        with(receipt.seq(), link).unwrap();
    }
    for (seq, link) in [
        (world.head.seq + 1, link),
        (world.head.seq - 1, link),
        (1, Link::START),
        (0, link),
    ] {
        let refused = with(seq, link).unwrap_err();
        let asyncgate_ledger::Failure::Broken(found) = refused else {
            panic!("a break")
        };
        assert_eq!(found.kind, Kind::KnownHead);
    }
}

/// Callers' values may be 128 levels deep, and bodies hold them one level deeper.
#[test]
fn the_deepest_body_that_a_server_writes_is_good() {
    let mut world = World::new();
    let id = world.create("alice");
    let hold = world.lease(id, "bob");
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    world.progress(&hold, id, &deep(128));
    verify_export(world.export().as_bytes(), Expectations::default()).unwrap();
    world.progress(&hold, id, &deep(129));
    let refused = verify_export(world.export().as_bytes(), Expectations::default()).unwrap_err();
    assert!(refused.to_string().contains("nested"), "{refused}");
}

/// Bodies that nest as deeply as their size allows must not exhaust the stack.
#[test]
fn an_absurdly_deep_body_is_refused() {
    let world = eventful();
    let mut records = world.records();
    let deep = format!("{}{}", "[".repeat(32_000), "]".repeat(32_000));
    records[3].body = serde_json::value::RawValue::from_string(deep).unwrap();
    let text = export(&records, &world.ledger_head());
    let refused = verify_export(text.as_bytes(), Expectations::default()).unwrap_err();
    assert!(refused.to_string().contains("nested"), "{refused}");
}

#[test]
fn a_record_is_what_its_receipt_says() {
    let world = eventful();
    let first = record(TENANT, &world.receipts[0], world.head.link);
    assert_eq!(first.seq, 1);
    assert_eq!(first.hash, world.receipts[0].hash());
    assert_eq!(first.receipt_type, "task.assigned");
}
