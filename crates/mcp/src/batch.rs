//! Several messages in one body, which 2025-03-26 and older allow.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use serde_json::value::RawValue;

use crate::{
    backend::Backend,
    client::Client,
    dispatch::Dispatcher,
    era::{self, admit},
    jsonrpc::{self, Error, ErrorCode, Message, read_message},
};

/// More messages than this in one body are refused: they would all run at once.
const MOST: usize = 100;
/// The most bytes that the answers of a batch may have together.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Checks that a batch may be answered at all.
pub(crate) fn check(messages: &[&RawValue], version: &str) -> Result<(), Error> {
    if !era::allows_batches(version) {
        return Err(Error::invalid_request(
            "this protocol version takes one message at a time",
        ));
    }
    if messages.is_empty() || messages.len() > MOST {
        return Err(Error::invalid_request("a batch has 1 to 100 messages"));
    }
    Ok(())
}

/// Answers all messages of a batch, side by side. Returns nothing if none of them is owed an answer. A small batch can
/// ask for much: what is too much together, or more than the caller's share of memory, is dropped at once, and its
/// message is told to come alone.
pub(crate) async fn answer<B: Backend>(
    dispatcher: &Dispatcher<B>,
    client: &Client<B::Caller>,
    messages: &[&RawValue],
    corr_id: &str,
) -> Option<Vec<u8>> {
    answer_within(MAX_ANSWER_BYTES, dispatcher, client, messages, corr_id).await
}

async fn answer_within<B: Backend>(
    max_bytes: usize,
    dispatcher: &Dispatcher<B>,
    client: &Client<B::Caller>,
    messages: &[&RawValue],
    corr_id: &str,
) -> Option<Vec<u8>> {
    let taken = AtomicUsize::new(0);
    let limits = dispatcher.body_limits(Some(&client.caller), max_bytes);
    let answers = messages.iter().map(async |raw| {
        let answer = answer_one(dispatcher, client, raw, corr_id).await?;
        let before = taken.fetch_add(answer.len(), Ordering::Relaxed);
        // An answer waits for those of the other messages, and counts for as long.
        if before.saturating_add(answer.len()) <= max_bytes
            && let Some(grant) = limits.budget.take(limits.holder, answer.len())
        {
            return Some((answer, Some(grant)));
        }
        taken.fetch_sub(answer.len(), Ordering::Relaxed);
        Some((too_large(raw), None))
    });
    let answers = join_all(answers).await;
    let mut json = vec![b'['];
    for (answer, _grant) in answers.into_iter().flatten() {
        json.extend_from_slice(&answer);
        json.push(b',');
    }
    // The last comma makes room for the bracket. Without one, nobody is owed an answer.
    (json.pop() == Some(b',')).then(|| {
        json.push(b']');
        json
    })
}

fn too_large(raw: &RawValue) -> Vec<u8> {
    let id = match read_message(raw) {
        Ok(Message::Request(request)) => Some(request.id),
        Ok(Message::Notification(_) | Message::Response) | Err(_) => None,
    };
    let message = "TOO_LARGE: the answers of this batch are too large together; whatever this message asked for was \
                   done, but to see its answer send it alone";
    jsonrpc::error_answer(id, &Error::new(ErrorCode::Internal, message))
}

/// Answers one message of several, or one that is known not to be `initialize`.
pub(crate) async fn answer_one<B: Backend>(
    dispatcher: &Dispatcher<B>,
    client: &Client<B::Caller>,
    raw: &RawValue,
    corr_id: &str,
) -> Option<Vec<u8>> {
    let request = match read_message(raw) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(_) | Message::Response) => return None,
        Err(unreadable) => return Some(jsonrpc::error_answer(unreadable.id, &unreadable.error)),
    };
    let admitted = if request.method == "initialize" {
        Err(Error::invalid_request("`initialize` must come alone"))
    } else {
        admit(&request, None)
    };
    match admitted {
        Ok(admitted) => Some(dispatcher.answer(client, &admitted, corr_id).await.json),
        Err(error) => Some(jsonrpc::error_answer(Some(request.id), &error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{self, Fake};

    async fn run(json: &str) -> Option<Value> {
        let messages: Vec<&RawValue> = serde_json::from_str(json).unwrap();
        let dispatcher = fake::dispatcher(Fake::default());
        let answer = answer(&dispatcher, &fake::client(), &messages, "c").await?;
        Some(serde_json::from_slice(&answer).unwrap())
    }

    #[tokio::test]
    async fn each_request_is_answered_and_nothing_else_is() {
        let answers = run(r#"[
            {"jsonrpc":"2.0","id":1,"method":"ping"},
            {"jsonrpc":"2.0","method":"notifications/initialized"},
            {"jsonrpc":"2.0","id":2,"method":"nope"},
            {"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-03-26"}},
            7
        ]"#)
        .await
        .unwrap();
        let found: Vec<_> = answers.as_array().unwrap().iter().collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], &json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        let codes: Vec<_> = found[1..]
            .iter()
            .map(|a| (&a["id"], &a["error"]["code"]))
            .collect();
        assert_eq!(
            codes,
            [
                (&json!(2), &json!(-32601)),
                (&json!(3), &json!(-32600)),
                (&json!(null), &json!(-32600))
            ]
        );
        assert_eq!(run(r#"[{"jsonrpc":"2.0","method":"n"}]"#).await, None);
    }

    #[tokio::test]
    async fn answers_that_are_too_large_together_are_left_out() {
        let json = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        let messages: Vec<&RawValue> = serde_json::from_str(json).unwrap();
        let dispatcher = fake::dispatcher(Fake::default());
        let answer = answer_within(60, &dispatcher, &fake::client(), &messages, "c").await;
        let answers: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        assert_eq!(answers[0]["result"], json!({}));
        assert_eq!(answers[1]["id"], json!(2));
        let message = answers[1]["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("TOO_LARGE"), "{message}");
    }

    #[tokio::test]
    async fn answers_wait_for_each_other_within_the_callers_share_of_memory() {
        let arguments = json!({"text": "x".repeat(900)});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "fake.echo", "arguments": arguments}});
        let whole = Value::from(vec![call; 50]).to_string();
        let messages: Vec<&RawValue> = serde_json::from_str(&whole).unwrap();
        let dispatcher = fake::dispatcher(Fake::with_budget(20_000));
        let answer = answer(&dispatcher, &fake::client(), &messages, "c").await;
        let answers: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        let is_told = |answer: &&Value| answer["result"].is_object();
        let told = answers.as_array().unwrap().iter().filter(is_told).count();
        assert!((1..50).contains(&told), "{told}");
    }

    #[test]
    fn only_old_versions_and_sane_sizes() {
        let raw: &RawValue = serde_json::from_str("1").unwrap();
        assert!(check(&[raw], "2025-03-26").is_ok());
        assert!(check(&[raw; 100], "2024-11-05").is_ok());
        for (messages, version) in [
            (vec![raw], "2025-06-18"),
            (vec![raw], "2026-07-28"),
            (vec![], "2025-03-26"),
            (vec![raw; 101], "2025-03-26"),
        ] {
            let error = check(&messages, version).unwrap_err();
            assert_eq!(error.code.number(), -32600);
        }
    }
}
