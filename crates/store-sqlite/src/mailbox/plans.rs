//! The plans of SQLite: every statement of the mailbox, as it is run, goes through an index.
//!
//! The statements are taken from the connection itself while the functions of this module run, so that none is forgotten
//! here.

use std::{collections::BTreeSet, sync::mpsc};

use asyncgate_core::{
    Ids, Link, MessageId, Stamp, TenantId, Timestamp,
    mailbox::{ChainHead, Changes, Digest, Message, MessageWrite, State, payload_hash},
};
use asyncgate_store::mailbox::{DeadFilter, Reads, SendKey, Take};
use rusqlite::trace::{TraceEvent, TraceEventCodes};

use super::{MailboxState, query, row::Read, sends::Sends};
use crate::{
    db::{Db, Use},
    plans::plan,
    schema,
};

/// Returns the plans of all statements over messages that `run` needs.
fn plans(db: &mut Db, run: impl FnOnce(&mut Db)) -> Vec<String> {
    let (record, recorded) = mpsc::channel();
    let codes = TraceEventCodes::SQLITE_TRACE_STMT;
    let tracing = db.conn.trace_v2(
        codes,
        Some(move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(statement, _) = event {
                record.send(statement.sql().to_string()).unwrap();
            }
        }),
    );
    tracing.unwrap();
    run(db);
    let stopped = db.conn.trace_v2(codes, None::<fn(TraceEvent<'_>)>);
    stopped.unwrap();
    let seen: BTreeSet<String> = recorded.iter().collect();
    let ours = |sql: &&String| sql.contains("message") || sql.contains("content");
    let plans = seen.iter().filter(ours).flat_map(|sql| plan(db, sql));
    plans.collect()
}

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Db::open(&dir.path().join("a.db"), Use::Write).unwrap();
    schema::migrate(&mut db.conn).unwrap();
    db.conn
        .execute(
            "INSERT INTO tenant VALUES (1, ?1, 0, x'', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
            [TENANT.as_bytes()],
        )
        .unwrap();
    (dir, db)
}

const TENANT: TenantId = TenantId::from_bytes([1; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn id(seq: u64) -> MessageId {
    Ids::new(Stamp::of_millis(1), seq).message(seq)
}

/// Every third message has a key.
fn message(seq: u64) -> Message {
    Message {
        id: id(seq),
        topic: "inbox".into(),
        partition_key: seq.is_multiple_of(3).then(|| "k".into()),
        shard: 0,
        sent_at: NOW,
        idem_key: seq.to_string().into(),
        attrs: Default::default(),
        payload: Default::default(),
        is_text: false,
        payload_hash: payload_hash(b""),
        hash_chain: Digest::default(),
        prev: Link::default(),
        chain_seq: seq,
        corr_id: [0; 16],
        priority: 0,
        expires_at: None,
        since: NOW,
        state: State::Ready,
        attempt: 0,
        delivery: None,
        reason: None,
        last_error: None,
    }
}

fn written(seq: u64, before: bool) -> MessageWrite {
    let message = message(seq);
    let before = before.then(|| message.standing());
    MessageWrite { message, before }
}

fn take() -> Take {
    Take {
        topic: "inbox".to_owned(),
        max_messages: 9,
        max_bytes: 9,
    }
}

/// Writes messages, so that there is something to find.
fn fill(db: &mut Db, mailbox: &mut MailboxState) {
    let changes = Changes {
        messages: (1..9).map(|seq| written(seq, false)).collect(),
        forgotten: Vec::new(),
        chains: [(
            0,
            ChainHead {
                seq: 8,
                link: Link::default(),
            },
        )]
        .into(),
    };
    mailbox.load(db, 1, &Reads::default(), NOW).unwrap();
    mailbox.write(db, 1, &changes).unwrap();
    mailbox.save(db).unwrap();
}

const CONTENT: &str = "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)";

#[test]
fn every_read_of_messages_goes_through_its_index() {
    let (_dir, mut db) = open();
    fill(&mut db, &mut MailboxState::new(1_000));
    let dead = |topic: Option<&str>, reason: Option<&str>| DeadFilter {
        topic: topic.map(str::to_owned),
        reason: reason.map(str::to_owned),
        limit: 9,
        ..DeadFilter::default()
    };
    type Run<'a> = Box<dyn FnOnce(&mut Db) + 'a>;
    let table: Vec<(&str, Run<'_>, &[&str])> = vec![
        (
            "by id",
            Box::new(|db| drop(query::find(db, 1, id(1), Read::Whole).unwrap())),
            &[CONTENT, "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"],
        ),
        (
            "all",
            Box::new(|db| drop(query::all(db, 1, None, 9).unwrap())),
            &[
                "SEARCH m USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                CONTENT,
            ],
        ),
        (
            "ready",
            Box::new(|db| drop(query::peek(db, 1, &take()).unwrap())),
            &["SEARCH m USING INDEX message_ready (topic=?)", CONTENT],
        ),
        (
            "waiting",
            Box::new(|db| drop(query::waiting(db, 1, 9).unwrap())),
            &[
                "SEARCH m USING INDEX message_ready (topic=?)",
                CONTENT,
                "SEARCH m USING INDEX message_delayed (topic=?)",
                CONTENT,
            ],
        ),
        (
            "the line of a partition",
            Box::new(|db| assert_eq!(query::line(db, 1, "k", 9).unwrap().turns, [3, 6])),
            &["SEARCH message USING COVERING INDEX message_partition \
               (topic=? AND partition_key=? AND blocked>?)"],
        ),
        (
            "whether a partition is occupied",
            Box::new(|db| assert!(query::is_occupied(db, 1, "k").unwrap())),
            &["SEARCH message USING COVERING INDEX message_partition \
               (topic=? AND partition_key=? AND blocked>?)"],
        ),
        (
            "dead letters",
            Box::new(|db| drop(query::dead(db, 1, &dead(None, None), Read::Whole).unwrap())),
            &["SEARCH m USING INDEX message_dead (state=? AND rowid>? AND rowid<?)"],
        ),
        (
            "dead letters of a topic",
            Box::new(|db| {
                let filter = dead(Some("inbox"), Some("busy"));
                query::dead(db, 1, &filter, Read::Whole).unwrap();
            }),
            &["SEARCH m USING INDEX message_dead_topic (topic=? AND rowid>? AND rowid<?)"],
        ),
        (
            "due",
            Box::new(|db| drop(query::due(db, NOW, 9).unwrap())),
            &[
                "SEARCH m USING COVERING INDEX message_due (due<?)",
                CONTENT,
                "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)",
            ],
        ),
        (
            "next due",
            Box::new(|db| assert_eq!(query::next_due(db).unwrap(), None)),
            &["SEARCH message USING COVERING INDEX message_due (due>?)"],
        ),
        (
            "old",
            Box::new(|db| drop(query::waiting_since(db, NOW, None, 9).unwrap())),
            &[
                "SEARCH m USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                CONTENT,
            ],
        ),
        (
            "topics",
            Box::new(|db| drop(query::topics(db, 1, None, 9).unwrap())),
            &[
                "SEARCH t USING INDEX topic_shown (tenant=? AND name>?)",
                "CORRELATED SCALAR SUBQUERY 1",
                "SEARCH message USING INDEX message_ready (topic=?)",
                "CORRELATED SCALAR SUBQUERY 2",
                "SEARCH message USING INDEX message_delayed (topic=?)",
            ],
        ),
        (
            "sends, read back",
            Box::new(|db| drop(Sends::load(db, NOW).unwrap())),
            &[
                "SEARCH c USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
                "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)",
            ],
        ),
    ];
    for (name, run, expected) in table {
        assert_eq!(plans(&mut db, run), expected, "{name}");
    }
}

/// Whatever a transaction loads and writes, no table is looked through, and nothing is sorted.
#[test]
fn no_transaction_looks_through_messages() {
    let (_dir, mut db) = open();
    let mut mailbox = MailboxState::new(1_000);
    fill(&mut db, &mut mailbox);
    let found = plans(&mut db, |db| {
        let reads = Reads {
            sends: vec![
                SendKey::new("inbox", "1", None, 1),
                SendKey::new("inbox", "3", Some("k"), 1),
            ],
            messages: vec![id(1), id(3)],
            ready: Some(take()),
            dead: Some(DeadFilter::default()),
            waiting: Some(("inbox".to_owned(), 9)),
        };
        mailbox.load(db, 1, &reads, NOW).unwrap();
        let changes = Changes {
            messages: vec![written(9, false), written(1, true), written(3, true)],
            forgotten: vec![written(2, true)],
            ..Changes::default()
        };
        mailbox.write(db, 1, &changes).unwrap();
        mailbox.save(db).unwrap();
    });
    assert!(found.len() > 9, "{found:?}");
    for step in found {
        assert!(step.starts_with("SEARCH "), "{step}");
    }
}
