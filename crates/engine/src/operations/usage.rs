//! What tenants use, and exceptions from what they may use.

use std::collections::BTreeMap;

use asyncgate_api::{
    EndBypass, EndThrottle, EndedException, GetUsage, GrantBypass, LimitExceptionRecord,
    ListUsageEvents, ListUsageEventsOutput, StricterQuotas, TenantUsage, ThrottleTenant,
    UsageCounts,
};
use asyncgate_core::{
    TenantId, Timestamp,
    identity::{
        ExceptionEffect, Find, LimitException, QuotaName, Quotas, Record, TenantRecord,
        audit::Event, end_exception, except,
    },
};
use asyncgate_store::identity::{Reads, Snapshot};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, input, view};

impl Execute for GetUsage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = caller.tenant_or_named(input.tenant_id.as_deref())?;
        let record = engine.tenant_record(tenant).await?;
        let now = engine.now();
        let usage = engine.store.usage(tenant, now).await?;
        let last = engine.store.usage_events(tenant, None, 1).await?;
        let metered = last.first().map_or(0, |event| event.total.api_calls);
        let of_tier = engine.settings().tenants.of_tier(record.tier);
        Ok(TenantUsage {
            tenant_id: tenant.to_string(),
            usage: UsageCounts {
                active_tasks: usage.active_tasks,
                concurrent_leases: usage.concurrent_leases,
                receipt_storage_bytes: usage.receipt_storage_bytes,
                tasks_created: usage.tasks_created,
                api_calls: metered + engine.tenants.unmetered_calls(tenant),
                lease_seconds: usage.lease_seconds,
            },
            quotas: all_quotas(record.tenant().quotas_at(of_tier, now)),
            exception: record.exception_at(now).map(|it| shown(tenant, it)),
        })
    }
}

impl Execute for ListUsageEvents {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = caller.tenant_or_named(input.tenant_id.as_deref())?;
        engine.tenant_record(tenant).await?;
        let limit = engine.page_size(input.limit)?;
        let before = input.cursor.as_deref().map(read_cursor).transpose()?;
        let listed = engine.store.usage_events(tenant, before, limit + 1);
        let mut events = listed.await?;
        let more = events.len() > limit;
        events.truncate(limit);
        let last = events.last().map(|event| event.seq.to_string());
        Ok(ListUsageEventsOutput {
            events: events
                .iter()
                .map(|event| view::usage_event(tenant, event))
                .collect(),
            next_cursor: last.filter(|_| more),
        })
    }
}

impl Execute for GrantBypass {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let effect = ExceptionEffect::Bypass;
        engine
            .make_exception(caller, &input.tenant_id, input.reason, &input.until, effect)
            .await
    }
}

impl Execute for ThrottleTenant {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let effect = ExceptionEffect::Throttle(stricter(&input.quotas)?);
        engine
            .make_exception(caller, &input.tenant_id, input.reason, &input.until, effect)
            .await
    }
}

impl Execute for EndBypass {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        engine
            .end_exception(caller, &input.tenant_id, "bypass")
            .await
    }
}

impl Execute for EndThrottle {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        engine
            .end_exception(caller, &input.tenant_id, "throttle")
            .await
    }
}

impl Engine {
    /// Returns the record of a tenant.
    async fn tenant_record(&self, tenant: TenantId) -> Result<TenantRecord, Fault> {
        match self.store.identity().record(Find::tenant(tenant)).await? {
            Some(Record::Tenant(record)) => Ok(record),
            Some(_) | None => Err(asyncgate_core::identity::Rejection::NotFound.into()),
        }
    }

    async fn make_exception(
        &self,
        caller: &Caller,
        tenant: &str,
        reason: String,
        until: &str,
        effect: ExceptionEffect,
    ) -> Result<LimitExceptionRecord, Fault> {
        let tenant: TenantId = input::id("tenant_id", tenant)?;
        let now = self.now();
        let exception = LimitException {
            effect,
            reason: read_reason(reason)?,
            since: now,
            until: read_until(until, now)?,
            approved_by: caller.principal.key(),
        };
        // The entry stands in the log of the tenant that it concerns, whoever made the exception.
        let event = match effect {
            ExceptionEffect::Bypass => Event::RateLimitBypassGranted,
            ExceptionEffect::Throttle(_) => Event::TenantChanged,
        };
        let audit = self
            .draft_of(Some(tenant), event)
            .by(&exception.approved_by)
            .because(&exception.reason)
            .with(&[
                ("exception", effect.as_str()),
                ("approved_by", &exception.approved_by.to_string()),
                ("expires_at", &exception.until.to_string()),
            ]);
        let decide = {
            let exception = exception.clone();
            move |_, mut snapshot: Snapshot| {
                let found = snapshot.records.pop().flatten();
                except(found, exception.clone(), audit.clone())
            }
        };
        self.transact(caller.tenant, 0, the_tenant(tenant), decide)
            .await?;
        self.tenant_changed(tenant);
        Ok(shown(tenant, &exception))
    }

    async fn end_exception(
        &self,
        caller: &Caller,
        tenant: &str,
        sort: &'static str,
    ) -> Result<EndedException, Fault> {
        let tenant: TenantId = input::id("tenant_id", tenant)?;
        let audit = self
            .draft_of(Some(tenant), Event::TenantChanged)
            .by(&caller.principal.key())
            .with(&[("exception", sort), ("ended", "true")]);
        let decide = move |env: asyncgate_core::Env, mut snapshot: Snapshot| {
            let found = snapshot.records.pop().flatten();
            end_exception(found, sort, env.now, audit.clone())
        };
        let (_, ended) = self
            .transact(caller.tenant, 0, the_tenant(tenant), decide)
            .await?;
        self.tenant_changed(tenant);
        Ok(EndedException {
            tenant_id: tenant.to_string(),
            ended,
        })
    }
}

fn the_tenant(tenant: TenantId) -> Reads {
    Reads {
        records: vec![Find::tenant(tenant)],
        ..Reads::default()
    }
}

/// Returns all quotas by name.
fn all_quotas(quotas: Quotas) -> BTreeMap<String, i64> {
    let all = QuotaName::ALL.into_iter();
    all.map(|name| (name.as_str().to_owned(), quotas.get(name).as_number()))
        .collect()
}

fn shown(tenant: TenantId, exception: &LimitException) -> LimitExceptionRecord {
    let stricter = match exception.effect {
        ExceptionEffect::Bypass => Quotas::default(),
        ExceptionEffect::Throttle(quotas) => quotas,
    };
    let quotas = stricter.iter();
    LimitExceptionRecord {
        tenant_id: tenant.to_string(),
        kind: exception.effect.as_str().to_owned(),
        quotas: quotas
            .map(|(name, quota)| (name.as_str().to_owned(), quota.as_number()))
            .collect(),
        reason: exception.reason.clone(),
        since: exception.since.to_string(),
        until: exception.until.to_string(),
        approved_by: exception.approved_by.to_string(),
    }
}

fn stricter(named: &StricterQuotas) -> Result<Quotas, Fault> {
    let all = [
        (QuotaName::ActiveTasks, named.active_tasks),
        (QuotaName::ConcurrentLeases, named.concurrent_leases),
        (QuotaName::TasksPerHour, named.tasks_per_hour),
        (QuotaName::ApiCallsPerHour, named.api_calls_per_hour),
        (
            QuotaName::PrincipalApiCallsPerHour,
            named.principal_api_calls_per_hour,
        ),
    ];
    let given = all
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    given
        .into_iter()
        .try_fold(Quotas::default(), |quotas, (name, value)| {
            let field = || format!("quotas.{}", name.as_str());
            let bad = |message: String| Fault::bad_request(message).with("field", field());
            if value < 0 {
                return Err(bad(format!("{} must not be negative", name.as_str())));
            }
            let quota = name.read(value).map_err(|error| bad(error.to_string()))?;
            Ok(quotas.with(name, quota))
        })
}

fn read_reason(reason: String) -> Result<String, Fault> {
    let reason = input::text("reason", Some(reason))?.unwrap_or_default();
    match reason.is_empty() {
        true => Err(Fault::bad_request("reason must not be empty").with("field", "reason")),
        false => Ok(reason),
    }
}

fn read_until(text: &str, now: Timestamp) -> Result<Timestamp, Fault> {
    let wrong = |message: String| Fault::bad_request(message).with("field", "until");
    let until: Timestamp = text
        .parse()
        .map_err(|error| wrong(format!("until is {error}")))?;
    match until > now {
        true => Ok(until),
        false => Err(wrong("until is over already".to_owned())),
    }
}

fn read_cursor(text: &str) -> Result<u64, Fault> {
    let wrong = |_| {
        let message = "cursor must be the next_cursor of a page";
        Fault::bad_request(message).with("field", "cursor")
    };
    text.parse().map_err(wrong)
}
