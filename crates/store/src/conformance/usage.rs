//! What a tenant uses, counted as it happens.

use std::sync::Arc;

use asyncgate_core::{
    Reach, Rejection, Timestamp, Usage,
    identity::{Quota, QuotaExceeded, QuotaName, Quotas},
    metering::{self, UsageEvent},
    outbox::NewDispatch,
    task::{Hold, NewTask},
};
use futures_util::FutureExt;

use super::{
    Case, Driver, agent, bare, cases, driver::EVERYTHING, echo, failure, json, proven, worker,
};
use crate::{ReadSet, ReceiptFilter, outbox::DispatchFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        tasks_leases_and_receipts_are_counted,
        leases_are_counted_while_they_are_held_and_after,
        tenants_are_counted_apart,
        decisions_see_what_quotas_bound,
        the_end_of_a_lease_wakes_a_worker_that_lacked_room,
        usage_events_follow_one_another_and_the_oldest_go,
        a_usage_event_and_its_dispatch_share_a_commit,
    ]
}

/// Returns the usage, which readers and decisions see alike, with the bytes of receipts checked against the ledger.
async fn usage(driver: &Driver) -> Usage {
    let usage = driver.store().usage(driver.tenant, driver.now).await;
    let usage = usage.unwrap();
    assert_eq!(driver.load(ReadSet::default()).await.usage, usage);
    let ledger = driver.receipts(ReceiptFilter::All, EVERYTHING).await;
    let bytes = ledger.iter().map(|found| found.receipt.stored_bytes());
    assert_eq!(usage.receipt_storage_bytes, bytes.sum::<u64>());
    usage
}

async fn tasks_leases_and_receipts_are_counted(mut driver: Driver) {
    assert_eq!(usage(&driver).await, Usage::default());
    let keyed = || NewTask {
        idempotency_key: Some("key".to_owned()),
        ..echo()
    };
    let first = driver.create(keyed()).await;
    driver.create(keyed()).await;
    let delay_ms = 60_000;
    driver.create(NewTask { delay_ms, ..echo() }).await;
    let counts = |usage: Usage| {
        let Usage {
            active_tasks,
            concurrent_leases,
            tasks_created,
            ..
        } = usage;
        (tasks_created, active_tasks, concurrent_leases)
    };
    assert_eq!(counts(usage(&driver).await), (2, 2, 0));
    let (_, hold) = driver.lease().await;
    assert_eq!(counts(usage(&driver).await), (2, 2, 1));
    driver.start(&hold, first).await.unwrap();
    assert_eq!(counts(usage(&driver).await), (2, 2, 1));
    driver.complete(&hold, first, bare()).await.unwrap();
    assert_eq!(counts(usage(&driver).await), (2, 1, 0));
    // Proof that comes late is one more receipt and nothing else.
    driver.complete(&hold, first, proven()).await.unwrap();
    assert_eq!(counts(usage(&driver).await), (2, 1, 0));
}

async fn leases_are_counted_while_they_are_held_and_after(mut driver: Driver) {
    let seconds = async |driver: &Driver| usage(driver).await.lease_seconds;
    for _ in 0..3 {
        driver.create(echo()).await;
    }
    let (first, hold) = driver.lease().await;
    driver.wait_ms(10_000);
    assert_eq!(seconds(&driver).await, 10);
    let (second, _) = driver.lease().await;
    driver.wait_ms(5_000);
    assert_eq!(seconds(&driver).await, 20);
    driver.start(&hold, first).await.unwrap();
    driver.fail(&hold, first, failure(true)).await.unwrap();
    driver.wait_ms(1_000);
    assert_eq!(seconds(&driver).await, 21);
    driver.cancel(second).await.unwrap();
    driver.wait_ms(100_000);
    assert_eq!(seconds(&driver).await, 21);
    // A lease that runs out has been held until somebody noticed.
    driver.lease().await;
    driver.wait_ms(1_000_000);
    driver.sweep().await;
    driver.wait_ms(7_000);
    assert_eq!(seconds(&driver).await, 1_021);
}

async fn tenants_are_counted_apart(mut driver: Driver) {
    let other = Driver::of_tenant(driver.store().clone(), 2);
    driver.create(echo()).await;
    assert_eq!(usage(&other).await, Usage::default());
    assert_eq!(usage(&driver).await.tasks_created, 1);
}

fn bounded(name: QuotaName, most: u64) -> Quotas {
    Quotas::default().with(name, Quota::AtMost(most))
}

async fn decisions_see_what_quotas_bound(mut driver: Driver) {
    let full = |quota, limit| {
        Some(Rejection::Quota(QuotaExceeded {
            quota,
            limit,
            current: limit,
        }))
    };
    driver.quotas = bounded(QuotaName::ActiveTasks, 2);
    let first = driver.create(echo()).await;
    driver.create(echo()).await;
    let refused = driver.try_create(echo()).await.err();
    assert_eq!(refused, full(QuotaName::ActiveTasks, 2));
    driver.quotas = bounded(QuotaName::ConcurrentLeases, 1);
    let leased = driver.claim(Reach::default(), 9).await;
    assert_eq!(leased.len(), 1, "as many as there is room for");
    assert!(driver.claim(Reach::default(), 9).await.is_empty());
    let hold = Hold {
        worker: worker("bob"),
        lease_id: leased[0].lease().unwrap().id,
    };
    // The task has two receipts: that it was assigned, and that it was accepted.
    driver.quotas = bounded(QuotaName::ReceiptsPerTask, 3);
    let report = || json("1");
    driver.progress(&hold, first, report()).await.unwrap();
    let refused = driver.progress(&hold, first, report()).await.err();
    assert_eq!(refused, full(QuotaName::ReceiptsPerTask, 3));
    driver.complete(&hold, first, proven()).await.unwrap();
    let bytes = usage(&driver).await.receipt_storage_bytes;
    driver.quotas = bounded(QuotaName::ReceiptStorageBytes, bytes);
    let refused = driver.try_create(echo()).await.err();
    assert_eq!(refused, full(QuotaName::ReceiptStorageBytes, bytes));
}

async fn the_end_of_a_lease_wakes_a_worker_that_lacked_room(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let other = Driver::of_tenant(Arc::clone(&store), 2);
    for how in ["completed", "failed", "released", "canceled", "expired"] {
        driver.create(echo()).await;
        let (id, hold) = driver.lease().await;
        driver.start(&hold, id).await.unwrap();
        // Wake-ups of the commits before have been sent once two more were made.
        driver.see(agent("nobody")).await;
        driver.see(agent("nobody")).await;
        let signals = store.signals();
        let mut waits = [driver.tenant, other.tenant].map(|of| signals.room_waiter(of));
        assert!(waits[0].woken().now_or_never().is_none(), "{how}");
        match how {
            "completed" => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            "failed" => drop(driver.fail(&hold, id, failure(true)).await.unwrap()),
            "released" => driver.release(&hold, id).await.unwrap(),
            "canceled" => drop(driver.cancel(id).await.unwrap()),
            _ => {
                driver.wait_ms(300_000);
                driver.sweep().await;
            }
        }
        waits[0].woken().await;
        assert!(waits[1].woken().now_or_never().is_none(), "{how}");
        if matches!(how, "failed" | "released" | "expired") {
            driver.cancel(id).await.unwrap();
        }
    }
}

/// Meters the tenant of a driver, as the server would.
pub async fn meter(
    driver: &mut Driver,
    calls: u64,
    keep_since: Timestamp,
    dispatch: Option<NewDispatch>,
) -> Option<UsageEvent> {
    let reads = ReadSet {
        metered: Some(2),
        ..ReadSet::default()
    };
    let metered = driver.decide(reads, move |env, snapshot| {
        let usage = &snapshot.usage;
        let mut decision = metering::meter(env, &snapshot.metered, usage, calls, keep_since);
        if decision.output.is_some() {
            decision.changes.outbox.extend(dispatch.clone());
        }
        Ok(decision)
    });
    metered.await.unwrap()
}

async fn usage_events_follow_one_another_and_the_oldest_go(mut driver: Driver) {
    let other = Driver::of_tenant(driver.store().clone(), 2);
    let all = async |driver: &Driver, before, limit| {
        let found = driver.store().usage_events(driver.tenant, before, limit);
        found.await.unwrap()
    };
    let begin = driver.now;
    assert_eq!(meter(&mut driver, 0, begin, None).await, None);
    let mut written = Vec::new();
    for n in 0..5 {
        driver.create(echo()).await;
        driver.wait_ms(60_000);
        let event = meter(&mut driver, n, begin, None).await.unwrap();
        assert_eq!((event.used.tasks_created, event.used.api_calls), (1, n));
        assert_eq!(meter(&mut driver, 0, begin, None).await, None);
        written.insert(0, event);
    }
    assert_eq!(all(&driver, None, 9).await, written, "the newest first");
    assert_eq!(all(&driver, None, 2).await, written[..2]);
    assert_eq!(all(&driver, Some(3), 9).await, written[3..]);
    assert_eq!(all(&other, None, 9).await, []);
    assert_eq!(written[0].total.api_calls, 10);
    // Three are over, of which a decision sees two.
    let event = meter(&mut driver, 1, written[1].until, None).await.unwrap();
    written.insert(0, event);
    assert_eq!(all(&driver, None, 9).await, written[..4]);
}

async fn a_usage_event_and_its_dispatch_share_a_commit(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let dispatch = NewDispatch {
        tenant: Some(driver.tenant),
        destination: "billing".to_owned(),
        order_key: None,
        body: "{}".into(),
        created_at: driver.now,
    };
    let begin = driver.now;
    assert_eq!(
        meter(&mut driver, 0, begin, Some(dispatch.clone())).await,
        None
    );
    assert!(store.signals().new_dispatch().now_or_never().is_none());
    meter(&mut driver, 1, begin, Some(dispatch)).await.unwrap();
    // Whoever sends is woken.
    store.signals().new_dispatch().await;
    let pending = DispatchFilter {
        dead: false,
        after: 0,
        limit: 9,
    };
    assert_eq!(store.outbox().dispatches(pending).await.unwrap().len(), 1);
    let events = store.usage_events(driver.tenant, None, 9).await.unwrap();
    assert_eq!(events.len(), 1);
}
