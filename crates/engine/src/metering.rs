//! Metering: from time to time, what each tenant used since the last time becomes a usage event, and if the operator
//! wants to bill for it, a dispatch in the same commit.
//!
//! Calls are counted in memory and become durable with the event that tells of them. So a crash loses the calls since
//! the last round, and nothing else.

use std::{collections::HashSet, time::Duration};

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{Record, RecordKind},
    metering::{UsageEvent, meter},
    outbox::NewDispatch,
};
use asyncgate_store::{
    ReadSet, Snapshot,
    identity::{Owner, RecordFilter},
};
use futures_util::{StreamExt as _, stream};

use crate::{Engine, Fault, view};

/// The name of the place that usage events are sent to.
pub const BILLING: &str = "billing";

/// The most tenants that are metered at a time: together they share commits.
const AT_ONCE: usize = 32;
/// The number of tenants that are read at a time.
const PAGE: usize = 500;
/// The number of old events that a decision looks at, of which it forgets those that are too old.
const OLDEST: usize = 16;
/// The time between two rounds over all tenants, changed or not.
const ALL_TENANTS_MS: i64 = 24 * 3_600_000;

/// The operator's settings about metering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeteringSettings {
    /// The time between two rounds.
    pub interval: Duration,
    /// The time for which usage events are kept.
    pub keep_ms: i64,
    /// True if usage events are sent to [`BILLING`].
    pub bills: bool,
}

impl Default for MeteringSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(300),
            keep_ms: 400 * 24 * 3_600_000,
            bills: false,
        }
    }
}

impl Engine {
    /// Meters tenants until the engine drains, and once more then.
    pub async fn meter_tenants(&self) {
        // What was used before a crash is not known to have changed: so all tenants are looked at first.
        let mut all_at = self.now();
        loop {
            let is_over = !self.wait_for_round().await;
            let now = self.now();
            if now >= all_at && !is_over {
                match self.meter_all().await {
                    Ok(()) => all_at = now.plus_millis(ALL_TENANTS_MS),
                    Err(fault) => tracing::error!(cause = fault.cause, "could not list tenants"),
                }
            }
            self.meter_changed().await;
            if is_over {
                return;
            }
        }
    }

    /// Waits for the next round. Returns false if the engine drains first.
    async fn wait_for_round(&self) -> bool {
        let interval = self.settings().metering.interval;
        self.wait_for(std::future::pending(), interval).await;
        !self.is_draining()
    }

    /// Meters the tenants that have changed since they were metered last. One that cannot be metered now is metered in
    /// the next round.
    pub async fn meter_changed(&self) {
        let mut changed: HashSet<TenantId> = self.take_unmetered();
        changed.extend(self.tenants.callers());
        self.meter_each(changed).await;
    }

    async fn meter_all(&self) -> Result<(), Fault> {
        let mut after = None;
        loop {
            let filter = RecordFilter {
                kind: RecordKind::Tenant,
                owner: Owner::Anyone,
                after,
                limit: PAGE,
            };
            let page = self.store.identity().records(filter).await?;
            self.meter_each(page.iter().map(Record::tenant)).await;
            after = page.last().map(|record| record.key().id);
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn meter_each(&self, tenants: impl IntoIterator<Item = TenantId>) {
        let metering = stream::iter(tenants).map(|tenant| async move {
            if let Err(fault) = self.meter(tenant).await {
                tracing::error!(
                    cause = fault.cause,
                    "could not meter a tenant; trying again"
                );
                self.mark_unmetered(tenant);
            }
        });
        metering.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    /// Meters a tenant.
    pub async fn meter(&self, tenant: TenantId) -> Result<Option<UsageEvent>, Fault> {
        let calls = self.tenants.take_calls(tenant);
        let metered = self.write_usage(tenant, calls).await;
        if metered.is_err() {
            self.tenants.give_back_calls(tenant, calls);
        }
        metered
    }

    async fn write_usage(&self, tenant: TenantId, calls: u64) -> Result<Option<UsageEvent>, Fault> {
        let settings = self.settings().metering;
        let reads = ReadSet {
            metered: Some(OLDEST),
            ..ReadSet::default()
        };
        self.transact(tenant, 0, reads, move |env, snapshot: Snapshot| {
            let (now, keep_since) = (env.now, env.now.plus_millis(-settings.keep_ms));
            let usage = &snapshot.usage;
            let mut decision = meter(env, &snapshot.metered, usage, calls, keep_since);
            if let (Some(event), true) = (&decision.output, settings.bills) {
                decision.changes.outbox.push(bill(tenant, event, now));
            }
            Ok(decision)
        })
        .await
    }
}

/// Returns the message to whoever bills: the event as it is listed.
fn bill(tenant: TenantId, event: &UsageEvent, now: Timestamp) -> NewDispatch {
    let body = serde_json::to_vec(&view::usage_event(tenant, event)).unwrap_or_default();
    NewDispatch {
        tenant: Some(tenant),
        destination: BILLING.to_owned(),
        // The events of one tenant arrive in order. Others need not wait for them.
        order_key: Some(tenant.to_string()),
        body: body.into(),
        created_at: now,
    }
}
