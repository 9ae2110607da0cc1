//! Entries of audit logs, and dispatches.

use asyncgate_core::{
    AuditId, Json, PrincipalKey, PrincipalKind, TenantId,
    identity::audit::{Draft, Event, Severity},
    outbox::{Dispatch, NewDispatch, State},
};
use bytes::Bytes;

use super::{Packer, Result, Unpacker, damaged};

pub(crate) fn pack_draft(draft: &Draft) -> Vec<u8> {
    let mut p = Packer::new();
    p.fixed(draft.id.as_bytes());
    p.some(draft.tenant.as_ref(), |p, id| p.fixed(id.as_bytes()));
    p.time(draft.at);
    p.number(draft.event as u64);
    p.number(draft.severity as u64);
    p.some(draft.principal.as_ref(), |p, principal| {
        p.number(principal.kind as u64);
        p.text(&principal.id);
    });
    p.some(draft.ip, |p, ip| p.text(&ip.to_string()));
    p.some_text(draft.user_agent.as_deref());
    p.some_text(draft.reason.as_deref());
    p.some_text(draft.corr_id.as_deref());
    p.text(draft.details.text());
    p.done()
}

pub(crate) fn unpack_draft(bytes: &[u8]) -> Result<Draft> {
    let mut u = Unpacker::new(bytes)?;
    Ok(Draft {
        id: AuditId::from_bytes(u.fixed()?),
        tenant: u.some(|u| u.fixed().map(TenantId::from_bytes))?,
        at: u.time()?,
        event: u.one_of(&Event::ALL)?,
        severity: u.one_of(&Severity::ALL)?,
        principal: u.some(|u| {
            Ok(PrincipalKey {
                kind: u.one_of(&PrincipalKind::ALL)?,
                id: u.shared()?,
            })
        })?,
        ip: u.some(|u| {
            let ip = u.text()?.parse();
            ip.map_err(|_| damaged("an address is none"))
        })?,
        user_agent: u.some(Unpacker::owned)?,
        reason: u.some(Unpacker::owned)?,
        corr_id: u.some(Unpacker::owned)?,
        details: Json::from_text(u.owned()?).ok_or_else(|| damaged("details are no JSON"))?,
    })
}

/// Packs a dispatch without its body, which never changes and has a row of its own.
pub(crate) fn pack_dispatch(dispatch: &Dispatch) -> Vec<u8> {
    let sent = &dispatch.sent;
    let mut p = Packer::new();
    p.some(sent.tenant.as_ref(), |p, id| p.fixed(id.as_bytes()));
    p.text(&sent.destination);
    p.some_text(sent.order_key.as_deref());
    p.time(sent.created_at);
    p.signed(dispatch.attempts.into());
    p.some_text(dispatch.last_error.as_deref());
    let (dead, at) = match dispatch.state {
        State::Pending { next_try_at } => (false, next_try_at),
        State::Dead { at } => (true, at),
    };
    p.number(dead.into());
    p.time(at);
    p.done()
}

pub(crate) fn unpack_dispatch(id: u64, bytes: &[u8], body: &[u8]) -> Result<Dispatch> {
    let mut u = Unpacker::new(bytes)?;
    Ok(Dispatch {
        id,
        sent: NewDispatch {
            tenant: u.some(|u| u.fixed().map(TenantId::from_bytes))?,
            destination: u.owned()?,
            order_key: u.some(Unpacker::owned)?,
            created_at: u.time()?,
            body: Bytes::copy_from_slice(body),
        },
        attempts: u.narrow()?,
        last_error: u.some(Unpacker::owned)?,
        state: match (u.flag()?, u.time()?) {
            (false, next_try_at) => State::Pending { next_try_at },
            (true, at) => State::Dead { at },
        },
    })
}
