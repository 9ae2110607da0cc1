//! The wire form of a receipt of `core`, for programs that read a store directly.

use asyncgate_api as api;
use asyncgate_core::{Link, Principal, PrincipalKind, Receipt, TenantId};

/// Returns the wire form of the receipt with this link, without its delivery.
pub fn record(tenant: TenantId, receipt: &Receipt, link: Link) -> api::ReceiptRecord {
    api::ReceiptRecord {
        receipt_id: receipt.id.to_string(),
        receipt_type: receipt.receipt_type.as_str().to_owned(),
        created_at: receipt.created_at.to_string(),
        from: principal(&receipt.from),
        to: principal(&receipt.to),
        task_id: receipt.task_id.map(|id| id.to_string()),
        lease_id: receipt.lease_id.map(|id| id.to_string()),
        schedule_id: None,
        parents: receipt.parents.iter().map(ToString::to_string).collect(),
        body: receipt.body.raw().to_owned(),
        hash: receipt.hash(),
        seq: receipt.seq(),
        link: link.to_string(),
        asyncgate_instance: receipt.instance.to_string(),
        tenant_id: tenant.to_string(),
        delivered_at: None,
    }
}

fn principal(principal: &Principal) -> api::Principal {
    api::Principal {
        kind: match principal.kind {
            PrincipalKind::Agent => api::PrincipalKind::Agent,
            PrincipalKind::Worker => api::PrincipalKind::Worker,
            PrincipalKind::Service => api::PrincipalKind::Service,
            PrincipalKind::Human => api::PrincipalKind::Human,
            PrincipalKind::System => api::PrincipalKind::System,
        },
        id: principal.id.as_ref().to_owned(),
        instance_id: principal.instance_id.as_deref().map(str::to_owned),
    }
}
