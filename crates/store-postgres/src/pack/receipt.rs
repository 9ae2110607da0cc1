//! Receipts, relationships and usage events.

use asyncgate_core::{
    InstanceSight, LeaseId, Receipt, ReceiptId, ReceiptType, Relationship, TaskId, UsageEventId,
    metering::{UsageEvent, Used},
};

use super::{Packer, Result, Unpacker};

pub(crate) fn pack_receipt(receipt: &Receipt) -> Vec<u8> {
    let mut p = Packer::new();
    p.fixed(receipt.id.as_bytes());
    p.number(receipt.receipt_type as u64);
    p.time(receipt.created_at);
    p.principal(&receipt.from);
    p.principal(&receipt.to);
    p.some(receipt.task_id.as_ref(), |p, id| p.fixed(id.as_bytes()));
    p.some(receipt.lease_id.as_ref(), |p, id| p.fixed(id.as_bytes()));
    p.all(receipt.parents.iter(), |p, id| p.fixed(id.as_bytes()));
    p.text(&receipt.instance);
    p.text(receipt.body.text());
    p.done()
}

pub(crate) fn unpack_receipt(bytes: &[u8]) -> Result<Receipt> {
    let mut u = Unpacker::new(bytes)?;
    Ok(Receipt {
        id: ReceiptId::from_bytes(u.fixed()?),
        receipt_type: u.one_of(&ReceiptType::ALL)?,
        created_at: u.time()?,
        from: u.principal()?,
        to: u.principal()?,
        task_id: u.some(|u| u.fixed().map(TaskId::from_bytes))?,
        lease_id: u.some(|u| u.fixed().map(LeaseId::from_bytes))?,
        parents: u.all(|u| u.fixed().map(ReceiptId::from_bytes))?,
        instance: u.shared()?,
        body: u.json()?,
    })
}

pub(crate) fn pack_relationship(seen: &Relationship) -> Vec<u8> {
    let mut p = Packer::new();
    p.principal(&seen.principal);
    p.time(seen.first_seen_at);
    p.time(seen.last_seen_at);
    p.number(seen.sessions_count);
    p.all(seen.instances.iter(), |p, sight| {
        p.some_text(sight.id.as_deref());
        p.time(sight.last_seen_at);
    });
    p.done()
}

pub(crate) fn unpack_relationship(bytes: &[u8]) -> Result<Relationship> {
    let mut u = Unpacker::new(bytes)?;
    Ok(Relationship {
        principal: u.principal()?,
        first_seen_at: u.time()?,
        last_seen_at: u.time()?,
        sessions_count: u.number()?,
        instances: u.all(|u| {
            Ok(InstanceSight {
                id: u.some(Unpacker::shared)?,
                last_seen_at: u.time()?,
            })
        })?,
    })
}

pub(crate) fn pack_event(event: &UsageEvent) -> Vec<u8> {
    let mut p = Packer::new();
    p.fixed(event.id.as_bytes());
    p.number(event.seq);
    p.some_time(event.since);
    p.time(event.until);
    p.number(event.receipt_bytes);
    for used in [&event.used, &event.total] {
        p.number(used.tasks_created);
        p.number(used.lease_seconds);
        p.number(used.receipt_byte_seconds);
        p.number(used.api_calls);
    }
    p.done()
}

pub(crate) fn unpack_event(bytes: &[u8]) -> Result<UsageEvent> {
    let mut u = Unpacker::new(bytes)?;
    Ok(UsageEvent {
        id: UsageEventId::from_bytes(u.fixed()?),
        seq: u.number()?,
        since: u.some(Unpacker::time)?,
        until: u.time()?,
        receipt_bytes: u.number()?,
        used: unpack_used(&mut u)?,
        total: unpack_used(&mut u)?,
    })
}

fn unpack_used(u: &mut Unpacker<'_>) -> Result<Used> {
    Ok(Used {
        tasks_created: u.number()?,
        lease_seconds: u.number()?,
        receipt_byte_seconds: u.number()?,
        api_calls: u.number()?,
    })
}
