//! A file of schema version 6, which has no indexes for lists of tasks: it is read as it stands, and gets
//! them when it is brought up to date.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod older;

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    ReceiptType,
    task::{NewTask, Status},
};
use asyncgate_store::{
    ReceiptFilter, SeqPage, TaskFilter,
    conformance::{Driver, agent, echo, failure, proven},
};
use asyncgate_store_sqlite::{Options, SqliteFile, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> Driver {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    Driver::new(Arc::new(store))
}

/// Checks the file as `asyncgate verify --data-dir` does.
fn verify(path: &Path) {
    let mut file = SqliteFile::open(path).unwrap();
    file.check_pages(|| {}).unwrap();
    for tenant in file.tenants().unwrap() {
        file.check_tasks(tenant, |_| Ok(()), |_| {}).unwrap();
    }
    file.check_indexes().unwrap();
}

#[tokio::test]
async fn lists_of_an_older_file_are_whole_once_it_is_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    for n in 0..12 {
        let new = NewTask {
            owner: agent(["alice", "bert"][n % 2]),
            task_type: ["echo", "http", "sum"][n % 3].to_owned(),
            ..echo()
        };
        let id = driver.create(new).await;
        match n % 4 {
            0 => drop(driver.cancel(id).await.unwrap()),
            1 | 2 => {
                let (_, hold) = driver.lease().await;
                if n % 4 == 1 {
                    driver.complete(&hold, id, proven()).await.unwrap();
                } else {
                    driver.fail(&hold, id, failure(false)).await.unwrap();
                }
            }
            _ => {
                driver.lease().await;
            }
        }
    }
    driver.detach();
    drop(driver);
    older::take_back(&Connection::open(&path).unwrap(), 6);
    verify(&path);
    let mut driver = open(&path);
    let (store, tenant) = (driver.store(), driver.tenant);
    let whole = TaskFilter {
        limit: 100,
        ..TaskFilter::default()
    };
    let all = store.tasks(tenant, whole.clone()).await.unwrap().tasks;
    assert_eq!(all.len(), 12);
    for status in Status::ALL.into_iter().map(Some).chain([None]) {
        for owner in [None, Some(agent("alice").key())] {
            for task_type in [None, Some("http".to_owned())] {
                let filter = TaskFilter {
                    status,
                    owner: owner.clone(),
                    task_type,
                    ..whole.clone()
                };
                let found = store.tasks(tenant, filter.clone()).await.unwrap().tasks;
                let matching = all.iter().filter(|task| filter.matches(task));
                assert!(found.iter().eq(matching), "{filter:?}");
            }
        }
    }
    let page = SeqPage {
        after: 0,
        limit: 100,
    };
    let assigned = ReceiptFilter::Type(ReceiptType::TaskAssigned);
    assert_eq!(driver.receipts(assigned, page).await.len(), 12);
    let inbox = ReceiptFilter::To(agent("bert").key());
    let inbox = driver.receipts(inbox, page).await;
    assert!(inbox.is_sorted_by_key(|found| found.receipt.seq()));
    assert!(inbox.len() > 6, "assignments and results");
    driver.detach();
    verify(&path);
}
