//! Tenants.

use asyncgate_api::{
    ChangeTenant, CreateTenant, GetTenant, ListTenants, ListTenantsOutput, QuotaChanges, Quotas,
    TenantRecord,
};
use asyncgate_core::{
    TenantId,
    identity::{
        self, Find, Quota, QuotaName, Record, RecordKind, TenantTier,
        manage::tenants::{self, NewTenant, TenantChange},
    },
};
use asyncgate_store::identity::Owner;

use super::{Execute, Executed, reading, target, unknown};
use crate::{Caller, Engine, Fault, input};

impl Execute for CreateTenant {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let named = changes(input.quotas.as_ref())?.into_iter();
        let new = NewTenant {
            name: input::name("name", input.name)?,
            tier: match input.tier {
                Some(tier) => self::tier(&tier)?,
                None => engine.settings().tenants.default_tier,
            },
            quotas: named
                .filter_map(|(name, quota)| Some((name, quota?)))
                .fold(identity::Quotas::default(), |quotas, (name, quota)| {
                    quotas.with(name, quota)
                }),
        };
        let actor = Engine::actor(caller);
        let reads = reading(vec![Find::tenant_named(&new.name)]);
        let made = engine.manage(caller, reads, move |env, snapshot| {
            let taken = snapshot.first_record();
            tenants::create(&actor, env, taken, new.clone())
        });
        Ok(engine.show_tenant(&made.await?))
    }

    fn created(_: &TenantRecord) -> bool {
        true
    }
}

impl Execute for ListTenants {
    async fn execute(engine: &Engine, _: &Caller, input: Self::Input) -> Executed<Self> {
        let page = (input.limit, input.cursor.as_deref());
        let listed = engine.page_of(RecordKind::Tenant, Owner::Anyone, page);
        let (found, next_cursor) = listed.await?;
        let tenants = found.into_iter().filter_map(|record| {
            let Record::Tenant(tenant) = record else {
                return None;
            };
            Some(engine.show_tenant(&tenant))
        });
        Ok(ListTenantsOutput {
            tenants: tenants.collect(),
            next_cursor,
        })
    }
}

impl Execute for GetTenant {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id: TenantId = input::id("tenant_id", &input.tenant_id)?;
        let tenant = target(caller, Some(id))?;
        let found = engine.store.identity().record(Find::tenant(tenant)).await?;
        let Some(Record::Tenant(tenant)) = found else {
            return Err(unknown());
        };
        Ok(engine.show_tenant(&tenant))
    }
}

impl Execute for ChangeTenant {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id: TenantId = input::id("tenant_id", &input.tenant_id)?;
        let change = TenantChange {
            tier: input.tier.as_deref().map(tier).transpose()?,
            quotas: changes(input.quotas.as_ref())?,
            suspended: input.suspended,
        };
        let actor = Engine::actor(caller);
        let reads = reading(vec![Find::tenant(id)]);
        let changed = engine.manage(caller, reads, move |env, snapshot| {
            let found = snapshot.first_record();
            tenants::change(&actor, env, found, &change)
        });
        let tenant = changed.await?;
        engine.tenant_changed(tenant.id);
        engine.forget([Record::Tenant(tenant.clone())])?;
        Ok(engine.show_tenant(&tenant))
    }
}

impl Engine {
    fn show_tenant(&self, tenant: &identity::TenantRecord) -> TenantRecord {
        let of_tier = self.settings().tenants.of_tier(tenant.tier);
        let quotas = tenant.tenant().quotas_at(of_tier, self.now());
        TenantRecord {
            tenant_id: tenant.id.to_string(),
            name: tenant.name.clone(),
            tier: tenant.tier.as_str().to_owned(),
            quotas: show_quotas(quotas),
            created_at: tenant.created_at.to_string(),
            suspended: tenant.suspended_at.is_some(),
        }
    }
}

fn show_quotas(quotas: identity::Quotas) -> Quotas {
    let of = |name: QuotaName| quotas.get(name).as_number();
    Quotas {
        active_tasks: of(QuotaName::ActiveTasks),
        payload_bytes: of(QuotaName::PayloadBytes),
        concurrent_leases: of(QuotaName::ConcurrentLeases),
        lease_ttl_secs: of(QuotaName::LeaseTtlSecs),
        tasks_per_hour: of(QuotaName::TasksPerHour),
        api_calls_per_hour: of(QuotaName::ApiCallsPerHour),
        principal_api_calls_per_hour: of(QuotaName::PrincipalApiCallsPerHour),
        receipt_storage_bytes: of(QuotaName::ReceiptStorageBytes),
        receipts_per_task: of(QuotaName::ReceiptsPerTask),
    }
}

fn tier(text: &str) -> Result<TenantTier, Fault> {
    let wrong = |_| {
        let message = "tier must be free, paid or enterprise";
        Fault::bad_request(message).with("field", "tier")
    };
    text.parse().map_err(wrong)
}

/// Reads the quotas that are to be set or taken back.
fn changes(named: Option<&QuotaChanges>) -> Result<Vec<(QuotaName, Option<Quota>)>, Fault> {
    let Some(named) = named else {
        return Ok(Vec::new());
    };
    let all = QuotaName::ALL.into_iter();
    let given = all.filter_map(|name| Some((name, value(named, name)?)));
    let read = given.map(|(name, value)| {
        let wrong = |bad: identity::BadQuota| {
            let field = format!("quotas.{}", name.as_str());
            Fault::bad_request(bad.to_string()).with("field", field)
        };
        let quota = value.map(|value| name.read(value)).transpose();
        Ok((name, quota.map_err(wrong)?))
    });
    read.collect()
}

const fn value(named: &QuotaChanges, name: QuotaName) -> Option<Option<i64>> {
    match name {
        QuotaName::ActiveTasks => named.active_tasks,
        QuotaName::PayloadBytes => named.payload_bytes,
        QuotaName::ConcurrentLeases => named.concurrent_leases,
        QuotaName::LeaseTtlSecs => named.lease_ttl_secs,
        QuotaName::TasksPerHour => named.tasks_per_hour,
        QuotaName::ApiCallsPerHour => named.api_calls_per_hour,
        QuotaName::PrincipalApiCallsPerHour => named.principal_api_calls_per_hour,
        QuotaName::ReceiptStorageBytes => named.receipt_storage_bytes,
        QuotaName::ReceiptsPerTask => named.receipts_per_task,
    }
}
