//! Forged ids: they name a real place, but their other bits are not those of the real id.

use asyncgate_core::{ReceiptId, TaskId};

use super::{Case, Driver, cases, driver::EVERYTHING, echo};
use crate::{ReadSet, ReceiptFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_task_is_found_by_its_own_id_only,
        a_receipt_is_found_by_its_own_id_only,
        the_receipts_of_an_unreal_task_are_none,
        an_id_of_a_place_where_something_else_stands_finds_nothing,
    ]
}

/// Returns the id with one bit changed: first of its time, then of its random part.
fn altered(bytes: &[u8; 16]) -> [[u8; 16]; 2] {
    let (mut time, mut random) = (*bytes, *bytes);
    time[0] ^= 1;
    random[15] ^= 1;
    [time, random]
}

async fn a_task_is_found_by_its_own_id_only(mut driver: Driver) {
    let id = driver.create(echo()).await;
    for bytes in altered(id.as_bytes()) {
        let unreal = TaskId::from_bytes(bytes);
        assert_eq!(unreal.seq(), id.seq());
        assert_eq!(driver.task(unreal).await, None);
        let reads = ReadSet {
            tasks: vec![unreal],
            ..ReadSet::default()
        };
        assert!(driver.load(reads).await.tasks.is_empty());
        assert!(driver.cancel(unreal).await.is_err());
    }
    assert!(driver.task(id).await.is_some());
}

async fn a_receipt_is_found_by_its_own_id_only(mut driver: Driver) {
    driver.create(echo()).await;
    let real = driver.ledger().await[0].id;
    for bytes in altered(real.as_bytes()) {
        let unreal = ReceiptId::from_bytes(bytes);
        assert_eq!(unreal.seq(), real.seq());
        let found = driver.store().receipt(driver.tenant, unreal).await;
        assert_eq!(found.unwrap(), None);
        let reads = ReadSet {
            receipt: Some(unreal),
            ..ReadSet::default()
        };
        assert_eq!(driver.load(reads).await.receipt, None);
    }
    let found = driver.store().receipt(driver.tenant, real).await.unwrap();
    assert_eq!(found.unwrap().receipt.id, real);
    let reads = ReadSet {
        receipt: Some(real),
        ..ReadSet::default()
    };
    assert_eq!(driver.load(reads).await.receipt.unwrap().id, real);
}

async fn the_receipts_of_an_unreal_task_are_none(mut driver: Driver) {
    let id = driver.create(echo()).await;
    let (_, hold) = driver.lease().await;
    driver.start(&hold, id).await.unwrap();
    for bytes in altered(id.as_bytes()) {
        let filter = ReceiptFilter::Task(TaskId::from_bytes(bytes));
        assert!(driver.receipts(filter, EVERYTHING).await.is_empty());
        let unreal = TaskId::from_bytes(bytes);
        let parties = driver.store().parties(driver.tenant, unreal).await;
        assert_eq!(parties.unwrap(), None);
    }
}

/// Places are shared by tasks, leases and receipts; an id is good for its own sort only.
async fn an_id_of_a_place_where_something_else_stands_finds_nothing(mut driver: Driver) {
    driver.create(echo()).await;
    let (_, hold) = driver.lease().await;
    let as_task = TaskId::from_bytes(*hold.lease_id.as_bytes());
    assert_eq!(driver.task(as_task).await, None);
    let nowhere = driver.env().ids.task(1_000_000);
    assert_eq!(driver.task(nowhere).await, None);
    let nowhere = driver.env().ids.receipt(0);
    let found = driver.store().receipt(driver.tenant, nowhere).await;
    assert_eq!(found.unwrap(), None);
}
