//! Receipts as the wire has them, turned back into those of `core` so that their links can be
//! computed without trusting the server.

use asyncgate_api as api;
use asyncgate_core::{
    Json, LeaseId, Link, Principal, PrincipalKind, Receipt, ReceiptId, ReceiptType, TaskId,
    TenantId, Timestamp,
};

use crate::ask::Verdict;

/// A receipt, and what the server says about it.
#[derive(Debug, Clone)]
pub struct Told {
    pub receipt: Receipt,
    pub tenant: TenantId,
    pub seq: u64,
    pub link: Link,
    pub hash: String,
}

impl Told {
    pub fn read(record: &api::ReceiptRecord) -> Verdict<Self> {
        parse(record).ok_or_else(|| format!("not a receipt: {record:?}"))
    }

    /// Checks that this receipt follows the one with this place and link.
    pub fn follows(&self, seq: u64, link: Link) -> Verdict<()> {
        if self.seq != seq + 1 || self.receipt.seq() != self.seq {
            return Err(format!("the ledger has a gap after {seq}: {self:?}"));
        }
        if self.receipt.hash() != self.hash {
            return Err(format!("the hash of receipt {} is wrong", self.seq));
        }
        if link.then(self.tenant, &self.receipt) != self.link {
            return Err(format!("the link of receipt {} is broken", self.seq));
        }
        Ok(())
    }
}

fn parse(record: &api::ReceiptRecord) -> Option<Told> {
    let receipt = Receipt {
        id: record.receipt_id.parse().ok()?,
        receipt_type: ReceiptType::parse(&record.receipt_type)?,
        created_at: time(&record.created_at)?,
        from: principal(&record.from),
        to: principal(&record.to),
        task_id: optional::<TaskId>(record.task_id.as_deref())?,
        lease_id: optional::<LeaseId>(record.lease_id.as_deref())?,
        parents: record
            .parents
            .iter()
            .map(|parent| parent.parse::<ReceiptId>().ok())
            .collect::<Option<_>>()?,
        body: Json::from_text(record.body.get().to_owned())?,
        instance: record.asyncgate_instance.as_str().into(),
    };
    Some(Told {
        receipt,
        tenant: record.tenant_id.parse().ok()?,
        seq: record.seq,
        link: record.link.parse().ok()?,
        hash: record.hash.clone(),
    })
}

/// Nothing if there is a text that is no id.
fn optional<T: std::str::FromStr>(text: Option<&str>) -> Option<Option<T>> {
    match text {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

fn principal(told: &api::Principal) -> Principal {
    Principal {
        kind: match told.kind {
            api::PrincipalKind::Agent => PrincipalKind::Agent,
            api::PrincipalKind::Worker => PrincipalKind::Worker,
            api::PrincipalKind::Service => PrincipalKind::Service,
            api::PrincipalKind::Human => PrincipalKind::Human,
            api::PrincipalKind::System => PrincipalKind::System,
        },
        id: told.id.as_str().into(),
        instance_id: told.instance_id.as_deref().map(Into::into),
    }
}

/// The time that `core` writes as `2026-01-05T11:00:00.000Z`.
fn time(text: &str) -> Option<Timestamp> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    // Days since 1970 in the civil calendar, with years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let minutes = (days * 24 + part(11, 13)?) * 60 + part(14, 16)?;
    let time = Timestamp::from_millis(minutes * 60_000 + part(17, 19)? * 1_000 + part(20, 23)?);
    (time.to_string() == text).then_some(time)
}
