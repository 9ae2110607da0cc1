//! Content: everything comes back as it was stored, every state, every field, every byte.

use asyncgate_core::{
    Json, Principal, PrincipalKind, Reach, Task, Timestamp,
    task::{Completion, Contract, Deadline, Failure, NewTask, Requirements, State},
};

use super::{Case, Driver, agent, bare, cases, echo, failure, json, proven, worker};
use crate::ReadSet;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_task_in_every_state_comes_back_as_it_was_decided,
        every_field_of_a_task_comes_back,
        contracts_of_every_size_come_back,
        what_is_rarely_said_of_a_state_comes_back,
        what_is_left_open_comes_back_as_left_open,
        payloads_of_every_size_come_back_byte_for_byte,
        odd_json_comes_back_byte_for_byte,
        a_large_payload_survives_every_change_of_its_task,
        what_workers_send_comes_back_byte_for_byte,
        principals_of_every_kind_and_instance_come_back,
    ]
}

/// JSON that a careless store would tidy up.
const ODD: [&str; 9] = [
    "{\"z\":1, \"a\" : 2,\"z2\":{\"b\":0,\"a\":0}}",
    "[12345678901234567890123456789,1.50,1e400,-0,0.1e-7,1E+2]",
    "\"\\u0000 \\ud800 \\u00e4 \\/ \\\"\"",
    "\"\u{e4}\u{1f600}\u{2028}\"",
    "[ ]",
    "{ }",
    "null",
    "\"\"",
    "{\"a\":1,\"a\":2}",
];

fn text(json: &Option<Json>) -> Option<&str> {
    json.as_ref().map(Json::text)
}

/// Asserts that two tasks are equal in every field, and every JSON as text, not only as a value.
fn assert_same(left: &Task, right: &Task) {
    assert_eq!(left, right);
    assert_eq!(left.spec.payload.text(), right.spec.payload.text());
    let progress = |task: &Task| task.progress.as_ref().map(|p| p.value.text().to_owned());
    assert_eq!(progress(left), progress(right));
    assert_eq!(text(&left.retried_error), text(&right.retried_error));
    let terms = |task: &Task| {
        let contract = task.spec.contract.clone().unwrap_or_default();
        let terms = [&contract.success_criteria, &contract.result_delivery];
        terms.map(|json| text(json).map(str::to_owned))
    };
    assert_eq!(terms(left), terms(right));
    if let (State::Ended(left), State::Ended(right)) = (&left.state, &right.state) {
        assert_eq!(text(&left.result), text(&right.result));
        assert_eq!(text(&left.error), text(&right.error));
        assert_eq!(text(&left.artifacts), text(&right.artifacts));
        assert_eq!(text(&left.delivery_proof), text(&right.delivery_proof));
        let metadata = (&left.completion_metadata, &right.completion_metadata);
        assert_eq!(text(metadata.0), text(metadata.1));
    }
}

/// Returns the task, after checking that reads and decisions see the same.
async fn stored(driver: &Driver, id: asyncgate_core::TaskId) -> Task {
    let read = driver.task(id).await.unwrap();
    let reads = ReadSet {
        tasks: vec![id],
        ..ReadSet::default()
    };
    let loaded = driver.load(reads).await.tasks.remove(0);
    assert_same(&read, &loaded);
    read
}

async fn a_task_in_every_state_comes_back_as_it_was_decided(mut driver: Driver) {
    for state in [
        "leased", "running", "renewed", "released", "retried", "expired", "proven", "bare", "late",
        "failed", "canceled",
    ] {
        let created = driver.try_create(echo()).await.unwrap().task;
        assert_same(&stored(&driver, created.id).await, &created);
        let (id, hold) = driver.lease().await;
        driver.wait_ms(10);
        match state {
            "leased" => {}
            "running" => driver.start(&hold, id).await.unwrap(),
            "renewed" => drop(driver.renew(&hold, id, 900_000).await.unwrap()),
            "released" => driver.release(&hold, id).await.unwrap(),
            "retried" => drop(driver.fail(&hold, id, failure(true)).await.unwrap()),
            "expired" => {
                driver.wait_ms(300_000);
                driver.sweep().await;
            }
            "proven" => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            "bare" => drop(driver.complete(&hold, id, bare()).await.unwrap()),
            "late" => {
                driver.complete(&hold, id, bare()).await.unwrap();
                driver.complete(&hold, id, proven()).await.unwrap();
            }
            "failed" => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            _ => drop(driver.cancel(id).await.unwrap()),
        }
        let decided = driver.decided().tasks;
        let decided = decided.iter().find(|write| write.task.id == id).unwrap();
        assert_same(&stored(&driver, id).await, &decided.task);
        // It must not stand in the way of the next one.
        let _ = driver.cancel(id).await;
    }
}

async fn every_field_of_a_task_comes_back(mut driver: Driver) {
    let mut owner = agent("al\u{e4}ce");
    owner.instance_id = Some("laptop \u{1f600}".into());
    let new = NewTask {
        owner,
        task_type: "t\"'\\ype".to_owned(),
        payload: json("[1]"),
        payload_pointer: Some("s3://\u{e4}".to_owned()),
        requirements: Requirements::new(
            vec!["b".to_owned(), "a\"".to_owned()],
            vec!["z".to_owned(), "a".to_owned(), "z".to_owned()],
        ),
        priority: Some(i32::MIN),
        max_attempts: Some(u32::MAX),
        retry_backoff_seconds: Some(u32::MAX),
        idempotency_key: Some("k\u{0}".to_owned()),
        delay_ms: 1,
        expected_outcome_kind: Some(String::new()),
        expected_artifact_mime: Some("text/csv".to_owned()),
        contract: Contract {
            instructions: Some("Do \u{1f600} \"it\"\n\u{0}".to_owned()),
            success_criteria: Some(json("{\"z\": 1.0, \"a\":null}")),
            result_delivery: Some(json("null")),
            lease_ttl_seconds: Some(i64::MAX),
            deadline: Some(Deadline::At(Timestamp::from_millis(i64::MAX))),
            max_lease_expiries: Some(0),
        },
    };
    let created = driver.try_create(new).await.unwrap().task;
    assert_eq!(created.spec.requirements.tags, ["z", "a", "z"]);
    assert_same(&stored(&driver, created.id).await, &created);
}

async fn contracts_of_every_size_come_back(mut driver: Driver) {
    for size in [1, 1_000, 2_000, 2_048, 2_100, 16_384] {
        let contract = Contract {
            instructions: Some("i".repeat(size)),
            deadline: Some(Deadline::After { seconds: 3_600 }),
            ..Contract::default()
        };
        let new = NewTask {
            contract: contract.clone(),
            idempotency_key: Some(size.to_string()),
            ..echo()
        };
        let id = driver.create(new.clone()).await;
        let (_, hold) = driver.lease().await;
        driver.start(&hold, id).await.unwrap();
        let task = stored(&driver, id).await;
        assert_eq!(task.spec.contract.as_deref(), Some(&contract));
        assert!(driver.try_create(new).await.unwrap().duplicate);
        driver.complete(&hold, id, proven()).await.unwrap();
        let task = stored(&driver, id).await;
        assert_eq!(task.spec.contract.as_deref(), Some(&contract));
    }
}

async fn what_is_rarely_said_of_a_state_comes_back(mut driver: Driver) {
    driver.policy.default_max_attempts = 100;
    for odd in ODD {
        let id = driver.create(echo()).await;
        let claim = asyncgate_core::task::Claim {
            worker: worker("w\"\u{1f600}"),
            capabilities: Vec::new(),
            lease_ttl_ms: None,
            expected_duration_seconds: Some(u32::MAX),
        };
        let leased = driver.on(id, move |env, head, task| {
            Ok(asyncgate_core::task::claim(
                env,
                head,
                &claim,
                vec![task],
                0,
            ))
        });
        let leased = leased.await.unwrap().leased.remove(0);
        assert_same(&stored(&driver, id).await, &leased);
        driver.wait_ms(300_000);
        driver.sweep().await;
        let (_, hold) = driver.lease().await;
        let failure = Failure {
            error: json(odd),
            retry_after_seconds: Some(0),
            ..failure(true)
        };
        driver.fail(&hold, id, failure).await.unwrap();
        let task = stored(&driver, id).await;
        assert_eq!(text(&task.retried_error), Some(odd));
        assert_eq!(task.expired_workers, ["w\"\u{1f600}".into()]);
        let (_, hold) = driver.lease().await;
        driver.complete(&hold, id, bare()).await.unwrap();
        let task = stored(&driver, id).await;
        assert_eq!(text(&task.retried_error), Some(odd));
    }
}

async fn what_is_left_open_comes_back_as_left_open(mut driver: Driver) {
    let id = driver.create(echo()).await;
    let spec = stored(&driver, id).await.spec;
    assert_eq!(spec.payload_pointer, None);
    assert_eq!(spec.idempotency_key, None);
    assert_eq!(spec.expected_outcome_kind, None);
    assert_eq!(spec.expected_artifact_mime, None);
    assert!(spec.requirements.is_empty());
    let (_, hold) = driver.lease().await;
    driver
        .complete(&hold, id, Completion::default())
        .await
        .unwrap();
    let task = stored(&driver, id).await;
    let end = task.end().unwrap();
    assert!(end.result.is_none() && end.error.is_none());
    assert!(end.artifacts.is_none() && end.delivery_proof.is_none());
}

async fn payloads_of_every_size_come_back_byte_for_byte(mut driver: Driver) {
    let sizes = [2, 100, 1_023, 1_024, 1_025, 2_047, 2_048, 2_049, 4_096];
    for size in sizes.into_iter().chain([65_535, 65_536, 65_537, 1 << 20]) {
        let payload = json(&format!("\"{}\"", "x".repeat(size - 2)));
        let id = driver.create(NewTask { payload, ..echo() }).await;
        let task = stored(&driver, id).await;
        assert_eq!(task.spec.payload.len(), size);
        assert!(
            task.spec.payload.text()[1..size - 1]
                .bytes()
                .all(|b| b == b'x')
        );
    }
}

async fn odd_json_comes_back_byte_for_byte(mut driver: Driver) {
    for odd in ODD {
        // One is small, the other so large that a store may keep it elsewhere.
        let large = format!("[{odd}, \"{}\"]", "\u{e4}".repeat(50_000));
        for text in [odd, &large] {
            let payload = json(text);
            let id = driver.create(NewTask { payload, ..echo() }).await;
            assert_eq!(stored(&driver, id).await.spec.payload.text(), text);
        }
    }
}

async fn a_large_payload_survives_every_change_of_its_task(mut driver: Driver) {
    let payload = json(&format!("[\"\\u0000\", 1.0, \"{}\"]", "p".repeat(500_000)));
    let new = NewTask {
        payload: payload.clone(),
        idempotency_key: Some("k".to_owned()),
        ..echo()
    };
    let id = driver.create(new.clone()).await;
    let claimed = driver.claim(Reach::default(), 1).await.remove(0);
    assert_eq!(claimed.spec.payload.text(), payload.text());
    let hold = asyncgate_core::task::Hold {
        worker: worker("bob"),
        lease_id: claimed.lease().unwrap().id,
    };
    driver.start(&hold, id).await.unwrap();
    driver.release(&hold, id).await.unwrap();
    let (_, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    assert_eq!(
        stored(&driver, id).await.spec.payload.text(),
        payload.text()
    );
    let again = driver.try_create(new).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.task.spec.payload.text(), payload.text());
}

async fn what_workers_send_comes_back_byte_for_byte(mut driver: Driver) {
    let large = format!("{{\"b\":1,\"a\":\"\\u0000{}\"}}", "r".repeat(900_000));
    for odd in ODD.into_iter().chain([large.as_str()]) {
        let (succeeds, fails) = (driver.create(echo()).await, driver.create(echo()).await);
        let (_, hold) = driver.lease().await;
        driver.progress(&hold, succeeds, json(odd)).await.unwrap();
        let completion = Completion {
            result: Some(json(odd)),
            artifacts: Some(json(if odd.len() > 65_536 { "[1]" } else { odd })),
            delivery_proof: Some(json("{\"z\": 1.0, \"a\":1}")),
            summary: Some("\u{0} \u{1f600}".to_owned()),
            metadata: Some(json(odd)),
        };
        driver.complete(&hold, succeeds, completion).await.unwrap();
        assert_same(
            &stored(&driver, succeeds).await,
            &driver.decided().tasks[0].task,
        );
        let task = stored(&driver, succeeds).await;
        assert_eq!(text(&task.end().unwrap().result), Some(odd));

        let (_, hold) = driver.lease().await;
        let failure = Failure {
            error: json(odd),
            retryable: false,
            retry_after_seconds: None,
        };
        driver.fail(&hold, fails, failure).await.unwrap();
        let task = stored(&driver, fails).await;
        assert_eq!(text(&task.end().unwrap().error), Some(odd));
    }
}

async fn principals_of_every_kind_and_instance_come_back(mut driver: Driver) {
    let instances = [None, Some(""), Some("pod 1"), Some("\u{1f600}")];
    for kind in PrincipalKind::ALL {
        for instance in instances {
            let principal = Principal {
                instance_id: instance.map(Into::into),
                ..Principal::new(kind, "asyncgate")
            };
            let owner = principal.clone();
            let id = driver.create(NewTask { owner, ..echo() }).await;
            let claimed = driver
                .claim_as(principal.clone(), Reach::default(), 1, None)
                .await;
            assert_eq!(claimed[0].id, id);
            let task = stored(&driver, id).await;
            assert_eq!(task.created_by, principal);
            assert_eq!(task.lease().unwrap().worker, principal);
            let hold = asyncgate_core::task::Hold {
                worker: principal.clone(),
                lease_id: task.lease().unwrap().id,
            };
            driver.complete(&hold, id, proven()).await.unwrap();
            let ender = stored(&driver, id).await.end().unwrap().by.clone();
            assert_eq!(ender, Some((hold.lease_id, principal.clone())));
            let completed = driver
                .ledger()
                .await
                .remove(2 + 4 * (id.seq() as usize / 4));
            assert_eq!((&completed.from, &completed.to), (&principal, &principal));
        }
    }
}
