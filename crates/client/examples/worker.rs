//! A worker: it does tasks of the type `greet` until Ctrl-C.
//!
//!     ASYNCGATE_API_KEY=secret cargo run -p asyncgate-client --example worker
//!
//! The example `agent` hands such a task over.

#![expect(clippy::print_stdout, reason = "a program tells its user")]

use std::{env, error::Error};

use asyncgate_client::{Client, Context, Failure, Outcome, Payload, Worker};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("ASYNCGATE_URL").unwrap_or("http://127.0.0.1:8080".to_owned());
    let key = env::var("ASYNCGATE_API_KEY").map_err(|_| "set ASYNCGATE_API_KEY")?;
    let client = Client::new(address, key)?;
    let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
    println!("{:?}", worker(&client)?.run(ctrl_c).await?);
    Ok(())
}

/// Makes a worker that does eight tasks at a time.
pub fn worker(client: &Client) -> Result<Worker, asyncgate_client::Error> {
    let worker = Worker::builder(client).id("greeter").concurrency(8);
    worker.handle("greet", greet).build()
}

/// Does one task. The lease is renewed meanwhile, for as long as it takes.
async fn greet(context: Context, payload: Payload) -> Result<Outcome, Failure> {
    // A payload that is no text is a failure that no retry can mend.
    let name: String = payload.parse()?;
    context.progress(&json!({ "greeting": name })).await?;
    let greeting = Outcome::json(&format!("Hello {name}"))?;
    // Whoever asked is owed the greeting until a receipt says where it is.
    greeting.with_artifacts(&json!([{ "type": "inline" }]))
}
