//! Checking answers against what was committed: an answer is a promise that cannot be taken back.

use std::cell::RefCell;

use asyncgate_api::{
    CancelTaskOutput, CompleteOutput, CreateTaskOutput, FailOutput, LeaseNextOutput, LeasedTask,
    RenewLeaseOutput, TaskRecord, TaskStatus,
};
use asyncgate_core::{
    LeaseId, ReceiptId, ReceiptType, Task,
    task::{State, Status},
};
use serde::de::DeserializeOwned;

use super::{
    Model,
    audit::Journal,
    deadline,
    oracle::{Question, asks_for},
    times::shows,
};
use crate::{
    entrance::Output,
    step::Op,
    violation::{Checked, broken, hold},
};

/// The ids that a client learns from an answer, in their order.
#[derive(Debug, Clone, Default)]
pub struct Gains {
    /// Ids of tasks.
    pub tasks: Vec<String>,
    /// Ids of leases.
    pub leases: Vec<String>,
    /// Ids of receipts.
    pub receipts: Vec<String>,
    /// Ids of messages.
    pub messages: Vec<String>,
    /// Leases of messages that were handed over, in the same order.
    pub deliveries: Vec<String>,
}

/// A call that was answered.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The call.
    pub question: Question<'a>,
    /// The output, until it is read.
    pub output: RefCell<Option<Output>>,
    /// True if the answer said that something was created.
    pub created: bool,
    /// The number of tasks that its transactions created.
    pub tasks_made: usize,
    /// The number of receipts that its transactions wrote.
    pub receipts_made: usize,
    /// The number of leases that its transactions gave.
    pub leases_made: usize,
    /// True if nothing else was committed between its reads and its answer, and nothing failed.
    pub exact: bool,
    /// True if it was answered as soon as it was decided.
    pub prompt: bool,
}

impl Model {
    /// Checks an answer, records its promises, and returns the ids that the client learns.
    pub fn check_answer(&self, answered: &Answered<'_>, journal: &mut Journal) -> Checked<Gains> {
        let mut gains = Gains::default();
        match answered.question.op {
            Op::CREATE => self.created(answered, journal, &mut gains)?,
            Op::GET => self.got(answered)?,
            Op::CANCEL => self.canceled(answered, journal)?,
            Op::LEASE => self.leased(answered, journal, &mut gains)?,
            Op::RENEW => self.renewed(answered)?,
            Op::RELEASE | Op::START | Op::PROGRESS => self.reported(answered)?,
            Op::COMPLETE => self.completed(answered, journal, &mut gains)?,
            Op::FAIL => self.failed(answered, journal, &mut gains)?,
            Op::ACK => self.acknowledged(answered)?,
            Op::LIST => self.listed_tasks(answered)?,
            Op::OBLIGATIONS => self.listed_obligations(answered, &mut gains)?,
            Op::BOOTSTRAP => self.listed_bootstrap(answered, &mut gains)?,
            Op::INBOX | Op::LEDGER | Op::READ => self.listed_receipts(answered, &mut gains)?,
            Op::RECEIPT => self.read_receipt(answered)?,
            Op::HEAD => self.read_head(answered)?,
            _ => {}
        }
        Ok(gains)
    }

    fn created(
        &self,
        answered: &Answered<'_>,
        journal: &mut Journal,
        gains: &mut Gains,
    ) -> Checked {
        let output: CreateTaskOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let told = || format!("{output:?} after {} new tasks", answered.tasks_made);
        let Some(story) = self.task(actor.tenant, &output.task_id) else {
            return broken("nothing acknowledged is lost", told());
        };
        let task = &story.task;
        let owner = answered.question.principal();
        let own = owner.is_ok_and(|owner| owner == task.created_by);
        hold(own && asks_for(asked, task), "created as asked", told)?;
        let same_key = asked.text("idempotency_key") == task.spec.idempotency_key.as_deref();
        hold(same_key, "one task per key", told)?;
        let made = answered.tasks_made == 1;
        hold(answered.tasks_made <= 1, "done once", told)?;
        hold(made != output.duplicate, "duplicates are told", told)?;
        hold(answered.created == made, "duplicates are told", told)?;
        journal.task(actor.tenant, task.id);
        gains.tasks.push(output.task_id);
        Ok(())
    }

    fn got(&self, answered: &Answered<'_>) -> Checked {
        let output: TaskRecord = answered.read()?;
        let tenant = answered.question.actor.tenant;
        let Some(story) = self.task(tenant, &output.task_id) else {
            return broken("truthful observability", output.task_id);
        };
        self.check_record(&output, &story.task)
    }

    /// Checks that a task is shown in its true state.
    pub(super) fn check_record(&self, record: &TaskRecord, task: &Task) -> Checked {
        let lease = record.lease.as_ref().map(|lease| lease.lease_id.as_str());
        let same = record.task_id == task.id.to_string()
            && status(record.status) == task.status()
            && record.attempt == task.attempt
            && record.lease_expiries == task.expiries
            && record.payload.get() == task.spec.payload.text()
            && record.created_by.id == *task.created_by.id
            && shows(&record.updated_at, task.updated_at)
            && shows(&record.next_eligible_at, task.next_eligible_at)
            && lease == task.lease().map(|lease| lease.id.to_string()).as_deref()
            && record.result.is_some() == task.end().is_some()
            && match (&record.deadline_at, deadline(task)) {
                (Some(shown), Some(at)) => shows(shown, at),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
        hold(same, "truthful observability", || {
            format!(
                "{} is {:?}, shown {:?}",
                task.id,
                task.status(),
                record.status
            )
        })?;
        let shown = record.result.as_ref().and_then(|end| end.result.as_ref());
        let stored = task.end().and_then(|end| end.result.as_ref());
        hold(
            shown.map(|raw| raw.get()) == stored.map(|json| json.text()),
            "results byte for byte",
            || task.id.to_string(),
        )
    }

    fn canceled(&self, answered: &Answered<'_>, journal: &mut Journal) -> Checked {
        let output: CancelTaskOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let id = asked.text_or_empty("task_id");
        let task = self.task(actor.tenant, id).map(|story| &story.task);
        let ended = task.filter(|task| task.status() == Status::Canceled);
        let told = || format!("{output:?} of {id}");
        let Some(task) = ended.filter(|_| output.ok && status(output.status) == Status::Canceled)
        else {
            return broken("nothing acknowledged is lost", told());
        };
        journal.ended(actor.tenant, task.id, Status::Canceled);
        Ok(())
    }

    fn leased(&self, answered: &Answered<'_>, journal: &mut Journal, gains: &mut Gains) -> Checked {
        let output: LeaseNextOutput = answered.read()?;
        let asked = answered.question.asked;
        let most = asked.number("max_tasks").unwrap_or(1);
        hold(output.tasks.len() <= most, "max_tasks", || {
            format!("{} of {most}", output.tasks.len())
        })?;
        hold(
            output.tasks.len() == answered.leases_made,
            "done once",
            || {
                format!(
                    "{} told, {} leased",
                    output.tasks.len(),
                    answered.leases_made
                )
            },
        )?;
        for leased in output.tasks {
            self.check_leased(answered, &leased)?;
            let tenant = answered.question.actor.tenant;
            if let Ok(lease) = leased.lease_id.parse::<LeaseId>() {
                journal.receipt_at(tenant, lease.seq());
            }
            gains.tasks.push(leased.task_id);
            gains.leases.push(leased.lease_id);
        }
        Ok(())
    }

    /// Checks that a lease given to a worker stands in the ledger, in its name, on a task it can serve.
    fn check_leased(&self, answered: &Answered<'_>, leased: &LeasedTask) -> Checked {
        let Question { actor, asked, .. } = answered.question;
        let told = || format!("{} under {}", leased.task_id, leased.lease_id);
        let tenant = &self.tenants[actor.tenant];
        let story = self.task(actor.tenant, &leased.task_id);
        let lease: Option<LeaseId> = leased.lease_id.parse().ok();
        let (Some(story), Some(lease)) = (story, lease) else {
            return broken("nothing acknowledged is lost", told());
        };
        let place = usize::try_from(lease.seq()).unwrap_or(0).checked_sub(1);
        let accepted = place.and_then(|place| tenant.ledger.get(place));
        let worker = answered.question.worker();
        let stands = accepted.is_some_and(|receipt| {
            receipt.receipt_type == ReceiptType::TaskAccepted
                && receipt.lease_id == Some(lease)
                && receipt.task_id == Some(story.task.id)
                && worker.is_ok_and(|worker| worker.is(&receipt.from))
        });
        hold(stands, "nothing acknowledged is lost", told)?;
        let spec = &story.task.spec;
        let types: Option<Vec<String>> = asked.value("accept_types");
        let offered: Vec<String> = asked.value("capabilities").unwrap_or_default();
        let fits = types.is_none_or(|types| types.contains(&spec.task_type));
        let able = spec.requirements.capabilities.iter();
        let able = able.clone().all(|needed| offered.contains(needed));
        hold(fits && able, "capabilities", told)?;
        hold(
            leased.payload.get() == spec.payload.text(),
            "payload byte for byte",
            told,
        )?;
        // A late answer is fetched after other commits, when the lease may have changed already.
        if !answered.prompt {
            return Ok(());
        }
        let usual = spec.contract.as_ref();
        let usual = usual.and_then(|contract| contract.lease_ttl_seconds);
        let seconds = asked.number("lease_ttl_seconds").or(usual);
        let end = asked.lease_end(answered.question.now, seconds);
        let held = story.task.lease().is_some_and(|held| {
            held.id == lease && held.expires_at == end && shows(&leased.expires_at, end)
        });
        hold(held, "who holds what", told)
    }

    fn renewed(&self, answered: &Answered<'_>) -> Checked {
        let output: RenewLeaseOutput = answered.read()?;
        let Question {
            actor, asked, now, ..
        } = answered.question;
        let id = asked.text_or_empty("task_id");
        let task = self.task(actor.tenant, id).map(|story| &story.task);
        if !answered.prompt {
            return hold(task.is_some(), "nothing acknowledged is lost", || {
                id.to_owned()
            });
        }
        let end = asked.lease_end(now, asked.number("extend_by_seconds"));
        let held = task.and_then(Task::lease).is_some_and(|lease| {
            Some(lease.id.to_string().as_str()) == asked.text("lease_id")
                && lease.expires_at >= end
                && shows(&output.expires_at, lease.expires_at)
        });
        hold(held, "who holds what", || format!("{output:?} of {id}"))
    }

    fn reported(&self, answered: &Answered<'_>) -> Checked {
        let Question {
            actor, asked, op, ..
        } = answered.question;
        let id = asked.text_or_empty("task_id");
        let Some(story) = self.task(actor.tenant, id) else {
            return broken("nothing acknowledged is lost", id);
        };
        if !answered.prompt {
            return Ok(());
        }
        let task = &story.task;
        let lease = task.lease().map(|lease| lease.id.to_string());
        let held = lease.as_deref() == asked.text("lease_id");
        let done = match op {
            Op::RELEASE => lease.is_none() && task.state == State::Ready,
            Op::START => held && matches!(task.state, State::Running(_)),
            _ => {
                let said = asked.raw("progress");
                let kept = task.progress.as_ref().map(|kept| kept.value.text());
                held && said == kept
            }
        };
        hold(done, "nothing acknowledged is lost", || {
            format!("{} of {id}", op.name())
        })
    }

    fn completed(
        &self,
        answered: &Answered<'_>,
        journal: &mut Journal,
        gains: &mut Gains,
    ) -> Checked {
        let output: CompleteOutput = answered.read()?;
        let kinds = [ReceiptType::TaskCompleted];
        self.check_outcome(answered, journal, &output.receipt_id, &kinds)?;
        let wrote = answered.receipts_made > 0;
        hold(wrote != output.duplicate, "duplicates are told", || {
            format!("{output:?}")
        })?;
        // A late answer may be fetched after the proof.
        let id = answered.question.asked.text_or_empty("task_id");
        let task = self.task(answered.question.actor.tenant, id);
        let end = task.and_then(|story| story.task.end());
        let told = end.is_some_and(|end| end.discharged) == output.discharged;
        hold(
            (told || !answered.prompt) && output.discharged == output.hint.is_none(),
            "discharges are told",
            || format!("{output:?}"),
        )?;
        gains.receipts.push(output.receipt_id);
        Ok(())
    }

    /// Checks that a receipt is acknowledged once by each principal, however often it says so.
    fn acknowledged(&self, answered: &Answered<'_>) -> Checked {
        let Question { actor, asked, .. } = answered.question;
        let tenant = &self.tenants[actor.tenant];
        let (id, by) = (asked.parsed("receipt_id"), answered.question.principal());
        let receipts = tenant.ledger.iter().filter(|receipt| {
            receipt.receipt_type == ReceiptType::ReceiptAcknowledged
                && receipt.parents.first().copied() == id
                && by.as_ref().is_ok_and(|by| receipt.from.is(by))
        });
        let count = receipts.count();
        hold(
            count == 1 && answered.receipts_made <= 1,
            "acknowledged",
            || format!("{count} receipts, {} of them new", answered.receipts_made),
        )
    }

    fn failed(&self, answered: &Answered<'_>, journal: &mut Journal, gains: &mut Gains) -> Checked {
        let output: FailOutput = answered.read()?;
        let kinds = if output.requeued {
            [ReceiptType::TaskRetryScheduled]
        } else {
            [ReceiptType::TaskFailed]
        };
        self.check_outcome(answered, journal, &output.receipt_id, &kinds)?;
        let wrote = answered.receipts_made > 0;
        hold(wrote != output.duplicate, "duplicates are told", || {
            format!("{output:?}")
        })?;
        let retryable = answered.question.asked.flag("retryable");
        hold(
            retryable || !output.requeued,
            "retries only if asked",
            || format!("{output:?}"),
        )?;
        gains.receipts.push(output.receipt_id);
        Ok(())
    }

    /// Checks that the receipt named in an outcome stands in the ledger and records that outcome.
    fn check_outcome(
        &self,
        answered: &Answered<'_>,
        journal: &mut Journal,
        receipt_id: &str,
        kinds: &[ReceiptType],
    ) -> Checked {
        let Question { actor, asked, .. } = answered.question;
        let found = self.receipt(actor.tenant, receipt_id);
        let stands = found.is_some_and(|receipt| {
            kinds.contains(&receipt.receipt_type)
                && receipt.task_id == asked.parsed("task_id")
                && receipt.lease_id == asked.parsed("lease_id")
        });
        hold(stands, "nothing acknowledged is lost", || {
            format!("receipt {receipt_id} of {:?}", asked.text("task_id"))
        })?;
        if let Ok(id) = receipt_id.parse::<ReceiptId>() {
            journal.receipt_at(actor.tenant, id.seq());
        }
        let task = asked.text_or_empty("task_id");
        let ended = self.task(actor.tenant, task).map(|story| &story.task);
        if let Some(task) = ended.filter(|task| task.status().is_terminal()) {
            journal.ended(actor.tenant, task.id, task.status());
        }
        Ok(())
    }
}

impl Answered<'_> {
    pub(super) fn read<T: DeserializeOwned + 'static>(&self) -> Checked<T> {
        read(self.question.op, &self.output)
    }
}

/// Reads an answer, which can be done once.
pub(super) fn read<T: DeserializeOwned + 'static>(
    op: Op,
    output: &RefCell<Option<Output>>,
) -> Checked<T> {
    let read = output.take().ok_or_else(|| "read before".to_owned());
    read.and_then(Output::read)
        .or_else(|error| broken("readable answers", format!("{}: {error}", op.name())))
}

pub(super) const fn status(status: TaskStatus) -> Status {
    match status {
        TaskStatus::Queued => Status::Queued,
        TaskStatus::Leased => Status::Leased,
        TaskStatus::Running => Status::Running,
        TaskStatus::Succeeded => Status::Succeeded,
        TaskStatus::Failed => Status::Failed,
        TaskStatus::Canceled => Status::Canceled,
    }
}
