//! The audit log.

use asyncgate_api::{AuditEntry, ListAudit, ListAuditInput, ListAuditOutput};
use asyncgate_core::{
    Seq, TenantId,
    identity::{
        audit::{Draft, Entry, Event, Severity, recorded},
        manage::tenants::NO_TENANT,
    },
};
use asyncgate_store::identity::AuditFilter;
use serde_json::{Map, Value};

use super::{Execute, Executed, target, time};
use crate::{Caller, Engine, Fault, input};

impl Execute for ListAudit {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let filter = AuditFilter {
            limit: engine.page_size(input.limit)?,
            ..filter(caller, input)?
        };
        let page = engine.store.identity().audit(filter).await?;
        Ok(ListAuditOutput {
            entries: page.entries.into_iter().map(shown).collect(),
            next_cursor: page.next.map(|before| before.to_string()),
        })
    }
}

fn filter(caller: &Caller, input: ListAuditInput) -> Result<AuditFilter, Fault> {
    let wrong = |field: &str| Fault::bad_request(format!("unknown {field}")).with("field", field);
    let event = input.event.map(|event| event.parse::<Event>());
    let severity = input.severity.map(|severity| severity.parse::<Severity>());
    let principal_id = input.principal_id;
    Ok(AuditFilter {
        tenant: log(caller, input.tenant_id.as_deref())?,
        event: event.transpose().map_err(|_| wrong("event"))?,
        principal_id: principal_id
            .map(|id| input::name("principal_id", id))
            .transpose()?
            .map(|id| recorded(&id)),
        since: input.since.map(|since| time("since", &since)).transpose()?,
        until: input.until.map(|until| time("until", &until)).transpose()?,
        severity: severity.transpose().map_err(|_| wrong("severity"))?,
        before: input.cursor.as_deref().map(place).transpose()?,
        limit: 0,
    })
}

/// Returns the log that a call is about: a tenant's, or the server's own.
fn log(caller: &Caller, named: Option<&str>) -> Result<Option<TenantId>, Fault> {
    if named == Some(NO_TENANT) {
        // Whoever may not name another tenant may not name the server either.
        let is_allowed = caller.runs_the_platform();
        return match is_allowed {
            true => Ok(None),
            false => target(caller, Some(asyncgate_core::admission::SERVER_TENANT)).map(Some),
        };
    }
    let named = named.map(|text| input::id("tenant_id", text)).transpose()?;
    target(caller, named).map(Some)
}

/// Reads the place that the page before ended with.
fn place(text: &str) -> Result<Seq, Fault> {
    let wrong = |_| Fault::bad_request("cursor is not one that was given").with("field", "cursor");
    text.parse().map_err(wrong)
}

fn shown(entry: Entry) -> AuditEntry {
    let Draft {
        id,
        tenant,
        at,
        event,
        severity,
        principal,
        ip,
        user_agent,
        reason,
        corr_id,
        details,
    } = entry.said;
    let details: Map<String, Value> = serde_json::from_str(details.text()).unwrap_or_default();
    AuditEntry {
        audit_id: id.to_string(),
        timestamp: at.to_string(),
        event: event.as_str().to_owned(),
        tenant_id: tenant.map(|tenant| tenant.to_string()),
        principal_kind: principal
            .as_ref()
            .map(|principal| principal.kind.as_str().to_owned()),
        principal_id: principal.map(|principal| principal.id.as_ref().to_owned()),
        ip: ip.map(|ip| ip.to_string()),
        user_agent,
        reason,
        severity: severity.as_str().to_owned(),
        corr_id,
        details,
    }
}
