//! Claiming: by priority, then age, over all classes that a worker can serve.

use asyncgate_core::{
    Reach, Task, TaskId,
    task::{NewTask, Requirements, Status},
};

use super::{Case, Driver, cases, echo, failure};

pub(super) fn cases() -> Vec<Case> {
    cases![
        claims_come_by_priority_then_age_over_several_classes,
        the_lowest_and_highest_priorities_are_in_order,
        required_capabilities_must_all_be_offered,
        only_accepted_types_are_given,
        a_claim_gives_at_most_its_limit,
        a_claim_of_nothing_leaves_every_task_claimable,
        what_is_not_ready_is_not_offered,
        a_task_that_comes_back_has_its_old_place_in_line,
        a_class_that_ran_empty_fills_again,
        many_classes_are_merged,
        odd_names_of_types_and_capabilities_stay_apart,
    ]
}

fn of(task_type: &str, capabilities: &[&str], priority: i32) -> NewTask {
    NewTask {
        task_type: task_type.to_owned(),
        requirements: Requirements::new(names(capabilities), Vec::new()),
        priority: Some(priority),
        ..echo()
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn offering(capabilities: &[&str]) -> Reach {
    Reach::new(names(capabilities), None)
}

fn accepting(types: &[&str]) -> Reach {
    Reach::new(Vec::new(), Some(names(types)))
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

async fn claims_come_by_priority_then_age_over_several_classes(mut driver: Driver) {
    let mut created = Vec::new();
    for (n, priority) in [0, 5, 0, -3, 5, 9, 0, -3, 9, 1].into_iter().enumerate() {
        let new = match n % 3 {
            0 => of("echo", &[], priority),
            1 => of("http", &["net"], priority),
            _ => of("echo", &["gpu", "net"], priority),
        };
        created.push((priority, driver.create(new).await));
    }
    created.sort_by_key(|(priority, id)| (-priority, id.seq()));
    let expected: Vec<TaskId> = created.into_iter().map(|(_, id)| id).collect();
    let mut claimed = Vec::new();
    for limit in [1, 2, 3, 1, 10] {
        let some = driver.claim(offering(&["gpu", "net"]), limit).await;
        claimed.extend(ids(&some));
    }
    assert_eq!(claimed, expected);
}

async fn the_lowest_and_highest_priorities_are_in_order(mut driver: Driver) {
    let mut created = Vec::new();
    for priority in [0, i32::MIN, i32::MAX, -1, 1] {
        created.push((priority, driver.create(of("echo", &[], priority)).await));
    }
    created.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let claimed = driver.claim(offering(&[]), 5).await;
    let expected: Vec<TaskId> = created.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids(&claimed), expected);
}

async fn required_capabilities_must_all_be_offered(mut driver: Driver) {
    let none = driver.create(of("echo", &[], 0)).await;
    let gpu = driver.create(of("echo", &["gpu"], 0)).await;
    let both = driver.create(of("echo", &["net", "gpu"], 0)).await;
    assert_eq!(ids(&driver.claim(offering(&[]), 9).await), [none]);
    assert_eq!(ids(&driver.claim(offering(&["net", "GPU"]), 9).await), []);
    assert_eq!(ids(&driver.claim(offering(&["gpu"]), 9).await), [gpu]);
    let more = offering(&["x", "gpu", "net"]);
    assert_eq!(ids(&driver.claim(more, 9).await), [both]);
}

async fn only_accepted_types_are_given(mut driver: Driver) {
    let echo = driver.create(of("echo", &[], 0)).await;
    let http = driver.create(of("http", &[], 9)).await;
    let sleep = driver.create(of("sleep", &[], 5)).await;
    assert_eq!(ids(&driver.claim(accepting(&[]), 9).await), []);
    assert_eq!(ids(&driver.claim(accepting(&["ECHO", "ech"]), 9).await), []);
    let two = accepting(&["echo", "sleep"]);
    assert_eq!(ids(&driver.claim(two, 9).await), [sleep, echo]);
    assert_eq!(ids(&driver.claim(offering(&[]), 9).await), [http]);
}

async fn a_claim_gives_at_most_its_limit(mut driver: Driver) {
    for _ in 0..7 {
        driver.create(echo()).await;
    }
    for (limit, given) in [(3, 3), (1, 1), (100, 3), (5, 0)] {
        assert_eq!(driver.claim(offering(&[]), limit).await.len(), given);
    }
}

async fn a_claim_of_nothing_leaves_every_task_claimable(mut driver: Driver) {
    let id = driver.create(echo()).await;
    assert!(driver.claim(offering(&[]), 0).await.is_empty());
    assert_eq!(ids(&driver.claim(offering(&[]), 1).await), [id]);
}

async fn what_is_not_ready_is_not_offered(mut driver: Driver) {
    let delayed = NewTask {
        delay_ms: 60_000,
        ..echo()
    };
    driver.create(delayed).await;
    let (canceled, leased) = (driver.create(echo()).await, driver.create(echo()).await);
    driver.cancel(canceled).await.unwrap();
    assert_eq!(driver.lease().await.0, leased);
    driver.wait_ms(60_000);
    assert!(driver.claim(offering(&[]), 9).await.is_empty(), "not swept");
    assert_eq!(driver.sweep().await.readied, 1);
    assert_eq!(driver.claim(offering(&[]), 9).await.len(), 1);
}

/// Age is the time of creation: the task that waited longest goes first, also after its worker was lost.
async fn a_task_that_comes_back_has_its_old_place_in_line(mut driver: Driver) {
    let mut created = Vec::new();
    for _ in 0..4 {
        created.push(driver.create(echo()).await);
    }
    let (released, hold) = driver.lease().await;
    let (expired, _) = driver.lease().await;
    let (retried, failed) = driver.lease().await;
    driver.release(&hold, released).await.unwrap();
    driver.fail(&failed, retried, failure(true)).await.unwrap();
    driver.wait_ms(300_000);
    let swept = driver.sweep().await;
    assert_eq!((swept.readied, swept.expired), (1, 1));
    assert_eq!([released, expired, retried], created[..3]);
    assert_eq!(ids(&driver.claim(offering(&[]), 9).await), created);
    for id in created {
        let status = driver.task(id).await.unwrap().status();
        assert_eq!(status, Status::Leased);
    }
}

async fn a_class_that_ran_empty_fills_again(mut driver: Driver) {
    for _ in 0..3 {
        let id = driver.create(of("echo", &["gpu"], 0)).await;
        assert_eq!(ids(&driver.claim(offering(&["gpu"]), 9).await), [id]);
        assert_eq!(ids(&driver.claim(offering(&["gpu"]), 9).await), []);
    }
}

async fn many_classes_are_merged(mut driver: Driver) {
    let mut created = Vec::new();
    for n in 0..120 {
        let task_type = format!("type-{}", n % 40);
        created.push(driver.create(of(&task_type, &[], n % 3)).await);
    }
    created.sort_by_key(|id| (-((id.seq() as i64 - 1) % 3), id.seq()));
    let mut claimed = Vec::new();
    while claimed.len() < created.len() {
        let some = driver.claim(offering(&[]), 7).await;
        assert!(!some.is_empty());
        claimed.extend(ids(&some));
    }
    assert_eq!(claimed, created);
}

/// Names that a careless encoding would take for one another.
async fn odd_names_of_types_and_capabilities_stay_apart(mut driver: Driver) {
    let sets: [&[&str]; 9] = [
        &["a", "b"],
        &["a,b"],
        &["a\",\"b"],
        &["[\"a\"]"],
        &["a\u{0}b"],
        &["ab"],
        &[""],
        &["ä"],
        &["a\u{308}"],
    ];
    for capabilities in sets {
        driver.create(of("echo", capabilities, 0)).await;
    }
    for capabilities in sets {
        let given = driver.claim(offering(capabilities), 9).await;
        assert_eq!(given.len(), 1, "{capabilities:?}");
        let required = &given[0].spec.requirements.capabilities;
        assert_eq!(*required, names(capabilities));
    }
    let types = ["", "echo", "Echo", "echo ", "e\u{0}cho", "écho", "'; DROP"];
    for task_type in types {
        driver.create(of(task_type, &[], 0)).await;
    }
    for task_type in types {
        let given = driver.claim(accepting(&[task_type]), 9).await;
        assert_eq!(given.len(), 1, "{task_type:?}");
        assert_eq!(given[0].spec.task_type, task_type);
    }
}
