//! Defects of what the engine reads of tenants and credentials.

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{Find, Record, audit::Log},
};
use asyncgate_store::{
    Answer,
    identity::{AuditFilter, AuditPage, Identity, RecordFilter},
};

use super::{Mutant, Mutated};
use crate::store::at_once;

impl Identity for Mutated {
    fn record(&self, find: Find) -> Answer<'_, Option<Record>> {
        let found = self.store.identity().record(find);
        if self.mutant != Mutant::KeepsQuotas {
            return found;
        }
        let found = at_once(found).map(|found| {
            let Some(Record::Tenant(mut tenant)) = found else {
                return found;
            };
            let mut kept = self.kept();
            let first = kept.quotas.entry(tenant.id).or_insert(tenant.own_quotas);
            tenant.own_quotas = *first;
            Some(Record::Tenant(tenant))
        });
        Box::pin(std::future::ready(found))
    }

    fn records(&self, filter: RecordFilter) -> Answer<'_, Vec<Record>> {
        self.store.identity().records(filter)
    }

    fn audit_log(&self, tenant: Option<TenantId>) -> Answer<'_, Log> {
        self.store.identity().audit_log(tenant)
    }

    fn audit(&self, filter: AuditFilter) -> Answer<'_, AuditPage> {
        self.store.identity().audit(filter)
    }

    fn audit_logs_from_before(
        &self,
        time: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Option<TenantId>>> {
        self.store.identity().audit_logs_from_before(time, limit)
    }
}
