//! Tasks: the request, which never changes, and the state.

use std::sync::Arc;

use asyncgate_core::{
    Class, LeaseId, ReceiptId, Task, TaskId,
    task::{Contract, Deadline, End, Lease, Outcome, Progress, Requirements, Spec, State},
};

use super::{Packer, Result, Unpacker, damaged};

pub(crate) fn pack_class(class: &Class) -> Vec<u8> {
    let mut p = Packer::new();
    p.text(&class.task_type);
    p.all(class.capabilities.iter(), |p, name| p.text(name));
    p.done()
}

pub(crate) fn unpack_class(bytes: &[u8]) -> Result<Class> {
    let mut u = Unpacker::new(bytes)?;
    Ok(Class {
        task_type: u.owned()?,
        capabilities: u.all(Unpacker::owned)?,
    })
}

pub(crate) fn pack_spec(task: &Task) -> Vec<u8> {
    let spec = &task.spec;
    let mut p = Packer::new();
    p.fixed(task.id.as_bytes());
    p.principal(&task.created_by);
    p.time(task.created_at);
    p.fixed(task.assignment.as_bytes());
    p.text(&task.instance);
    p.text(&spec.task_type);
    p.some_text(spec.payload_pointer.as_deref());
    p.all(spec.requirements.capabilities.iter(), |p, name| {
        p.text(name);
    });
    p.all(spec.requirements.tags.iter(), |p, tag| p.text(tag));
    p.signed(spec.priority.into());
    p.signed(spec.max_attempts.into());
    p.signed(spec.retry_backoff_seconds.into());
    p.some_text(spec.idempotency_key.as_deref());
    p.some_text(spec.expected_outcome_kind.as_deref());
    p.some_text(spec.expected_artifact_mime.as_deref());
    p.some(spec.contract.as_deref(), pack_contract);
    p.text(spec.payload.text());
    p.done()
}

fn pack_contract(p: &mut Packer, contract: &Contract) {
    p.some_text(contract.instructions.as_deref());
    p.some_json(contract.success_criteria.as_ref());
    p.some_json(contract.result_delivery.as_ref());
    p.some(contract.lease_ttl_seconds, Packer::signed);
    p.some(contract.deadline, |p, deadline| match deadline {
        Deadline::After { seconds } => {
            p.number(0);
            p.signed(seconds);
        }
        Deadline::At(at) => {
            p.number(1);
            p.time(at);
        }
    });
    p.some(contract.max_lease_expiries, |p, most| p.signed(most.into()));
}

pub(crate) fn pack_state(task: &Task) -> Vec<u8> {
    let mut p = Packer::new();
    p.signed(task.attempt.into());
    p.signed(task.expiries.into());
    p.time(task.updated_at);
    p.time(task.next_eligible_at);
    p.some(task.progress.as_ref(), |p, progress| {
        p.text(progress.value.text());
        p.time(progress.at);
    });
    p.some_json(task.retried_error.as_ref());
    p.all(task.expired_workers.iter(), |p, id| p.text(id));
    match &task.state {
        State::Delayed => p.number(0),
        State::Ready => p.number(1),
        State::Leased(lease) => pack_lease(&mut p, 2, lease),
        State::Running(lease) => pack_lease(&mut p, 3, lease),
        State::Ended(end) => pack_end(&mut p, end),
    }
    p.done()
}

fn pack_lease(p: &mut Packer, state: u64, lease: &Lease) {
    p.number(state);
    p.fixed(lease.id.as_bytes());
    p.principal(&lease.worker);
    p.time(lease.created_at);
    p.time(lease.expires_at);
    p.signed(lease.renewals.into());
    p.some(lease.expected_duration_seconds, |p, seconds| {
        p.signed(seconds.into());
    });
}

fn pack_end(p: &mut Packer, end: &End) {
    p.number(match end.outcome {
        Outcome::Succeeded => 4,
        Outcome::Failed => 5,
        Outcome::Canceled => 6,
    });
    p.time(end.at);
    p.some(end.by.as_ref(), |p, (lease, worker)| {
        p.fixed(lease.as_bytes());
        p.principal(worker);
    });
    for said in [
        &end.result,
        &end.error,
        &end.artifacts,
        &end.delivery_proof,
        &end.completion_metadata,
    ] {
        p.some_json(said.as_ref());
    }
    p.some_text(end.result_summary.as_deref());
    p.fixed(end.receipt.as_bytes());
    p.number(end.discharged.into());
}

/// Reads a task from its two parts.
pub(crate) fn unpack_task(spec: &[u8], state: &[u8]) -> Result<Task> {
    let mut u = Unpacker::new(spec)?;
    let id = TaskId::from_bytes(u.fixed()?);
    let created_by = u.principal()?;
    let created_at = u.time()?;
    let assignment = ReceiptId::from_bytes(u.fixed()?);
    let instance = u.shared()?;
    let spec = unpack_spec(&mut u)?;
    let mut u = Unpacker::new(state)?;
    Ok(Task {
        id,
        spec: Arc::new(spec),
        created_by,
        created_at,
        assignment,
        instance,
        attempt: u.narrow()?,
        expiries: u.narrow()?,
        updated_at: u.time()?,
        next_eligible_at: u.time()?,
        progress: u.some(|u| {
            Ok(Progress {
                value: u.json()?,
                at: u.time()?,
            })
        })?,
        retried_error: u.some_json()?,
        expired_workers: u.all(Unpacker::shared)?,
        state: unpack_state(&mut u)?,
    })
}

fn unpack_spec(u: &mut Unpacker<'_>) -> Result<Spec> {
    let task_type = u.owned()?;
    let payload_pointer = u.some(Unpacker::owned)?;
    let requirements = Requirements {
        capabilities: u.all(Unpacker::owned)?,
        tags: u.all(Unpacker::owned)?,
    };
    Ok(Spec {
        task_type,
        payload_pointer,
        requirements,
        priority: u.narrow()?,
        max_attempts: u.narrow()?,
        retry_backoff_seconds: u.narrow()?,
        idempotency_key: u.some(Unpacker::owned)?,
        expected_outcome_kind: u.some(Unpacker::owned)?,
        expected_artifact_mime: u.some(Unpacker::owned)?,
        contract: u.some(unpack_contract)?.map(Box::new),
        payload: u.json()?,
    })
}

fn unpack_contract(u: &mut Unpacker<'_>) -> Result<Contract> {
    Ok(Contract {
        instructions: u.some(Unpacker::owned)?,
        success_criteria: u.some_json()?,
        result_delivery: u.some_json()?,
        lease_ttl_seconds: u.some(Unpacker::signed)?,
        deadline: u.some(|u| match u.number()? {
            0 => Ok(Deadline::After {
                seconds: u.signed()?,
            }),
            _ => u.time().map(Deadline::At),
        })?,
        max_lease_expiries: u.some(Unpacker::narrow)?,
    })
}

fn unpack_state(u: &mut Unpacker<'_>) -> Result<State> {
    let outcome = match u.number()? {
        0 => return Ok(State::Delayed),
        1 => return Ok(State::Ready),
        2 => return unpack_lease(u).map(State::Leased),
        3 => return unpack_lease(u).map(State::Running),
        4 => Outcome::Succeeded,
        5 => Outcome::Failed,
        6 => Outcome::Canceled,
        _ => return Err(damaged("a task has no known state")),
    };
    Ok(State::Ended(End {
        outcome,
        at: u.time()?,
        by: u.some(|u| Ok((LeaseId::from_bytes(u.fixed()?), u.principal()?)))?,
        result: u.some_json()?,
        error: u.some_json()?,
        artifacts: u.some_json()?,
        delivery_proof: u.some_json()?,
        completion_metadata: u.some_json()?,
        result_summary: u.some(Unpacker::owned)?,
        receipt: ReceiptId::from_bytes(u.fixed()?),
        discharged: u.flag()?,
    }))
}

fn unpack_lease(u: &mut Unpacker<'_>) -> Result<Lease> {
    Ok(Lease {
        id: LeaseId::from_bytes(u.fixed()?),
        worker: u.principal()?,
        created_at: u.time()?,
        expires_at: u.time()?,
        renewals: u.narrow()?,
        expected_duration_seconds: u.some(Unpacker::narrow)?,
    })
}
