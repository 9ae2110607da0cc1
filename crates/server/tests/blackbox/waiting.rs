//! Waiting: calls that wait are woken by the event itself, and by the end of the server.

use std::collections::BTreeSet;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::calls::Held;
use crate::harness::{Launch, Server, eventually};
use crate::http::{Request, Response};

/// How soon a woken call must be answered: far below the time that it would wait, which is a minute. That nothing
/// polls is shown where a test decides the time, in the tests of the engine.
const SOON: Duration = Duration::from_secs(20);

/// Waits until so many calls wait.
#[track_caller]
fn until_waiting(server: &Server, calls: usize) {
    eventually("calls wait", || {
        (server.metric("asyncgate_waiting_calls") == Some(calls as f64)).then_some(())
    });
}

type Timed<T> = (T, Instant);

/// Waits for a task in a thread of its own; gives back what came and when.
fn claiming<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    server: &'scope Server,
    claim: Value,
) -> ScopedJoinHandle<'scope, Timed<Vec<Held>>> {
    scope.spawn(move || (server.claim(&claim), Instant::now()))
}

fn reading<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    server: &'scope Server,
    id: &str,
) -> ScopedJoinHandle<'scope, Timed<Response>> {
    let target = format!("/v1/tasks/{id}?wait_seconds=60");
    scope.spawn(move || (server.get(&target), Instant::now()))
}

#[test]
fn a_claim_that_waits_is_woken_by_a_new_task() {
    let server = Server::start();
    thread::scope(|scope| {
        let claim = json!({"worker_id": "w", "wait_seconds": 60});
        let waiting = claiming(scope, &server, claim);
        until_waiting(&server, 1);
        let start = Instant::now();
        let id = server.create_plain("x");
        let (held, woken) = waiting.join().unwrap();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].task_id, id);
        assert!(woken - start < SOON, "{:?}", woken - start);
    });
    until_waiting(&server, 0);
}

#[test]
fn a_claim_that_waits_is_woken_by_a_task_that_is_given_back_or_retried() {
    let server = Server::start();
    server.create(&json!({"type": "x", "retry_backoff_seconds": 0}));
    let mut held = server.take("first");
    for (call, more) in [
        ("release", json!({})),
        ("fail", json!({"error": "x", "retryable": true})),
    ] {
        held = thread::scope(|scope| {
            let claim = json!({"worker_id": "next", "wait_seconds": 60});
            let waiting = claiming(scope, &server, claim);
            until_waiting(&server, 1);
            let start = Instant::now();
            server.under(&held, call, &more).expect(200);
            let (mut next, woken) = waiting.join().unwrap();
            assert!(woken - start < SOON, "{call}: {:?}", woken - start);
            next.remove(0)
        });
    }
}

#[test]
fn a_claim_that_waits_in_vain_answers_with_nothing_when_its_time_is_over() {
    let server = Server::start();
    server.create(&json!({"type": "x", "requirements": {"capabilities": ["gpu"]}}));
    let start = Instant::now();
    let held = server.claim(&json!({"worker_id": "w", "wait_seconds": 1}));
    let waited = start.elapsed();
    assert!(held.is_empty(), "{held:?}");
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert!(waited < SOON, "{waited:?}");
}

#[test]
fn only_a_worker_that_can_do_the_task_is_woken() {
    let server = Server::start();
    thread::scope(|scope| {
        let plain = json!({"worker_id": "plain", "wait_seconds": 60});
        let other_type = json!({"worker_id": "other", "wait_seconds": 60, "accept_types": ["y"]});
        let able = json!({"worker_id": "able", "wait_seconds": 60, "capabilities": ["gpu"]});
        let plain = claiming(scope, &server, plain);
        let other_type = claiming(scope, &server, other_type);
        let able = claiming(scope, &server, able);
        until_waiting(&server, 3);
        let needs_gpu = json!({"type": "x", "requirements": {"capabilities": ["gpu"]}});
        let id = server.create(&needs_gpu);
        assert_eq!(able.join().unwrap().0[0].task_id, id);
        until_waiting(&server, 2);
        assert!(!plain.is_finished() && !other_type.is_finished());
        let id = server.create_plain("x");
        assert_eq!(plain.join().unwrap().0[0].task_id, id);
        let id = server.create_plain("y");
        assert_eq!(other_type.join().unwrap().0[0].task_id, id);
    });
}

#[test]
fn two_workers_that_wait_get_one_task_each() {
    let server = Server::start();
    thread::scope(|scope| {
        let wait = |worker: &str| {
            let claim = json!({"worker_id": worker, "wait_seconds": 60, "max_tasks": 1});
            claiming(scope, &server, claim)
        };
        let waiting = [wait("one"), wait("two")];
        until_waiting(&server, 2);
        let created = BTreeSet::from([server.create_plain("x"), server.create_plain("x")]);
        let start = Instant::now();
        let mut taken = BTreeSet::new();
        for worker in waiting {
            let (held, woken) = worker.join().unwrap();
            assert_eq!(held.len(), 1);
            taken.insert(held[0].task_id.clone());
            assert!(woken.saturating_duration_since(start) < SOON);
        }
        assert_eq!(taken, created);
    });
}

#[test]
fn many_workers_that_wait_share_many_tasks() {
    const CROWD: usize = 24;
    let server = Server::start();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..CROWD)
            .map(|n| {
                let claim = json!({"worker_id": format!("w{n}"), "wait_seconds": 60});
                claiming(scope, &server, claim)
            })
            .collect();
        until_waiting(&server, CROWD);
        let created: BTreeSet<String> = (0..CROWD).map(|_| server.create_plain("x")).collect();
        let taken: BTreeSet<String> = waiting
            .into_iter()
            .flat_map(|worker| worker.join().unwrap().0)
            .map(|held| held.task_id)
            .collect();
        assert_eq!(taken, created, "each got one, and none twice");
    });
}

#[test]
fn a_worker_that_went_away_while_waiting_takes_no_task_with_it() {
    let server = Server::start();
    let claim = json!({"worker_id": "gone", "wait_seconds": 60});
    let request = server.with_key(Request::post("/v1/leases/claim", claim.to_string()));
    let mut gone = server.connect();
    gone.write(request.head(server.address).as_bytes()).unwrap();
    gone.write(&request.encoded_body()).unwrap();
    until_waiting(&server, 1);
    drop(gone);
    until_waiting(&server, 0);
    let id = server.create_plain("x");
    assert_eq!(server.take("here").task_id, id);
}

#[test]
fn a_wake_up_passes_on_when_the_woken_worker_is_gone() {
    let server = Server::start();
    thread::scope(|scope| {
        for round in 0..5 {
            let others = server.metric("asyncgate_waiting_calls").unwrap() as usize;
            let claim = json!({"worker_id": "gone", "wait_seconds": 60});
            let request = server.with_key(Request::post("/v1/leases/claim", claim.to_string()));
            let mut gone = server.connect();
            gone.write(request.head(server.address).as_bytes()).unwrap();
            gone.write(&request.encoded_body()).unwrap();
            until_waiting(&server, others + 1);
            let claim = json!({"worker_id": "here", "wait_seconds": 60});
            let here = claiming(scope, &server, claim);
            until_waiting(&server, others + 2);
            // It goes away in the moment in which it, the first in line, is woken.
            drop(gone);
            let id = server.create_plain("x");
            // If the one that went away was faster, its lease is an ordinary lost one.
            let lost = eventually("somebody took it", || {
                let lease = &server.task(&id)["lease"];
                lease["worker"]["id"]
                    .as_str()
                    .map(|worker| worker == "gone")
            });
            if lost {
                server.create_plain("x");
            }
            assert_eq!(here.join().unwrap().0.len(), 1, "round {round}");
        }
    });
}

#[test]
fn a_read_that_waits_is_woken_by_the_end_of_the_task() {
    let server = Server::start();
    let ends: [(&str, Value, &str); 3] = [
        (
            "complete",
            json!({"result": 7, "artifacts": [1]}),
            "succeeded",
        ),
        ("fail", json!({"error": "x"}), "failed"),
        ("cancel", json!({}), "canceled"),
    ];
    for (call, more, status) in ends {
        let id = server.create_plain("x");
        let held = server.take("w");
        thread::scope(|scope| {
            let waiting = [reading(scope, &server, &id), reading(scope, &server, &id)];
            until_waiting(&server, 2);
            // What does not end the task does not end the wait.
            server
                .under(&held, "progress", &json!({"progress": 1}))
                .expect(200);
            server.under(&held, "renew", &json!({})).expect(200);
            let start = Instant::now();
            if call == "cancel" {
                server
                    .post(&format!("/v1/tasks/{id}/cancel"), &more)
                    .expect(200);
            } else {
                server.under(&held, call, &more).expect(200);
            }
            for read in waiting {
                let (answer, woken) = read.join().unwrap();
                assert_eq!(answer.expect(200)["status"], status);
                assert!(woken.saturating_duration_since(start) < SOON, "{call}");
            }
        });
        let start = Instant::now();
        let answer = server
            .get(&format!("/v1/tasks/{id}?wait_seconds=60"))
            .expect(200);
        assert_eq!(answer["status"], status, "it had ended before");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[test]
fn a_read_that_waits_in_vain_answers_with_the_state() {
    let server = Server::start();
    let id = server.create_plain("x");
    let start = Instant::now();
    let task = server
        .get(&format!("/v1/tasks/{id}?wait_seconds=1"))
        .expect(200);
    assert_eq!(task["status"], "queued");
    assert!(start.elapsed() >= Duration::from_secs(1));
    let nothing = "/v1/tasks/01890000-0000-7000-8000-000000000001?wait_seconds=60";
    server.get(nothing).refused(404, "TASK_NOT_FOUND");
}

#[test]
fn the_end_of_the_server_releases_those_who_wait() {
    let server = Server::start();
    let id = server.create_plain("held");
    server.take("w");
    thread::scope(|scope| {
        let claim = server.with_key(Request::post(
            "/v1/leases/claim",
            json!({"worker_id": "w", "wait_seconds": 60}).to_string(),
        ));
        let read = server.with_key(Request::get(&format!("/v1/tasks/{id}?wait_seconds=60")));
        let address = server.address;
        let waiting = [claim, read].map(|request| {
            scope.spawn(move || {
                let mut connection = crate::http::Connection::open(address).unwrap();
                connection.send(&request)
            })
        });
        until_waiting(&server, 2);
        let start = Instant::now();
        server.signal("TERM");
        let answers = waiting.map(|call| call.join().unwrap().expect("an answer, not a hang-up"));
        for answer in &answers {
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
        }
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    });
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn the_end_of_the_server_does_not_wait_for_idle_connections() {
    let server = Launch::new().set("http.drain_timeout_seconds=600").start();
    let mut idle = server.connect();
    let request = server.with_key(Request::get("/v1/config"));
    idle.send(&request).unwrap().expect(200);
    server.stop();
    assert!(idle.send(&request).is_err(), "the connection is closed");
}
