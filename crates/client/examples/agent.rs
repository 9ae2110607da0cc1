//! An agent: it hands a task over, waits for its end and reads the result.
//!
//!     ASYNCGATE_API_KEY=secret cargo run -p asyncgate-client --example agent
//!
//! The example `worker` does the task.

#![expect(clippy::print_stdout, reason = "a program tells its user")]

use std::{env, error::Error, time::Duration};

use asyncgate_client::{
    Client,
    api::{CreateTaskInput, GetTaskInput},
};
use serde_json::value::to_raw_value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("ASYNCGATE_URL").unwrap_or("http://127.0.0.1:8080".to_owned());
    let key = env::var("ASYNCGATE_API_KEY").map_err(|_| "set ASYNCGATE_API_KEY")?;
    let client = Client::new(address, key)?;
    println!("{}", greeting(&client, "Ada").await?);
    Ok(())
}

/// Asks for a greeting and waits until somebody has made it.
pub async fn greeting(client: &Client, name: &str) -> Result<String, Box<dyn Error>> {
    let task = CreateTaskInput {
        task_type: "greet".to_owned(),
        payload: Some(to_raw_value(name)?),
        // An agent that starts again and asks again gets the same task, not a second one.
        idempotency_key: Some(format!("greet-{name}")),
        ..Default::default()
    };
    let task_id = client.create_task(&task).await?.task_id;

    // The task is on disk now. It will be done, even if this program ends here.
    let input = GetTaskInput {
        task_id,
        ..Default::default()
    };
    let task = client
        .wait_for_task(&input, Duration::from_secs(300))
        .await?;
    let Some(end) = task.result else {
        return Err("nobody has done it yet; ask again later".into());
    };
    match end.result {
        Some(result) => Ok(serde_json::from_str(result.get())?),
        None => Err(format!("it ended as {:?}: {:?}", end.outcome, end.error).into()),
    }
}
