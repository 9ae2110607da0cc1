//! What a call must be answered, foretold from the history at the moment it was decided.

use asyncgate_api::{Access, Code};
use asyncgate_core::{
    Json, Locatability, Principal, PrincipalKind, Task, Timestamp,
    task::{Outcome, Status},
};
use asyncgate_engine::Role;
use serde_json::value::RawValue;

use super::Model;
use crate::{
    asked::{Asked, size},
    cast::Actor,
    step::Op,
};

const MAX_ARTIFACTS: usize = 100;
const MAX_PROOF_BYTES: usize = 64 * 1024;

/// Whether a call succeeds, and if not, why.
pub type Verdict = Result<(), Code>;

/// A call as the oracle sees it.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Who calls.
    pub actor: &'a Actor,
    /// What.
    pub op: Op,
    /// Who may.
    pub access: Access,
    /// With which input.
    pub asked: &'a Asked,
    /// When it is decided.
    pub now: Timestamp,
}

impl Question<'_> {
    fn is_admin(&self) -> bool {
        self.actor.caller.role == Role::Admin
    }

    pub(super) fn may_call(&self) -> bool {
        let role = match self.actor.caller.role {
            Role::Agent => Access::Agent,
            Role::Worker => Access::Worker,
            Role::Admin => return true,
        };
        [Access::Open, Access::Any, Access::AgentOrWorker, role].contains(&self.access)
    }

    fn own(&self, principal: &Principal) -> Verdict {
        let own = self.is_admin() || self.actor.caller.principal.is(principal);
        own.then_some(()).ok_or(Code::Forbidden)
    }

    /// A task is read by its owner and by who holds it or ended it.
    pub(super) fn may_read(&self, task: &Task) -> Verdict {
        let me = &self.actor.caller.principal;
        let holds = task.lease().is_some_and(|lease| lease.worker.is(me));
        let did = task.end().and_then(|end| end.by.as_ref());
        if holds || did.is_some_and(|(_, worker)| worker.is(me)) {
            return Ok(());
        }
        self.own(&task.created_by)
    }

    /// The principal that a call about tasks and receipts is for.
    pub(super) fn principal(&self) -> Result<Principal, Code> {
        let named = self.asked.principal_id.as_ref();
        self.acting(named, self.asked.kind(), PrincipalKind::Agent)
    }

    /// The principal that works.
    pub(super) fn worker(&self) -> Result<Principal, Code> {
        self.acting(self.asked.worker_id.as_ref(), None, PrincipalKind::Worker)
    }

    fn acting(
        &self,
        named: Option<&String>,
        kind: Option<PrincipalKind>,
        default: PrincipalKind,
    ) -> Result<Principal, Code> {
        let Some(id) = named else {
            return Ok(self.actor.caller.principal.clone());
        };
        let principal = Principal::new(kind.unwrap_or(default), id.clone());
        self.own(&principal)?;
        Ok(principal)
    }
}

impl Model {
    /// Foretells the answer to a call.
    pub fn verdict(&self, question: &Question<'_>) -> Verdict {
        let Question { op, asked, .. } = *question;
        if !question.may_call() {
            return Err(Code::Forbidden);
        }
        if asked.odd.is_some() {
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
        self.fits(asked.payload.as_deref())?;
        let tenant = &self.tenants[question.actor.tenant];
        let Some(key) = &asked.idempotency_key else {
            return Ok(());
        };
        let owner = tenant.party(owner.kind, &owner.id);
        let Some(first) = owner.and_then(|owner| owner.keys.get(key)) else {
            return Ok(());
        };
        let first = tenant.tasks.get(&first.seq()).map(|story| &story.task);
        let same = first.is_some_and(|task| asks_for(asked, task));
        same.then_some(()).ok_or(Code::IdempotencyConflict)
    }

    fn get(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.task_id.as_deref().unwrap_or_default();
        let story = self.task(question.actor.tenant, id);
        question.may_read(&story.ok_or(Code::TaskNotFound)?.task)
    }

    fn cancel(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.task_id.as_deref().unwrap_or_default();
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
        let whole = asked.task_id.is_none() && asked.lease_id.is_none();
        if whole && asked.receipt_type.is_none() && question.op == Op::LEDGER {
            return Err(Code::BadRequest);
        }
        question.principal()?;
        let since = asked.since_receipt_id.as_deref();
        if since.is_some_and(|id| self.receipt(question.actor.tenant, id).is_none()) {
            return Err(Code::BadRequest);
        }
        Ok(())
    }

    fn one_receipt(&self, question: &Question<'_>) -> Verdict {
        question.principal()?;
        let id = question.asked.receipt_id.as_deref().unwrap_or_default();
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
        let id = asked.task_id.as_deref().unwrap_or_default();
        let story = self.task(question.actor.tenant, id);
        let task = &story.ok_or(Code::TaskNotFound)?.task;
        self.check_sizes(op, asked)?;
        let lease_id = asked.lease_id.as_deref().unwrap_or_default();
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
        if repeats {
            return Ok(());
        }
        let held = task.lease().is_some_and(|lease| {
            let end = lease.expires_at.plus_millis(self.policy.lease_grace_ms);
            lease.worker.is(&worker) && now < end && lease.id.to_string() == lease_id
        });
        if !held {
            return Err(Code::LeaseInvalidOrExpired);
        }
        let strict = self.policy.locatability == Locatability::Strict;
        if op == Op::COMPLETE && strict && !asked.is_locatable() {
            return Err(Code::BadRequest);
        }
        Ok(())
    }

    fn check_sizes(&self, op: Op, asked: &Asked) -> Verdict {
        match op {
            Op::PROGRESS => self.fits(asked.progress.as_deref()),
            Op::FAIL => self.fits(asked.error.as_deref()),
            Op::COMPLETE => {
                self.fits(asked.result.as_deref())?;
                let artifacts = asked.artifacts.as_deref();
                let count = artifacts
                    .and_then(|json| Json::from_text(json.get().to_owned()))
                    .and_then(|json| json.array_len());
                let proof = size(artifacts).max(size(asked.delivery_proof.as_deref()));
                if count.unwrap_or(0) > MAX_ARTIFACTS || proof > MAX_PROOF_BYTES {
                    return Err(Code::LimitExceeded);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fits(&self, value: Option<&RawValue>) -> Verdict {
        if size(value) > self.policy.max_payload_bytes {
            return Err(Code::TooLarge);
        }
        Ok(())
    }
}

/// Whether an input asks for the same work as a task.
pub(super) fn asks_for(asked: &Asked, task: &Task) -> bool {
    let spec = &task.spec;
    let payload = asked.payload.as_ref().map_or("null", |raw| raw.get());
    let (capabilities, tags) = match &asked.requirements {
        Some(required) => (required.capabilities.clone(), required.tags.as_slice()),
        None => (Vec::new(), &[][..]),
    };
    let mut capabilities = capabilities;
    capabilities.sort_unstable();
    capabilities.dedup();
    asked.task_type.as_ref() == Some(&spec.task_type)
        && Json::from_text(payload.to_owned()).as_ref() == Some(&spec.payload)
        && capabilities == spec.requirements.capabilities
        && tags == spec.requirements.tags
}
