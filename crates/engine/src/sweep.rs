//! Watching deadlines: leases that run out, delays that end.
//!
//! The watch sleeps until the earliest deadline and is woken when an earlier one is written, so a
//! deadline is acted on when it comes, not at the next round of a timer. Rounds still happen, as a
//! safety net.

use std::{collections::BTreeMap, time::Duration};

use asyncgate_api::Code;
use asyncgate_core::{TaskId, TenantId, task};
use asyncgate_store::ReadSet;

use crate::{Engine, Fault};

/// How many tasks one transaction moves, so that requests are not held up behind it.
const BATCH: usize = 64;
/// How soon to look again at what is due but cannot be moved yet.
const LOOK_AGAIN_MS: i64 = 100;

impl Engine {
    /// Acts on deadlines until the engine drains.
    pub async fn watch_deadlines(&self) {
        loop {
            let sleep = match self.act_on_deadlines().await {
                Ok(sleep) => sleep,
                Err(fault) => {
                    tracing::error!(cause = fault.cause, "could not act on deadlines");
                    Duration::from_secs(1)
                }
            };
            tokio::select! {
                () = self.drained() => return,
                () = self.store.signals().earlier_deadline() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Acts on every deadline that has come, and answers how long to sleep.
    pub async fn act_on_deadlines(&self) -> Result<Duration, Fault> {
        let signals = self.store.signals();
        // From here on every new deadline counts as earlier, so that none is missed while looking.
        signals.watch_deadlines(None);
        self.sweep().await?;
        let longest = self.settings().sweep_interval_ms;
        let next = self.store.next_due().await?;
        let until = self
            .now()
            .plus_millis(i64::try_from(longest).unwrap_or(i64::MAX));
        // A lease in its grace is due but not over: look again soon, do not spin.
        let soonest = self.now().plus_millis(LOOK_AGAIN_MS);
        let until = match next {
            Some(next) if next > self.now() => next.min(until),
            Some(_) => soonest,
            None => until,
        };
        signals.watch_deadlines(Some(until));
        let millis = until.millis_since(self.now());
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// Moves every task whose time has come. Leases in their grace are due but do not move; when
    /// they fill a batch, the next one is larger, so that they hide nothing behind them.
    async fn sweep(&self) -> Result<(), Fault> {
        let mut limit = BATCH;
        loop {
            let due = self.store.due(self.now(), limit).await?;
            let found = due.len();
            let moved = self.move_due(due).await?;
            if found < limit {
                return Ok(());
            }
            limit = if moved == 0 { limit * 2 } else { BATCH };
        }
    }

    /// Moves those of the tasks whose time has come. Answers how many.
    async fn move_due(&self, due: Vec<(TenantId, TaskId)>) -> Result<usize, Fault> {
        let mut by_tenant: BTreeMap<TenantId, Vec<TaskId>> = BTreeMap::new();
        for (tenant, task) in due {
            by_tenant.entry(tenant).or_default().push(task);
        }
        let mut moved = 0;
        for (tenant, tasks) in by_tenant {
            match self.move_tasks(tenant, tasks.clone()).await {
                Ok(some) => moved += some,
                Err(fault) if fault.code == Code::Internal => {
                    moved += self.move_one_by_one(tenant, tasks).await;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(moved)
    }

    /// One row that cannot be read must not hold up the deadlines of all others.
    async fn move_one_by_one(&self, tenant: TenantId, tasks: Vec<TaskId>) -> usize {
        let mut moved = 0;
        for task in tasks {
            match self.move_tasks(tenant, vec![task]).await {
                Ok(some) => moved += some,
                Err(fault) => {
                    tracing::error!(%task, cause = fault.cause, "cannot act on a deadline");
                }
            }
        }
        moved
    }

    async fn move_tasks(&self, tenant: TenantId, tasks: Vec<TaskId>) -> Result<usize, Fault> {
        let reads = ReadSet {
            tasks,
            ..ReadSet::default()
        };
        let swept = self
            .transact(tenant, 0, reads, |env, snapshot| {
                Ok(task::sweep(env, snapshot.head, snapshot.tasks))
            })
            .await?;
        self.metrics.expiries.inc_by(swept.expired as u64);
        Ok(swept.expired + swept.readied)
    }
}
