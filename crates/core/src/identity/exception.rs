//! Exceptions: other limits for a tenant, until a time. A bypass lifts its hourly limits; a throttle makes limits
//! stricter.

use serde::{Deserialize, Serialize};

use super::{
    Changes, Quota, QuotaName, Quotas, Record, Rejection, TenantRecord,
    audit::Draft,
    stored::{text, time},
};
use crate::{Decision, PrincipalKey, Timestamp};

/// What an exception does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceptionEffect {
    /// The hourly limits do not count.
    Bypass,
    /// These limits count where they are stricter than the usual ones.
    Throttle(Quotas),
}

impl ExceptionEffect {
    /// Returns the name of its sort.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Throttle(_) => "throttle",
        }
    }

    /// Returns the quotas that count instead of the usual ones.
    #[must_use]
    pub fn apply(&self, usual: Quotas) -> Quotas {
        match self {
            Self::Bypass => {
                let hourly = QuotaName::ALL.into_iter().filter(|name| name.is_hourly());
                hourly.fold(usual, |quotas, name| quotas.with(name, Quota::None))
            }
            Self::Throttle(strict) => strict.iter().fold(usual, |quotas, (name, strict)| {
                quotas.with(name, strict.stricter(quotas.get(name)))
            }),
        }
    }
}

/// An exception as it is stored with its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitException {
    /// What it does.
    #[serde(with = "text")]
    pub effect: ExceptionEffect,
    /// Why it was made.
    pub reason: String,
    /// The time at which it was made.
    #[serde(with = "time")]
    pub since: Timestamp,
    /// The first moment at which it does not count any more.
    #[serde(with = "time")]
    pub until: Timestamp,
    /// Who made it.
    #[serde(with = "text")]
    pub approved_by: PrincipalKey,
}

/// Makes an exception for a tenant, in place of the one that it may have.
pub fn except(
    tenant: Option<Record>,
    exception: LimitException,
    audit: Draft,
) -> Result<Decision<TenantRecord, Changes>, Rejection> {
    let tenant = the_tenant(tenant)?;
    Ok(replaced(tenant, Some(exception), audit))
}

/// Ends the exception of a tenant, if it has one of this sort. Returns the tenant as it then stands, and true if
/// there was something to end.
pub fn end_exception(
    tenant: Option<Record>,
    sort: &str,
    now: Timestamp,
    audit: Draft,
) -> Result<Decision<(TenantRecord, bool), Changes>, Rejection> {
    let tenant = the_tenant(tenant)?;
    let exception = tenant.exception_at(now);
    let has_one = exception.is_some_and(|exception| exception.effect.as_str() == sort);
    if !has_one {
        return Ok(Decision {
            changes: Changes::default(),
            output: (tenant, false),
        });
    }
    let Decision { changes, output } = replaced(tenant, None, audit);
    Ok(Decision {
        changes,
        output: (output, true),
    })
}

fn the_tenant(found: Option<Record>) -> Result<TenantRecord, Rejection> {
    match found {
        Some(Record::Tenant(tenant)) => Ok(tenant),
        Some(_) | None => Err(Rejection::NotFound),
    }
}

fn replaced(
    tenant: TenantRecord,
    exception: Option<LimitException>,
    audit: Draft,
) -> Decision<TenantRecord, Changes> {
    let tenant = TenantRecord {
        exception,
        ..tenant
    };
    Decision {
        changes: Changes {
            put: vec![Record::Tenant(tenant.clone())],
            audit: vec![audit],
            ..Changes::default()
        },
        output: tenant,
    }
}
