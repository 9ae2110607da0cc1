//! Comparing two stores: every read, with JSON as text, not only as a value.

use asyncgate_core::{
    Changes, Json, ObligationKey, Principal, Receipt, ReceiptType, Task, Timestamp, obligation,
    task::Status,
};
use asyncgate_store::{
    DeliveredReceipt, Parties, ReceiptFilter, SeqPage, TaskFilter,
    conformance::{Driver, agent},
};

use crate::history::{Known, people};

const EVERYTHING: SeqPage = SeqPage {
    after: 0,
    limit: 100_000,
};

/// What two decisions wanted written.
pub fn changes(found: &Changes, expected: &Changes) {
    assert_eq!(found, expected);
    for (found, expected) in found.tasks.iter().zip(&expected.tasks) {
        assert_eq!(texts(&found.task), texts(&expected.task));
    }
}

/// Every read of the tenant, and of the store as a whole.
pub async fn everything(found: &Driver, expected: &Driver, known: &Known) {
    tasks(found, expected, known).await;
    receipts(found, expected, known).await;
    obligations(found, expected).await;
    for principal in people() {
        let left = found.store().relationship(found.tenant, principal.key());
        let right = expected
            .store()
            .relationship(expected.tenant, principal.key());
        assert_eq!(left.await.unwrap(), right.await.unwrap());
        for limit in [1, 4, 1_000] {
            let left = found
                .store()
                .newest_receipts(found.tenant, principal.key(), limit);
            let right = expected
                .store()
                .newest_receipts(expected.tenant, principal.key(), limit);
            assert_eq!(left.await.unwrap(), right.await.unwrap());
        }
    }
    deadlines(found, expected).await;
    assert_eq!(found.head().await, expected.head().await);
    let usage = found.store().usage(found.tenant, found.now).await;
    let expected_usage = expected.store().usage(expected.tenant, expected.now);
    assert_eq!(usage.unwrap(), expected_usage.await.unwrap());
    let depths = found.store().depths().await.unwrap();
    assert_eq!(depths, expected.store().depths().await.unwrap());
    assert_eq!(found.store().last_time(), expected.store().last_time());
}

async fn tasks(found: &Driver, expected: &Driver, known: &Known) {
    for id in known.tasks() {
        let (left, right) = (found.task(id).await, expected.task(id).await);
        assert_eq!(left, right);
        assert_eq!(left.as_ref().map(texts), right.as_ref().map(texts));
        let parties = found.store().parties(found.tenant, id).await.unwrap();
        assert_eq!(parties, right.as_ref().map(Parties::of));
    }
    let owners = people().into_iter().map(|owner| Some(owner.key()));
    let statuses: Vec<_> = Status::ALL.into_iter().map(Some).chain([None]).collect();
    for owner in owners.chain([None]) {
        for status in &statuses {
            let filter = TaskFilter {
                owner: owner.clone(),
                status: *status,
                limit: 3,
                ..TaskFilter::default()
            };
            let left = listed(found, filter.clone()).await;
            assert_eq!(left, listed(expected, filter).await);
        }
    }
}

async fn listed(driver: &Driver, mut filter: TaskFilter) -> Vec<Task> {
    let mut read = Vec::new();
    loop {
        let page = driver.store().tasks(driver.tenant, filter.clone()).await;
        let page = page.unwrap();
        read.extend(page.tasks);
        filter.before = page.next;
        if filter.before.is_none() {
            return read;
        }
    }
}

async fn receipts(found: &Driver, expected: &Driver, known: &Known) {
    let mut filters = vec![ReceiptFilter::All];
    let addressees = people().into_iter().chain([Principal::system()]);
    filters.extend(addressees.map(|to| ReceiptFilter::To(to.key())));
    filters.extend(ReceiptType::ALL.map(ReceiptFilter::Type));
    filters.extend(known.tasks().map(ReceiptFilter::Task));
    for filter in filters {
        for page in [EVERYTHING, SeqPage { after: 7, limit: 5 }] {
            let left = found.receipts(filter.clone(), page).await;
            let right = expected.receipts(filter.clone(), page).await;
            assert_eq!(left, right, "{filter:?}");
            let said = |all: &[DeliveredReceipt]| -> Vec<_> {
                let said = |one: &DeliveredReceipt| {
                    (one.receipt.hash(), one.receipt.body.text().to_owned())
                };
                all.iter().map(said).collect()
            };
            assert_eq!(said(&left), said(&right), "{filter:?}");
        }
    }
}

async fn obligations(found: &Driver, expected: &Driver) {
    let mut index = Vec::new();
    for owner in [agent("alice"), agent("ali"), people().remove(3)] {
        let open = found.open(&owner).await;
        assert_eq!(open, expected.open(&owner).await);
        let owner = owner.key();
        index.extend(open.into_iter().map(|seq| ObligationKey {
            owner: owner.clone(),
            seq,
        }));
    }
    index.sort_by_key(|key| key.seq);
    let ledger: Vec<Receipt> = found.ledger().await;
    assert_eq!(index, obligation::open(&ledger), "index and ledger");
}

/// Two stores may list tasks with one deadline in different orders.
async fn deadlines(found: &Driver, expected: &Driver) {
    let next = found.store().next_due().await.unwrap();
    assert_eq!(next, expected.store().next_due().await.unwrap());
    for ahead in [0, 30_000, 300_000, 10_000_000] {
        let until: Timestamp = found.now.plus_millis(ahead);
        let mut left = found.store().due(until, 100_000).await.unwrap();
        let mut right = expected.store().due(until, 100_000).await.unwrap();
        left.sort_unstable();
        right.sort_unstable();
        assert_eq!(left, right);
    }
}

/// Every JSON of a task, as it was written.
fn texts(task: &Task) -> Vec<String> {
    let end = task.end();
    let contract = task.spec.contract.as_ref();
    [
        Some(&task.spec.payload),
        contract.and_then(|contract| contract.success_criteria.as_ref()),
        task.retried_error.as_ref(),
        end.and_then(|end| end.completion_metadata.as_ref()),
        task.progress.as_ref().map(|progress| &progress.value),
        end.and_then(|end| end.result.as_ref()),
        end.and_then(|end| end.error.as_ref()),
        end.and_then(|end| end.artifacts.as_ref()),
        end.and_then(|end| end.delivery_proof.as_ref()),
    ]
    .into_iter()
    .map(|json| json.map_or("", Json::text).to_owned())
    .collect()
}
