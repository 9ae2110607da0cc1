//! The outbox: what is written is tried, in order where that matters, until it is settled.

use std::sync::{Arc, Mutex};

use asyncgate_core::{
    Changes as TaskChanges, Decision, Timestamp, identity,
    outbox::{Changes, Dispatch, NewDispatch, RetryPolicy, State, delivered, failed, revive, take},
};

use super::{Case, Driver, IdentityDriver, cases};
use crate::outbox::{DispatchFilter, OutboxLoad, Reads, Snapshot};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_dispatch_is_read_back_as_it_was,
        what_is_taken_is_due_again_later,
        dispatches_of_one_key_are_tried_in_order,
        what_fails_is_tried_again_until_it_is_given_up,
        a_dead_one_lets_the_next_pass_and_can_be_revived,
        other_planes_write_dispatches_in_their_commits,
        bodies_that_do_not_fit_wait,
    ]
}

const POLICY: RetryPolicy = RetryPolicy {
    first_ms: 1_000,
    longest_ms: 60_000,
    give_up_after_ms: 10_000,
};

fn sent(driver: &Driver, destination: &str, order_key: Option<&str>) -> NewDispatch {
    NewDispatch {
        tenant: None,
        destination: destination.to_owned(),
        order_key: order_key.map(ToOwned::to_owned),
        body: format!("to {destination}").into(),
        created_at: driver.now,
    }
}

async fn change(
    driver: &mut Driver,
    reads: Reads,
    mut decide: impl FnMut(Timestamp, Snapshot) -> Changes + Send + 'static,
) {
    let decided = Arc::new(Mutex::new(Changes::default()));
    let changed = driver.transact(reads, decided, move |env, snapshot| {
        Ok(Decision {
            changes: decide(env.now, snapshot),
            output: (),
        })
    });
    changed.await.unwrap().unwrap();
}

async fn add(driver: &mut Driver, new: Vec<NewDispatch>) {
    change(driver, Reads::default(), move |_, _| Changes {
        new: new.clone(),
        ..Changes::default()
    })
    .await;
}

async fn due(driver: &Driver, limit: usize) -> Vec<Dispatch> {
    let reads = Reads {
        due: limit,
        ..Reads::default()
    };
    driver.show(reads).await.1.due
}

async fn numbers(driver: &Driver) -> Vec<u64> {
    let due = due(driver, 100).await;
    due.iter().map(|dispatch| dispatch.id).collect()
}

async fn settle(
    driver: &mut Driver,
    id: u64,
    settle: impl Fn(Timestamp, Dispatch) -> Changes + Send + 'static,
) {
    let reads = Reads {
        dispatches: vec![id],
        ..Reads::default()
    };
    change(driver, reads, move |now, snapshot| {
        settle(now, snapshot.dispatches[0].clone())
    })
    .await;
}

async fn listed(driver: &Driver, dead: bool) -> Vec<Dispatch> {
    let mut filter = DispatchFilter {
        dead,
        after: 0,
        limit: 2,
    };
    let mut listed: Vec<Dispatch> = Vec::new();
    loop {
        let page = driver.store().outbox().dispatches(filter).await.unwrap();
        let Some(last) = page.last() else {
            return listed;
        };
        filter.after = last.id;
        listed.extend(page);
    }
}

async fn a_dispatch_is_read_back_as_it_was(mut driver: Driver) {
    let whole = NewDispatch {
        tenant: Some(driver.tenant),
        body: vec![0, 255, 10].into(),
        ..sent(&driver, "ünï", Some("key\n"))
    };
    add(&mut driver, vec![whole.clone()]).await;
    let found = due(&driver, 1).await;
    let expected = Dispatch {
        id: found[0].id,
        sent: whole,
        attempts: 0,
        last_error: None,
        state: State::Pending {
            next_try_at: driver.now,
        },
    };
    assert_eq!(listed(&driver, false).await, found);
    assert_eq!(found, [expected]);
    assert!(listed(&driver, true).await.is_empty());
    let reads = Reads {
        dispatches: vec![found[0].id, 77],
        ..Reads::default()
    };
    assert_eq!(driver.show(reads).await.1.dispatches, found);
    let next = driver.store().outbox().next_try().await.unwrap();
    assert_eq!(next, Some(driver.now));
}

async fn what_is_taken_is_due_again_later(mut driver: Driver) {
    let new = (0..3)
        .map(|n| sent(&driver, &format!("{n}"), None))
        .collect();
    add(&mut driver, new).await;
    let reads = Reads {
        due: 2,
        ..Reads::default()
    };
    change(&mut driver, reads, |now, snapshot| {
        take(&snapshot.due, now, 30_000)
    })
    .await;
    assert_eq!(numbers(&driver).await, [3]);
    driver.wait_ms(30_000);
    assert_eq!(numbers(&driver).await, [3, 1, 2]);
    settle(&mut driver, 3, |_, dispatch| delivered(&dispatch)).await;
    assert_eq!(numbers(&driver).await, [1, 2]);
    let outbox = driver.store().outbox();
    let load = outbox.outbox_load().await.unwrap();
    assert_eq!(
        load,
        OutboxLoad {
            pending: 2,
            dead: 0
        }
    );
}

async fn dispatches_of_one_key_are_tried_in_order(mut driver: Driver) {
    let a = sent(&driver, "a", Some("k"));
    let new = vec![
        a.clone(),
        a.clone(),
        sent(&driver, "a", Some("other")),
        sent(&driver, "b", Some("k")),
        sent(&driver, "a", None),
        sent(&driver, "a", None),
        a,
    ];
    add(&mut driver, new).await;
    assert_eq!(numbers(&driver).await, [1, 3, 4, 5, 6]);
    // A failure of the first holds up those behind it, and nobody else.
    settle(&mut driver, 1, |now, dispatch| {
        failed(dispatch, now, "no", &POLICY, 0)
    })
    .await;
    assert_eq!(numbers(&driver).await, [3, 4, 5, 6]);
    driver.wait_ms(1_000);
    assert_eq!(numbers(&driver).await, [3, 4, 5, 6, 1]);
    settle(&mut driver, 1, |_, dispatch| delivered(&dispatch)).await;
    assert_eq!(numbers(&driver).await, [2, 3, 4, 5, 6]);
    // One behind the first can be called off, which passes no turn.
    settle(&mut driver, 7, |_, dispatch| delivered(&dispatch)).await;
    assert_eq!(numbers(&driver).await, [2, 3, 4, 5, 6]);
    settle(&mut driver, 2, |_, dispatch| delivered(&dispatch)).await;
    assert_eq!(numbers(&driver).await, [3, 4, 5, 6]);
    let again = sent(&driver, "a", Some("k"));
    add(&mut driver, vec![again]).await;
    assert_eq!(numbers(&driver).await, [3, 4, 5, 6, 8]);
}

async fn what_fails_is_tried_again_until_it_is_given_up(mut driver: Driver) {
    let new = vec![sent(&driver, "a", None)];
    add(&mut driver, new).await;
    for attempts in 1..=3 {
        settle(&mut driver, 1, move |now, dispatch| {
            failed(dispatch, now, &format!("try {attempts}"), &POLICY, 0)
        })
        .await;
        assert!(numbers(&driver).await.is_empty());
        let found = listed(&driver, false).await.remove(0);
        assert_eq!(found.attempts, attempts);
        let said = format!("try {attempts}");
        assert_eq!(found.last_error.as_deref(), Some(&*said));
        let next = driver.store().outbox().next_try().await.unwrap();
        driver.now = next.unwrap();
    }
    driver.wait_ms(8_000);
    settle(&mut driver, 1, |now, dispatch| {
        failed(dispatch, now, "last", &POLICY, 0)
    })
    .await;
    assert!(listed(&driver, false).await.is_empty());
    let dead = listed(&driver, true).await.remove(0);
    assert_eq!(dead.state, State::Dead { at: driver.now });
    assert_eq!(
        (dead.attempts, dead.last_error.as_deref()),
        (4, Some("last"))
    );
    let outbox = driver.store().outbox();
    assert_eq!(outbox.next_try().await.unwrap(), None);
    let load = outbox.outbox_load().await.unwrap();
    assert_eq!(
        load,
        OutboxLoad {
            pending: 0,
            dead: 1
        }
    );
}

async fn a_dead_one_lets_the_next_pass_and_can_be_revived(mut driver: Driver) {
    let new = vec![sent(&driver, "a", Some("k")); 3];
    add(&mut driver, new).await;
    driver.wait_ms(20_000);
    settle(&mut driver, 1, |now, dispatch| {
        failed(dispatch, now, "no", &POLICY, 0)
    })
    .await;
    assert_eq!(numbers(&driver).await, [2]);
    settle(&mut driver, 1, |now, dispatch| revive(&dispatch, now)).await;
    assert!(listed(&driver, true).await.is_empty());
    for next in [2, 3, 4] {
        assert_eq!(numbers(&driver).await, [next]);
        settle(&mut driver, next, |_, dispatch| delivered(&dispatch)).await;
    }
    assert!(numbers(&driver).await.is_empty());
}

async fn other_planes_write_dispatches_in_their_commits(driver: Driver) {
    let outbox = vec![sent(&driver, "tasks", None)];
    let changes = TaskChanges {
        outbox,
        ..TaskChanges::default()
    };
    driver.write(changes).await;
    let outbox = vec![sent(&driver, "identity", None)];
    let mut driver = IdentityDriver::new(driver);
    driver
        .change(identity::Changes {
            outbox,
            ..identity::Changes::default()
        })
        .await;
    let found = due(&driver, 9).await;
    let to: Vec<&str> = found.iter().map(|one| &*one.sent.destination).collect();
    assert_eq!(to, ["tasks", "identity"]);
}

async fn bodies_that_do_not_fit_wait(mut driver: Driver) {
    let large = NewDispatch {
        body: vec![7; 5 << 20].into(),
        ..sent(&driver, "a", None)
    };
    add(&mut driver, vec![large; 2]).await;
    assert_eq!(numbers(&driver).await, [1]);
    settle(&mut driver, 1, |_, dispatch| delivered(&dispatch)).await;
    assert_eq!(numbers(&driver).await, [2]);
}
