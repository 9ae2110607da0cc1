//! A busy worker: it claims, reports and renews many tasks by one call.

use std::{sync::Arc, time::Duration};

use asyncgate_client::{
    Cause, Client, End, Event, Outcome, WorkerBuilder,
    api::{CancelTaskInput, CreateResult, CreateTasksInput, TaskStatus},
};
use tokio::sync::{Barrier, mpsc};

use crate::{
    proxy::{Fault, Proxy},
    server::{Gate, client, ended, now, task},
    worker::{builder, hire},
};

/// The number of tasks, and of handlers at a time.
const MANY: usize = 8;

const NOT_READ: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 80\r\n\r\n{\"error\":\"bad_request\",\"code\":\"BAD_REQUEST\",\"message\":\"what?\",\"corr_id\":\"proxy\"}";

async fn create_many(client: &Client) -> Vec<String> {
    let tasks = (0..MANY).map(|n| task("t", &n.to_string()));
    let input = CreateTasksInput {
        tasks: tasks.collect(),
    };
    let created = client.create_tasks(&input).await.expect("created");
    let id = |result| match result {
        CreateResult::Created(created) => created.task_id,
        CreateResult::Refused(refusal) => panic!("{refusal:?}"),
    };
    created.results.into_iter().map(id).collect()
}

/// A worker whose handlers end together, and the ends of its tasks.
fn gathering(proxy: &Proxy) -> (WorkerBuilder, mpsc::UnboundedReceiver<End>) {
    let gathered = Arc::new(Barrier::new(MANY));
    let (told, ends) = mpsc::unbounded_channel();
    let builder = builder(client(proxy.addr))
        .concurrency(MANY)
        .observe(move |event| {
            if let Event::Ended { end, .. } = event {
                let _ = told.send(*end);
            }
        })
        .handle("t", move |_, payload| {
            let gathered = Arc::clone(&gathered);
            async move {
                gathered.wait().await;
                match payload.text() {
                    "3" => Outcome::json(&"x".repeat((1 << 20) + 1)),
                    _ => Ok(Outcome::empty()),
                }
            }
        });
    (builder, ends)
}

async fn take(ends: &mut mpsc::UnboundedReceiver<End>) -> Vec<End> {
    let mut taken = Vec::new();
    while taken.len() < MANY {
        taken.push(ends.recv().await.expect("an end"));
    }
    taken
}

#[tokio::test]
async fn what_is_free_is_claimed_at_once_and_what_ends_together_is_reported_together() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let created = create_many(&gate.client()).await;
    let (builder, mut ends) = gathering(&proxy);
    let hired = hire(builder);
    let ended_so = take(&mut ends).await;
    // The result that is too large becomes a failure, and no other suffers for it.
    let failed = |end: &&End| matches!(end, End::Failed { .. });
    assert_eq!(ended_so.iter().filter(failed).count(), 1, "{ended_so:?}");
    for (n, id) in created.iter().enumerate() {
        let expected = match n {
            3 => TaskStatus::Failed,
            _ => TaskStatus::Succeeded,
        };
        assert_eq!(now(&gate.client(), id).await.status, expected, "{n}");
    }
    let summary = hired.stop().await;
    assert_eq!((summary.completed, summary.failed), (7, 1));
    let claims = proxy.seen("/v1/leases/claim");
    assert!(claims[0].contains(r#""max_tasks":8"#), "{}", claims[0]);
    let reports = proxy.seen("/finish/batch").len() + proxy.seen("/complete").len();
    assert!(!proxy.seen("/finish/batch").is_empty() && reports < MANY);
}

#[tokio::test]
async fn a_lost_answer_to_many_reports_is_a_repetition_for_each() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    create_many(&gate.client()).await;
    let (builder, mut ends) = gathering(&proxy);
    proxy.next("/finish/batch", Fault::DropAfter);
    let hired = hire(builder);
    let told = take(&mut ends).await;
    let repeated = |end: &&End| **end == End::Completed { duplicate: true };
    assert!(told.iter().filter(repeated).count() > 1, "{told:?}");
    hired.stop().await;
    assert_eq!(gate.count("task.completed").await, MANY - 1);
    assert_eq!(gate.count("task.failed").await, 1);
}

#[tokio::test]
async fn reports_that_are_refused_together_are_sent_one_by_one() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    create_many(&gate.client()).await;
    let (builder, mut ends) = gathering(&proxy);
    proxy.next("/finish/batch", Fault::Answer(NOT_READ));
    let hired = hire(builder);
    let told = take(&mut ends).await;
    let failed = |end: &&End| matches!(end, End::Failed { .. });
    assert_eq!(told.iter().filter(failed).count(), 1, "{told:?}");
    hired.stop().await;
    assert_eq!(gate.count("task.completed").await, MANY - 1);
}

#[tokio::test]
async fn all_leases_are_renewed_by_one_call_and_a_lost_one_stops_its_handler() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let created = create_many(&gate.client()).await;
    let (told, mut stopped) = mpsc::unbounded_channel();
    let hired = hire(
        builder(client(proxy.addr))
            .concurrency(MANY)
            .lease_ttl(Duration::from_secs(3))
            .handle("t", move |context, _| {
                let told = told.clone();
                async move {
                    let cause = context.cancelled().await;
                    drop(told.send((context.task().task_id.clone(), cause)));
                    Ok(Outcome::empty())
                }
            }),
    );
    while proxy.seen("/renew/batch").len() < 2 {
        tokio::task::yield_now().await;
    }
    let cancel = CancelTaskInput {
        task_id: created[2].clone(),
        ..Default::default()
    };
    gate.client().cancel_task(&cancel).await.expect("cancelled");
    let lost = stopped.recv().await;
    assert_eq!(lost, Some((created[2].clone(), Cause::LeaseLost)));
    let task = now(&gate.client(), &created[0]).await;
    let renewals = task.lease.expect("a lease").renewals as usize;
    let calls = proxy.seen("/renew/batch").len();
    assert!((2..=calls).contains(&renewals), "{renewals} of {calls}");
    assert!(proxy.seen("/v1/leases/renew ").is_empty());
    drop(hired);
    ended(&gate.client(), &created[2]).await;
}
