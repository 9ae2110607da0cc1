//! The stream as a client meets it.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::Notify,
    task::JoinHandle,
};

use super::*;
use crate::fake::{self, Fake};

struct Client {
    writer: Option<WriteHalf<DuplexStream>>,
    reader: BufReader<ReadHalf<DuplexStream>>,
    server: JoinHandle<io::Result<()>>,
    wake: Arc<Notify>,
}

fn connect() -> Client {
    let (ours, theirs) = duplex(1 << 20);
    let backend = Fake::default();
    let wake = Arc::clone(&backend.wake);
    let dispatcher = fake::dispatcher(backend);
    let (theirs_in, theirs_out) = split(theirs);
    let server = tokio::spawn(serve(dispatcher, fake::client(), theirs_in, theirs_out));
    let (reader, writer) = split(ours);
    Client {
        writer: Some(writer),
        reader: BufReader::new(reader),
        server,
        wake,
    }
}

impl Client {
    async fn say(&mut self, line: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(line.as_bytes()).await.unwrap();
        writer.write_all(b"\n").await.unwrap();
    }

    async fn call(&mut self, id: u32, tool: &str) {
        let params = json!({"name": tool, "arguments": {}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.say(&call.to_string()).await;
    }

    async fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    async fn hang_up(&mut self) {
        let mut writer = self.writer.take().unwrap();
        writer.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn both_eras_are_spoken_on_one_stream() {
    let mut client = connect();
    client
        .say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#)
        .await;
    let hello = client.hear().await.unwrap();
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    client
        .say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    client
        .say(r#"{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#)
        .await;
    let found = client.hear().await.unwrap();
    assert_eq!(found["id"], 2);
    assert_eq!(found["result"]["resultType"], "complete");
    client
        .say(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999","io.modelcontextprotocol/clientCapabilities":{}}}}"#)
        .await;
    assert_eq!(client.hear().await.unwrap()["error"]["code"], -32022);
}

#[tokio::test]
async fn a_call_that_waits_does_not_hold_up_the_next() {
    let mut client = connect();
    client.call(1, "fake.wait").await;
    client.call(2, "fake.echo").await;
    assert_eq!(client.hear().await.unwrap()["id"], 2);
    client.wake.notify_one();
    assert_eq!(client.hear().await.unwrap()["id"], 1);
}

#[tokio::test]
async fn the_end_of_the_stream_waits_for_calls_under_way() {
    let mut client = connect();
    client.call(1, "fake.wait").await;
    client.call(2, "fake.echo").await;
    assert_eq!(client.hear().await.unwrap()["id"], 2);
    client.hang_up().await;
    client.wake.notify_one();
    assert_eq!(client.hear().await.unwrap()["id"], 1);
    client.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cancelled_call_is_not_answered() {
    let mut client = connect();
    client.call(1, "fake.wait").await;
    client
        .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    client.hang_up().await;
    client.server.await.unwrap().unwrap();
    let mut rest = String::new();
    client.reader.read_line(&mut rest).await.unwrap();
    assert_eq!(rest, "");
}

#[tokio::test]
async fn a_call_that_panics_is_answered_and_the_stream_lives() {
    let mut client = connect();
    client.call(1, "fake.old").await;
    let answer = client.hear().await.unwrap();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
    client.call(2, "fake.echo").await;
    assert_eq!(client.hear().await.unwrap()["id"], 2);
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_the_stream_lives() {
    let mut client = connect();
    let long = "x".repeat(crate::Options::max_message_bytes(1000) + 1);
    let table = [
        ("{", -32700),
        (long.as_str(), -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#, -32601),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#,
            -32602,
        ),
    ];
    for (line, code) in table {
        client.say("").await;
        client.say(line).await;
        assert_eq!(client.hear().await.unwrap()["error"]["code"], code);
    }
}

#[tokio::test]
async fn an_old_handshake_allows_batches() {
    let mut client = connect();
    client
        .say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}"#)
        .await;
    client.hear().await.unwrap();
    client
        .say(r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"n"}]"#)
        .await;
    let answers = client.hear().await.unwrap();
    assert_eq!(answers, json!([{"jsonrpc": "2.0", "id": 2, "result": {}}]));
}
