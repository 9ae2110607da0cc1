//! Revocations: a hash of them, and a sorted set for their order.
//!
//! A field of the hash is the number of a subject's kind and the subject's hash. Its value is the time in
//! milliseconds, and after a colon the reason if there is one.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Revocation, Subject, SubjectKind},
};
use asyncgate_store::Error;

use crate::{
    keys::Keys,
    resp::{Args, Value},
};

/// Adds the keys of the hash and of the sorted set.
fn put_keys(args: &mut Args, keys: &Keys, tenant: TenantId) {
    args.put("2");
    args.put(keys.of(tenant, "revoked"));
    args.put(keys.of(tenant, "revoked-order"));
}

pub(crate) fn look_up(keys: &Keys, tenant: TenantId, subjects: &[Subject]) -> Args {
    let mut args = Args::of([b"HMGET"]);
    args.put(keys.of(tenant, "revoked"));
    for subject in subjects {
        args.put(field(*subject));
    }
    args
}

pub(crate) fn revoke(
    keys: &Keys,
    tenant: TenantId,
    now: Option<Timestamp>,
    revocation: &Revocation,
) -> Args {
    let mut args = Args::default();
    put_keys(&mut args, keys, tenant);
    match now {
        Some(now) => args.put_number(now.as_millis()),
        None => args.put(""),
    }
    args.put(field(revocation.subject));
    match &revocation.reason {
        Some(reason) => args.put(format!(":{reason}")),
        None => args.put(""),
    }
    args
}

pub(crate) fn unrevoke(keys: &Keys, tenant: TenantId, subject: Subject) -> Args {
    let mut args = Args::default();
    put_keys(&mut args, keys, tenant);
    args.put(field(subject));
    args
}

pub(crate) fn list(keys: &Keys, tenant: TenantId, after: Option<Subject>, limit: usize) -> Args {
    let mut args = Args::default();
    put_keys(&mut args, keys, tenant);
    match after {
        Some(after) => {
            let mut from = vec![b'('];
            from.extend_from_slice(&field(after));
            args.put(from);
        }
        None => args.put("-"),
    }
    args.put_number(limit);
    args
}

fn field(subject: Subject) -> [u8; 33] {
    let mut field = [subject.kind as u8; 33];
    field[1..].copy_from_slice(&subject.hash);
    field
}

fn corrupt() -> Error {
    Error::Corrupt("Redis: a revocation cannot be read".to_owned())
}

fn subject(field: &Value) -> Result<Subject, Error> {
    let (kind, hash) = field
        .bytes()
        .and_then(|field| field.split_first())
        .ok_or_else(corrupt)?;
    let kind = SubjectKind::ALL.get(usize::from(*kind));
    Ok(Subject {
        kind: *kind.ok_or_else(corrupt)?,
        hash: hash.try_into().map_err(|_| corrupt())?,
    })
}

fn revocation(subject: Subject, value: &Value) -> Result<Revocation, Error> {
    let text = value.text().ok_or_else(corrupt)?;
    let (at, reason) = match text.split_once(':') {
        Some((at, reason)) => (at, Some(reason.to_owned())),
        None => (text, None),
    };
    Ok(Revocation {
        subject,
        reason,
        revoked_at: Timestamp::from_millis(at.parse().map_err(|_| corrupt())?),
    })
}

/// Reads the answer to [`look_up`].
pub(crate) fn read_looked_up(
    subjects: &[Subject],
    answer: &Value,
) -> Result<Vec<Option<Revocation>>, Error> {
    let values = answer.list().ok_or_else(corrupt)?;
    if values.len() != subjects.len() {
        return Err(corrupt());
    }
    let read = |(subject, value): (&Subject, &Value)| match *value == Value::Nil {
        true => Ok(None),
        false => revocation(*subject, value).map(Some),
    };
    subjects.iter().zip(values).map(read).collect()
}

/// Reads the answer to [`revoke`].
pub(crate) fn read_revoked(subject: Subject, answer: &Value) -> Result<(Revocation, bool), Error> {
    match answer.list() {
        Some([value, new]) => {
            let new = new.int().ok_or_else(corrupt)? == 1;
            Ok((revocation(subject, value)?, new))
        }
        _ => Err(corrupt()),
    }
}

/// Reads the answer to [`unrevoke`].
pub(crate) fn read_unrevoked(answer: &Value) -> Result<bool, Error> {
    Ok(answer.int().ok_or_else(corrupt)? > 0)
}

/// Reads the answer to [`list`].
pub(crate) fn read_list(answer: &Value) -> Result<Vec<Revocation>, Error> {
    let fields_and_values = answer.list().ok_or_else(corrupt)?;
    let read = |pair: &[Value]| match pair {
        [field, value] => revocation(subject(field)?, value),
        _ => Err(corrupt()),
    };
    fields_and_values.chunks(2).map(read).collect()
}
