//! A task's story, told from its receipts alone: the request, the workers and their leases, the
//! reports, the proof, and what is still open.
//!
//! Invariants: receipts about other tasks are skipped; content of the ledger is shown escaped and cut
//! to a line's length, so that no receipt can control a terminal or a diagram.

mod account;
mod graph;
mod mermaid;

use std::io::Read;

use asyncgate_api::{Principal, ReceiptRecord};
use asyncgate_core::{ReceiptType, TaskId, Timestamp};
use serde_json::Value;

use crate::{Entry, Failure, Reader, line, time};

/// The most characters that are shown of content from a caller.
const MOST_SHOWN: usize = 120;

/// A task's receipts, in ledger order.
#[derive(Debug, Clone)]
pub struct Story {
    task_id: TaskId,
    moments: Vec<Moment>,
}

/// The content of one receipt.
#[derive(Debug, Clone)]
struct Moment {
    seq: u64,
    id: String,
    receipt_type: ReceiptType,
    at: Option<Timestamp>,
    at_text: String,
    from: String,
    to: String,
    lease_id: Option<String>,
    parents: Vec<String>,
    body: Value,
}

impl Story {
    /// Starts the story of a task without receipts.
    pub const fn about(task_id: TaskId) -> Self {
        Self {
            task_id,
            moments: Vec::new(),
        }
    }

    /// Reads a task's story out of an export, which is not verified.
    pub fn read<R: Read>(task_id: TaskId, export: R) -> Result<Self, Failure> {
        let mut story = Self::about(task_id);
        for entry in Reader::open(export)? {
            if let Entry::Receipt(record) = entry? {
                story.push(&record);
            }
        }
        Ok(story)
    }

    /// Adds the next receipt of the ledger if it is about the task.
    pub fn push(&mut self, record: &ReceiptRecord) {
        let about_it = record
            .task_id
            .as_deref()
            .and_then(|id| id.parse::<TaskId>().ok())
            == Some(self.task_id);
        let Some(receipt_type) = ReceiptType::parse(&record.receipt_type).filter(|_| about_it)
        else {
            return;
        };
        self.moments.push(Moment {
            seq: record.seq,
            id: record.receipt_id.clone(),
            receipt_type,
            at: time::parse(&record.created_at),
            at_text: plain(&record.created_at),
            from: name(&record.from),
            to: name(&record.to),
            lease_id: record.lease_id.as_deref().map(plain),
            parents: record.parents.clone(),
            body: serde_json::from_str(record.body.get()).unwrap_or_default(),
        });
    }

    /// Returns true if the ledger has no receipt about the task.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Returns the story as lines for a terminal, without line ends.
    pub fn lines(&self) -> Vec<String> {
        account::lines(self)
    }

    /// Draws the receipts as a small graph of text, each tied to its parents.
    pub fn graph(&self) -> String {
        graph::draw(self)
    }

    /// Draws the receipts as a Mermaid sequence diagram.
    pub fn mermaid(&self) -> String {
        mermaid::draw(self)
    }

    /// Returns the position in this story of the receipt with this id.
    fn position(&self, receipt_id: &str) -> Option<usize> {
        self.moments
            .iter()
            .position(|moment| moment.id == receipt_id)
    }

    /// Returns the places of a moment's parents, as far as they are in this story.
    fn parents(&self, moment: &Moment) -> Vec<u64> {
        moment
            .parents
            .iter()
            .filter_map(|parent| self.position(parent))
            .map(|position| self.moments[position].seq)
            .collect()
    }

    /// Returns the assignment, if no later receipt discharges it.
    fn open_obligation(&self) -> Option<&Moment> {
        let assigned = self
            .moments
            .iter()
            .find(|moment| moment.receipt_type == ReceiptType::TaskAssigned)?;
        let discharged = self.moments.iter().any(|moment| {
            asyncgate_core::receipt::can_terminate(moment.receipt_type, assigned.receipt_type)
                && moment.parents.contains(&assigned.id)
        });
        (!discharged).then_some(assigned)
    }
}

impl Moment {
    /// Returns a value of the body, shown on one line.
    fn shown(&self, field: &str) -> Option<String> {
        let value = self.body.get(field)?;
        Some(match value.as_str() {
            Some(text) => plain(text),
            None => plain(&value.to_string()),
        })
    }

    /// Returns true if the server itself acted.
    fn is_by_server(&self) -> bool {
        self.from == "system/asyncgate"
    }
}

/// Returns a principal as `kind/id`, with its instance if it has one.
fn name(principal: &Principal) -> String {
    let kind = line::name_of(principal.kind);
    match &principal.instance_id {
        Some(instance) => plain(&format!("{kind}/{} ({instance})", principal.id)),
        None => plain(&format!("{kind}/{}", principal.id)),
    }
}

/// Escapes everything that is not plainly visible, and cuts the text to a line's length.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == MOST_SHOWN {
            shown.push('…');
            break;
        }
        // Control characters could move a terminal's cursor; invisible ones could reverse what is read.
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns true for characters that change how others are shown, or show nothing themselves.
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
