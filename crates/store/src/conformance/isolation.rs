//! Tenants: none sees anything of another, not even with the same ids.

use std::sync::Arc;

use asyncgate_core::{
    ClassesInUse, Principal, Reach, ReceiptId, ReceiptType, Rejection, TaskId, metering::Metered,
    task::NewTask,
};

use super::{Case, Driver, agent, cases, driver::EVERYTHING, echo, json, usage::meter, worker};
use crate::{IdempotencyKey, ReadSet, ReceiptFilter, TaskFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        no_read_shows_another_tenants_rows,
        no_decision_is_given_another_tenants_rows,
        tenants_with_the_same_ids_stay_apart,
        each_tenant_has_a_ledger_of_its_own,
        every_list_ends_where_its_tenant_ends,
    ]
}

struct Rows {
    task: TaskId,
    receipt: ReceiptId,
}

/// Writes something of everything into the driver's tenant.
async fn fill(driver: &mut Driver) -> Rows {
    let keyed = NewTask {
        idempotency_key: Some("k".to_owned()),
        ..echo()
    };
    driver.create(keyed).await;
    let (task, _) = driver.lease().await;
    driver.create(echo()).await;
    driver.see(agent("alice")).await;
    driver.deliver(vec![1]).await;
    let begin = driver.now;
    assert!(meter(driver, 1, begin, None).await.is_some());
    Rows {
        task,
        receipt: driver.ledger().await[0].id,
    }
}

async fn no_read_shows_another_tenants_rows(mut driver: Driver) {
    let rows = fill(&mut driver).await;
    let store = driver.store();
    // The store has never heard of the one, and the other has rows of its own.
    let stranger = Driver::of_tenant(Arc::clone(store), 2);
    let mut neighbour = Driver::of_tenant(Arc::clone(store), 3);
    neighbour.see(agent("zoe")).await;
    for other in [&stranger, &neighbour] {
        let tenant = other.tenant;
        assert_eq!(other.task(rows.task).await, None);
        assert_eq!(store.parties(tenant, rows.task).await.unwrap(), None);
        assert_eq!(store.usage_events(tenant, None, 10).await.unwrap(), []);
        assert_eq!(store.receipt(tenant, rows.receipt).await.unwrap(), None);
        for filter in [
            ReceiptFilter::All,
            ReceiptFilter::To(agent("alice").key()),
            ReceiptFilter::Task(rows.task),
            ReceiptFilter::Type(ReceiptType::TaskAssigned),
        ] {
            let found = other.receipts(filter.clone(), EVERYTHING).await;
            assert!(found.is_empty(), "{filter:?}");
        }
        assert!(other.open(&agent("alice")).await.is_empty());
        let known = store.relationship(tenant, agent("alice").key());
        assert_eq!(known.await.unwrap(), None);
        for owner in [None, Some(agent("alice").key())] {
            let filter = TaskFilter {
                owner,
                limit: 10,
                ..TaskFilter::default()
            };
            let page = store.tasks(tenant, filter).await.unwrap();
            assert!(page.tasks.is_empty() && page.next.is_none());
        }
    }
}

async fn no_decision_is_given_another_tenants_rows(mut driver: Driver) {
    let rows = fill(&mut driver).await;
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    let reads = ReadSet {
        tasks: vec![rows.task],
        keyed: vec![IdempotencyKey {
            owner: agent("alice").key(),
            key: "k".to_owned(),
        }],
        claimable: Some((Reach::default(), 10)),
        receipt: Some(rows.receipt),
        acknowledged_by: Some(agent("alice").key()),
        relationship: Some(agent("alice").key()),
        classes: vec![echo().class()],
        created: 1,
        receipts_about: Some((rows.task, 100)),
        metered: Some(10),
    };
    let seen = other.load(reads).await;
    assert_eq!(seen.head, 0);
    assert!(seen.tasks.is_empty() && seen.claimable.is_empty());
    assert!(seen.keyed.is_empty() && seen.receipt.is_none());
    assert!(seen.relationship.is_none() && seen.acknowledgement.is_none());
    assert_eq!(seen.classes, ClassesInUse::default());
    assert_eq!(seen.receipts_about, 0);
    assert_eq!(seen.metered, Metered::default());
    let canceled = other.cancel(rows.task).await;
    assert_eq!(canceled, Err(Rejection::TaskNotFound));
    assert!(other.claim(Reach::default(), 10).await.is_empty());
}

async fn tenants_with_the_same_ids_stay_apart(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    let ours = driver.create(echo()).await;
    let theirs = other
        .create(NewTask {
            owner: agent("bert"),
            payload: json("\"theirs\""),
            ..echo()
        })
        .await;
    assert_eq!(ours, theirs, "this case is about equal ids");
    driver.lease().await;
    driver.cancel(ours).await.unwrap();
    driver.deliver(vec![1]).await;

    let task = other.task(theirs).await.unwrap();
    assert_eq!(task.spec.payload.text(), "\"theirs\"");
    assert_eq!(task.status().as_str(), "queued");
    assert_eq!(other.ledger().await.len(), 1);
    assert_eq!(other.open(&agent("bert")).await, [1]);
    let receipt = other.ledger().await[0].id;
    let found = other.store().receipt(other.tenant, receipt).await.unwrap();
    assert_eq!(found.unwrap().delivered_at, None);
    let claimed = other
        .claim_as(worker("bob"), Reach::default(), 5, None)
        .await;
    assert_eq!(claimed.len(), 1);
}

async fn each_tenant_has_a_ledger_of_its_own(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    for _ in 0..3 {
        driver.create(echo()).await;
        other.create(echo()).await;
        other.create(echo()).await;
    }
    assert_eq!(driver.load(ReadSet::default()).await.head, 3);
    assert_eq!(other.load(ReadSet::default()).await.head, 6);
    let places: Vec<u64> = other.ledger().await.iter().map(|r| r.seq()).collect();
    assert_eq!(places, [1, 2, 3, 4, 5, 6]);
}

/// Makes drivers of tenants with the same names and types in them, one before and one after.
async fn every_list_ends_where_its_tenant_ends(driver: Driver) {
    let store = Arc::clone(driver.store());
    let mut drivers = [1, 2, 3].map(|n| Driver::of_tenant(Arc::clone(&store), n));
    for (n, driver) in drivers.iter_mut().enumerate() {
        for _ in 0..=n {
            fill(driver).await;
        }
    }
    for (n, driver) in drivers.iter().enumerate() {
        let ledger = driver.ledger().await;
        // This makes a task under a key, claims it, repeats it, and makes a task without a key.
        assert_eq!(ledger.len(), 3 + 2 * n);
        for filter in [
            ReceiptFilter::To(agent("alice").key()),
            ReceiptFilter::To(Principal::system().key()),
            ReceiptFilter::Type(ReceiptType::TaskAssigned),
            ReceiptFilter::Type(ReceiptType::TaskAccepted),
        ] {
            let own = ledger.iter().filter(|receipt| filter.matches(receipt));
            let found = driver.receipts(filter.clone(), EVERYTHING).await;
            assert!(
                found.iter().map(|found| &found.receipt).eq(own),
                "{filter:?}"
            );
        }
        assert_eq!(driver.open(&agent("alice")).await.len(), n + 2);
        for owner in [None, Some(agent("alice").key())] {
            let filter = TaskFilter {
                owner,
                limit: 100,
                ..TaskFilter::default()
            };
            let page = store.tasks(driver.tenant, filter).await.unwrap();
            assert_eq!(page.tasks.len(), n + 2);
        }
    }
}
