//! Batches: many calls of one sort in one commit, as if they had come one after the other.

use asyncgate_core::{
    Reach, Rejection, TaskId,
    task::{Answers, Created, Ending, Finished, Hold, Lease, NewTask, Report, Status},
};

use super::{Case, Driver, bare, cases, echo, failure, json, proven, worker};
use crate::{Declared as _, ReadSet};

pub(super) fn cases() -> Vec<Case> {
    cases![
        created_tasks_stand_in_the_order_of_the_batch,
        a_key_that_occurs_twice_stands_for_the_first,
        keys_and_classes_of_earlier_batches_are_known,
        a_refused_creation_leaves_the_others,
        the_same_lease_finished_twice_is_a_repetition,
        a_finish_sees_the_finish_before_it,
        renewals_are_counted_one_by_one,
        a_batch_costs_what_it_touches,
    ]
}

impl Driver {
    /// Creates tasks in one commit.
    pub async fn create_all(&mut self, requests: Vec<NewTask>) -> Answers<Created> {
        let reads = ReadSet::to_create_all(&requests);
        let decided = self.decide(reads, move |env, snapshot| {
            Ok(snapshot.create_all(env, requests.clone()))
        });
        decided.await.unwrap()
    }

    /// Takes reports of the end of tasks in one commit.
    pub async fn finish_all(&mut self, endings: Vec<Ending>) -> Answers<Finished> {
        let reads = ReadSet::to_hold(endings.iter().map(|ending| ending.task_id));
        let decided = self.decide(reads, move |env, snapshot| {
            Ok(snapshot.finish_all(env, endings.clone()))
        });
        decided.await.unwrap()
    }

    /// Renews leases in one commit.
    pub async fn renew_all(&mut self, holds: Vec<(TaskId, Hold)>, ms: i64) -> Answers<Lease> {
        let reads = ReadSet::to_hold(holds.iter().map(|(id, _)| *id));
        let decided = self.decide(reads, move |env, snapshot| {
            Ok(snapshot.renew_all(env, &holds, Some(ms)))
        });
        decided.await.unwrap()
    }
}

fn keyed(key: &str, content: &str) -> NewTask {
    NewTask {
        payload: json(content),
        idempotency_key: Some(key.to_owned()),
        ..echo()
    }
}

fn ids(answers: &Answers<Created>) -> Vec<TaskId> {
    let created = answers.iter().flatten();
    created.map(|created| created.task.id).collect()
}

/// Creates and leases so many tasks.
async fn held(driver: &mut Driver, count: usize) -> Vec<(TaskId, Hold)> {
    driver.create_all(vec![echo(); count]).await;
    let leased = driver.claim(Reach::default(), count).await;
    assert_eq!(leased.len(), count);
    let holds = leased.iter().map(|task| {
        let (worker, lease_id) = (worker("bob"), task.lease().unwrap().id);
        (task.id, Hold { worker, lease_id })
    });
    holds.collect()
}

fn ending((task_id, hold): &(TaskId, Hold), report: Report) -> Ending {
    Ending {
        task_id: *task_id,
        hold: hold.clone(),
        report,
    }
}

async fn created_tasks_stand_in_the_order_of_the_batch(mut driver: Driver) {
    let mut requests = vec![echo(); 1_000];
    requests[7].priority = Some(9);
    let created = ids(&driver.create_all(requests).await);
    assert_eq!(created.len(), 1_000);
    assert!(created.is_sorted());
    assert_eq!(driver.head().await.seq, 1_000);
    assert_eq!(driver.head().await.open_obligations, 1_000);
    let leased = driver.claim(Reach::default(), 1_000).await;
    let mut in_line: Vec<TaskId> = leased.iter().map(|task| task.id).collect();
    assert_eq!(in_line.remove(0), created[7]);
    in_line.insert(7, created[7]);
    assert_eq!(in_line, created);
}

async fn a_key_that_occurs_twice_stands_for_the_first(mut driver: Driver) {
    let requests = vec![keyed("k", "1"), keyed("k", "1"), keyed("k", "2"), echo()];
    let answers = driver.create_all(requests).await;
    let first = answers[0].as_ref().unwrap().task.id;
    assert!(answers[1].as_ref().unwrap().duplicate);
    assert_eq!(ids(&answers)[1], first);
    let task_id = first;
    assert_eq!(answers[2], Err(Rejection::IdempotencyConflict { task_id }));
    assert_eq!(driver.ledger().await.len(), 2);
    let again = driver.try_create(keyed("k", "1")).await.unwrap();
    assert!(again.duplicate && again.task.id == first);
}

async fn keys_and_classes_of_earlier_batches_are_known(mut driver: Driver) {
    driver.policy.max_task_classes = 3;
    let of = |task_type: &str| NewTask {
        task_type: task_type.to_owned(),
        ..echo()
    };
    let first = driver.create_all(vec![of("a"), keyed("k", "1")]).await;
    let requests = vec![of("b"), of("c"), of("a"), keyed("k", "1"), of("b")];
    let answers = driver.create_all(requests).await;
    let refused = Rejection::TooManyClasses { limit: 3 };
    assert_eq!(answers[1], Err(refused));
    let known = [0, 2, 3, 4].map(|n| answers[n].as_ref().unwrap().duplicate);
    assert_eq!(known, [false, false, true, false]);
    assert_eq!(ids(&answers)[2], ids(&first)[1]);
}

async fn a_refused_creation_leaves_the_others(mut driver: Driver) {
    driver.policy.max_payload_bytes = 100;
    let large = || keyed("large", &format!("\"{}\"", "x".repeat(200)));
    let answers = driver.create_all(vec![large(), echo(), large()]).await;
    let what = "payload";
    let refused = Err(Rejection::TooLarge { what, limit: 100 });
    assert_eq!((&answers[0], &answers[2]), (&refused, &refused));
    assert!(answers[1].is_ok());
    assert_eq!(driver.ledger().await.len(), 1);
    assert!(
        !driver
            .try_create(keyed("large", "1"))
            .await
            .unwrap()
            .duplicate
    );
}

async fn the_same_lease_finished_twice_is_a_repetition(mut driver: Driver) {
    let holds = held(&mut driver, 3).await;
    let mut gone = holds[2].clone();
    gone.1 = holds[0].1.clone();
    let answers = driver
        .finish_all(vec![
            ending(&holds[0], Report::Completed(proven())),
            ending(&holds[0], Report::Completed(proven())),
            ending(&holds[0], Report::Failed(failure(false))),
            ending(&gone, Report::Completed(proven())),
            ending(&holds[1], Report::Failed(failure(false))),
        ])
        .await;
    let told = |n: usize| answers[n].clone().map(|finished| finished.duplicate);
    assert_eq!((told(0), told(1)), (Ok(false), Ok(true)));
    assert_eq!(told(2), Err(Rejection::LeaseInvalid));
    assert_eq!(told(3), Err(Rejection::LeaseInvalid));
    assert_eq!(told(4), Ok(false));
    let mut statuses = Vec::new();
    for (id, _) in &holds {
        statuses.push(driver.task(*id).await.unwrap().status());
    }
    assert_eq!(
        statuses,
        [Status::Succeeded, Status::Failed, Status::Leased]
    );
    // Three assignments and acceptances, and two receipts for each end.
    assert_eq!(driver.head().await.seq, 10);
    assert_eq!(driver.head().await.open_obligations, 1);
}

async fn a_finish_sees_the_finish_before_it(mut driver: Driver) {
    let holds = held(&mut driver, 2).await;
    let unknown = (TaskId::from_bytes([7; 16]), holds[0].1.clone());
    let answers = driver
        .finish_all(vec![
            ending(&holds[0], Report::Completed(bare())),
            ending(&unknown, Report::Completed(bare())),
            ending(&holds[0], Report::Completed(proven())),
            ending(&holds[0], Report::Completed(proven())),
            ending(&holds[1], Report::Failed(failure(true))),
            ending(&holds[1], Report::Completed(proven())),
        ])
        .await;
    let told = |n: usize| {
        let answer = answers[n].clone();
        answer.map(|finished| (finished.discharged, finished.duplicate))
    };
    assert_eq!(told(0), Ok((false, false)));
    assert_eq!(told(1), Err(Rejection::TaskNotFound));
    assert_eq!((told(2), told(3)), (Ok((true, false)), Ok((true, true))));
    assert_eq!(told(4), Ok((false, false)));
    assert_eq!(told(5), Err(Rejection::LeaseInvalid));
    let proven = driver.task(holds[0].0).await.unwrap();
    assert!(proven.end().unwrap().discharged);
    let retried = driver.task(holds[1].0).await.unwrap();
    assert_eq!((retried.status(), retried.attempt), (Status::Queued, 1));
    let usage = driver.load(ReadSet::default()).await.usage;
    assert_eq!((usage.active_tasks, usage.concurrent_leases), (1, 0));
}

async fn renewals_are_counted_one_by_one(mut driver: Driver) {
    driver.policy.renewals_before_anomaly = 1;
    let holds = held(&mut driver, 2).await;
    let mut stranger = holds[1].clone();
    stranger.1.worker = worker("eve");
    let seen = driver.head().await.seq;
    let thrice = vec![
        holds[0].clone(),
        stranger,
        holds[0].clone(),
        holds[0].clone(),
        holds[1].clone(),
    ];
    let answers = driver.renew_all(thrice, 700_000).await;
    let renewals: Vec<_> = answers
        .iter()
        .map(|answer| answer.as_ref().ok().map(|lease| lease.renewals))
        .collect();
    assert_eq!(renewals, [Some(1), None, Some(2), Some(3), Some(1)]);
    assert_eq!(driver.head().await.seq, seen + 1, "one anomaly");
    let lease = driver.task(holds[0].0).await.unwrap();
    let lease = lease.lease().unwrap().clone();
    assert_eq!(Ok(lease), answers[3]);
}

async fn a_batch_costs_what_it_touches(mut driver: Driver) {
    let requests = vec![keyed("k", "1"); 40];
    assert_eq!(ReadSet::to_create_all(&requests).rows(), 40);
    assert_eq!(ReadSet::to_create_all(&requests).keyed.len(), 1);
    let holds = held(&mut driver, 30).await;
    let ids = holds.iter().chain(&holds).map(|(id, _)| *id);
    assert_eq!(ReadSet::to_hold(ids).rows(), 30);
}
