//! Open obligations: the index that a store keeps, and the ledger that is the truth.

use std::collections::BTreeSet;

use asyncgate_core::{ObligationKey, obligation, task::NewTask};

use super::{Case, Driver, agent, bare, cases, echo, failure, proven};
use crate::SeqPage;

pub(super) fn cases() -> Vec<Case> {
    cases![
        an_obligation_is_open_until_a_receipt_discharges_it,
        the_index_agrees_with_the_ledger,
        pages_of_any_size_give_every_obligation_once,
        a_reader_with_a_cursor_skips_nothing_while_others_discharge,
    ]
}

fn owned_by(owner: &str) -> NewTask {
    NewTask {
        owner: agent(owner),
        ..echo()
    }
}

async fn an_obligation_is_open_until_a_receipt_discharges_it(mut driver: Driver) {
    let alice = agent("alice");
    for outcome in ["proven", "late", "failed", "canceled"] {
        let id = driver.create(echo()).await;
        let (_, hold) = driver.lease().await;
        let open = [id.seq()];
        assert_eq!(driver.open(&alice).await, open);
        match outcome {
            "proven" => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            "late" => {
                driver.complete(&hold, id, bare()).await.unwrap();
                assert_eq!(driver.open(&alice).await, open, "no proof yet");
                driver.complete(&hold, id, proven()).await.unwrap();
            }
            "failed" => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            _ => drop(driver.cancel(id).await.unwrap()),
        }
        assert!(driver.open(&alice).await.is_empty(), "{outcome}");
    }
}

async fn the_index_agrees_with_the_ledger(mut driver: Driver) {
    let owners = ["alice", "ali", "bert"];
    for n in 0..18 {
        let id = driver.create(owned_by(owners[n % 3])).await;
        let (_, hold) = driver.lease().await;
        match n % 5 {
            0 => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            1 => drop(driver.complete(&hold, id, bare()).await.unwrap()),
            2 => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            3 => drop(driver.cancel(id).await.unwrap()),
            _ => {}
        }
        let truth: BTreeSet<_> = obligation::open(&driver.ledger().await)
            .into_iter()
            .collect();
        let mut index = BTreeSet::new();
        for owner in owners {
            for seq in driver.open(&agent(owner)).await {
                let owner = agent(owner).key();
                index.insert(ObligationKey { owner, seq });
            }
        }
        assert_eq!(index, truth);
    }
}

async fn page(driver: &Driver, after: u64, limit: usize) -> Vec<u64> {
    let page = SeqPage { after, limit };
    let owner = agent("alice").key();
    let found = driver.store().obligations(driver.tenant, owner, page).await;
    found
        .unwrap()
        .iter()
        .map(|found| found.receipt.seq())
        .collect()
}

async fn pages_of_any_size_give_every_obligation_once(mut driver: Driver) {
    for n in 0..20 {
        let owner = if n % 3 == 0 { "bert" } else { "alice" };
        driver.create(owned_by(owner)).await;
    }
    let all = driver.open(&agent("alice")).await;
    assert_eq!(all.len(), 13);
    for limit in [1, 2, 5, 13, 20] {
        let (mut read, mut after) = (Vec::new(), 0);
        loop {
            let found = page(&driver, after, limit).await;
            assert!(found.len() <= limit);
            let Some(last) = found.last() else { break };
            after = *last;
            read.extend(found);
        }
        assert_eq!(read, all, "by {limit}");
    }
    assert!(page(&driver, 0, 0).await.is_empty());
    assert!(page(&driver, (1 << 44) - 1, 5).await.is_empty());
}

async fn a_reader_with_a_cursor_skips_nothing_while_others_discharge(mut driver: Driver) {
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(driver.create(echo()).await);
    }
    let first = page(&driver, 0, 4).await;
    assert_eq!(first, [1, 2, 3, 4]);
    // The first was read, the second was not, and the third is new.
    driver.cancel(tasks[1]).await.unwrap();
    driver.cancel(tasks[6]).await.unwrap();
    let new = driver.create(echo()).await;
    let rest = page(&driver, 4, 100).await;
    assert_eq!(rest, [5, 6, 8, 9, 10, new.seq()]);
}
