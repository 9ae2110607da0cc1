//! What a task's receipts say about it, and whether the task agrees.

use asyncgate_core::{LeaseId, Receipt, ReceiptId, ReceiptType, Timestamp};
use serde_json::Value;

use crate::ask::Verdict;

/// A task as its receipts tell it.
#[derive(Debug, Clone)]
pub struct Story {
    pub status: &'static str,
    pub owner: String,
    task_type: Value,
    assignment: ReceiptId,
    created_at: Timestamp,
    updated_at: Timestamp,
    lease: Option<Held>,
    attempt: u64,
    expiries: u64,
    progress: Option<(Value, Timestamp)>,
    end: Option<End>,
}

#[derive(Debug, Clone)]
struct Held {
    lease: LeaseId,
    worker: String,
    since: Timestamp,
}

#[derive(Debug, Clone)]
struct End {
    receipt: ReceiptId,
    at: Timestamp,
    body: Value,
    discharged: bool,
    told: bool,
}

impl Story {
    /// The story that begins with this receipt.
    pub fn begin(receipt: &Receipt) -> Verdict<Self> {
        if receipt.receipt_type != ReceiptType::TaskAssigned {
            return Err(format!("a story begins with {receipt:?}"));
        }
        Ok(Self {
            status: "queued",
            owner: receipt.to.id.as_ref().to_owned(),
            task_type: body(receipt)["type"].clone(),
            assignment: receipt.id,
            created_at: receipt.created_at,
            updated_at: receipt.created_at,
            lease: None,
            attempt: 0,
            expiries: 0,
            progress: None,
            end: None,
        })
    }

    pub const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Goes on with the next receipt, if the rules allow it to follow.
    pub fn go_on(&mut self, receipt: &Receipt) -> Verdict<()> {
        if self.step(receipt).is_none() {
            return Err(format!("{receipt:?} cannot follow {self:?}"));
        }
        if receipt.receipt_type != ReceiptType::ReceiptAcknowledged {
            self.updated_at = receipt.created_at;
        }
        Ok(())
    }

    /// Nothing if the receipt cannot follow.
    fn step(&mut self, receipt: &Receipt) -> Option<()> {
        let held = self.lease.as_ref().map(|held| held.lease);
        let under_lease = held.is_some() && receipt.lease_id == held;
        match receipt.receipt_type {
            ReceiptType::TaskAssigned => return None,
            ReceiptType::TaskAccepted => {
                (self.status == "queued").then_some(())?;
                self.lease = Some(Held {
                    lease: receipt.lease_id?,
                    worker: receipt.from.id.as_ref().to_owned(),
                    since: receipt.created_at,
                });
                self.status = "leased";
            }
            ReceiptType::TaskStarted => {
                (under_lease && self.status == "leased").then_some(())?;
                self.status = "running";
            }
            ReceiptType::TaskProgress => {
                under_lease.then_some(())?;
                let said = body(receipt)["progress"].clone();
                self.progress = Some((said, receipt.created_at));
            }
            ReceiptType::TaskRetryScheduled => {
                under_lease.then_some(())?;
                self.attempt += 1;
                self.queue();
            }
            ReceiptType::LeaseExpired => {
                under_lease.then_some(())?;
                self.expiries += 1;
                self.queue();
            }
            ReceiptType::LeaseReleased => {
                under_lease.then_some(())?;
                self.queue();
            }
            ReceiptType::TaskCompleted if self.status == "succeeded" => self.prove(receipt)?,
            ReceiptType::TaskCompleted => {
                under_lease.then_some(())?;
                self.finish("succeeded", receipt)?;
            }
            ReceiptType::TaskFailed => {
                under_lease.then_some(())?;
                self.attempt += 1;
                self.finish("failed", receipt)?;
            }
            ReceiptType::TaskCanceled => self.finish("canceled", receipt)?,
            ReceiptType::TaskResultReady => {
                let end = self.end.as_mut()?;
                (!end.told && receipt.parents == [end.receipt]).then_some(())?;
                end.told = true;
            }
            ReceiptType::SystemAnomaly
            | ReceiptType::ReceiptAcknowledged
            | ReceiptType::LedgerSigned => {}
        }
        Some(())
    }

    fn queue(&mut self) {
        self.lease = None;
        self.status = "queued";
    }

    fn finish(&mut self, status: &'static str, receipt: &Receipt) -> Option<()> {
        let discharged = receipt.parents == [self.assignment];
        let unproved = status == "succeeded" && receipt.parents.is_empty();
        (self.end.is_none() && (discharged || unproved)).then_some(())?;
        self.lease = None;
        self.status = status;
        self.end = Some(End {
            receipt: receipt.id,
            at: receipt.created_at,
            body: body(receipt),
            discharged,
            told: false,
        });
        Some(())
    }

    /// Proof of a success that came later.
    fn prove(&mut self, receipt: &Receipt) -> Option<()> {
        let end = self.end.as_mut()?;
        (!end.discharged && receipt.parents == [self.assignment]).then_some(())?;
        let late = body(receipt);
        (late["result_payload"] == end.body["result_payload"]).then_some(())?;
        end.discharged = true;
        end.body["artifacts"] = late["artifacts"].clone();
        Some(())
    }

    /// Checks that the task, as the server shows it, is what the receipts say.
    pub fn agrees(&self, task: &Value) -> Verdict<()> {
        let (lease, held) = (&task["lease"], self.lease.as_ref());
        let (said, said_at) = self.progress.clone().unzip();
        let mut pairs = vec![
            (&task["status"], Value::from(self.status)),
            (&task["created_by"]["id"], self.owner.as_str().into()),
            (&task["type"], self.task_type.clone()),
            (&task["created_at"], time(Some(self.created_at))),
            (&task["updated_at"], time(Some(self.updated_at))),
            (&task["attempt"], self.attempt.into()),
            (&task["lease_expiries"], self.expiries.into()),
            (&task["progress"], said.unwrap_or_default()),
            (&task["progress_at"], time(said_at)),
            (
                &lease["lease_id"],
                held.map(|held| held.lease.to_string()).into(),
            ),
            (
                &lease["worker"]["id"],
                held.map(|held| held.worker.clone()).into(),
            ),
            (&lease["created_at"], time(held.map(|held| held.since))),
        ];
        let result = &task["result"];
        if let Some(end) = &self.end {
            let (shown, told) = match self.status {
                "canceled" => (&result["error"]["reason"], "reason"),
                _ => (&result["error"], "error"),
            };
            pairs.push((shown, end.body[told].clone()));
            pairs.push((&result["outcome"], self.status.into()));
            pairs.push((&result["completed_at"], time(Some(end.at))));
            pairs.push((&result["result"], end.body["result_payload"].clone()));
            pairs.push((&result["artifacts"], end.body["artifacts"].clone()));
        } else {
            pairs.push((result, Value::Null));
        }
        match pairs.iter().find(|(shown, told)| *shown != told) {
            None => Ok(()),
            Some((shown, told)) => Err(format!(
                "a task shows {shown} where its receipts say {told}: {task}"
            )),
        }
    }

    /// The end must have been told to the owner.
    pub fn is_whole(&self) -> bool {
        self.end.as_ref().is_none_or(|end| end.told)
    }
}

fn time(time: Option<Timestamp>) -> Value {
    time.map(|time| time.to_string()).into()
}

/// What a receipt says.
pub fn body(receipt: &Receipt) -> Value {
    serde_json::from_str(receipt.body.text()).unwrap_or_default()
}
