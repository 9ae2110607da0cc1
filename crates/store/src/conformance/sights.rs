//! Sights: which receipts were handed over, and which principals the server has met.

use asyncgate_core::{Principal, PrincipalKind, Timestamp};

use super::{Case, Driver, agent, cases, driver::EVERYTHING, echo, worker};
use crate::{ReadSet, ReceiptFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_delivery_mark_is_set_once_and_stays,
        a_delivery_mark_changes_nothing_about_the_receipt,
        a_relationship_is_kept_as_it_was_seen_last,
        principals_with_similar_names_have_relationships_of_their_own,
    ]
}

async fn marks(driver: &Driver) -> Vec<Option<Timestamp>> {
    let all = driver.receipts(ReceiptFilter::All, EVERYTHING).await;
    all.iter().map(|found| found.delivered_at).collect()
}

async fn a_delivery_mark_is_set_once_and_stays(mut driver: Driver) {
    for _ in 0..3 {
        driver.create(echo()).await;
    }
    assert_eq!(marks(&driver).await, [None, None, None]);
    let first = driver.now;
    driver.deliver(vec![1, 3]).await;
    driver.wait_ms(1_000);
    let second = driver.now;
    driver.deliver(vec![1, 2]).await;
    let expected = [Some(first), Some(second), Some(first)];
    assert_eq!(marks(&driver).await, expected);
    for receipt in driver.ledger().await {
        let found = driver.store().receipt(driver.tenant, receipt.id).await;
        let place = receipt.seq() as usize - 1;
        assert_eq!(found.unwrap().unwrap().delivered_at, expected[place]);
    }
    let inbox = ReceiptFilter::To(agent("alice").key());
    let listed = driver.receipts(inbox, EVERYTHING).await;
    let listed: Vec<_> = listed.iter().map(|found| found.delivered_at).collect();
    assert_eq!(listed, expected);
}

async fn a_delivery_mark_changes_nothing_about_the_receipt(mut driver: Driver) {
    driver.create(echo()).await;
    let before = driver.ledger().await;
    driver.deliver(vec![1]).await;
    assert_eq!(driver.ledger().await, before);
    assert_eq!(driver.load(ReadSet::default()).await.head, 1);
    assert_eq!(driver.open(&agent("alice")).await, [1]);
}

async fn a_relationship_is_kept_as_it_was_seen_last(mut driver: Driver) {
    let key = agent("alice").key();
    let store = std::sync::Arc::clone(driver.store());
    let known = store.relationship(driver.tenant, key.clone()).await;
    assert_eq!(known.unwrap(), None);
    let first = driver.now;
    driver.see(agent("alice")).await;
    driver.wait_ms(5_000);
    let from_laptop = Principal {
        instance_id: Some("laptop".into()),
        ..agent("alice")
    };
    let seen = driver.see(from_laptop.clone()).await;
    let known = store.relationship(driver.tenant, key.clone()).await;
    let known = known.unwrap().unwrap();
    assert_eq!(known, seen);
    assert_eq!(known.principal, from_laptop);
    assert_eq!(known.first_seen_at, first);
    assert_eq!(known.last_seen_at, driver.now);
    assert_eq!(known.sessions_count, 2);
    assert_eq!(known.instances.len(), 2);
    let again = driver.see(agent("alice")).await;
    assert_eq!(again.sessions_count, 2, "the instance was there before");
    let known = store.relationship(driver.tenant, key.clone()).await;
    let known = known.unwrap().unwrap();
    assert_eq!(known, again);
    let reads = ReadSet {
        relationship: Some(key),
        ..ReadSet::default()
    };
    assert_eq!(driver.load(reads).await.relationship, Some(known));
}

async fn principals_with_similar_names_have_relationships_of_their_own(mut driver: Driver) {
    let people = [
        agent("alice"),
        agent("alic"),
        agent("Alice"),
        worker("alice"),
        Principal::new(PrincipalKind::Human, "alice"),
        Principal::system(),
        Principal::new(PrincipalKind::System, "other"),
    ];
    for principal in &people {
        driver.wait_ms(1);
        driver.see(principal.clone()).await;
    }
    let mut seen_at = Vec::new();
    for principal in &people {
        let known = driver.store().relationship(driver.tenant, principal.key());
        let known = known.await.unwrap().unwrap();
        assert_eq!(known.principal, *principal);
        assert_eq!(known.sessions_count, 1);
        seen_at.push(known.first_seen_at);
    }
    assert!(seen_at.is_sorted_by(|a, b| a < b));
}
