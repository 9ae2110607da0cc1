//! Rows of admission, revocations, tiers and domains.

use asyncgate_core::{
    Timestamp,
    admission::{
        Cell, ClientTier, DomainState, Progress, Revocation, Row, Subject, SubjectKind, Tier,
    },
};

use super::{Packer, Result, Unpacker, damaged};

pub(crate) fn pack_cell(row: &Row) -> Vec<u8> {
    let (sort, parts) = match row.cell {
        Cell::Nonce { first_seen } => (1, [first_seen, 0, 0]),
        Cell::Window { count } => (2, [count.cast_signed(), 0, 0]),
        Cell::Bucket { level, unit, at } => (3, [level, unit.cast_signed(), at]),
        Cell::Delay { counter, timer } => (4, [counter.cast_signed(), timer, 0]),
    };
    let mut p = Packer::new();
    p.number(sort);
    parts.into_iter().for_each(|part| p.signed(part));
    p.time(row.until);
    p.done()
}

pub(crate) fn unpack_cell(bytes: &[u8]) -> Result<Row> {
    let mut u = Unpacker::new(bytes)?;
    let sort = u.number()?;
    let (a, b, c) = (u.signed()?, u.signed()?, u.signed()?);
    let cell = match sort {
        1 => Cell::Nonce { first_seen: a },
        2 => Cell::Window {
            count: a.cast_unsigned(),
        },
        3 => Cell::Bucket {
            level: a,
            unit: b.cast_unsigned(),
            at: c,
        },
        4 => Cell::Delay {
            counter: a.cast_unsigned(),
            timer: b,
        },
        _ => return Err(damaged("a row of admission has no known sort")),
    };
    Ok(Row {
        cell,
        until: u.time()?,
    })
}

/// Returns the key of a revocation. Keys sort as their subjects do.
pub(crate) fn subject_key(subject: &Subject) -> Vec<u8> {
    let mut key = vec![subject.kind as u8];
    key.extend_from_slice(&subject.hash);
    key
}

pub(crate) fn pack_revocation(revocation: &Revocation) -> Vec<u8> {
    let mut p = Packer::new();
    p.some_text(revocation.reason.as_deref());
    p.time(revocation.revoked_at);
    p.done()
}

pub(crate) fn unpack_revocation(key: &[u8], bytes: &[u8]) -> Result<Revocation> {
    let (kind, hash) = key.split_first().ok_or_else(|| damaged("a key is empty"))?;
    let kind = SubjectKind::ALL.get(usize::from(*kind)).copied();
    let subject = Subject {
        kind: kind.ok_or_else(|| damaged("a revocation is of no known kind"))?,
        hash: hash
            .try_into()
            .map_err(|_| damaged("a hash has another length"))?,
    };
    let mut u = Unpacker::new(bytes)?;
    Ok(Revocation {
        subject,
        reason: u.some(Unpacker::owned)?,
        revoked_at: u.time()?,
    })
}

pub(crate) fn pack_tier(tier: &ClientTier) -> Vec<u8> {
    let mut p = Packer::new();
    p.number(tier.tier as u64);
    p.some_text(tier.reason.as_deref());
    p.some(tier.until.map(Timestamp::as_millis), Packer::signed);
    p.done()
}

pub(crate) fn unpack_tier(key: &[u8], bytes: &[u8]) -> Result<ClientTier> {
    let client = std::str::from_utf8(key).map_err(|_| damaged("a client has no name"))?;
    let mut u = Unpacker::new(bytes)?;
    Ok(ClientTier {
        client: client.to_owned(),
        tier: u.one_of(&Tier::ALL)?,
        reason: u.some(Unpacker::owned)?,
        until: u.some(Unpacker::time)?,
    })
}

pub(crate) fn pack_domain(state: &DomainState) -> Vec<u8> {
    let mut p = Packer::new();
    p.number(state.progress.counter);
    p.signed(state.progress.timer);
    p.number(state.disabled.into());
    p.done()
}

pub(crate) fn unpack_domain(bytes: &[u8]) -> Result<DomainState> {
    let mut u = Unpacker::new(bytes)?;
    Ok(DomainState {
        progress: Progress {
            counter: u.number()?,
            timer: u.signed()?,
        },
        disabled: u.flag()?,
    })
}
