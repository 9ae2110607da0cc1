//! The test vectors that every implementation of the mailbox must pass.

use serde_json::json;

use crate::{
    harness::{Launch, Server, eventually},
    mail::{MARKED, damage, id},
};

const TOPIC: &str = "user:42:inbox";
const KEY: &str = "email-2025-10-12-01";
const PAYLOAD: &str = "eyJzIjoiaGkifQ==";

fn launch() -> Launch {
    Launch::new().set(r#"mailbox.topic_classes={"user_inbox":["user:*:inbox"]}"#)
}

fn count(server: &Server, name: &str) -> Option<f64> {
    server.metric(&format!("{name}{{topic_class=\"user_inbox\"}}"))
}

#[test]
fn vector_1_a_repeated_send_is_recognised() {
    let server = launch().start();
    let (first, duplicate) = server.send_message(TOPIC, KEY, PAYLOAD);
    assert!(!duplicate);
    assert_eq!(
        server.send_message(TOPIC, KEY, PAYLOAD),
        (first.clone(), true)
    );
    let received = server.receive(TOPIC, 60_000);
    assert_eq!(received.len(), 1, "one delivery");
    assert_eq!(id(&received[0]), first);
    assert_eq!(received[0]["payload_b64"], PAYLOAD);
    assert_eq!(count(&server, "mailbox_enqueued_total"), Some(1.0));
}

#[test]
fn vector_2_what_is_not_acknowledged_comes_again() {
    let server = launch().start();
    let (sent, _) = server.send_message(TOPIC, KEY, PAYLOAD);
    let first = server.receive_one(TOPIC, 1_000);
    assert_eq!((id(&first), &first["attempt"]), (sent.clone(), &json!(1)));
    let second = server.receive_one(TOPIC, 60_000);
    assert_eq!((id(&second), &second["attempt"]), (sent, &json!(2)));
    assert_eq!(
        count(&server, "mailbox_visibility_timeout_total"),
        Some(1.0)
    );
    assert_eq!(count(&server, "mailbox_redelivered_total"), Some(1.0));
}

#[test]
fn vector_3_poison_becomes_a_dead_letter_and_can_be_brought_back() {
    let server = launch().start();
    let (sent, _) = server.send_message(TOPIC, KEY, PAYLOAD);
    server.poison(TOPIC, 5);
    let dead = server.dead_letters(TOPIC);
    assert_eq!(dead.len(), 1);
    let expected = json!({"msg_id": sent, "reason": "E_PARSE", "cause": "max_attempts",
        "last_error": "not JSON", "attempt": 5});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(dead[0][field], *value, "{field}");
    }
    let counted = "mailbox_dlq_total{topic_class=\"user_inbox\",reason=\"nack\"}";
    assert_eq!(server.metric(counted), Some(1.0));
    let back = server.post("/v1/dlq/reprocess", &json!({"topic": TOPIC}));
    assert_eq!(back.expect(200)["moved"], 1);
    let again = server.receive_one(TOPIC, 60_000);
    assert_eq!((id(&again), &again["attempt"]), (sent, &json!(1)));
    assert!(server.dead_letters(TOPIC).is_empty());
    assert_eq!(count(&server, "mailbox_dlq_reprocess_total"), Some(1.0));
}

#[test]
fn vector_4_damaged_content_is_told_of_and_becomes_a_dead_letter() {
    let launch = launch().set("mailbox.max_attempts=2");
    let server = launch.start();
    let (sent, _) = server.send_message(TOPIC, KEY, MARKED);
    server.stop();
    damage(&launch);
    let server = launch.start();
    let wish = json!({"topic": TOPIC, "wait_seconds": 1});
    let refused = |attempts: f64| {
        let answer = eventually("it is told of", || {
            let answer = server.post("/v1/recv", &wish);
            (answer.status != 200).then_some(answer)
        });
        let told = answer.refused(422, "E_INTEGRITY");
        assert_eq!(told["msg_ids"], json!([sent]));
        let counted = server.metric("integrity_fail_total{reason=\"payload_hash\"}");
        assert_eq!(counted, Some(attempts));
    };
    refused(1.0);
    refused(2.0);
    let dead = server.dead_letters(TOPIC);
    assert_eq!(
        (id(&dead[0]), &dead[0]["reason"]),
        (sent, &json!("integrity"))
    );
    assert!(server.receive(TOPIC, 60_000).is_empty(), "nobody gets it");
}

#[test]
fn vector_5_a_name_is_free_again_after_the_replay_window() {
    let launch = launch()
        .set("mailbox.default_visibility=250ms")
        .set("mailbox.t_replay=500ms");
    let server = launch.start();
    let (first, _) = server.send_message(TOPIC, KEY, PAYLOAD);
    let second = eventually("the window is over", || {
        match server.send_message(TOPIC, KEY, PAYLOAD) {
            (id, true) => {
                assert_eq!(id, first);
                None
            }
            (id, false) => Some(id),
        }
    });
    let received = server.receive(TOPIC, 60_000);
    let ids: Vec<String> = received.iter().map(id).collect();
    assert_eq!(ids, [first, second], "one delivery for each window");
    assert_eq!(count(&server, "mailbox_enqueued_total"), Some(2.0));
}
