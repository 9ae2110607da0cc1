//! Tasks by what people type: a whole id, the short form that tables print, or the beginning of an id.

use asyncgate_client::{
    Client,
    api::{GetTaskInput, ListTasksInput},
};
use asyncgate_core::{ShortId, TaskId};

use crate::exit::Exit;

/// The newest tasks, among which the beginning of an id is looked for.
const NEWEST: u32 = 200;

/// Returns the whole id of the task that `text` names.
pub async fn whole(client: &Client, text: String) -> anyhow::Result<String> {
    if text.parse::<ShortId>().is_err() {
        return or_short(client, text).await;
    }
    // The short form has the place of the task in it, so the server finds it at once.
    let input = GetTaskInput {
        task_id: text,
        ..GetTaskInput::default()
    };
    Ok(client.get_task(&input).await?.task_id)
}

/// Returns the whole id or the short form of the task that `text` names: `get_task` takes both.
pub async fn or_short(client: &Client, text: String) -> anyhow::Result<String> {
    if text.parse::<TaskId>().is_ok() || !is_beginning(&text) {
        return Ok(text);
    }
    let input = ListTasksInput {
        limit: Some(NEWEST),
        ..ListTasksInput::default()
    };
    let newest = client.list_tasks(&input).await?.tasks;
    let beginning = text.to_ascii_lowercase();
    let ids = newest.into_iter().map(|task| task.task_id);
    let mut found: Vec<String> = ids.filter(|id| id.starts_with(&beginning)).collect();
    match (found.pop(), found.is_empty()) {
        (Some(id), true) => Ok(id),
        (None, _) => Err(Exit::not_found(format!(
            "none of the newest {NEWEST} tasks has an id that begins with {text}; give the whole id, \
             or the short form that `asyncgate task list` prints"
        ))
        .into()),
        (Some(last), false) => {
            found.push(last);
            let number = found.len();
            found.truncate(5);
            let more = if number > found.len() { ", …" } else { "" };
            Err(Exit::usage(format!(
                "{number} tasks have an id that begins with {text}: {}{more}",
                found.join(", ")
            ))
            .into())
        }
    }
}

/// Returns true if the text can be the beginning of an id. Ids begin with the time, which begins with 0
/// for some centuries, and a short form does not.
fn is_beginning(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    text.starts_with('0') && text.len() >= 4 && digits(text)
}
