//! The workloads on tasks: create; create, claim and complete; create and claim.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::load::http::{self, Head};
use super::load::{Then, Workload};

pub const WORKER: &str = "w1";
pub const CLAIM: &str =
    r#"{"worker_id":"w1","capabilities":[],"max_tasks":1,"lease_ttl_seconds":300}"#;
pub const COMPLETE: [&str; 2] = [
    r#"{"worker_id":"w1","lease_id":""#,
    r#"","result":{"text":"hello, worker"},"artifacts":[{"type":"inline"}]}"#,
];

/// The body of a create with extra members (`,"delay_seconds":60`), or none.
pub fn create_body(extra: &str) -> String {
    create_body_of(r#"{"text":"hello, gate","n":1}"#, extra)
}

/// The body of a create with this payload and extra members.
pub fn create_body_of(payload: &str, extra: &str) -> String {
    format!(r#"{{"type":"echo","payload":{payload},"principal_id":"bench"{extra}}}"#)
}

/// Creates tasks, for ever or a given number.
#[derive(Debug)]
pub struct Create {
    request: Vec<u8>,
    left: Option<u64>,
    progress: Option<Progress>,
}

impl Create {
    pub fn echo(head: &Head) -> Self {
        Self::with(head, "")
    }

    pub fn with(head: &Head, extra: &str) -> Self {
        Self {
            request: head.post("/v1/tasks", &create_body(extra)),
            left: None,
            progress: None,
        }
    }

    pub fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// Prints its progress, for seeding that takes minutes.
    pub fn shown_as(mut self, what: &str) -> Self {
        self.progress = Some(Progress {
            what: what.to_owned(),
            done: 0,
            total: self.left.unwrap_or(0),
            shown: Instant::now(),
        });
        self
    }
}

impl Workload for Create {
    fn kinds(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        out.extend_from_slice(&self.request);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect(201, status, body)?;
        if let Some(progress) = &mut self.progress {
            progress.step();
        }
        Ok(Then::Finished)
    }
}

#[derive(Debug)]
struct Progress {
    what: String,
    done: u64,
    total: u64,
    shown: Instant,
}

impl Progress {
    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4096) && self.shown.elapsed() > Duration::from_secs(5) {
            self.shown = Instant::now();
            eprintln!("  {}: {} of {}", self.what, self.done, self.total);
        }
    }
}

/// Each connection creates a task, claims one (its own or another's) and completes it with proof.
#[derive(Debug)]
pub struct Cycle {
    head: Head,
    create: Vec<u8>,
    claim: Vec<u8>,
    /// For each connection, the kind of the next request, and the completion that a claim prepared.
    next: Vec<(usize, Vec<u8>)>,
    empty_claims: u64,
    last: usize,
    left: Option<u64>,
}

const CREATE: usize = 0;
const CLAIMED: usize = 1;
const COMPLETED: usize = 2;

impl Cycle {
    pub fn new(head: &Head, connections: usize) -> Self {
        Self {
            create: head.post("/v1/tasks", &create_body("")),
            claim: head.post("/v1/leases/claim", CLAIM),
            head: head.clone(),
            next: vec![(CREATE, Vec::new()); connections],
            empty_claims: 0,
            last: COMPLETED,
            left: None,
        }
    }

    /// Gives every task this payload.
    pub fn with_payload(mut self, payload: &str) -> Self {
        self.create = self.head.post("/v1/tasks", &create_body_of(payload, ""));
        self
    }

    /// Ends after `count` cycles instead of going on for ever.
    pub fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// Leaves the claimed task leased, so that the number of ready tasks stays the same.
    pub fn without_completion(mut self) -> Self {
        self.last = CLAIMED;
        self
    }

    /// Claims that found nothing, though each connection created a task before it claimed one.
    pub fn empty_claims(&self) -> u64 {
        self.empty_claims
    }

    fn claimed(&mut self, connection: usize, body: &[u8]) -> Result<Then> {
        let found = (
            http::field(body, "\"task_id\":\""),
            http::field(body, "\"lease_id\":\""),
        );
        let (Some(task), Some(lease)) = found else {
            if !body.starts_with(b"{\"tasks\":[]") {
                bail!("a claim that makes no sense: {}", http::shown(body));
            }
            self.empty_claims += 1;
            return Ok(Then::Continue);
        };
        if self.last == CLAIMED {
            self.next[connection].0 = CREATE;
            return Ok(Then::Finished);
        }
        let (kind, request) = &mut self.next[connection];
        *kind = COMPLETED;
        request.clear();
        let body = [COMPLETE[0], lease, COMPLETE[1]];
        self.head
            .write_post(request, &["/v1/tasks/", task, "/complete"], &body);
        Ok(Then::Continue)
    }
}

impl Workload for Cycle {
    fn kinds(&self) -> &'static [&'static str] {
        &["create", "claim", "complete"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, completion) = &self.next[connection];
        if let (CREATE, Some(left)) = (*kind, &mut self.left) {
            *left = left.checked_sub(1)?;
        }
        out.extend_from_slice(match *kind {
            CREATE => &self.create,
            CLAIMED => &self.claim,
            _ => completion,
        });
        Some(*kind)
    }

    fn answer(&mut self, connection: usize, kind: usize, status: u16, body: &[u8]) -> Result<Then> {
        match kind {
            CREATE => {
                expect(201, status, body)?;
                self.next[connection].0 = CLAIMED;
                Ok(Then::Continue)
            }
            CLAIMED => {
                expect(200, status, body)?;
                self.claimed(connection, body)
            }
            _ => {
                expect(200, status, body)?;
                self.next[connection].0 = CREATE;
                Ok(Then::Finished)
            }
        }
    }
}

/// Walks through a list page by page, by the cursor of each answer; past the end it starts again.
#[derive(Debug)]
pub struct Pages {
    head: Head,
    path: String,
    cursor: Option<String>,
    left: u64,
}

/// The number of receipts in a full page.
pub const PAGE: usize = 50;

impl Pages {
    /// Lists the obligations of the principal for whom all tasks are created.
    pub fn of_obligations(head: &Head, count: u64) -> Self {
        let path = format!("/v1/obligations/open?principal_id=bench&limit={PAGE}");
        Self {
            head: head.clone(),
            path,
            cursor: None,
            left: count,
        }
    }
}

impl Workload for Pages {
    fn kinds(&self) -> &'static [&'static str] {
        &["page"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let request = match &self.cursor {
            None => self.head.get(&self.path),
            Some(cursor) => self
                .head
                .get(&format!("{}&since_receipt_id={cursor}", self.path)),
        };
        out.extend_from_slice(&request);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect(200, status, body)?;
        let receipts = String::from_utf8_lossy(body)
            .matches("\"receipt_type\":")
            .count();
        if receipts != PAGE {
            bail!(
                "a page of {receipts} receipts, not {PAGE}: {}",
                http::shown(body)
            );
        }
        self.cursor = http::field(body, "\"next_cursor\":\"").map(str::to_owned);
        Ok(Then::Finished)
    }
}

pub fn expect(wanted: u16, status: u16, body: &[u8]) -> Result<()> {
    if status != wanted {
        bail!("expected {wanted}, got {status}: {}", http::shown(body));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(next: &str) -> String {
        let receipts = vec![r#"{"receipt_type":"task.assigned"}"#; PAGE].join(",");
        format!(r#"{{"open_obligations":[{receipts}],"next_cursor":{next}}}"#)
    }

    #[test]
    fn pages_follow_the_cursor_and_begin_again_at_the_end() {
        let mut pages = Pages::of_obligations(&Head::new("h", "k"), 3);
        let mut lines = Vec::new();
        for next in ["\"r50\"", "null", "null"] {
            let mut out = Vec::new();
            pages.request(0, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            lines.push(text.split(' ').nth(1).unwrap().to_owned());
            pages.answer(0, 0, 200, page(next).as_bytes()).unwrap();
        }
        let first = "/v1/obligations/open?principal_id=bench&limit=50";
        let second = "/v1/obligations/open?principal_id=bench&limit=50&since_receipt_id=r50";
        assert_eq!(lines, [first, second, first]);
        assert_eq!(pages.request(0, &mut Vec::new()), None);
    }

    #[test]
    fn a_number_of_cycles_ends_with_the_last_one_completed() {
        let mut cycle = Cycle::new(&Head::new("h", "k"), 1).times(1);
        let answers = [
            (201, ""),
            (200, r#"{"tasks":[{"task_id":"t","lease_id":"l"}]}"#),
            (200, ""),
        ];
        for (status, body) in answers {
            let kind = cycle.request(0, &mut Vec::new()).unwrap();
            cycle.answer(0, kind, status, body.as_bytes()).unwrap();
        }
        assert_eq!(cycle.request(0, &mut Vec::new()), None);
    }

    #[test]
    fn a_page_that_is_not_full_is_an_error() {
        let mut pages = Pages::of_obligations(&Head::new("h", "k"), 1);
        let answer = br#"{"open_obligations":[],"next_cursor":null}"#;
        assert!(pages.answer(0, 0, 200, answer).is_err());
    }
}
