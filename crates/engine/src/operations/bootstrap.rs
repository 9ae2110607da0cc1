//! The old way to begin: the inbox, marked as delivered.

use asyncgate_api::{Attention, Bootstrap, BootstrapCursor, BootstrapOutput, QuotaWarning};
use asyncgate_core::{
    PrincipalKey, Seq, TenantId,
    identity::{Quota, QuotaName},
};
use asyncgate_store::{DeliveredReceipt, ReceiptFilter, SeqPage};

use super::{Execute, Executed, list_open_obligations::seen};
use crate::{Caller, Engine, Fault, authorise::Named, input, view};

impl Execute for Bootstrap {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let principal = caller.acting(Named::principal(
            input.principal_kind,
            input.principal_id,
            input.principal_instance_id,
        ))?;
        let settings = engine.settings();
        let limit = input::limit(
            "max_items",
            input.max_items,
            settings.default_bootstrap_items,
            settings.max_bootstrap_items,
        )?;
        let inbox = Inbox {
            engine,
            tenant: caller.tenant,
            owner: principal.key(),
            limit,
            after: match &input.since_receipt_id {
                Some(since) => {
                    let page = engine.page_after(caller.tenant, Some(since), limit);
                    Some(page.await?.after)
                }
                None => None,
            },
        };
        tracing::warn!(principal = %principal.key(), "deprecated: bootstrap was called");
        let mut found = inbox.read().await?;
        let first_time = found.iter().filter(|found| found.delivered_at.is_none());
        let delivered: Vec<_> = first_time.map(|found| found.receipt.seq()).collect();
        let again = !delivered.is_empty();
        let relationship = seen(engine, caller, principal, delivered).await?;
        if again {
            // Read again after the write: another call may have been handed them first, and the answer
            // shows what is stored.
            found = inbox.read().await?;
        }
        let last = found.last().map(|found| found.receipt.id.to_string());
        Ok(BootstrapOutput {
            server: engine.server_info(),
            relationship,
            attention: Attention {
                inbox_receipts: found
                    .iter()
                    .map(|found| view::receipt(caller.tenant, found))
                    .collect(),
                assigned_tasks: [],
                waiting_results: [],
                running_or_scheduled: [],
                anomalies: [],
            },
            cursor: BootstrapCursor {
                latest_receipt_id: last.or(input.since_receipt_id),
            },
            warnings: warnings(engine, caller.tenant).await?,
        })
    }
}

/// Returns warnings about quotas of which little is left.
async fn warnings(engine: &Engine, tenant: TenantId) -> Result<Vec<QuotaWarning>, Fault> {
    let name = QuotaName::ReceiptStorageBytes;
    let quota = engine.quota(tenant, name);
    let Quota::AtMost(limit) = quota else {
        return Ok(Vec::new());
    };
    let current = engine.store.usage(tenant, engine.now()).await?;
    let current = current.receipt_storage_bytes;
    let message = "Little room is left for receipts; without room no new tasks are taken. Ask for a larger quota.";
    let warning = quota.is_nearly_used(current).then(|| QuotaWarning {
        quota: name.as_str().to_owned(),
        limit,
        current,
        message: message.to_owned(),
    });
    Ok(warning.into_iter().collect())
}

/// The part of an inbox that an answer shows.
struct Inbox<'a> {
    engine: &'a Engine,
    tenant: TenantId,
    owner: PrincipalKey,
    limit: usize,
    /// The place behind which it begins; absent for the newest receipts.
    after: Option<Seq>,
}

impl Inbox<'_> {
    async fn read(&self) -> Result<Vec<DeliveredReceipt>, Fault> {
        let (store, owner, limit) = (&self.engine.store, self.owner.clone(), self.limit);
        let found = match self.after {
            Some(after) => {
                let page = SeqPage { after, limit };
                store.receipts(self.tenant, ReceiptFilter::To(owner), page)
            }
            None => store.newest_receipts(self.tenant, owner, limit),
        };
        let mut found = found.await?;
        view::fit(&mut found);
        Ok(found)
    }
}
