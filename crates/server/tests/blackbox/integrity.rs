//! A byte of a stored message that changed on the disk: its receiver is told, it becomes a dead letter
//! in the end, and everything else goes on.

use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::grpc::{client, wish};
use crate::harness::{Launch, Server, eventually};

const CONTENT: &str = "a content that stands nowhere else";

/// A server with a message whose content is damaged, and one behind it that is not.
fn damaged() -> (Server, String) {
    let server = Launch::new()
        .args(&["--max-attempts", "2"])
        .args(&["--backoff-base", "1ms", "--backoff-max", "1ms"])
        .start();
    let send = |key: &str, content: &str| {
        let payload = asyncgate_api::Payload::from(content.as_bytes().to_vec());
        let message = json!({"topic": "t", "idem_key": key, "payload_b64": payload});
        let sent = server.post("/v1/send", &message).expect(200);
        sent["msg_id"].as_str().unwrap().to_owned()
    };
    let id = send("damaged", CONTENT);
    send("whole", "hello");
    server.signal("TERM");
    let launch = server.launch().clone();
    server.wait();
    let file = launch.data().join("asyncgate.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let mut places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(CONTENT.as_bytes()));
    let place = places.next().expect("the content is in the file");
    assert_eq!(places.next(), None, "the content is in the file once");
    bytes[place] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    (launch.start(), id)
}

#[test]
fn a_flipped_byte_is_told_counted_and_buried_and_others_are_delivered() {
    let (server, id) = damaged();
    let wish = json!({"topic": "t"});
    let got = server.post("/v1/recv", &wish).expect(200);
    let content = |n: usize| got["messages"][n]["idem_key"].as_str();
    assert_eq!((content(0), content(1)), (Some("whole"), None));
    // It was met once on the way; the second time is the last.
    let refused = eventually("it comes again", || {
        let answer = server.post("/v1/recv", &wish);
        (answer.status != 200).then_some(answer)
    });
    let body = refused.refused(422, "E_INTEGRITY");
    assert_eq!(body["msg_ids"], json!([id]));
    let dead = server.get("/v1/dlq?topic=t").expect(200);
    assert_eq!(dead["messages"][0]["msg_id"], id.as_str());
    assert_eq!(dead["messages"][0]["cause"], "integrity");
    assert_eq!(
        server.post("/v1/recv", &wish).expect(200)["messages"],
        json!([])
    );
    let failed = server.metric("integrity_fail_total{reason=\"payload_hash\"}");
    assert_eq!(failed, Some(2.0));
    assert_eq!(
        server.metric("rejected_total{reason=\"integrity\"}"),
        Some(1.0)
    );
    let lost = "mailbox_dlq_total{topic_class=\"other\",reason=\"integrity\"}";
    assert_eq!(server.metric(lost), Some(1.0));
    let log = server.logged("integrity.fail");
    assert!(log.contains("dlq.move") && !log.contains(CONTENT), "{log}");
    let fresh = json!({"topic": "t", "idem_key": "fresh", "payload_b64": ""});
    server.post("/v1/send", &fresh).expect(200);
    let got = server.post("/v1/recv", &wish).expect(200);
    assert_eq!(got["messages"][0]["idem_key"], "fresh");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_tells_the_same() {
    let (server, id) = damaged();
    let mut client = client(&server);
    let first = client.recv(wish("t")).await.unwrap().into_inner();
    assert_eq!(first.messages[0].idem_key, "whole");
    let mut again = wish("t");
    again.get_mut().wait_seconds = Some(10);
    let refused = client.recv(again).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.reason, "E_INTEGRITY");
    assert!(info.metadata["msg_ids"].contains(&id), "{info:?}");
}
