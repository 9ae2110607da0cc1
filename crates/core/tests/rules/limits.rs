//! Sizes: exactly at each limit, and one over.

use asyncgate_core::{
    ClassLoad, Json, Policy, ReceiptType, Rejection, TaskId, TenantLoad,
    receipt::{MAX_ARTIFACTS, MAX_BODY_BYTES, MAX_PROOF_BYTES},
    task::{self, Claim, Completion, Failure, Hold, NewTask, Requirements},
};

use crate::world::{World, bare, echo, field, json, json_of_size, proven, worker};

const MIB: usize = 1 << 20;

fn leased() -> (World, TaskId, Hold) {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    (world, id, hold)
}

fn array_of(count: usize) -> Json {
    json(&format!("[{}]", vec!["1"; count].join(",")))
}

#[test]
fn the_limits_are_64_kib_10_parents_and_100_artifacts() {
    assert_eq!(MAX_BODY_BYTES, 65_536);
    assert_eq!(asyncgate_core::receipt::MAX_PARENTS, 10);
    assert_eq!(MAX_ARTIFACTS, 100);
}

#[test]
fn a_payload_may_have_one_mebibyte_and_not_a_byte_more() {
    for (bytes, fits) in [(MIB, true), (MIB + 1, false)] {
        let mut world = World::new();
        let new = NewTask {
            payload: json_of_size(bytes),
            ..echo()
        };
        let (what, limit) = ("payload", MIB);
        let refusal = (!fits).then_some(Rejection::TooLarge { what, limit });
        assert_eq!(world.try_create(new).err(), refusal, "{bytes}");
        assert_eq!(world.tasks.len(), usize::from(fits));
    }
}

#[test]
fn tasks_that_have_not_ended_may_have_so_many_classes_and_not_one_more() {
    let limit = Policy::default().max_task_classes;
    assert_eq!(limit, 10_000);
    let refusal = Rejection::TooManyClasses { limit };
    for (classes, is_known, fits) in [
        (0, false, true),
        (limit - 1, false, true),
        (limit, false, false),
        (limit, true, true),
        // The limit may have been lowered while more were in use.
        (limit + 5, true, true),
        (limit + 5, false, false),
    ] {
        let load = TenantLoad {
            classes: ClassLoad { classes, is_known },
            ..TenantLoad::default()
        };
        let mut world = World::new();
        let created = world.run(|env, head| task::create(env, head, echo(), None, load));
        assert_eq!(created.is_ok(), fits, "{load:?}");
        if !fits {
            assert_eq!(created, Err(refusal.clone()));
            assert!(world.tasks.is_empty());
        }
    }
    // A repeated call creates nothing, so it is answered as before.
    let mut world = World::new();
    let keyed = NewTask {
        idempotency_key: Some("k".to_owned()),
        ..echo()
    };
    let id = world.create(keyed.clone());
    let first = world.task(id).clone();
    let full = TenantLoad {
        classes: ClassLoad {
            classes: limit,
            is_known: false,
        },
        ..TenantLoad::default()
    };
    let again = world.run(|env, head| task::create(env, head, keyed, Some(first), full));
    assert!(again.unwrap().duplicate);
}

#[test]
fn a_result_an_error_and_a_progress_report_may_have_one_mebibyte_and_not_a_byte_more() {
    for (bytes, fits) in [(MIB, true), (MIB + 1, false)] {
        let limit = MIB;
        let refusal = |what| (!fits).then_some(Rejection::TooLarge { what, limit });

        let (mut world, id, hold) = leased();
        let answer = world.progress(&hold, id, json_of_size(bytes));
        assert_eq!(answer.err(), refusal("progress"), "{bytes}");

        let completion = Completion {
            result: Some(json_of_size(bytes)),
            ..proven()
        };
        let answer = world.complete(&hold, id, completion);
        assert_eq!(answer.err(), refusal("result"), "{bytes}");

        let (mut world, id, hold) = leased();
        let failure = Failure {
            error: json_of_size(bytes),
            retryable: false,
            retry_after_seconds: None,
        };
        let answer = world.fail(&hold, id, failure);
        assert_eq!(answer.err(), refusal("error"), "{bytes}");
    }
}

#[test]
fn there_may_be_100_artifacts_and_not_one_more() {
    for (count, fits) in [(MAX_ARTIFACTS, true), (MAX_ARTIFACTS + 1, false)] {
        let (mut world, id, hold) = leased();
        let completion = Completion {
            artifacts: Some(array_of(count)),
            ..bare()
        };
        let refusal = (!fits).then_some(Rejection::LimitExceeded {
            what: "the number of artifacts",
            limit: MAX_ARTIFACTS,
        });
        assert_eq!(world.complete(&hold, id, completion).err(), refusal);
        assert_eq!(world.task(id).end().is_some(), fits, "{count}");
    }
}

#[test]
fn artifacts_and_delivery_proof_fill_a_receipt_together_and_not_a_byte_more() {
    let proof = |artifacts: usize, delivery: usize| Completion {
        artifacts: Some(json(&format!("[{}]", json_of_size(artifacts - 2).text()))),
        delivery_proof: (delivery > 0).then(|| json_of_size(delivery)),
        result: Some(json_of_size(MIB)),
        summary: Some("s".repeat(4_096)),
        metadata: Some(json(&format!("{{\"m\":{}}}", json_of_size(16_000).text()))),
    };
    let most = MAX_PROOF_BYTES;
    for (completion, fits) in [
        (proof(most, 0), true),
        (proof(most + 1, 0), false),
        (proof(most - 9_000, 9_000), true),
        (proof(most - 9_000, 9_001), false),
    ] {
        let (mut world, id, hold) = leased();
        let (what, limit) = ("the size of artifacts and delivery_proof in bytes", most);
        let refusal = (!fits).then_some(Rejection::LimitExceeded { what, limit });
        assert_eq!(world.complete(&hold, id, completion.clone()).err(), refusal);
        for receipt_type in [ReceiptType::TaskCompleted, ReceiptType::TaskResultReady] {
            for receipt in world.receipts(id, receipt_type) {
                let keeps = |proof: &Option<Json>| {
                    let proof = proof.as_ref();
                    proof.is_none_or(|proof| receipt.body.text().contains(proof.text()))
                };
                assert!(keeps(&completion.artifacts) && keeps(&completion.delivery_proof));
                assert!(field(&receipt.body, "how_to_retrieve").is_some());
            }
        }
    }
}

/// The order is a promise to those who read receipts: the result first, then what is said of it.
#[test]
fn a_receipt_that_is_too_large_loses_the_result_then_the_metadata_then_the_summary() {
    let object = |bytes: usize| json(&format!("{{\"m\":{}}}", json_of_size(bytes - 6).text()));
    for (artifacts, left) in [
        (40_000, ["completion_metadata", "result_summary"].as_slice()),
        (50_000, &["result_summary"]),
        (62_000, &[]),
    ] {
        let (mut world, id, hold) = leased();
        let completion = Completion {
            result: Some(json_of_size(20_000)),
            metadata: Some(object(16_000)),
            summary: Some("s".repeat(4_000)),
            artifacts: Some(object(artifacts)),
            delivery_proof: None,
        };
        world.complete(&hold, id, completion).unwrap();
        for receipt_type in [ReceiptType::TaskCompleted, ReceiptType::TaskResultReady] {
            let body = &world.receipts(id, receipt_type)[0].body;
            for name in ["result_payload", "completion_metadata", "result_summary"] {
                let is_there = field(body, name).is_some();
                assert_eq!(is_there, left.contains(&name), "{name} beside {artifacts}");
            }
            assert!(field(body, "artifacts").is_some());
        }
        assert!(!world.is_open(id));
    }
}

/// Late proof is held to the same limits as proof that comes in time.
#[test]
fn late_proof_over_a_limit_is_refused() {
    let (mut world, id, hold) = leased();
    world.complete(&hold, id, bare()).unwrap();
    let completion = Completion {
        artifacts: Some(array_of(MAX_ARTIFACTS + 1)),
        ..bare()
    };
    assert!(world.complete(&hold, id, completion).is_err());
    assert!(world.is_open(id));
}

#[test]
fn what_does_not_fit_is_left_out_of_the_receipt_which_says_where_it_is() {
    let (mut world, id, hold) = leased();
    let completion = Completion {
        result: Some(json_of_size(MIB)),
        ..proven()
    };
    world.complete(&hold, id, completion).unwrap();
    for receipt_type in [ReceiptType::TaskCompleted, ReceiptType::TaskResultReady] {
        let body = &world.receipts(id, receipt_type)[0].body;
        assert!(body.len() <= MAX_BODY_BYTES);
        assert_eq!(field(body, "result_payload"), None);
        assert!(field(body, "artifacts").is_some(), "what fits is kept");
        let path = field(body, "how_to_retrieve").unwrap();
        assert_eq!(path, format!("GET /v1/tasks/{id}"));
    }
    assert!(!world.is_open(id), "the proof counts, wherever it is kept");
}

#[test]
fn a_receipt_that_holds_everything_does_not_say_how_to_retrieve_it() {
    let (mut world, id, hold) = leased();
    world.complete(&hold, id, proven()).unwrap();
    for receipt in &world.ledger {
        assert_eq!(field(&receipt.body, "how_to_retrieve"), None);
    }
}

/// The largest content that the edge accepts: lists of 64 names of 256 bytes, and texts of 4,096
/// bytes. In JSON a quotation mark takes two bytes and a control character six.
fn longest_names() -> Vec<String> {
    (0..64)
        .map(|n| format!("{n:02}{}", "\"".repeat(254)))
        .collect()
}

fn longest_text() -> Option<String> {
    Some("\u{1}".repeat(4_096))
}

/// In these tests the world checks that no receipt has a body over the limit.
#[test]
fn the_longest_requirements_do_not_make_a_receipt_too_large() {
    World::new().create(NewTask {
        requirements: Requirements::new(longest_names(), longest_names()),
        ..echo()
    });
}

#[test]
fn the_longest_texts_do_not_make_a_receipt_too_large() {
    World::new().create(NewTask {
        payload_pointer: longest_text(),
        expected_outcome_kind: longest_text(),
        expected_artifact_mime: longest_text(),
        ..echo()
    });
}

#[test]
fn the_longest_reason_does_not_make_a_receipt_too_large() {
    let mut world = World::new();
    let id = world.create(echo());
    world.cancel(id, longest_text().as_deref()).unwrap();
}

#[test]
fn the_most_capabilities_do_not_make_a_receipt_too_large() {
    let mut world = World::new();
    let id = world.create(echo());
    let claim = Claim {
        worker: worker(&"\"".repeat(256)),
        capabilities: longest_names(),
        lease_ttl_ms: None,
        expected_duration_seconds: None,
    };
    world.claim(&claim, &[id]);
    world.expire(id);
}
