//! Transactions: all or nothing, one after the other, and visible once answered.

use std::sync::Arc;

use asyncgate_core::{Changes, Reach, Rejection, Timestamp, task::Status};

use super::{Case, Driver, agent, bare, cases, driver::EVERYTHING, echo, failure, proven};
use crate::{Health, Job, ReadSet, ReceiptFilter, Tasks};

pub(super) fn cases() -> Vec<Case> {
    cases![
        no_decision_is_made_before_the_latest_time_that_was_written,
        a_new_store_is_empty,
        what_a_decision_wrote_is_visible_once_it_is_answered,
        a_decision_sees_what_it_declared_and_nothing_else,
        a_refused_decision_writes_nothing,
        a_decision_that_changes_nothing_is_no_commit,
        places_have_no_gaps,
        a_decision_that_panics_harms_nobody_else,
        concurrent_decisions_run_one_after_the_other,
        concurrent_claims_never_share_a_task,
        the_latest_time_is_kept_whatever_the_order_of_commits,
        depths_follow_every_change_in_every_tenant,
    ]
}

async fn a_new_store_is_empty(driver: Driver) {
    let store = driver.store();
    assert_eq!(driver.load(ReadSet::default()).await.head, 0);
    assert!(driver.ledger().await.is_empty());
    assert!(driver.open(&agent("alice")).await.is_empty());
    let last = Timestamp::from_millis(i64::MAX);
    assert!(store.due(last, 10).await.unwrap().is_empty());
    assert_eq!(store.next_due().await.unwrap(), None);
    for status in Status::ALL {
        assert_eq!(store.depths().await.unwrap().of(status), 0);
    }
    assert_eq!(store.last_time(), Timestamp::default());
    assert_eq!(store.health(), Health::Ready);
}

async fn what_a_decision_wrote_is_visible_once_it_is_answered(mut driver: Driver) {
    for n in 1..=20 {
        let created = driver.try_create(echo()).await.unwrap().task;
        assert_eq!(driver.task(created.id).await.as_ref(), Some(&created));
        let ledger = driver.ledger().await;
        assert_eq!(ledger.len(), n);
        assert_eq!(ledger[n - 1].id, created.assignment);
        assert_eq!(driver.open(&agent("alice")).await.len(), n);
        assert_eq!(driver.load(ReadSet::default()).await.head, n as u64);
    }
}

async fn a_decision_sees_what_it_declared_and_nothing_else(mut driver: Driver) {
    let first = driver.create(echo()).await;
    let second = driver.create(echo()).await;
    driver.see(agent("alice")).await;
    let nothing = driver.load(ReadSet::default()).await;
    assert!(nothing.tasks.is_empty() && nothing.claimable.is_empty());
    assert!(nothing.keyed.is_empty() && nothing.receipt.is_none());
    assert!(nothing.relationship.is_none());
    assert_eq!(nothing.head, 2);

    let unknown = driver.env().ids.task(77);
    let reads = ReadSet {
        tasks: vec![second, unknown, first],
        relationship: Some(agent("alice").key()),
        ..ReadSet::default()
    };
    let declared = driver.load(reads).await;
    let ids: Vec<_> = declared.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [second, first], "in the order declared");
    assert!(declared.relationship.is_some());
}

async fn a_refused_decision_writes_nothing(mut driver: Driver) {
    let id = driver.create(echo()).await;
    let (_, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    let store = Arc::clone(driver.store());
    let before = (
        driver.task(id).await,
        driver.ledger().await,
        store.depths().await.unwrap(),
        store.last_time(),
    );
    driver.wait_ms(1_000);
    let refused = driver.fail(&hold, id, failure(false)).await;
    assert_eq!(refused.unwrap_err(), Rejection::LeaseInvalid);
    assert!(driver.cancel(id).await.is_err());
    let missing = driver.env().ids.task(99);
    assert_eq!(driver.cancel(missing).await, Err(Rejection::TaskNotFound));
    let after = (
        driver.task(id).await,
        driver.ledger().await,
        store.depths().await.unwrap(),
        store.last_time(),
    );
    assert_eq!(before, after);
    assert_eq!(driver.load(ReadSet::default()).await.head, 4);
}

/// A repeat that is answered from what is there must not cost an fsync, nor move the clock.
async fn a_decision_that_changes_nothing_is_no_commit(mut driver: Driver) {
    let id = driver.create(echo()).await;
    driver.cancel(id).await.unwrap();
    let store = Arc::clone(driver.store());
    let (commits, last_time) = (store.metrics().commits.get(), store.last_time());
    driver.wait_ms(1_000);
    driver.cancel(id).await.unwrap();
    driver.write(Changes::default()).await;
    assert!(driver.claim(Reach::default(), 5).await.is_empty());
    assert_eq!(store.metrics().commits.get(), commits);
    assert_eq!(store.last_time(), last_time);
}

async fn places_have_no_gaps(mut driver: Driver) {
    for n in 0..12 {
        let id = driver.create(echo()).await;
        let (_, hold) = driver.lease().await;
        driver.start(&hold, id).await.unwrap();
        match n % 4 {
            0 => drop(driver.complete(&hold, id, proven()).await),
            1 => drop(driver.complete(&hold, id, bare()).await),
            2 => drop(driver.fail(&hold, id, failure(false)).await),
            _ => drop(driver.cancel(id).await),
        }
        // Refusals in between must not leave holes.
        assert!(driver.start(&hold, id).await.is_err());
    }
    let places: Vec<u64> = driver.ledger().await.iter().map(|r| r.seq()).collect();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
    assert_eq!(places.len(), 12 * 5);
    let head = driver.load(ReadSet::default()).await.head;
    assert_eq!(head, places.len() as u64);
}

/// A panic is a defect, and its caller may see it as one; everyone else's work goes on.
async fn a_decision_that_panics_harms_nobody_else(mut driver: Driver) {
    driver.create(echo()).await;
    let mut careless = Driver::new(Arc::clone(driver.store()));
    let panicked = tokio::spawn(async move {
        let decide = |_, _| -> Result<crate::Decision<()>, Rejection> { panic!("on purpose") };
        careless.try_decide(ReadSet::default(), decide).await
    });
    let answer = panicked.await;
    assert!(!matches!(answer, Ok(Ok(_))), "nothing was decided");
    assert_eq!(driver.store().health(), Health::Ready);
    driver.create(echo()).await;
    assert_eq!(driver.ledger().await.len(), 2);
}

async fn concurrent_decisions_run_one_after_the_other(driver: Driver) {
    let store = driver.store();
    let mut creating = Vec::new();
    for _ in 0..50 {
        let mut own = Driver::new(Arc::clone(store));
        creating.push(tokio::spawn(async move { own.create(echo()).await }));
    }
    let mut places = Vec::new();
    for created in creating {
        places.push(created.await.unwrap().seq());
    }
    places.sort_unstable();
    assert_eq!(places, (1..=50).collect::<Vec<u64>>());
    assert_eq!(driver.ledger().await.len(), 50);
    assert_eq!(driver.open(&agent("alice")).await, places);
}

async fn concurrent_claims_never_share_a_task(mut driver: Driver) {
    for _ in 0..20 {
        driver.create(echo()).await;
    }
    let mut claiming = Vec::new();
    for _ in 0..15 {
        let mut own = Driver::new(Arc::clone(driver.store()));
        claiming.push(tokio::spawn(
            async move { own.claim(Reach::default(), 2).await },
        ));
    }
    let mut taken = Vec::new();
    for claimed in claiming {
        taken.extend(claimed.await.unwrap().into_iter().map(|task| task.id));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 20, "each task exactly once");
    let accepted = asyncgate_core::ReceiptType::TaskAccepted;
    let accepted = driver.receipts(ReceiptFilter::Type(accepted), EVERYTHING);
    assert_eq!(accepted.await.len(), 20);
}

async fn the_latest_time_is_kept_whatever_the_order_of_commits(mut driver: Driver) {
    driver.wait_ms(5_000);
    let latest = driver.now;
    driver.create(echo()).await;
    driver.wait_ms(-3_000);
    driver.create(echo()).await;
    assert_eq!(driver.store().last_time(), latest);
    let job = Job::<Tasks> {
        tenant: driver.tenant,
        reads: ReadSet::default(),
        now: latest.plus_millis(1),
        weight: 0,
        decide: Box::new(|_, _| None),
    };
    driver.store().transact(job.into()).await.unwrap();
    assert_eq!(driver.store().last_time(), latest, "nothing was written");
}

async fn depths_follow_every_change_in_every_tenant(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    other.create(echo()).await;
    let delayed = asyncgate_core::task::NewTask {
        delay_ms: 60_000,
        ..echo()
    };
    driver.create(delayed).await;
    for _ in 0..5 {
        driver.create(echo()).await;
    }
    let mut holds = Vec::new();
    for _ in 0..4 {
        holds.push(driver.lease().await);
    }
    let [a, b, c, d] = &holds[..] else {
        panic!("four holds")
    };
    driver.complete(&a.1, a.0, proven()).await.unwrap();
    driver.fail(&b.1, b.0, failure(false)).await.unwrap();
    driver.start(&c.1, c.0).await.unwrap();
    driver.cancel(d.0).await.unwrap();
    driver.lease().await;
    let depths = driver.store().depths().await.unwrap();
    let counts = Status::ALL.map(|status| (status.as_str(), depths.of(status)));
    assert_eq!(
        counts,
        [
            ("queued", 2),
            ("leased", 1),
            ("running", 1),
            ("succeeded", 1),
            ("failed", 1),
            ("canceled", 1)
        ]
    );
}

/// Jobs may reach a store in another order than their clocks were read. A decision is made at the latest time that
/// was written, or later, so that time never runs back.
async fn no_decision_is_made_before_the_latest_time_that_was_written(mut driver: Driver) {
    driver.create(echo()).await;
    let written = driver.store().last_time();
    assert_eq!(driver.decided_at().await, written);
    driver.wait_ms(5_000);
    assert_eq!(driver.decided_at().await, written.plus_millis(5_000));
    // A decision that writes nothing does not move the clock.
    driver.wait_ms(-4_000);
    assert_eq!(driver.decided_at().await, written.plus_millis(1_000));
    driver.wait_ms(4_000);
    driver.create(echo()).await;
    let later = written.plus_millis(5_000);
    // A job with an older clock does not take it back.
    driver.wait_ms(-3_000);
    let id = driver.create(echo()).await;
    assert_eq!(driver.task(id).await.unwrap().created_at, later);
    assert_eq!(driver.decided_at().await, later);
    assert_eq!(driver.store().last_time(), later);
}
