//! The watch over deadlines: leases that run out, delays and lives that end.
//!
//! The watch sleeps until the earliest deadline and is woken when an earlier one is written, so a deadline is acted on
//! when it comes, not at the next round of a timer. Rounds still happen, as a safety net.
//!
//! Each plane has a watch of its own, with its own batches and counts ([`Deadlines`]); how a watch works stands here
//! once.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use asyncgate_api::Code;
use asyncgate_core::{TaskId, TenantId, Timestamp, task};
use asyncgate_store::{Answer, Messages, ReadSet, Signals, Store, Tasks};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::{Engine, Fault};

/// The pause after a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The number of batches behind which nothing is looked for while somebody cannot be served: the store may be failing for all.
const MAX_BATCHES_BEHIND: usize = 64;

/// A plane whose deadlines the engine watches.
pub(crate) trait Deadlines {
    /// The id of something that has a deadline.
    type Id: Copy + Display + Send;

    /// The plane's name in the log.
    const PLANE: &'static str;
    /// The most that one transaction moves, so that requests are not held up behind it.
    const BATCH: usize;
    /// The time after which to look again at what is due but did not move.
    const LOOK_AGAIN_MS: i64;

    /// Returns what is due at `now`, earliest first.
    fn due(
        store: &dyn Store,
        now: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, Self::Id)>>;

    /// Returns the earliest deadline of all.
    fn next_due(store: &dyn Store) -> Answer<'_, Option<Timestamp>>;

    /// Sets the time until which the watch sleeps; absent before it has looked. A deadline that is written earlier than
    /// this wakes it.
    fn watch_until(signals: &Signals, until: Option<Timestamp>);

    /// Waits until a deadline earlier than the watched one was written.
    fn earlier_deadline(signals: &Signals) -> impl Future<Output = ()> + Send;

    /// Moves those whose time has come, in one transaction of `tenant`. Returns how many moved.
    fn move_due(
        engine: &Engine,
        tenant: TenantId,
        ids: Vec<Self::Id>,
    ) -> impl Future<Output = Result<usize, Fault>> + Send;

    /// Notes that a round begins. Returns the span that it runs in.
    fn round(_engine: &Engine) -> Span {
        Span::none()
    }

    /// Notes that the watch woke up so much later than it wanted to.
    fn woke(_engine: &Engine, _late: Duration) {}
}

impl Engine {
    /// Acts on the deadlines of tasks until the engine drains.
    pub async fn watch_deadlines(&self) {
        self.watch::<Tasks>().await;
    }

    /// Acts on every deadline of a task that has come. Returns how long to sleep.
    pub async fn act_on_deadlines(&self) -> Result<Duration, Fault> {
        self.act_on::<Tasks>().await
    }

    /// Acts on every deadline of a message that has come. Returns how long to sleep.
    pub async fn act_on_messages(&self) -> Result<Duration, Fault> {
        self.act_on::<Messages>().await
    }

    /// Acts on the deadlines of a plane until the engine drains.
    pub(crate) async fn watch<P: Deadlines>(&self) {
        loop {
            let round = self.act_on::<P>().instrument(P::round(self));
            let sleep = round.await.unwrap_or_else(|fault| {
                let plane = P::PLANE;
                tracing::error!(plane, cause = fault.cause, "could not act on deadlines");
                TRY_AGAIN
            });
            let wake = Instant::now() + sleep;
            tokio::select! {
                () = self.drained() => return,
                () = P::earlier_deadline(self.store.signals()) => {}
                () = tokio::time::sleep_until(wake) => P::woke(self, wake.elapsed()),
            }
        }
    }

    async fn act_on<P: Deadlines>(&self) -> Result<Duration, Fault> {
        let signals = self.store.signals();
        // From here on every new deadline counts as earlier, so that none is missed while looking.
        P::watch_until(signals, None);
        self.sweep::<P>().await?;
        let next = P::next_due(self.store.as_ref()).await?;
        let now = self.now();
        let interval = i64::try_from(self.settings().sweep_interval_ms).unwrap_or(i64::MAX);
        let latest = now.plus_millis(interval);
        let until = match next {
            Some(next) if next > now => next.min(latest),
            // It is due but does not move yet, as a lease in its grace: look again soon, do not spin.
            Some(_) => now.plus_millis(P::LOOK_AGAIN_MS).min(latest),
            None => latest,
        };
        P::watch_until(signals, Some(until));
        let millis = until.millis_since(now);
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// Moves everything whose time has come.
    async fn sweep<P: Deadlines>(&self) -> Result<(), Fault> {
        let (mut limit, mut failure) = (P::BATCH, None);
        loop {
            let due = P::due(self.store.as_ref(), self.now(), limit).await?;
            let found = due.len();
            let moved = self.move_all::<P>(due, &mut failure).await;
            let gives_up = failure.is_some() && limit >= P::BATCH * MAX_BATCHES_BEHIND;
            if found < limit || gives_up {
                return failure.map_or(Ok(()), Err);
            }
            // Leases in their grace are due but do not move, and they stand first in line, and so do those of a tenant
            // that cannot be served. When they fill a batch, the next one is larger, so that they hide nothing behind them.
            limit = if moved == 0 { limit * 2 } else { P::BATCH };
        }
    }

    /// Moves those whose time has come, tenant by tenant. Returns how many moved. A tenant that cannot be served, because
    /// its share of the queue is used up, holds nobody else up; `failure` is the first of such faults.
    pub(crate) async fn move_all<P: Deadlines>(
        &self,
        due: Vec<(TenantId, P::Id)>,
        failure: &mut Option<Fault>,
    ) -> usize {
        let mut by_tenant: BTreeMap<TenantId, Vec<P::Id>> = BTreeMap::new();
        for (tenant, id) in due {
            by_tenant.entry(tenant).or_default().push(id);
        }
        let mut moved = 0;
        for (tenant, ids) in by_tenant {
            match P::move_due(self, tenant, ids.clone()).await {
                Ok(some) => moved += some,
                // One row that cannot be read must not hold up the deadlines of all others.
                Err(fault) if fault.code == Code::Internal => {
                    moved += self.move_one_by_one::<P>(tenant, ids).await;
                }
                Err(fault) => {
                    failure.get_or_insert(fault);
                }
            }
        }
        moved
    }

    async fn move_one_by_one<P: Deadlines>(&self, tenant: TenantId, ids: Vec<P::Id>) -> usize {
        let mut moved = 0;
        for id in ids {
            match P::move_due(self, tenant, vec![id]).await {
                Ok(some) => moved += some,
                Err(fault) => {
                    let plane = P::PLANE;
                    tracing::error!(plane, %id, cause = fault.cause, "cannot act on a deadline");
                }
            }
        }
        moved
    }
}

impl Deadlines for Tasks {
    type Id = TaskId;

    const PLANE: &'static str = "tasks";
    const BATCH: usize = 64;
    const LOOK_AGAIN_MS: i64 = 100;

    fn due(store: &dyn Store, now: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, TaskId)>> {
        store.due(now, limit)
    }

    fn next_due(store: &dyn Store) -> Answer<'_, Option<Timestamp>> {
        store.next_due()
    }

    fn watch_until(signals: &Signals, until: Option<Timestamp>) {
        signals.watch_deadlines(until);
    }

    async fn earlier_deadline(signals: &Signals) {
        signals.earlier_deadline().await;
    }

    async fn move_due(
        engine: &Engine,
        tenant: TenantId,
        tasks: Vec<TaskId>,
    ) -> Result<usize, Fault> {
        let reads = ReadSet {
            tasks,
            ..ReadSet::default()
        };
        let swept = engine
            .transact(tenant, 0, reads, |env, snapshot| {
                Ok(task::sweep(env, snapshot.head, snapshot.tasks))
            })
            .await?;
        engine.metrics.expiries.inc_by(swept.expired as u64);
        Ok(swept.expired + swept.readied + swept.ended)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use asyncgate_store::Error;

    use super::*;
    use crate::fakes::TestEngine;

    const LOUD: TenantId = TenantId::from_bytes([1; 16]);
    const QUIET: TenantId = TenantId::from_bytes([2; 16]);
    static MOVED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    /// A plane where many deadlines of a tenant that is turned away stand before that of another.
    struct Crowded;

    impl Deadlines for Crowded {
        type Id = u32;

        const PLANE: &'static str = "crowded";
        const BATCH: usize = 4;
        const LOOK_AGAIN_MS: i64 = 100;

        fn due(_: &dyn Store, _: Timestamp, limit: usize) -> Answer<'_, Vec<(TenantId, u32)>> {
            let loud = (0..10).map(|id| (LOUD, id));
            let quiet = MOVED.lock().unwrap().is_empty().then_some((QUIET, 10));
            let due = loud.chain(quiet).take(limit).collect();
            Box::pin(async move { Ok(due) })
        }

        fn next_due(_: &dyn Store) -> Answer<'_, Option<Timestamp>> {
            Box::pin(async { Ok(None) })
        }

        fn watch_until(_: &Signals, _: Option<Timestamp>) {}

        async fn earlier_deadline(_: &Signals) {}

        async fn move_due(_: &Engine, tenant: TenantId, ids: Vec<u32>) -> Result<usize, Fault> {
            if tenant == LOUD {
                return Err(Error::Busy.into());
            }
            MOVED.lock().unwrap().extend(&ids);
            Ok(ids.len())
        }
    }

    #[tokio::test]
    async fn a_tenant_that_is_turned_away_holds_up_no_deadline_of_another() {
        let world = TestEngine::default();
        let fault = world.engine.sweep::<Crowded>().await.unwrap_err();
        assert_eq!(fault.code, Code::Unavailable, "the watch tries again soon");
        assert_eq!(*MOVED.lock().unwrap(), [10]);
    }
}
