//! The calls that most tests make, with the answer that they expect.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::http::{Request, Response};

/// Every type of receipt.
pub const RECEIPT_TYPES: [&str; 13] = [
    "task.assigned",
    "task.accepted",
    "task.started",
    "task.progress",
    "task.retry_scheduled",
    "task.completed",
    "task.failed",
    "task.canceled",
    "task.result_ready",
    "lease.expired",
    "lease.released",
    "system.anomaly",
    "receipt.acknowledged",
];

/// A task in a worker's hands.
#[derive(Debug, Clone)]
pub struct Held {
    pub task_id: String,
    pub lease_id: String,
    pub worker: String,
    /// The task as the claim gave it.
    pub record: Value,
}

impl Held {
    /// The input of a call under this lease, with `more` in it.
    pub fn input(&self, more: &Value) -> Value {
        let mut input = json!({"lease_id": self.lease_id, "worker_id": self.worker});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        input
    }
}

impl Server {
    /// Creates a task and gives back its id.
    #[track_caller]
    pub fn create(&self, input: &Value) -> String {
        let answer = self.post("/v1/tasks", input).expect(201);
        text(&answer["task_id"])
    }

    /// Creates a task of this type for the agent `alice`.
    #[track_caller]
    pub fn create_plain(&self, task_type: &str) -> String {
        self.create(&json!({"type": task_type, "principal_id": "alice"}))
    }

    /// What a claim gives.
    #[track_caller]
    pub fn claim(&self, input: &Value) -> Vec<Held> {
        let answer = self.post("/v1/leases/claim", input).expect(200);
        let worker = input["worker_id"].as_str().unwrap_or_default();
        let tasks = answer["tasks"].as_array().unwrap();
        tasks
            .iter()
            .map(|record| Held {
                task_id: text(&record["task_id"]),
                lease_id: text(&record["lease_id"]),
                worker: worker.to_owned(),
                record: record.clone(),
            })
            .collect()
    }

    /// Takes the one task that there is to take.
    #[track_caller]
    pub fn take(&self, worker: &str) -> Held {
        self.take_for(worker, 300)
    }

    /// Takes the one task that there is to take, for so many seconds.
    #[track_caller]
    pub fn take_for(&self, worker: &str, seconds: i64) -> Held {
        let input = json!({"worker_id": worker, "lease_ttl_seconds": seconds});
        let mut held = self.claim(&input);
        assert_eq!(held.len(), 1, "{held:?}");
        held.remove(0)
    }

    /// Whether there is something to take, without taking it for good.
    #[track_caller]
    pub fn nothing_to_take(&self) {
        let held = self.claim(&json!({"worker_id": "looking"}));
        assert!(held.is_empty(), "{held:?}");
    }

    /// Makes a call under a lease: `running`, `progress`, `complete`, `fail`, `renew` or `release`.
    #[track_caller]
    pub fn under(&self, held: &Held, call: &str, more: &Value) -> Response {
        let mut input = held.input(more);
        let target = match call {
            "renew" | "release" => {
                input["task_id"] = json!(held.task_id);
                format!("/v1/leases/{call}")
            }
            _ => format!("/v1/tasks/{}/{call}", held.task_id),
        };
        self.post(&target, &input)
    }

    /// Tries every call under a lease, and checks that each is refused as stale and changes nothing.
    #[track_caller]
    pub fn is_fenced(&self, held: &Held) {
        self.is_fenced_from(
            held,
            &[
                "running", "progress", "complete", "fail", "renew", "release",
            ],
        );
    }

    /// Tries these calls under a lease, and checks that each is refused as stale and changes nothing.
    #[track_caller]
    pub fn is_fenced_from(&self, held: &Held, calls: &[&str]) {
        let before = (self.task(&held.task_id), self.ledger());
        for call in calls {
            let more = match *call {
                "progress" => json!({"progress": {"percent": 99}}),
                "complete" => json!({"result": "stale", "artifacts": [{"url": "s3://stale"}]}),
                "fail" => json!({"error": "stale", "retryable": true}),
                "renew" => json!({"extend_by_seconds": 60}),
                _ => json!({}),
            };
            self.under(held, call, &more)
                .refused(409, "LEASE_INVALID_OR_EXPIRED");
        }
        assert_eq!((self.task(&held.task_id), self.ledger()), before);
    }

    /// Ends a task with success and proof.
    #[track_caller]
    pub fn complete(&self, held: &Held, result: &Value) -> Value {
        let more =
            json!({"result": result, "artifacts": [{"type": "s3", "url": "s3://bucket/key"}]});
        self.under(held, "complete", &more).expect(200)
    }

    /// A task as it stands.
    #[track_caller]
    pub fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}")).expect(200)
    }

    #[track_caller]
    pub fn status(&self, id: &str) -> String {
        text(&self.task(id)["status"])
    }

    /// The receipts of a list, through all its pages of this size.
    #[track_caller]
    pub fn pages(&self, target: &str, items: &str, limit: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut since = String::new();
        let separator = if target.contains('?') { '&' } else { '?' };
        loop {
            let page = self
                .get(&format!("{target}{separator}limit={limit}{since}"))
                .expect(200);
            let here = page[items].as_array().unwrap();
            assert!(here.len() <= limit, "{page}");
            let last = here.last().map(|receipt| receipt["receipt_id"].clone());
            assert_eq!(page["cursor"], last.unwrap_or_default(), "{page}");
            found.extend(here.iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else {
                assert_eq!(page["next_cursor"], Value::Null, "{page}");
                return found;
            };
            assert_eq!(page["cursor"], next, "{page}");
            since = format!("&since_receipt_id={next}");
        }
    }

    /// What is in an agent's inbox.
    #[track_caller]
    pub fn inbox(&self, agent: &str) -> Vec<Value> {
        self.pages(
            &format!("/v1/receipts?principal_id={agent}"),
            "receipts",
            200,
        )
    }

    /// What an agent is still owed.
    #[track_caller]
    pub fn obligations(&self, agent: &str) -> Vec<Value> {
        self.pages(
            &format!("/v1/obligations/open?principal_id={agent}"),
            "open_obligations",
            200,
        )
    }

    /// The receipts about a task.
    #[track_caller]
    pub fn story(&self, task_id: &str) -> Vec<Value> {
        self.pages(
            &format!("/v1/receipts/ledger?task_id={task_id}"),
            "receipts",
            200,
        )
    }

    /// The whole ledger, in order. Fails if a place is empty or taken twice.
    #[track_caller]
    pub fn ledger(&self) -> Vec<Value> {
        let ledger = self.pages("/v1/ledger", "receipts", 200);
        for (receipt, place) in ledger.iter().zip(1_u64..) {
            assert_eq!(receipt["seq"], place, "the ledger has gaps");
        }
        ledger
    }

    /// The whole ledger again, from the lists of its types.
    #[track_caller]
    pub fn ledger_by_type(&self) -> Vec<Value> {
        let mut ledger: Vec<Value> = RECEIPT_TYPES
            .iter()
            .flat_map(|name| {
                let target = format!("/v1/receipts/ledger?receipt_type={name}");
                self.pages(&target, "receipts", 200)
            })
            .collect();
        ledger.sort_by_key(|receipt| receipt["seq"].as_u64());
        ledger
    }

    /// One sample of `/metrics`: the value of this name with these labels.
    #[track_caller]
    pub fn metric(&self, sample: &str) -> Option<f64> {
        let answer = self.send_bare(&Request::get("/metrics"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let line = answer.text().lines().find_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            (name == sample).then(|| value.to_owned())
        });
        line.map(|value| value.parse().unwrap())
    }
}

/// The types of receipts, in order.
pub fn types(receipts: &[Value]) -> Vec<&str> {
    receipts
        .iter()
        .map(|receipt| receipt["receipt_type"].as_str().unwrap())
        .collect()
}

/// The names of an object's members, sorted.
pub fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

/// Checks that an object has at least these members; answers may grow.
#[track_caller]
pub fn has_members(value: &Value, expected: &[&str]) {
    for name in expected {
        assert!(value.get(name).is_some(), "no {name} in {value}");
    }
}

/// A text that must be there.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Checks that this is an id as the server makes them: UUIDv7, in lower case.
#[track_caller]
pub fn is_id(value: &Value) {
    let id = value.as_str().expect("an id");
    let shaped = id.len() == 36
        && id.bytes().enumerate().all(|(n, byte)| match n {
            8 | 13 | 18 | 23 => byte == b'-',
            14 => byte == b'7',
            19 => b"89ab".contains(&byte),
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    assert!(shaped, "{id} is no UUIDv7");
}

/// The milliseconds since 1970 of a time as the server writes them, `2026-01-05T11:00:00.000Z`.
#[track_caller]
pub fn millis(value: &Value) -> i64 {
    let text = value.as_str().expect("a time");
    let part = |from: usize, to: usize| -> i64 {
        text.get(from..to)
            .and_then(|part| part.parse().ok())
            .unwrap_or_else(|| panic!("{text} is no time"))
    };
    assert!(text.len() == 24 && text.ends_with('Z'), "{text} is no time");
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    // Days since 1970 in the civil calendar, with years that begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468;
    ((days * 24 + part(11, 13)) * 60 + part(14, 16)) * 60_000 + part(17, 19) * 1_000 + part(20, 23)
}
