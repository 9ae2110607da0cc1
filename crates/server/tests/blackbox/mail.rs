//! What tests of messages share.

use serde_json::{Value, json};

use crate::{
    calls::text,
    harness::{Launch, Server, eventually},
    http::Response,
};

/// `marker-of-the-gates`, as it is sent and as it is stored.
pub const MARKED: &str = "bWFya2VyLW9mLXRoZS1nYXRlcw==";
const MARKER: &[u8] = b"marker-of-the-gates";

impl Server {
    /// Sends some content under a name; gives back the id and whether it was sent before.
    #[track_caller]
    pub fn send_message(&self, topic: &str, key: &str, payload: &str) -> (String, bool) {
        let input = json!({"topic": topic, "idem_key": key, "payload_b64": payload});
        let answer = self.post("/v1/send", &input).expect(200);
        (text(&answer["msg_id"]), answer["duplicate"] == true)
    }

    /// Receives what is there.
    #[track_caller]
    pub fn receive(&self, topic: &str, visibility_ms: u32) -> Vec<Value> {
        let input = json!({"topic": topic, "visibility_ms": visibility_ms});
        let answer = self.post("/v1/recv", &input).expect(200);
        answer["messages"].as_array().unwrap().clone()
    }

    /// Receives the next message, once there is one.
    #[track_caller]
    pub fn receive_one(&self, topic: &str, visibility_ms: u32) -> Value {
        let wish = json!({"topic": topic, "visibility_ms": visibility_ms, "max_messages": 1,
            "wait_seconds": 1});
        eventually("a message", || {
            let answer = self.post("/v1/recv", &wish).expect(200);
            answer["messages"].as_array().unwrap().first().cloned()
        })
    }

    pub fn settle(&self, how: &str, message: &Value, more: &Value) -> Response {
        let mut input = json!({"lease": message["lease"]});
        for (name, value) in more.as_object().into_iter().flatten() {
            input[name] = value.clone();
        }
        self.post(&format!("/v1/{how}/{}", id(message)), &input)
    }

    #[track_caller]
    pub fn ack(&self, message: &Value) {
        self.settle("ack", message, &json!({})).expect(200);
    }

    /// Gives the next message of a topic back until it is dead.
    #[track_caller]
    pub fn poison(&self, topic: &str, attempts: usize) {
        for attempt in 1..=attempts {
            let message = self.receive_one(topic, 60_000);
            assert_eq!(message["attempt"], attempt);
            let why = json!({"reason": "E_PARSE", "error": "not JSON", "delay_ms": 0});
            self.settle("nack", &message, &why).expect(200);
        }
    }

    #[track_caller]
    pub fn dead_letters(&self, topic: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/dlq?topic={topic}")).expect(200);
        page["messages"].as_array().unwrap().clone()
    }
}

/// A message's id.
pub fn id(message: &Value) -> String {
    text(&message["msg_id"])
}

/// Flips a bit of the stored content [`MARKED`]. No server may be running.
pub fn damage(launch: &Launch) {
    let path = launch.data().join("asyncgate.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let places = bytes.windows(MARKER.len());
    let at = places.into_iter().position(|part| part == MARKER).unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(&path, bytes).unwrap();
}
