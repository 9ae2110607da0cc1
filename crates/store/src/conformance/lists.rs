//! Lists of tasks: newest first, by owner, status and type, in pages that end.

use asyncgate_core::{
    Principal, PrincipalKind, Reach, TaskId,
    task::{NewTask, Status},
};

use super::{Case, Driver, agent, cases, echo, failure, json, proven};
use crate::{MAX_ANSWER_BYTES, TaskFilter};

pub(super) fn cases() -> Vec<Case> {
    cases![
        tasks_are_listed_newest_first,
        every_combination_of_filters_lists_what_matches,
        pages_of_any_size_give_every_task_once,
        a_reader_with_a_cursor_is_not_disturbed_by_new_tasks,
        answers_are_bounded_in_bytes_and_still_give_everything,
    ]
}

/// Returns every page of a list, one after the other.
async fn listed(driver: &Driver, filter: &TaskFilter) -> Vec<TaskId> {
    let (mut filter, mut read) = (filter.clone(), Vec::new());
    loop {
        let page = driver.store().tasks(driver.tenant, filter.clone()).await;
        let page = page.unwrap();
        assert!(page.tasks.len() <= filter.limit);
        assert!(page.tasks.iter().all(|task| filter.matches(task)));
        read.extend(page.tasks.iter().map(|task| task.id));
        let Some(next) = page.next else { return read };
        assert_ne!(Some(next), filter.before, "a cursor must move");
        filter.before = Some(next);
    }
}

/// Makes tasks of several owners and types in every status. Returns them oldest first.
async fn fill(driver: &mut Driver) -> Vec<TaskId> {
    let owners = [
        agent("alice"),
        agent("ali"),
        Principal::new(PrincipalKind::Human, "alice"),
    ];
    let mut created = Vec::new();
    for n in 0..36 {
        let new = NewTask {
            owner: owners[n % 3].clone(),
            task_type: ["echo", "http"][n % 2].to_owned(),
            ..echo()
        };
        let id = driver.create(new).await;
        created.push(id);
        if n % 6 == 0 {
            driver.cancel(id).await.unwrap();
            continue;
        }
        if n % 6 == 1 {
            let reach = asyncgate_core::Reach::default();
            assert_eq!(driver.claim(reach, 1).await[0].id, id);
            continue;
        }
        let (_, hold) = driver.lease().await;
        match n % 6 {
            2 => driver.start(&hold, id).await.unwrap(),
            3 => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            4 => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            _ => drop(driver.fail(&hold, id, failure(true)).await.unwrap()),
        }
    }
    created
}

async fn tasks_are_listed_newest_first(mut driver: Driver) {
    let mut created = fill(&mut driver).await;
    created.reverse();
    let all = TaskFilter {
        limit: 100,
        ..TaskFilter::default()
    };
    assert_eq!(listed(&driver, &all).await, created);
}

async fn every_combination_of_filters_lists_what_matches(mut driver: Driver) {
    let created = fill(&mut driver).await;
    let mut tasks = Vec::new();
    for id in created.iter().rev() {
        tasks.push(driver.task(*id).await.unwrap());
    }
    let owners = [None, Some(agent("alice").key()), Some(agent("no").key())];
    let types = [None, Some("http".to_owned()), Some("htt".to_owned())];
    let statuses = Status::ALL.into_iter().map(Some).chain([None]);
    for status in statuses {
        for owner in &owners {
            for task_type in &types {
                let filter = TaskFilter {
                    owner: owner.clone(),
                    status,
                    task_type: task_type.clone(),
                    before: Some(created[30]),
                    limit: 3,
                };
                let matching = tasks.iter().filter(|task| filter.matches(task));
                let expected: Vec<TaskId> = matching.map(|task| task.id).collect();
                assert_eq!(listed(&driver, &filter).await, expected, "{filter:?}");
            }
        }
    }
}

async fn pages_of_any_size_give_every_task_once(mut driver: Driver) {
    let mut created = fill(&mut driver).await;
    created.reverse();
    for limit in [1, 2, 5, 35, 36, 37] {
        let filter = TaskFilter {
            limit,
            ..TaskFilter::default()
        };
        assert_eq!(listed(&driver, &filter).await, created, "by {limit}");
    }
}

async fn a_reader_with_a_cursor_is_not_disturbed_by_new_tasks(mut driver: Driver) {
    let mut created = fill(&mut driver).await;
    created.reverse();
    let mut filter = TaskFilter {
        limit: 10,
        ..TaskFilter::default()
    };
    let mut read = Vec::new();
    loop {
        let page = driver.store().tasks(driver.tenant, filter.clone()).await;
        let page = page.unwrap();
        read.extend(page.tasks.iter().map(|task| task.id));
        let Some(next) = page.next else { break };
        filter.before = Some(next);
        driver.create(echo()).await;
    }
    assert_eq!(read, created);
}

/// A caller may ask for many tasks; it must not make the server hold all their payloads at once.
async fn answers_are_bounded_in_bytes_and_still_give_everything(mut driver: Driver) {
    let large = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    let most = MAX_ANSWER_BYTES / (1 << 20);
    let mut created = Vec::new();
    for _ in 0..most + 1 {
        let payload = json(&large);
        created.push(driver.create(NewTask { payload, ..echo() }).await);
    }
    let filter = TaskFilter {
        limit: 100,
        ..TaskFilter::default()
    };
    let page = driver.store().tasks(driver.tenant, filter.clone()).await;
    assert_eq!(page.unwrap().tasks.len(), most);
    let mut read = listed(&driver, &filter).await;
    read.reverse();
    assert_eq!(read, created);
    assert_eq!(driver.claim(Reach::default(), 100).await.len(), most);
    assert_eq!(driver.claim(Reach::default(), 100).await.len(), 1);
}
