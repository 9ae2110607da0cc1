//! The content that two receipts share when their hashes or keys agree.

use asyncgate_core::{
    Head, Ids, LeaseId, Link, PrincipalKind, Receipt, ReceiptId, ReceiptType, Stamp, TaskId,
    TenantId, Timestamp,
};

use crate::world::{agent, json, worker};

fn ids(stamp: u64) -> Ids {
    Ids::new(Stamp::from_u64(stamp), stamp)
}

/// Built field by field, without `..`, so that whoever adds a field must put it into one of the lists below.
fn receipt() -> Receipt {
    let mut from = worker("bob");
    from.instance_id = Some("pod-1".into());
    let mut to = agent("alice");
    to.instance_id = Some("laptop".into());
    Receipt {
        id: ids(1).receipt(9),
        receipt_type: ReceiptType::TaskCompleted,
        created_at: Timestamp::from_millis(1_000),
        from,
        to,
        task_id: Some(ids(2).task(1)),
        lease_id: Some(ids(3).lease(2)),
        parents: vec![ids(4).receipt(1), ids(5).receipt(2)],
        body: json(r#"{"result_payload":{"b":[1,2],"a":"x"}}"#),
        instance: "asyncgate-1".into(),
    }
}

type Change = (&'static str, fn(&mut Receipt));

#[test]
fn the_hash_depends_on_neither_time_nor_id_nor_place() {
    let changes: [Change; 5] = [
        ("id", |r| r.id = ids(99).receipt(77)),
        ("created_at", |r| r.created_at = Timestamp::from_millis(2)),
        ("instance", |r| r.instance = "asyncgate-2".into()),
        ("the body's white space", |r| {
            r.body = json("{ \"result_payload\" : { \"b\" : [1, 2], \"a\" : \"x\" } }");
        }),
        (
            "the order of the body's keys and the writing of numbers",
            |r| {
                r.body = json(r#"{"result_payload":{"a":"\u0078","b":[1.0,2e0]}}"#);
            },
        ),
    ];
    for (what, change) in changes {
        let mut other = receipt();
        change(&mut other);
        assert_eq!(other.hash(), receipt().hash(), "{what}");
    }
}

#[test]
fn the_hash_depends_on_every_other_part() {
    let changes: [Change; 18] = [
        ("type", |r| r.receipt_type = ReceiptType::TaskFailed),
        ("from kind", |r| r.from.kind = PrincipalKind::Service),
        ("from id", |r| r.from.id = "eve".into()),
        ("from instance", |r| r.from.instance_id = None),
        ("to kind", |r| r.to.kind = PrincipalKind::Human),
        ("to id", |r| r.to.id = "eve".into()),
        ("to instance", |r| r.to.instance_id = Some("phone".into())),
        ("from and to exchanged", |r| {
            std::mem::swap(&mut r.from, &mut r.to);
        }),
        ("text moved from one part to the next", |r| {
            r.from.id = "bobpod-1".into();
            r.from.instance_id = None;
        }),
        ("task", |r| r.task_id = Some(ids(20).task(1))),
        ("no task", |r| r.task_id = None),
        ("lease", |r| r.lease_id = Some(ids(30).lease(2))),
        ("no lease", |r| r.lease_id = None),
        ("no parents", |r| r.parents.clear()),
        ("fewer parents", |r| r.parents.truncate(1)),
        ("the order of parents", |r| r.parents.reverse()),
        ("the body's values", |r| {
            r.body = json(r#"{"result_payload":{"b":[2,1],"a":"x"}}"#);
        }),
        ("one more field in the body", |r| {
            r.body = json(r#"{"result_payload":{"b":[1,2],"a":"x"},"n":null}"#);
        }),
    ];
    let mut seen = vec![receipt().hash()];
    for (what, change) in changes {
        let mut other = receipt();
        change(&mut other);
        let hash = other.hash();
        assert!(!seen.contains(&hash), "{what}");
        seen.push(hash);
    }
}

/// A task and a lease of the same bytes must not be mistaken for each other.
#[test]
fn a_part_counts_in_its_own_place() {
    let bytes = *receipt().id.as_bytes();
    let (mut with_task, mut with_lease) = (receipt(), receipt());
    with_task.task_id = Some(TaskId::from_bytes(bytes));
    with_task.lease_id = None;
    with_lease.task_id = None;
    with_lease.lease_id = Some(LeaseId::from_bytes(bytes));
    assert_ne!(with_task.hash(), with_lease.hash());
    assert_ne!(with_task.key(), with_lease.key());
}

#[test]
fn the_hash_is_written_as_blake3_in_hex() {
    let hash = receipt().hash();
    let digits = hash.strip_prefix("b3:").unwrap();
    assert_eq!(digits.len(), 64);
    assert!(
        digits
            .bytes()
            .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
    );
}

/// Clients store hashes, so a change of what they cover is a change of the contract.
#[test]
fn the_hash_of_a_known_receipt_stays_what_it_is() {
    let known = Receipt {
        id: ReceiptId::from_bytes([1; 16]),
        receipt_type: ReceiptType::TaskAssigned,
        created_at: Timestamp::from_millis(0),
        from: agent("alice"),
        to: agent("alice"),
        task_id: Some(TaskId::from_bytes([2; 16])),
        lease_id: None,
        parents: Vec::new(),
        body: json(r#"{"type":"echo"}"#),
        instance: "asyncgate-1".into(),
    };
    assert_eq!(known.hash(), KNOWN_HASH);
}

const KNOWN_HASH: &str = "b3:284c01d48add61074bd63f6d5044409e3e9881c624aa27284bef9bede3430fb1";

/// H.3: the key covers the type, the task, the sender, the lease, and if it discharges.
#[test]
fn the_key_depends_on_type_task_sender_lease_and_discharge_only() {
    let same: [Change; 7] = [
        ("id", |r| r.id = ids(99).receipt(77)),
        ("created_at", |r| r.created_at = Timestamp::from_millis(2)),
        ("from instance", |r| r.from.instance_id = None),
        ("to", |r| r.to = agent("eve")),
        ("which parents", |r| r.parents.truncate(1)),
        ("body", |r| r.body = json("{}")),
        ("instance", |r| r.instance = "asyncgate-2".into()),
    ];
    for (what, change) in same {
        let mut other = receipt();
        change(&mut other);
        assert_eq!(other.key(), receipt().key(), "{what}");
    }
    let different: [Change; 6] = [
        ("type", |r| r.receipt_type = ReceiptType::TaskFailed),
        ("task", |r| r.task_id = Some(ids(20).task(1))),
        ("from kind", |r| r.from.kind = PrincipalKind::Service),
        ("from id", |r| r.from.id = "eve".into()),
        ("lease", |r| r.lease_id = Some(ids(30).lease(2))),
        ("discharge", |r| r.parents.clear()),
    ];
    let mut seen = vec![receipt().key()];
    for (what, change) in different {
        let mut other = receipt();
        change(&mut other);
        assert!(!seen.contains(&other.key()), "{what}");
        seen.push(other.key());
    }
}

/// A link covers everything, also the parts that the hash leaves out, and all earlier receipts.
#[test]
fn a_link_depends_on_every_part_of_the_receipt_the_tenant_and_what_came_before() {
    let tenant = TenantId::from_bytes([1; 16]);
    let changes: [Change; 10] = [
        ("id", |r| r.id = ids(99).receipt(77)),
        ("type", |r| r.receipt_type = ReceiptType::TaskFailed),
        ("created_at", |r| r.created_at = Timestamp::from_millis(2)),
        ("from", |r| r.from = agent("eve")),
        ("to", |r| r.to = agent("eve")),
        ("task", |r| r.task_id = None),
        ("lease", |r| r.lease_id = None),
        ("parents", |r| r.parents.truncate(1)),
        ("body", |r| r.body = json("{}")),
        ("instance", |r| r.instance = "asyncgate-2".into()),
    ];
    let first = Link::START.then(tenant, &receipt());
    let mut seen = vec![Link::START, first];
    for (what, change) in changes {
        let mut other = receipt();
        change(&mut other);
        let link = Link::START.then(tenant, &other);
        assert!(!seen.contains(&link), "{what}");
        seen.push(link);
    }
    let elsewhere = Link::START.then(TenantId::from_bytes([2; 16]), &receipt());
    let later = first.then(tenant, &receipt());
    assert!(!seen.contains(&elsewhere) && !seen.contains(&later));
    assert_eq!(first.to_string().parse(), Ok(first));
    for wrong in ["", "b3:", "b3:00", &first.to_string()[3..]] {
        assert!(wrong.parse::<Link>().is_err(), "{wrong}");
    }
}

/// Every part of a head is under its signature, each in its own place.
#[test]
fn a_heads_statement_depends_on_every_part() {
    let tenant = TenantId::from_bytes([1; 16]);
    let at = Timestamp::from_millis(5);
    let head = Head {
        seq: 1,
        link: Link::from_bytes([3; 32]),
        open_obligations: 2,
    };
    let others = [
        head.statement(TenantId::from_bytes([2; 16]), at),
        head.statement(tenant, Timestamp::from_millis(6)),
        Head { seq: 2, ..head }.statement(tenant, at),
        Head {
            seq: 2,
            open_obligations: 1,
            ..head
        }
        .statement(tenant, at),
        Head {
            open_obligations: 3,
            ..head
        }
        .statement(tenant, at),
        Head {
            link: Link::START,
            ..head
        }
        .statement(tenant, at),
    ];
    let mut seen = vec![head.statement(tenant, at)];
    for other in others {
        assert!(!seen.contains(&other));
        seen.push(other);
    }
}

#[test]
fn every_type_has_a_name_of_its_own() {
    for receipt_type in ReceiptType::ALL {
        assert_eq!(
            ReceiptType::parse(receipt_type.as_str()),
            Some(receipt_type)
        );
    }
    assert_eq!(ReceiptType::parse("task.transferred"), None);
}
