//! Every change to a ledger that we could think of; each is found with its kind and its place.

use asyncgate_api::{LedgerHead, Principal, PrincipalKind, ReceiptRecord};
use asyncgate_core::{
    Json, LeaseId, Link, Receipt, ReceiptId, ReceiptType, TaskId, Timestamp, hex,
};
use asyncgate_ledger::{Break, Expectations, Failure, Kind, PublicKey, Verifier, verify_export};
use ed25519_dalek::Signer;
use serde_json::value::RawValue;

use crate::world::{TENANT, World, chained, eventful, export, json, key};

/// Verifies a file that must be broken, and returns the break.
fn broken_with(text: &str, expectations: Expectations) -> Break {
    match verify_export(text.as_bytes(), expectations) {
        Ok(report) => panic!("not noticed: {report:?}"),
        Err(Failure::Read(error)) => panic!("{error}"),
        Err(Failure::Broken(found)) => found,
    }
}

fn broken(text: &str) -> Break {
    broken_with(text, Expectations::default())
}

/// Changes the records of a good ledger, and expects the break both from the file and one by one.
fn tampered(tamper: impl FnOnce(&mut Vec<ReceiptRecord>, &mut LedgerHead)) -> Break {
    let world = eventful();
    let (mut records, mut head) = (world.records(), world.ledger_head());
    tamper(&mut records, &mut head);
    // The writer would refuse some of this, so the lines are written by hand.
    let mut lines = vec![world.export().lines().next().unwrap().to_owned()];
    lines.extend(records.iter().map(|r| serde_json::to_string(r).unwrap()));
    lines.push(serde_json::to_string(&head).unwrap());
    let text: Vec<String> = lines
        .iter()
        .map(|line| line.replace(['\n', '\r'], " "))
        .collect();
    let in_file = broken(&(text.join("\n") + "\n"));
    let one_by_one = pushed(&records, &head).unwrap_err();
    assert_eq!(
        (one_by_one.kind, one_by_one.seq, &one_by_one.message),
        (in_file.kind, in_file.seq, &in_file.message)
    );
    in_file
}

fn pushed(records: &[ReceiptRecord], head: &LedgerHead) -> Result<(), Break> {
    let mut verifier = Verifier::new(TENANT, Expectations::default());
    for record in records {
        verifier.push(record)?;
    }
    verifier.finish(head).map(|_| ())
}

/// Rewrites a ledger so that every hash, link and signature fits: only the rules can find it.
fn rewritten(rewrite: impl FnOnce(&mut Vec<Receipt>)) -> Break {
    let world = eventful().rewritten(|receipts| {
        // Signatures in the ledger would reveal the rewriting before the rules do.
        for receipt in receipts.iter_mut() {
            if receipt.receipt_type == ReceiptType::LedgerSigned {
                receipt.receipt_type = ReceiptType::ReceiptAcknowledged;
            }
        }
        rewrite(receipts);
    });
    broken(&world.export())
}

#[track_caller]
fn assert_at(found: &Break, kind: Kind, seq: u64) {
    assert_eq!((found.kind, found.seq), (kind, Some(seq)), "{found}");
    assert_eq!(found.line, Some(seq + 1), "{found}");
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Builds an id that carries a place.
fn id_at(seq: u64) -> [u8; 16] {
    let tail = (0b10_u64 << 62) | (seq << 18) | 5;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&0x0190_0000_0000_7000_u64.to_be_bytes());
    bytes[8..].copy_from_slice(&tail.to_be_bytes());
    bytes
}

#[test]
fn an_edited_body() {
    let found = tampered(|records, _| records[6].body = raw(r#"{"answer":43}"#));
    assert_at(&found, Kind::Hash, 7);
}

#[test]
fn an_edited_body_with_its_hash_made_to_fit() {
    let world = eventful();
    let mut forged = world.receipts[6].clone();
    forged.body = json(r#"{"answer":43}"#);
    let found = tampered(|records, _| {
        records[6].body = raw(r#"{"answer":43}"#);
        records[6].hash = forged.hash();
    });
    assert_at(&found, Kind::Link, 7);
}

#[test]
fn an_edited_time() {
    let found = tampered(|records, _| {
        records[6].created_at = records[7].created_at.replace(".015Z", ".014Z");
    });
    assert_at(&found, Kind::Link, 7);
    let found = tampered(|records, _| records[6].created_at = "yesterday".to_owned());
    assert_at(&found, Kind::Time, 7);
}

#[test]
fn an_edited_sender_or_addressee() {
    let eve = || Principal {
        kind: PrincipalKind::Worker,
        id: "eve".to_owned(),
        instance_id: None,
    };
    let found = tampered(|records, _| records[6].from = eve());
    assert_at(&found, Kind::Hash, 7);
    let found = tampered(|records, _| records[0].to = eve());
    assert_at(&found, Kind::Hash, 1);
    let found = tampered(|records, _| records[0].from.instance_id = Some("laptop".to_owned()));
    assert_at(&found, Kind::Hash, 1);
}

#[test]
fn an_edited_instance_of_the_server() {
    let found = tampered(|records, _| records[4].asyncgate_instance = "other".to_owned());
    assert_at(&found, Kind::Link, 5);
}

#[test]
fn an_edited_type_task_or_lease() {
    let found = tampered(|records, _| records[18].receipt_type = "task.completed".to_owned());
    assert_at(&found, Kind::Hash, 19);
    let found = tampered(|records, _| records[18].receipt_type = "task.forgotten".to_owned());
    assert_at(&found, Kind::UnknownType, 19);
    let found = tampered(|records, _| records[18].task_id = records[0].task_id.clone());
    assert_at(&found, Kind::Hash, 19);
    let found = tampered(|records, _| records[18].lease_id = None);
    assert_at(&found, Kind::Hash, 19);
    let found = tampered(|records, _| records[18].task_id = Some("task".to_owned()));
    assert_at(&found, Kind::Malformed, 19);
}

#[test]
fn swapped_receipts() {
    let found = tampered(|records, _| records.swap(2, 3));
    assert_eq!(
        (found.kind, found.line, found.seq),
        (Kind::Gap, Some(4), Some(4))
    );
    // If their places are swapped back, their ids reveal it.
    let found = tampered(|records, _| {
        records.swap(2, 3);
        (records[2].seq, records[3].seq) = (3, 4);
    });
    assert_at(&found, Kind::MisplacedId, 3);
    // If the ids fit too, the links reveal it.
    let found = tampered(|records, _| {
        let [third, fourth] = &mut records[2..4] else {
            panic!()
        };
        std::mem::swap(third, fourth);
        std::mem::swap(&mut third.receipt_id, &mut fourth.receipt_id);
        (third.seq, fourth.seq) = (3, 4);
    });
    assert_at(&found, Kind::Link, 3);
}

#[test]
fn a_removed_receipt() {
    for n in [0, 3, 20] {
        let found = tampered(|records, _| drop(records.remove(n)));
        let place = n as u64 + 2;
        assert_eq!((found.kind, found.seq), (Kind::Gap, Some(place)), "{found}");
        assert_eq!(found.line, Some(place));
    }
    let found = tampered(|records, _| drop(records.pop()));
    assert_eq!((found.kind, found.seq), (Kind::HeadSeq, None), "{found}");
}

#[test]
fn an_inserted_receipt() {
    let found = tampered(|records, _| {
        let mut forged = records[2].clone();
        forged.receipt_id = ReceiptId::from_bytes(id_at(4)).to_string();
        forged.seq = 4;
        records.insert(3, forged);
    });
    assert_at(&found, Kind::Link, 4);
    // If its own link is made to fit, the next receipt reveals it.
    let world = eventful();
    let mut forged = world.receipts[2].clone();
    forged.id = ReceiptId::from_bytes(id_at(4));
    let mut receipts = world.receipts[..3].to_vec();
    receipts.push(forged);
    let link_of_forged = chained(&receipts)[3].clone();
    let found = tampered(|records, _| records.insert(3, link_of_forged));
    assert_eq!(
        (found.kind, found.line, found.seq),
        (Kind::Gap, Some(6), Some(4))
    );
}

#[test]
fn a_receipt_appended_after_the_head_was_signed() {
    let mut grown = eventful();
    grown.create("mallory");
    let more = grown.records().pop().unwrap();
    let found = tampered(|records, _| records.push(more));
    assert_eq!((found.kind, found.seq), (Kind::HeadSeq, None), "{found}");
}

#[test]
fn a_duplicated_line() {
    let found = tampered(|records, _| records.insert(5, records[4].clone()));
    assert_eq!(
        (found.kind, found.line, found.seq),
        (Kind::Gap, Some(7), Some(5))
    );
}

#[test]
fn a_changed_link_or_hash() {
    let found = tampered(|records, _| records[4].link = records[3].link.clone());
    assert_at(&found, Kind::Link, 5);
    let found = tampered(|records, _| records[4].link = "b3:00".to_owned());
    assert_at(&found, Kind::Malformed, 5);
    let found = tampered(|records, _| records[4].link = records[4].link.to_uppercase());
    assert_at(&found, Kind::Malformed, 5);
    let found = tampered(|records, _| records[4].hash = records[3].hash.clone());
    assert_at(&found, Kind::Hash, 5);
    let found = tampered(|records, _| {
        records[4].hash = records[4].hash.to_uppercase().replace("B3:", "b3:");
    });
    assert_at(&found, Kind::Hash, 5);
}

#[test]
fn a_changed_id() {
    let found = tampered(|records, _| {
        records[4].receipt_id = ReceiptId::from_bytes(id_at(5)).to_string();
    });
    assert_at(&found, Kind::Link, 5);
    let found = tampered(|records, _| records[4].receipt_id = records[3].receipt_id.clone());
    assert_at(&found, Kind::MisplacedId, 5);
    let found = tampered(|records, _| records[4].receipt_id = records[4].receipt_id.to_uppercase());
    assert_at(&found, Kind::Malformed, 5);
}

#[test]
fn changed_parents() {
    let found = tampered(|records, _| records[6].parents.clear());
    assert_at(&found, Kind::Hash, 7);
    let found = tampered(|records, _| records[6].parents = vec![records[9].receipt_id.clone()]);
    assert_at(&found, Kind::Hash, 7);
    let found = tampered(|records, _| {
        records[6].parents = vec![records[0].receipt_id.clone(); 11];
    });
    assert_at(&found, Kind::TooManyParents, 7);
}

#[test]
fn a_receipt_of_another_tenant() {
    let found = tampered(|records, _| records[6].tenant_id = records[6].receipt_id.clone());
    assert_at(&found, Kind::Tenant, 7);
    let found = tampered(|_, head| head.tenant_id = "other".to_owned());
    assert_eq!((found.kind, found.seq), (Kind::Tenant, None));
}

#[test]
fn something_smuggled_in_beside_the_statement() {
    let found = tampered(|records, _| records[6].schedule_id = Some("x".to_owned()));
    assert_at(&found, Kind::Malformed, 7);
    let text = eventful()
        .export()
        .replacen("\"seq\":7,", "\"seq\":7,\"note\":1,", 1);
    let found = broken(&text);
    assert_eq!(
        (found.kind, found.line),
        (Kind::Garbled, Some(8)),
        "{found}"
    );
}

/// The first and the last line have their fields and no others, each once, and none of them can be changed. What the
/// header says of the export itself is not signed, and only its form is checked.
#[test]
fn each_field_of_the_header_and_of_the_head() {
    let text = eventful().export();
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        lines.join("\n") + "\n"
    };
    let last = lines.len() - 1;
    for (at, optional) in [(0, "exported_by"), (last, "")] {
        let good: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(lines[at]).unwrap();
        assert!(good.len() >= 5);
        let place = Some(at as u64 + 1);
        let write = |fields: &serde_json::Map<String, serde_json::Value>| {
            let line = serde_json::to_string(fields).unwrap();
            with(at, &line)
        };
        for (name, value) in &good {
            let mut less = good.clone();
            less.remove(name);
            if name != optional {
                assert_eq!(broken(&write(&less)).line, place, "without {name}");
            }
            let mut other = good.clone();
            let changed: serde_json::Value = match (value.as_i64(), value.as_str()) {
                (Some(number), _) => (number + 1).into(),
                (None, Some(text)) => format!("{text}0").into(),
                (None, None) => "x".into(),
            };
            other.insert(name.clone(), changed);
            if name != optional {
                broken(&write(&other));
            }
            let line = lines[at];
            let twice = format!("{{\"{name}\":{value},{}", &line[1..]);
            assert_eq!(broken(&with(at, &twice)).line, place, "{name} twice");
        }
        let mut more = good.clone();
        more.insert("note".to_owned(), 1.into());
        assert_eq!(broken(&write(&more)).line, place, "one field more");
    }
}

#[test]
fn the_time_of_a_head_that_is_not_signed() {
    let found = tampered(|_, head| {
        (head.public_key, head.signature) = (None, None);
        head.signed_at = "yesterday".to_owned();
    });
    assert_eq!(found.kind, Kind::Time, "{found}");
}

/// Somebody who rewrites the end of a ledger can make every link fit, but cannot sign it.
#[test]
fn a_recomputed_tail_with_an_old_or_foreign_signature() {
    let rewrite = |receipts: &mut Vec<Receipt>| receipts[29].body = json(r#"{"type":"other"}"#);
    let old = eventful().ledger_head();
    let world = eventful().rewritten(rewrite);
    let found = broken(&export(&world.records(), &old));
    assert_eq!((found.kind, found.seq), (Kind::HeadLink, None), "{found}");

    let mut head = world.ledger_head();
    head.signature = old.signature;
    let found = broken(&export(&world.records(), &head));
    assert_eq!((found.kind, found.seq), (Kind::Signature, None), "{found}");
    assert_eq!(found.line, Some(world.head.seq + 2));

    let mut foreign = eventful().rewritten(rewrite);
    foreign.key = key(9);
    let expectations = Expectations {
        public_key: Some(PublicKey::from_bytes(key(1).verifying_key().to_bytes())),
        known_head: None,
    };
    let found = broken_with(&foreign.export(), expectations);
    assert_eq!(
        (found.kind, found.seq),
        (Kind::UntrustedKey, None),
        "{found}"
    );
}

/// A rewriting that starts before a recorded signature breaks there, with any signature of the head.
#[test]
fn a_rewritten_ledger_with_its_old_signatures() {
    let world = eventful().rewritten(|receipts| receipts[3].body = json("{}"));
    let found = broken(&world.export());
    assert_at(&found, Kind::SignedHead, 9);
}

#[test]
fn a_recorded_signature_by_another_key() {
    let world = eventful();
    let head = asyncgate_core::Head {
        seq: 8,
        link: world.records()[7].link.parse::<Link>().unwrap(),
        open_obligations: 0,
    };
    let at = world.receipts[8].created_at;
    let signature = key(9).sign(&head.statement(TENANT, at)).to_bytes();
    let body = |signature: &[u8]| {
        let body = world.receipts[8].body.text();
        let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
        body["signature"] = hex::encode(signature).into();
        json(&body.to_string())
    };
    let forge = |body: Json| {
        let world = eventful().rewritten(|receipts| receipts[8].body = body);
        broken(&world.export())
    };
    assert_at(&forge(body(&signature)), Kind::Signature, 9);
    assert_at(&forge(body(&[0; 3])), Kind::Malformed, 9);
    assert_at(&forge(json("{}")), Kind::Malformed, 9);
}

#[test]
fn edited_counts_and_places_of_the_head() {
    let found = tampered(|_, head| head.open_obligations = 0);
    assert_eq!(found.kind, Kind::HeadOpenObligations, "{found}");
    assert!(found.message.contains("open_obligations 0"), "{found}");
    let found = tampered(|_, head| head.seq += 1);
    assert_eq!(found.kind, Kind::HeadSeq);
    let found = tampered(|records, head| head.link = records[0].link.clone());
    assert_eq!(found.kind, Kind::HeadLink);
    let found = tampered(|_, head| head.signed_at_millis += 1);
    assert_eq!(found.kind, Kind::Time);
    let found = tampered(|_, head| {
        head.signed_at_millis += 1;
        head.signed_at = Timestamp::from_millis(head.signed_at_millis).to_string();
    });
    assert_eq!(found.kind, Kind::Signature);
    let found = tampered(|_, head| head.signature = None);
    assert_eq!(found.kind, Kind::Unsigned);
    let found = tampered(|_, head| head.public_key = None);
    assert_eq!(found.kind, Kind::Unsigned);
}

#[test]
fn the_key_of_the_head_exchanged() {
    let found = tampered(|_, head| {
        head.public_key = Some(hex::encode(key(9).verifying_key().as_bytes()));
    });
    assert_eq!(found.kind, Kind::Signature, "{found}");
    let weak = format!("01{}", "00".repeat(31));
    let found = tampered(|_, head| {
        head.public_key = Some(weak);
        head.signature = Some(format!("01{}", "00".repeat(63)));
    });
    assert_eq!(found.kind, Kind::Signature, "{found}");
}

#[test]
fn a_time_that_runs_back() {
    let found = rewritten(|receipts| receipts[9].created_at = Timestamp::from_millis(0));
    assert_at(&found, Kind::TimeRunsBack, 10);
}

/// An open obligation is made to look discharged by somebody who can sign.
#[test]
fn a_forged_discharge() {
    let discharge = |parents: &[usize]| {
        let parents = parents.to_vec();
        rewritten(move |receipts| {
            let named = parents.iter().map(|n| receipts[n - 1].id).collect();
            receipts[28].receipt_type = ReceiptType::TaskCompleted;
            receipts[28].task_id = receipts[27].task_id;
            receipts[28].parents = named;
        })
    };
    // The parent is of another task, of no obligation, or does not exist.
    assert_at(&discharge(&[10]), Kind::WrongParent, 29);
    assert_at(&discharge(&[27]), Kind::WrongParent, 29);
    assert_at(&discharge(&[28, 28]), Kind::WrongParent, 29);
    assert_at(&discharge(&[30]), Kind::UnknownParent, 29);
    assert_at(&discharge(&[29]), Kind::UnknownParent, 29);
    let found = rewritten(|receipts| {
        receipts[28].receipt_type = ReceiptType::TaskFailed;
        receipts[28].task_id = receipts[27].task_id;
        receipts[28].parents = Vec::new();
    });
    assert_at(&found, Kind::WrongParent, 29);
}

#[test]
fn an_obligation_discharged_twice() {
    let found = rewritten(|receipts| {
        receipts[20].receipt_type = ReceiptType::TaskCanceled;
        receipts[20].parents = vec![receipts[14].id];
    });
    assert_at(&found, Kind::DischargedTwice, 21);
}

#[test]
fn the_same_receipt_written_twice() {
    let found = rewritten(|receipts| {
        let (id, at) = (receipts[12].id, receipts[12].created_at);
        receipts[12] = receipts[11].clone();
        (receipts[12].id, receipts[12].created_at) = (id, at);
    });
    assert_at(&found, Kind::Repeated, 13);
}

#[test]
fn a_result_without_an_end() {
    let found = rewritten(|receipts| receipts[7].parents = vec![receipts[5].id]);
    assert_at(&found, Kind::WrongParent, 8);
    let found = rewritten(|receipts| receipts[7].parents = Vec::new());
    assert_at(&found, Kind::WrongParent, 8);
    let found = rewritten(|receipts| receipts[12].parents = vec![receipts[6].id]);
    assert_at(&found, Kind::WrongParent, 13);
}

#[test]
fn a_task_or_lease_out_of_nowhere() {
    let found = rewritten(|receipts| receipts[2].task_id = Some(TaskId::from_bytes(id_at(1))));
    assert_at(&found, Kind::UnknownTask, 3);
    let found = rewritten(|receipts| receipts[9].task_id = receipts[0].task_id);
    assert_at(&found, Kind::UnknownTask, 10);
    let found = rewritten(|receipts| receipts[9].task_id = None);
    assert_at(&found, Kind::UnknownTask, 10);
    let found = rewritten(|receipts| receipts[2].lease_id = Some(LeaseId::from_bytes(id_at(2))));
    assert_at(&found, Kind::UnknownLease, 3);
    let found = rewritten(|receipts| receipts[11].lease_id = receipts[1].lease_id);
    assert_at(&found, Kind::UnknownLease, 12);
    let found = rewritten(|receipts| receipts[5].lease_id = None);
    assert_at(&found, Kind::UnknownLease, 6);
}

#[test]
fn a_body_that_no_server_writes() {
    let found = rewritten(|receipts| {
        receipts[3].body = json(&format!("\"{}\"", "x".repeat(65_535)));
    });
    assert_at(&found, Kind::Body, 4);
}

#[test]
fn a_ledger_that_is_another_tenants() {
    let mut world = World::new();
    world.create("alice");
    let other = TaskId::from_bytes([8; 16]).to_string();
    let text = world.export().replace(&TENANT.to_string(), &other);
    assert_at(&broken(&text), Kind::Link, 1);
}
