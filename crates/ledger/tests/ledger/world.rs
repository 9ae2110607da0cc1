//! A tiny server: it decides by core's rules, chains the receipts they write, and signs its head.

use std::{collections::HashMap, sync::Arc};

use asyncgate_api::{LedgerHead, ReceiptRecord};
use asyncgate_core::{
    Changes, Decision, Env, Head, Ids, Json, Link, Policy, Principal, PrincipalKind, Receipt,
    Rejection, Seq, Stamp, Task, TaskId, TenantId, TenantLoad, Timestamp, hex,
    receipt::{SignedHead, acknowledge, record_signature},
    task::{self, Claim, Completion, Contract, Failure, Hold, NewTask},
};
use asyncgate_ledger::{Export, record};
use ed25519_dalek::{Signer, SigningKey};

pub const TENANT: TenantId = TenantId::from_bytes([7; 16]);

pub struct World {
    pub now: Timestamp,
    pub tasks: HashMap<TaskId, Task>,
    pub receipts: Vec<Receipt>,
    pub head: Head,
    pub key: SigningKey,
    decisions: u64,
}

pub fn agent(id: &str) -> Principal {
    Principal::new(PrincipalKind::Agent, id)
}

pub fn worker(id: &str) -> Principal {
    Principal::new(PrincipalKind::Worker, id)
}

pub fn json(text: &str) -> Json {
    Json::from_text(text.to_owned()).unwrap()
}

pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub fn new_task(owner: &str) -> NewTask {
    NewTask::new(agent(owner), "echo", json(r#"{"say":"hello"}"#))
}

/// Builds a success without proof.
pub fn bare() -> Completion {
    Completion {
        result: Some(json(
            "{\n  \"answer\": 42.0,\r\n  \"said\": \"h\\u00e9llo\"\n}",
        )),
        ..Completion::default()
    }
}

/// Builds a success that says where its result is.
pub fn proven() -> Completion {
    Completion {
        artifacts: Some(json(r#"[{"type":"s3","url":"s3://bucket/result"}]"#)),
        ..bare()
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            now: Timestamp::from_millis(1_767_610_800_000),
            tasks: HashMap::new(),
            receipts: Vec::new(),
            head: Head::default(),
            key: key(1),
            decisions: 0,
        }
    }

    pub fn wait_ms(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    pub fn run<T>(&mut self, decide: impl FnOnce(Env, Seq) -> Result<Decision<T>, Rejection>) -> T {
        self.decisions += 1;
        let millis = Stamp::of_millis(self.now.as_millis()).as_u64();
        let env = Env {
            now: self.now,
            ids: Ids::new(
                Stamp::from_u64(millis + self.decisions % 4096),
                self.decisions,
            ),
            instance: Arc::from("asyncgate-1"),
            quotas: None,
            policy: Arc::new(Policy {
                expiry_jitter_ms: 0,
                ..Policy::default()
            }),
        };
        let Decision { changes, output } = decide(env, self.head.seq).unwrap();
        self.apply(changes);
        output
    }

    fn apply(&mut self, changes: Changes) {
        for write in changes.tasks {
            self.tasks.insert(write.task.id, write.task);
        }
        for receipt in changes.receipts {
            self.head.seq = receipt.seq();
            self.head.link = self.head.link.then(TENANT, &receipt);
            self.receipts.push(receipt);
        }
        self.head.open_obligations += changes.opened.len() as u64;
        self.head.open_obligations -= changes.closed.len() as u64;
    }

    pub fn create(&mut self, owner: &str) -> TaskId {
        self.run(|env, head| task::create(env, head, new_task(owner), None, TenantLoad::default()))
            .task
            .id
    }

    pub fn create_under(&mut self, owner: &str, contract: Contract) -> TaskId {
        let new = NewTask {
            contract,
            ..new_task(owner)
        };
        let created =
            self.run(|env, head| task::create(env, head, new, None, TenantLoad::default()));
        created.task.id
    }

    pub fn lease(&mut self, id: TaskId, by: &str) -> Hold {
        let claim = Claim {
            worker: worker(by),
            capabilities: vec!["fast".to_owned()],
            lease_ttl_ms: None,
            expected_duration_seconds: None,
        };
        let task = self.tasks[&id].clone();
        let leased = self.run(|env, head| Ok(task::claim(env, head, &claim, vec![task], 0)));
        Hold {
            worker: claim.worker,
            lease_id: leased.leased[0].lease().unwrap().id,
        }
    }

    pub fn start(&mut self, hold: &Hold, id: TaskId) {
        let task = self.tasks[&id].clone();
        self.run(|env, head| task::start(env, head, hold, task));
    }

    pub fn progress(&mut self, hold: &Hold, id: TaskId, value: &str) {
        let task = self.tasks[&id].clone();
        self.run(|env, head| task::progress(env, head, hold, task, json(value), 0));
    }

    pub fn release(&mut self, hold: &Hold, id: TaskId) {
        let task = self.tasks[&id].clone();
        self.run(|env, head| task::release(env, head, hold, task));
    }

    pub fn complete(&mut self, hold: &Hold, id: TaskId, completion: Completion) {
        let task = self.tasks[&id].clone();
        self.run(|env, head| task::complete(env, head, hold, task, completion));
    }

    pub fn fail(&mut self, hold: &Hold, id: TaskId, retryable: bool) {
        let task = self.tasks[&id].clone();
        let failure = Failure {
            error: json(r#"{"message":"no luck"}"#),
            retryable,
            retry_after_seconds: None,
        };
        self.run(|env, head| task::fail(env, head, hold, task, failure));
    }

    pub fn cancel(&mut self, id: TaskId, reason: Option<&str>) {
        let task = self.tasks[&id].clone();
        let owner = task.created_by.clone();
        self.run(|env, head| task::cancel(env, head, task, &owner, reason));
    }

    pub fn acknowledge(&mut self, place: usize, by: &str) {
        let receipt = self.receipts[place - 1].clone();
        self.run(|env, head| Ok(acknowledge(env, head, &receipt, &agent(by), None)));
    }

    /// Moves the time past every deadline and sweeps.
    pub fn expire(&mut self, id: TaskId) {
        self.wait_ms(900_000);
        let task = self.tasks[&id].clone();
        self.run(|env, head| Ok(task::sweep(env, head, vec![task])));
    }

    /// Signs the head of the ledger, in the ledger.
    pub fn sign(&mut self) {
        let signed = self.signed();
        self.run(|env, head| Ok(record_signature(env, head, &signed)));
    }

    fn signed(&self) -> SignedHead {
        SignedHead {
            head: self.head,
            signed_at: self.now,
            public_key: self.key.verifying_key().to_bytes(),
            signature: self
                .key
                .sign(&self.head.statement(TENANT, self.now))
                .to_bytes(),
        }
    }

    pub fn ledger_head(&self) -> LedgerHead {
        let signed = self.signed();
        LedgerHead {
            tenant_id: TENANT.to_string(),
            seq: signed.head.seq,
            link: signed.head.link.to_string(),
            open_obligations: signed.head.open_obligations,
            signed_at: signed.signed_at.to_string(),
            signed_at_millis: signed.signed_at.as_millis(),
            public_key: Some(hex::encode(&signed.public_key)),
            signature: Some(hex::encode(&signed.signature)),
        }
    }

    pub fn records(&self) -> Vec<ReceiptRecord> {
        chained(&self.receipts)
    }

    pub fn export(&self) -> String {
        export(&self.records(), &self.ledger_head())
    }

    /// Changes the ledger, then chains and signs it again as if it had always been so.
    pub fn rewritten(mut self, rewrite: impl FnOnce(&mut Vec<Receipt>)) -> Self {
        rewrite(&mut self.receipts);
        self.head.link = self
            .receipts
            .iter()
            .fold(Link::START, |link, receipt| link.then(TENANT, receipt));
        self.head.seq = self.receipts.len() as Seq;
        self.head.open_obligations = asyncgate_core::obligation::open(&self.receipts).len() as u64;
        self
    }
}

/// Builds receipts in their wire form, with links that fit.
pub fn chained(receipts: &[Receipt]) -> Vec<ReceiptRecord> {
    let mut link = Link::START;
    receipts
        .iter()
        .map(|receipt| {
            link = link.then(TENANT, receipt);
            record(TENANT, receipt, link)
        })
        .collect()
}

pub fn export(records: &[ReceiptRecord], head: &LedgerHead) -> String {
    let exported_at = "2026-01-06T00:00:00.000Z";
    let mut export = Export::begin(
        Vec::new(),
        &TENANT.to_string(),
        exported_at,
        Some("asyncgate 0.1.0"),
    )
    .unwrap();
    for record in records {
        export.receipt(record).unwrap();
    }
    String::from_utf8(export.finish(head).unwrap()).unwrap()
}

/// Builds a ledger that has every type of receipt. Its places are:
///
///  1 assigned A    2 accepted A     3 started A   4 progress A   5 expired A
///  6 accepted A    7 completed A    8 ready A     9 signed
/// 10 assigned B   11 accepted B    12 completed B without proof  13 ready B
/// 14 completed B with proof        15 assigned C  16 accepted C  17 retry C
/// 18 accepted C   19 failed C      20 ready C    21 acknowledged 19
/// 22 assigned D   23 accepted D    24 released D  25 canceled D  26 ready D
/// 27 signed       28 assigned E    29 acknowledged 9
///
/// and an anomaly among the expiries of F from 30 on, which is then left open.
pub fn eventful() -> World {
    let mut world = World::new();
    let a = world.create("alice");
    world.wait_ms(10);
    let lost = world.lease(a, "bob");
    world.start(&lost, a);
    world.progress(&lost, a, r#"{"percent": 50}"#);
    world.expire(a);
    let hold = world.lease(a, "carol");
    world.wait_ms(5);
    world.complete(&hold, a, proven());
    world.sign();
    let b = world.create("dave \"the\" \u{1f600}\n");
    let hold = world.lease(b, "bob");
    world.complete(&hold, b, bare());
    world.complete(&hold, b, proven());
    let c = world.create("alice");
    let hold = world.lease(c, "bob");
    world.fail(&hold, c, true);
    world.expire(c);
    let hold = world.lease(c, "bob");
    world.fail(&hold, c, false);
    world.acknowledge(19, "alice");
    let d = world.create("alice");
    let hold = world.lease(d, "bob");
    world.release(&hold, d);
    world.cancel(d, Some("enough"));
    world.sign();
    world.create("alice");
    world.acknowledge(9, "alice");
    let f = world.create("erin");
    for _ in 0..4 {
        world.lease(f, "bob");
        world.expire(f);
    }
    world
}
