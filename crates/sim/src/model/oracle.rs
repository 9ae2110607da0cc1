//! Predicting the answer to a call from the history at the moment it was decided.

use std::collections::BTreeSet;

use asyncgate_api::{Access, Code, Scope};
use asyncgate_core::{
    Class, Json, Locatability, Principal, PrincipalKind, Task, Timestamp,
    identity::{QuotaName, Quotas},
    task::{Deadline, Outcome, Status},
};
use asyncgate_engine::Role;
use serde::{Deserialize, de::IgnoredAny};

use super::{Model, deadline};
use crate::{asked::Asked, cast::Actor, step::Op};

const MAX_ARTIFACTS: usize = 100;
const MAX_PROOF_BYTES: usize = 64 * 1024 - 256;

/// The scopes that the credentials of agents and of workers have.
const AGENTS: [Scope; 6] = [
    Scope::TasksRead,
    Scope::TasksWrite,
    Scope::ReceiptsRead,
    Scope::ReceiptsAck,
    Scope::MailboxSend,
    Scope::MailboxRecv,
];
const WORKERS: [Scope; 4] = [
    Scope::TasksLease,
    Scope::ReceiptsRead,
    Scope::MailboxSend,
    Scope::MailboxRecv,
];

/// The prediction: success, or the code of the refusal.
pub type Verdict = Result<(), Code>;

/// A call in the form that the oracle needs.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The actor that calls.
    pub actor: &'a Actor,
    /// The operation.
    pub op: Op,
    /// The credentials that may call it.
    pub access: Access,
    /// The input.
    pub asked: &'a Asked,
    /// The time at which it is decided.
    pub now: Timestamp,
    /// The quotas that it counts with.
    pub quotas: Quotas,
}

impl Question<'_> {
    fn is_admin(&self) -> bool {
        self.actor.caller.role == Role::Admin
    }

    pub(super) fn may_call(&self) -> bool {
        let needed = match self.access {
            Access::Open | Access::Any => return true,
            Access::Needs(scopes) => scopes,
        };
        match self.actor.caller.role {
            Role::Agent => needed.iter().any(|scope| AGENTS.contains(scope)),
            Role::Worker => needed.iter().any(|scope| WORKERS.contains(scope)),
            Role::Admin | Role::System => true,
        }
    }

    fn own(&self, principal: &Principal) -> Verdict {
        let own = self.is_admin() || self.actor.caller.principal.is(principal);
        own.then_some(()).ok_or(Code::Forbidden)
    }

    /// Returns success if the caller may read the task: as its owner, or as the worker that holds or
    /// ended it.
    pub(super) fn may_read(&self, task: &Task) -> Verdict {
        let me = &self.actor.caller.principal;
        let holds = task.lease().is_some_and(|lease| lease.worker.is(me));
        let did = task.end().and_then(|end| end.by.as_ref());
        if holds || did.is_some_and(|(_, worker)| worker.is(me)) {
            return Ok(());
        }
        self.own(&task.created_by)
    }

    /// Returns the principal that a call about tasks and receipts is for.
    pub(super) fn principal(&self) -> Result<Principal, Code> {
        let named = self.asked.text("principal_id");
        self.acting(named, self.asked.kind(), PrincipalKind::Agent)
    }

    /// Returns the principal that works.
    pub(super) fn worker(&self) -> Result<Principal, Code> {
        self.acting(self.asked.text("worker_id"), None, PrincipalKind::Worker)
    }

    fn acting(
        &self,
        named: Option<&str>,
        kind: Option<PrincipalKind>,
        default: PrincipalKind,
    ) -> Result<Principal, Code> {
        let Some(id) = named else {
            return Ok(self.actor.caller.principal.clone());
        };
        let principal = Principal::new(kind.unwrap_or(default), id);
        self.own(&principal)?;
        Ok(principal)
    }
}

impl Model {
    /// Predicts the answer to a call.
    pub fn verdict(&self, question: &Question<'_>) -> Verdict {
        let Question { op, asked, .. } = *question;
        if !question.may_call() {
            return Err(Code::Forbidden);
        }
        if asked.has("odd") {
            return Err(Code::BadRequest);
        }
        match op {
            Op::CREATE => self.create(question),
            Op::GET => self.get(question),
            Op::CANCEL => self.cancel(question),
            Op::LIST => question.principal().map(drop),
            Op::OBLIGATIONS | Op::BOOTSTRAP | Op::INBOX | Op::LEDGER | Op::READ => {
                self.list(question)
            }
            Op::RECEIPT | Op::ACK => self.one_receipt(question),
            Op::LEASE => question.worker().map(drop),
            Op::RENEW | Op::RELEASE | Op::START | Op::PROGRESS | Op::COMPLETE | Op::FAIL => {
                self.under_lease(question)
            }
            _ => Ok(()),
        }
    }

    fn create(&self, question: &Question<'_>) -> Verdict {
        let owner = question.principal()?;
        let asked = question.asked;
        self.fits(asked.raw("payload"))?;
        let tenant = &self.tenants[question.actor.tenant];
        let owner = tenant.party(owner.kind, &owner.id);
        let key = asked.text("idempotency_key");
        let Some(first) = key.and_then(|key| owner?.keys.get(key)) else {
            return self.has_room(question);
        };
        let first = tenant.tasks.get(&first.seq()).map(|story| &story.task);
        let same = first.is_some_and(|task| asks_for(asked, task));
        same.then_some(()).ok_or(Code::IdempotencyConflict)
    }

    /// Foresees whether there is room for one more task, and for its class.
    fn has_room(&self, question: &Question<'_>) -> Verdict {
        let stories = self.tenants[question.actor.tenant].tasks.values();
        let live = stories.filter(|story| !story.task.status().is_terminal());
        let active = question.quotas.get(QuotaName::ActiveTasks);
        if active.room(live.clone().count() as u64) == Some(0) {
            return Err(Code::QuotaExceeded);
        }
        let classes: BTreeSet<Class> = live.map(|story| story.task.class()).collect();
        let wanted = class_of(question.asked);
        if classes.len() < self.policy.max_task_classes || classes.contains(&wanted) {
            return Ok(());
        }
        Err(Code::QuotaExceeded)
    }

    fn get(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.text_or_empty("task_id");
        let story = self.task(question.actor.tenant, id);
        question.may_read(&story.ok_or(Code::TaskNotFound)?.task)
    }

    fn cancel(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.text_or_empty("task_id");
        let story = self.task(question.actor.tenant, id);
        let task = &story.ok_or(Code::TaskNotFound)?.task;
        question.own(&task.created_by)?;
        match task.status() {
            Status::Succeeded | Status::Failed => Err(Code::InvalidStateTransition),
            Status::Queued | Status::Leased | Status::Running | Status::Canceled => Ok(()),
        }
    }

    fn list(&self, question: &Question<'_>) -> Verdict {
        let asked = question.asked;
        let whole = !asked.has("task_id") && !asked.has("lease_id");
        if whole && !asked.has("receipt_type") && question.op == Op::LEDGER {
            return Err(Code::BadRequest);
        }
        question.principal()?;
        let since = asked.text("since_receipt_id");
        if since.is_some_and(|id| self.receipt(question.actor.tenant, id).is_none()) {
            return Err(Code::BadRequest);
        }
        let task = asked.text("task_id").filter(|_| question.op == Op::LEDGER);
        let story = task.and_then(|id| self.task(question.actor.tenant, id));
        story.map_or(Ok(()), |story| question.may_read(&story.task))
    }

    fn one_receipt(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.text_or_empty("receipt_id");
        let receipt = self.receipt(question.actor.tenant, id);
        let receipt = receipt.ok_or(Code::ReceiptNotFound)?;
        let from_me = receipt.from.is(&question.actor.caller.principal);
        if question.op == Op::RECEIPT && from_me {
            return Ok(());
        }
        question.own(&receipt.to)
    }

    fn under_lease(&self, question: &Question<'_>) -> Verdict {
        let worker = question.worker()?;
        let Question { op, asked, now, .. } = *question;
        let id = asked.text_or_empty("task_id");
        let story = self.task(question.actor.tenant, id);
        let story = story.ok_or(Code::TaskNotFound)?;
        let task = &story.task;
        self.check_sizes(op, asked)?;
        let lease_id = asked.text_or_empty("lease_id");
        let outcome = match op {
            Op::COMPLETE => Some(Outcome::Succeeded),
            Op::FAIL => Some(Outcome::Failed),
            _ => None,
        };
        let repeats = task.end().is_some_and(|end| {
            Some(end.outcome) == outcome
                && end
                    .by
                    .as_ref()
                    .is_some_and(|(lease, by)| lease.to_string() == lease_id && by.is(&worker))
        });
        // A repeated call is answered like the first, long after its lease is over.
        if repeats {
            return Ok(());
        }
        let held = task.lease().is_some_and(|lease| {
            let end = lease.expires_at.plus_millis(self.policy.lease_grace_ms);
            lease.worker.is(&worker) && now < end && lease.id.to_string() == lease_id
        });
        let held = held && deadline(task).is_none_or(|deadline| now < deadline);
        if !held {
            return Err(Code::LeaseInvalidOrExpired);
        }
        let receipts = question.quotas.get(QuotaName::ReceiptsPerTask);
        if op == Op::PROGRESS && receipts.room(story.receipts.len() as u64) == Some(0) {
            return Err(Code::QuotaExceeded);
        }
        let strict = self.policy.locatability == Locatability::Strict;
        if op == Op::COMPLETE && strict && !asked.is_locatable() {
            return Err(Code::BadRequest);
        }
        Ok(())
    }

    fn check_sizes(&self, op: Op, asked: &Asked) -> Verdict {
        match op {
            Op::PROGRESS => self.fits(asked.raw("progress")),
            Op::FAIL => self.fits(asked.raw("error")),
            Op::COMPLETE => {
                self.fits(asked.raw("result"))?;
                let count: Option<Vec<IgnoredAny>> = asked.value("artifacts");
                let proof = ["artifacts", "delivery_proof"].map(|proof| asked.raw(proof));
                let proof: usize = proof.into_iter().map(size).sum();
                if count.map_or(0, |list| list.len()) > MAX_ARTIFACTS || proof > MAX_PROOF_BYTES {
                    return Err(Code::LimitExceeded);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fits(&self, value: Option<&str>) -> Verdict {
        if size(value) > self.policy.max_payload_bytes {
            return Err(Code::TooLarge);
        }
        Ok(())
    }
}

/// Returns true if an input asks for the same work as a task.
pub(super) fn asks_for(asked: &Asked, task: &Task) -> bool {
    let spec = &task.spec;
    let payload = asked.raw("payload").unwrap_or("null");
    let same = || Json::from_text(payload.to_owned()).as_ref() == Some(&spec.payload);
    let Required { tags, .. } = asked.value("requirements").unwrap_or_default();
    class_of(asked) == task.class()
        && (payload == spec.payload.text() || same())
        && tags == spec.requirements.tags
        && asks_for_contract(asked, task)
}

/// Returns the class of the task that an input asks for.
fn class_of(asked: &Asked) -> Class {
    let required: Required = asked.value("requirements").unwrap_or_default();
    let mut capabilities = required.capabilities;
    capabilities.sort_unstable();
    capabilities.dedup();
    Class {
        task_type: asked.text_or_empty("type").to_owned(),
        capabilities,
    }
}

fn asks_for_contract(asked: &Asked, task: &Task) -> bool {
    let contract = task.spec.contract.clone().unwrap_or_default();
    let wished: Wished = asked.value("timeouts").unwrap_or_default();
    let criteria = asked.raw("success_criteria");
    let criteria = criteria.and_then(|text| Json::from_text(text.to_owned()));
    let seconds = wished.deadline_seconds;
    asked.text("instructions") == contract.instructions.as_deref()
        && criteria == contract.success_criteria
        && wished.lease_ttl_seconds == contract.lease_ttl_seconds
        && seconds.map(|seconds| Deadline::After { seconds }) == contract.deadline
}

/// The limits on a task's time.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wished {
    lease_ttl_seconds: Option<i64>,
    deadline_seconds: Option<i64>,
}

/// The demands of a task on its worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Required {
    capabilities: Vec<String>,
    tags: Vec<String>,
}

/// Returns the length of a value as it was sent.
fn size(value: Option<&str>) -> usize {
    value.map_or(0, str::len)
}
