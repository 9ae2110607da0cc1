//! The audit: what the server shows must be what it acknowledged, and must agree with itself.
//!
//! It reads the ledger from where it stopped reading, computes every link, tells every task's story
//! from its receipts alone, and holds tasks, obligations, heads and gauges against that. A ledger
//! that it has once read must never change, whatever happens to the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use asyncgate_api::ReceiptPage;
use asyncgate_core::receipt::{is_terminal, opens_obligation};
use asyncgate_core::{Link, Receipt, ReceiptId, ReceiptType, Timestamp};
use serde_json::Value;

use crate::ask::{Ask, Verdict};
use crate::chain::Told;
use crate::harness::Server;
use crate::http::Request;
use crate::journal::{Ack, Held, Wish};
use crate::story::{Story, body};

/// Every status of a task.
const STATUSES: [&str; 6] = [
    "queued",
    "leased",
    "running",
    "succeeded",
    "failed",
    "canceled",
];

/// All that the ledger has said so far.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    pub receipts: Vec<Receipt>,
    pub links: Vec<Link>,
    /// How many obligations were open after each receipt.
    open_after: Vec<u64>,
    /// The obligations that are open: the assignment and its owner.
    pub open: BTreeMap<u64, (ReceiptId, String)>,
    places: HashMap<ReceiptId, usize>,
    pub stories: BTreeMap<String, Story>,
    /// The receipts of each task.
    pub told: HashMap<String, Vec<usize>>,
    /// The last time of the lives before this one.
    floor: Timestamp,
}

impl Audit {
    /// After a start: reads on, and checks what was acknowledged since the last check, the tasks that
    /// changed, and the sums. Times of the next life must not lie before those of this one.
    pub fn settle(&mut self, server: &Server, acks: &[Ack]) -> Verdict<()> {
        let mut ask = Ask::new(server);
        let touched = self.read_on(&mut ask)?;
        self.check_acks(acks)?;
        for id in &touched {
            let task = ask.get(&format!("/v1/tasks/{id}"))?;
            self.stories[id].agrees(&task)?;
        }
        for ack in acks {
            if let Ack::Created { id, wish } = ack {
                granted(&ask.get(&format!("/v1/tasks/{id}"))?, wish)?;
            }
        }
        self.check_sums(&mut ask)?;
        let last = self.receipts.iter().map(|receipt| receipt.created_at).max();
        self.floor = last.unwrap_or_default();
        Ok(())
    }

    /// Reads the ledger from where it was read to. Gives back the tasks that have new receipts.
    pub fn read_on(&mut self, ask: &mut Ask<'_>) -> Verdict<BTreeSet<String>> {
        let mut touched = BTreeSet::new();
        self.still_holds(ask)?;
        loop {
            let since = self.receipts.last().map_or(String::new(), |receipt| {
                format!("&since_receipt_id={}", receipt.id)
            });
            let page = ask.bytes(&format!("/v1/ledger?limit=200{since}"))?;
            let page: ReceiptPage =
                serde_json::from_slice(&page).map_err(|error| format!("/v1/ledger: {error}"))?;
            for record in &page.receipts {
                let told = Told::read(record)?;
                touched.extend(told.receipt.task_id.map(|id| id.to_string()));
                self.take(told)?;
            }
            if page.next_cursor.is_none() {
                break;
            }
        }
        for id in &touched {
            if !self.stories[id].is_whole() {
                return Err(format!("the owner of {id} was not told its end"));
            }
        }
        Ok(touched)
    }

    /// Checks that the last receipt that was read is still there.
    fn still_holds(&self, ask: &mut Ask<'_>) -> Verdict<()> {
        let (Some(receipt), Some(link)) = (self.receipts.last(), self.links.last()) else {
            return Ok(());
        };
        let answer = ask.send(Request::get(&format!("/v1/receipts/{}", receipt.id)))?;
        let shown: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status != 200 || shown["link"] != link.to_string() {
            let seq = receipt.seq();
            return Err(format!("lost: receipt {seq}, which was read: {answer:?}"));
        }
        Ok(())
    }

    fn take(&mut self, told: Told) -> Verdict<()> {
        let last = self.links.last().copied().unwrap_or(Link::START);
        told.follows(self.receipts.len() as u64, last)?;
        let receipt = told.receipt;
        if receipt.created_at < self.floor {
            return Err(format!(
                "time ran back: {receipt:?} is before {}",
                self.floor
            ));
        }
        if let Some(id) = receipt.task_id.map(|id| id.to_string()) {
            match self.stories.get_mut(&id) {
                Some(story) => story.go_on(&receipt)?,
                None => {
                    self.stories.insert(id.clone(), Story::begin(&receipt)?);
                }
            }
            self.told.entry(id).or_default().push(self.receipts.len());
        }
        self.count_obligations(&receipt)?;
        self.open_after.push(self.open.len() as u64);
        self.places.insert(receipt.id, self.receipts.len());
        self.links.push(told.link);
        self.receipts.push(receipt);
        Ok(())
    }

    fn count_obligations(&mut self, receipt: &Receipt) -> Verdict<()> {
        if opens_obligation(receipt.receipt_type) {
            let owed = (receipt.id, receipt.to.id.as_ref().to_owned());
            self.open.insert(receipt.seq(), owed);
        }
        if !is_terminal(receipt.receipt_type) {
            return Ok(());
        }
        for parent in &receipt.parents {
            let owed = self.open.remove(&parent.seq());
            if owed.as_ref().map(|(id, _)| id) != Some(parent) {
                return Err(format!("discharges what is not open: {receipt:?}"));
            }
        }
        Ok(())
    }

    /// Checks that everything acknowledged stands in the ledger.
    pub fn check_acks(&self, acks: &[Ack]) -> Verdict<()> {
        for ack in acks {
            if !self.kept(ack) {
                return Err(format!("lost: {ack:?}"));
            }
        }
        Ok(())
    }

    fn kept(&self, ack: &Ack) -> bool {
        match ack {
            Ack::Created { id, wish } => {
                let story = self.stories.get(id);
                story.is_some_and(|story| story.owner == wish.owner)
            }
            Ack::Claimed(held) => self.under(held, ReceiptType::TaskAccepted, |_| true),
            Ack::Started(held) => self.under(held, ReceiptType::TaskStarted, |_| true),
            Ack::Released(held) => self.under(held, ReceiptType::LeaseReleased, |_| true),
            Ack::Progressed { held, value } => {
                self.under(held, ReceiptType::TaskProgress, |receipt| {
                    body(receipt)["progress"] == *value
                })
            }
            Ack::Completed {
                held,
                receipt: id,
                result,
            } => self.under(held, ReceiptType::TaskCompleted, |receipt| {
                let first = result.as_ref();
                receipt.id.to_string() == *id
                    && first.is_none_or(|result| body(receipt)["result_payload"] == *result)
            }),
            Ack::Failed {
                held,
                receipt: id,
                requeued,
            } => {
                let kind = if *requeued {
                    ReceiptType::TaskRetryScheduled
                } else {
                    ReceiptType::TaskFailed
                };
                self.under(held, kind, |receipt| receipt.id.to_string() == *id)
            }
            Ack::Canceled { id } => {
                let story = self.stories.get(id);
                story.is_some_and(|story| story.status == "canceled")
            }
            Ack::Head { seq, link, open } => {
                let Some(n) = (*seq as usize).checked_sub(1) else {
                    return *open == 0;
                };
                self.links
                    .get(n)
                    .is_some_and(|kept| kept.to_string() == *link)
                    && self.open_after[n] == *open
            }
        }
    }

    /// Whether a worker's receipt of this type stands exactly once with this content.
    fn under(&self, held: &Held, kind: ReceiptType, says: impl Fn(&Receipt) -> bool) -> bool {
        let story = self.told.get(&held.id).into_iter().flatten();
        let found = story
            .map(|n| &self.receipts[*n])
            .filter(|receipt| receipt.receipt_type == kind && *receipt.from.id == held.worker)
            .filter(|receipt| {
                receipt
                    .lease_id
                    .is_some_and(|id| id.to_string() == held.lease)
            })
            .filter(|receipt| says(receipt));
        found.count() == 1
    }

    /// Checks the head and the gauges against a recount.
    pub fn check_sums(&self, ask: &mut Ask<'_>) -> Verdict<()> {
        let head = ask.get("/v1/ledger/head")?;
        let link = self.links.last().copied().unwrap_or(Link::START);
        let counted = (self.receipts.len(), link.to_string(), self.open.len());
        let shown = (&head["seq"], &head["link"], &head["open_obligations"]);
        if *shown.0 != counted.0 || *shown.1 != counted.1 || *shown.2 != counted.2 {
            return Err(format!("the head is {head}, counted: {counted:?}"));
        }
        let metrics = ask.send(Request::get("/metrics"))?;
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        for status in STATUSES {
            let stories = self.stories.values();
            let count = stories.filter(|story| story.status == status).count();
            let line = format!("asyncgate_tasks{{status=\"{status}\"}} {count}\n");
            if !metrics.contains(&line) {
                return Err(format!("/metrics has no line {line:?}"));
            }
        }
        Ok(())
    }
}

/// Checks that a task is the one that was asked for.
pub fn granted(task: &Value, wish: &Wish) -> Verdict<()> {
    let key = wish.key.as_deref().map_or(Value::Null, Value::from);
    let same = task["payload"] == wish.payload
        && task["idempotency_key"] == key
        && task["max_attempts"] == wish.max_attempts
        && task["created_by"]["id"] == wish.owner;
    if same {
        Ok(())
    } else {
        Err(format!("asked for {wish:?}, got {task}"))
    }
}
