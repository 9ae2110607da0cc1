//! Receipts: every filter, in ledger order, in pages that neither skip nor repeat.

use std::sync::Arc;

use asyncgate_core::{
    Head, Link, Principal, PrincipalKind, Receipt, ReceiptType, TaskId,
    task::{Hold, NewTask},
};

use super::{
    Case, Driver, agent, bare, cases, driver::EVERYTHING, echo, failure, json, proven, worker,
};
use crate::{ReadSet, ReceiptFilter, SeqPage};

pub(super) fn cases() -> Vec<Case> {
    cases![
        receipts_come_back_as_they_were_decided,
        every_filter_lists_what_matches_in_ledger_order,
        pages_of_any_size_give_every_receipt_once,
        a_reader_with_a_cursor_skips_nothing_while_others_write,
        a_page_after_the_end_is_empty,
        an_addressee_is_the_same_from_every_instance,
        addressees_with_similar_names_stay_apart,
        an_acknowledgement_names_its_receipt,
        an_acknowledgement_is_found_again,
        the_newest_receipts_come_in_ledger_order,
        every_receipt_is_linked_to_the_one_before_it,
        the_head_is_the_last_receipt_and_the_number_of_open_obligations,
    ]
}

/// Writes a ledger with every type of receipt, for several owners, tasks and leases.
async fn story(driver: &mut Driver) -> Vec<(TaskId, Hold)> {
    let mut holds = Vec::new();
    for (n, owner) in ["alice", "bert", "alice", "zoe"].into_iter().enumerate() {
        let owner = agent(owner);
        driver.create(NewTask { owner, ..echo() }).await;
        let (id, first) = driver.lease().await;
        holds.push((id, first.clone()));
        match n {
            0 => {
                driver.wait_ms(300_000);
                driver.sweep().await;
            }
            1 => driver.release(&first, id).await.unwrap(),
            _ => {
                driver.fail(&first, id, failure(true)).await.unwrap();
                driver.wait_ms(30_000);
                driver.sweep().await;
            }
        }
        let (_, second) = driver.lease().await;
        holds.push((id, second.clone()));
        driver.start(&second, id).await.unwrap();
        driver.progress(&second, id, json("50")).await.unwrap();
        for _ in 0..11 {
            driver.renew(&second, id, 300_000).await.unwrap();
        }
        match n {
            0 => drop(driver.complete(&second, id, proven()).await.unwrap()),
            1 => {
                driver.complete(&second, id, bare()).await.unwrap();
                driver.complete(&second, id, proven()).await.unwrap();
            }
            2 => drop(driver.fail(&second, id, failure(false)).await.unwrap()),
            _ => drop(driver.cancel(id).await.unwrap()),
        }
    }
    let first = driver.ledger().await[0].id;
    driver.acknowledge(first, agent("alice")).await.unwrap();
    driver.sign().await;
    holds
}

fn places(receipts: &[crate::DeliveredReceipt]) -> Vec<u64> {
    receipts.iter().map(|found| found.receipt.seq()).collect()
}

async fn filters(driver: &mut Driver) -> Vec<ReceiptFilter> {
    let mut filters = vec![ReceiptFilter::All];
    for (task, _) in story(driver).await {
        filters.push(ReceiptFilter::Task(task));
    }
    let people = ["alice", "bert", "zoe", "nobody"].map(agent);
    for principal in people.iter().chain([&Principal::system()]) {
        filters.push(ReceiptFilter::To(principal.key()));
    }
    filters.extend(ReceiptType::ALL.map(ReceiptFilter::Type));
    filters
}

async fn receipts_come_back_as_they_were_decided(mut driver: Driver) {
    driver.create(echo()).await;
    let (id, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    let decided = driver.decided().receipts;
    assert_eq!(decided.len(), 2);
    let ledger = driver.ledger().await;
    for decided in decided {
        let stored = &ledger[decided.seq() as usize - 1];
        assert_eq!(*stored, decided);
        assert_eq!(stored.hash(), decided.hash());
        assert_eq!(stored.key(), decided.key());
        assert_eq!(stored.body.text(), decided.body.text());
        let found = driver.store().receipt(driver.tenant, decided.id).await;
        assert_eq!(found.unwrap().unwrap().receipt, decided);
    }
}

async fn every_filter_lists_what_matches_in_ledger_order(mut driver: Driver) {
    let filters = filters(&mut driver).await;
    let ledger = driver.ledger().await;
    let types: std::collections::BTreeSet<_> = ledger.iter().map(|r| r.receipt_type).collect();
    assert_eq!(types.len(), ReceiptType::ALL.len(), "a whole story");
    for filter in filters {
        let expected: Vec<&Receipt> = ledger.iter().filter(|r| filter.matches(r)).collect();
        let found = driver.receipts(filter.clone(), EVERYTHING).await;
        let found: Vec<&Receipt> = found.iter().map(|found| &found.receipt).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn pages_of_any_size_give_every_receipt_once(mut driver: Driver) {
    for filter in filters(&mut driver).await {
        let all = places(&driver.receipts(filter.clone(), EVERYTHING).await);
        for limit in [1, 2, 7] {
            let (mut read, mut after) = (Vec::new(), 0);
            loop {
                let page = SeqPage { after, limit };
                let found = places(&driver.receipts(filter.clone(), page).await);
                assert!(found.len() <= limit);
                let Some(last) = found.last() else { break };
                after = *last;
                read.extend(found);
            }
            assert_eq!(read, all, "{filter:?} by {limit}");
        }
    }
}

async fn a_reader_with_a_cursor_skips_nothing_while_others_write(mut driver: Driver) {
    let alice = ReceiptFilter::To(agent("alice").key());
    let (mut read, mut after) = (Vec::new(), 0);
    for _ in 0..10 {
        driver.create(echo()).await;
        let (id, hold) = driver.lease().await;
        driver.complete(&hold, id, proven()).await.unwrap();
        let page = SeqPage { after, limit: 2 };
        let found = places(&driver.receipts(alice.clone(), page).await);
        assert_eq!(found.len(), 2);
        after = found[1];
        read.extend(found);
    }
    let rest = SeqPage {
        after,
        limit: 1_000,
    };
    read.extend(places(&driver.receipts(alice.clone(), rest).await));
    let all = places(&driver.receipts(alice, EVERYTHING).await);
    assert_eq!(read, all);
    assert_eq!(all.len(), 30);
}

async fn a_page_after_the_end_is_empty(mut driver: Driver) {
    for filter in filters(&mut driver).await {
        let head = driver.ledger().await.len() as u64;
        for after in [head, head + 1, (1 << 44) - 1] {
            let page = SeqPage { after, limit: 10 };
            let found = driver.receipts(filter.clone(), page).await;
            assert!(found.is_empty(), "{filter:?} after {after}");
        }
        let none = SeqPage { after: 0, limit: 0 };
        assert!(driver.receipts(filter, none).await.is_empty());
    }
}

async fn an_addressee_is_the_same_from_every_instance(mut driver: Driver) {
    for instance in [None, Some("laptop"), Some("phone")] {
        let owner = Principal {
            instance_id: instance.map(Into::into),
            ..agent("alice")
        };
        driver.create(NewTask { owner, ..echo() }).await;
    }
    let inbox = ReceiptFilter::To(agent("alice").key());
    let found = driver.receipts(inbox, EVERYTHING).await;
    assert_eq!(places(&found), [1, 2, 3]);
    let instances: Vec<_> = found
        .iter()
        .map(|found| found.receipt.to.instance_id.as_deref())
        .collect();
    assert_eq!(instances, [None, Some("laptop"), Some("phone")]);
}

async fn addressees_with_similar_names_stay_apart(mut driver: Driver) {
    let mut people = vec![Principal::system()];
    for kind in PrincipalKind::ALL {
        for id in ["a", "aa", "A", "ä", "a/a", "", "asyncgate"] {
            people.push(Principal::new(kind, id));
        }
    }
    people.sort();
    people.dedup();
    for owner in &people {
        let owner = owner.clone();
        driver.create(NewTask { owner, ..echo() }).await;
    }
    for (n, owner) in (1..).zip(&people) {
        let found = driver.receipts(ReceiptFilter::To(owner.key()), EVERYTHING);
        assert_eq!(places(&found.await), [n], "{owner:?}");
        assert_eq!(driver.open(owner).await, [n], "{owner:?}");
    }
}

async fn an_acknowledgement_names_its_receipt(mut driver: Driver) {
    driver.create(echo()).await;
    let assigned = driver.ledger().await[0].clone();
    driver
        .acknowledge(assigned.id, agent("alice"))
        .await
        .unwrap();
    let acknowledged = driver.ledger().await[1].clone();
    assert_eq!(acknowledged.parents, [assigned.id]);
    assert_eq!(driver.open(&agent("alice")).await, [1], "it moves nothing");
}

async fn an_acknowledgement_is_found_again(mut driver: Driver) {
    let mut laptop = agent("alice");
    laptop.instance_id = Some("laptop".into());
    for _ in 0..2 {
        driver.create(echo()).await;
    }
    let about_no_task = driver.sign().await;
    let ids: Vec<_> = driver.ledger().await.iter().map(|r| r.id).collect();
    assert_eq!(ids[2], about_no_task);
    for id in ids {
        let first = driver.acknowledge(id, agent("alice")).await.unwrap();
        for by in [agent("alice"), laptop.clone()] {
            let again = driver.acknowledge(id, by).await.unwrap();
            assert_eq!(again, first, "an instance is the same principal");
        }
        let other = driver.acknowledge(id, worker("alice")).await.unwrap();
        assert_ne!(other, first);
        assert_eq!(
            driver.acknowledge(id, worker("alice")).await.unwrap(),
            other
        );
        // An acknowledgement is a receipt like others, and can be acknowledged.
        let of_it = driver.acknowledge(first, agent("alice")).await.unwrap();
        assert_ne!(of_it, first);
    }
    assert_eq!(driver.ledger().await.len(), 3 + 3 * 3);
}

async fn the_newest_receipts_come_in_ledger_order(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    for n in 0..5 {
        driver.create(echo()).await;
        let owner = agent(&format!("other {n}"));
        driver.create(NewTask { owner, ..echo() }).await;
        other.create(echo()).await;
    }
    for (limit, expected) in [
        (2, &[7, 9][..]),
        (5, &[1, 3, 5, 7, 9]),
        (9, &[1, 3, 5, 7, 9]),
    ] {
        let newest = driver
            .store()
            .newest_receipts(driver.tenant, agent("alice").key(), limit);
        assert_eq!(places(&newest.await.unwrap()), expected);
    }
    let nobody = driver
        .store()
        .newest_receipts(driver.tenant, agent("nobody").key(), 9);
    assert!(nobody.await.unwrap().is_empty());
}

async fn every_receipt_is_linked_to_the_one_before_it(mut driver: Driver) {
    let filters = filters(&mut driver).await;
    let mut links = vec![Link::START];
    for found in driver.receipts(ReceiptFilter::All, EVERYTHING).await {
        let link = links[links.len() - 1].then(driver.tenant, &found.receipt);
        assert_eq!(found.link, link, "at place {}", found.receipt.seq());
        links.push(link);
        let alone = driver.store().receipt(driver.tenant, found.receipt.id);
        assert_eq!(alone.await.unwrap(), Some(found));
    }
    assert_eq!(driver.head().await.link, links[links.len() - 1]);
    for filter in filters {
        for found in driver.receipts(filter.clone(), EVERYTHING).await {
            let place = found.receipt.seq() as usize;
            assert_eq!(found.link, links[place], "{filter:?}");
        }
    }
}

async fn the_head_is_the_last_receipt_and_the_number_of_open_obligations(mut driver: Driver) {
    assert_eq!(driver.head().await, Head::default());
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    other.create(echo()).await;
    for n in 0..4 {
        let (id, late) = (driver.create(echo()).await, driver.create(echo()).await);
        let (_, hold) = driver.lease().await;
        driver.complete(&hold, id, proven()).await.unwrap();
        let (_, hold) = driver.lease().await;
        driver.complete(&hold, late, bare()).await.unwrap();
        if n % 2 == 0 {
            driver.complete(&hold, late, proven()).await.unwrap();
        }
        let head = driver.head().await;
        let ledger = driver.receipts(ReceiptFilter::All, EVERYTHING).await;
        assert_eq!(head.seq, ledger.len() as u64);
        assert_eq!(head.link, ledger[ledger.len() - 1].link);
        let open = driver.open(&agent("alice")).await;
        assert_eq!(head.open_obligations, open.len() as u64);
        assert_eq!(driver.load(ReadSet::default()).await.ledger, head);
    }
    assert_eq!(other.head().await.seq, 1);
}
