//! Lists are answered from indexes: a page reads the rows that it returns, and looks at few others.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    TaskId,
    task::{NewTask, Status},
};
use asyncgate_store::{
    ReceiptFilter, SeqPage, TaskFilter, TaskPage,
    conformance::{Driver, agent, echo, json},
};
use asyncgate_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> Driver {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    Driver::new(Arc::new(store))
}

/// Creates tasks side by side, so that they share commits.
async fn create_many(driver: &Driver, count: usize, new: impl Fn(usize) -> NewTask) {
    let mut n = 0;
    while n < count {
        let some = (n..count.min(n + 500)).map(|n| {
            let (mut own, new) = (Driver::new(Arc::clone(driver.store())), new(n));
            tokio::spawn(async move { own.create(new).await })
        });
        let creating: Vec<_> = some.collect();
        n += creating.len();
        for created in creating {
            created.await.unwrap();
        }
    }
}

async fn page(driver: &Driver, filter: &TaskFilter) -> TaskPage {
    let page = driver.store().tasks(driver.tenant, filter.clone()).await;
    page.unwrap()
}

fn ids(page: &TaskPage) -> Vec<TaskId> {
    page.tasks.iter().map(|task| task.id).collect()
}

fn of_type(name: &str) -> NewTask {
    NewTask {
        task_type: name.to_owned(),
        ..echo()
    }
}

/// What has an index is found at once, however many others there are.
#[tokio::test]
async fn one_page_finds_what_stands_behind_thousands_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = open(&dir.path().join("a.db"));
    let rare = NewTask {
        owner: agent("zoe"),
        ..of_type("rare")
    };
    let rare = driver.create(rare).await;
    driver.cancel(rare).await.unwrap();
    create_many(&driver, 4_500, |_| of_type("common")).await;
    let everything = TaskFilter {
        limit: 10,
        ..TaskFilter::default()
    };
    let owner = Some(agent("zoe").key());
    let task_type = Some("rare".to_owned());
    let status = Some(Status::Canceled);
    for filter in [
        TaskFilter {
            owner: owner.clone(),
            ..everything.clone()
        },
        TaskFilter {
            task_type: task_type.clone(),
            ..everything.clone()
        },
        TaskFilter {
            status,
            ..everything.clone()
        },
        TaskFilter {
            owner,
            status,
            task_type,
            ..everything.clone()
        },
    ] {
        let found = page(&driver, &filter).await;
        assert_eq!((ids(&found), found.next), (vec![rare], None), "{filter:?}");
    }
    // Of two ranges that share nothing, the shorter one decides.
    let filter = TaskFilter {
        owner: Some(agent("zoe").key()),
        task_type: Some("common".to_owned()),
        ..everything.clone()
    };
    let found = page(&driver, &filter).await;
    assert_eq!((ids(&found), found.next), (Vec::new(), None));
    let filter = TaskFilter {
        task_type: Some("nope".to_owned()),
        ..everything
    };
    let found = page(&driver, &filter).await;
    assert_eq!((ids(&found), found.next), (Vec::new(), None));
}

/// The tasks of an owner are found without its other receipts, and its live ones without those that have ended.
#[tokio::test]
async fn an_owners_live_task_is_found_behind_thousands_that_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    let live = driver.create(of_type("live")).await;
    create_many(&driver, 2_500, |_| of_type("dead")).await;
    let dead = TaskFilter {
        limit: 1,
        ..TaskFilter::default()
    };
    let mut next = page(&driver, &dead).await;
    while let [task] = &next.tasks[..]
        && task.id != live
    {
        driver.cancel(task.id).await.unwrap();
        let before = next.next;
        next = page(
            &driver,
            &TaskFilter {
                before,
                ..dead.clone()
            },
        )
        .await;
    }
    let filter = TaskFilter {
        owner: Some(agent("alice").key()),
        status: Some(Status::Queued),
        limit: 5,
        ..TaskFilter::default()
    };
    let found = page(&driver, &filter).await;
    assert_eq!((ids(&found), found.next), (vec![live], None));
}

/// A list that passes a task over does not read it: neither a payload in a table of its own nor the row.
#[tokio::test]
async fn what_is_not_returned_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    let large = json(&format!("\"{}\"", "x".repeat(100_000)));
    let wanted = driver.create(of_type("wanted")).await;
    for _ in 0..20 {
        let payload = large.clone();
        driver.create(NewTask { payload, ..echo() }).await;
    }
    driver.create(echo()).await;
    let newest = driver.create(of_type("canceled")).await;
    driver.cancel(newest).await.unwrap();
    // Whoever reads any of the others finds that they are damaged.
    let conn = Connection::open(&path).unwrap();
    conn.execute("DELETE FROM large_payload", []).unwrap();
    conn.execute(
        "UPDATE task SET spec_sum = 1, state_sum = 1 WHERE type = 'echo'",
        [],
    )
    .unwrap();
    let everything = TaskFilter {
        limit: 10,
        ..TaskFilter::default()
    };
    let of_wanted = TaskFilter {
        task_type: Some("wanted".to_owned()),
        ..everything.clone()
    };
    assert_eq!(ids(&page(&driver, &of_wanted).await), [wanted]);
    let succeeded = TaskFilter {
        status: Some(Status::Succeeded),
        ..everything.clone()
    };
    assert!(page(&driver, &succeeded).await.tasks.is_empty());
    let canceled = TaskFilter {
        owner: Some(agent("alice").key()),
        status: Some(Status::Canceled),
        ..everything.clone()
    };
    assert_eq!(ids(&page(&driver, &canceled).await), [newest]);
    let damaged = driver.store().tasks(driver.tenant, everything).await;
    assert!(damaged.is_err(), "the others are damaged");
    // Nor does a look at whose a task is.
    let parties = driver.store().parties(driver.tenant, newest).await;
    assert_eq!(parties.unwrap().unwrap().owner, agent("alice").key());
}

/// A list whose condition has no index ends its page after some thousand tasks, and goes on behind them.
#[tokio::test]
async fn a_status_without_an_index_is_looked_for_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = open(&dir.path().join("a.db"));
    let oldest = driver.create(echo()).await;
    driver.lease().await;
    create_many(&driver, 4_500, |_| echo()).await;
    let mut filter = TaskFilter {
        status: Some(Status::Leased),
        limit: 10,
        ..TaskFilter::default()
    };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = page(&driver, &filter).await;
        found.extend(ids(&page));
        pages += 1;
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (vec![oldest], 3));
}

/// An id that has the place of a task and is not its id does not cost a look at the task's receipts.
#[tokio::test]
async fn the_receipts_of_a_task_are_found_by_its_whole_id() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    let id = driver.create(echo()).await;
    let page = SeqPage { after: 0, limit: 9 };
    let of = |id| driver.receipts(ReceiptFilter::Task(id), page);
    assert_eq!(of(id).await.len(), 1);
    let mut bytes = *id.as_bytes();
    bytes[15] ^= 1;
    assert!(of(TaskId::from_bytes(bytes)).await.is_empty());
}
