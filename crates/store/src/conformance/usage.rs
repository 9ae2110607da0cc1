//! What a tenant uses, counted as it happens.

use asyncgate_core::{Usage, task::NewTask};

use super::{Case, Driver, bare, cases, driver::EVERYTHING, echo, failure, proven};
use crate::{ReadSet, ReceiptFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        tasks_leases_and_receipts_are_counted,
        leases_are_counted_while_they_are_held_and_after,
        tenants_are_counted_apart,
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
