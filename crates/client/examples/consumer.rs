//! A consumer: it handles the messages of a topic until Ctrl-C.
//!
//!     ASYNCGATE_API_KEY=secret cargo run -p asyncgate-client --example consumer
//!
//! It sends itself the first message.

#![expect(clippy::print_stdout, reason = "a program tells its user")]

use std::{env, error::Error};

use asyncgate_client::{
    Client, Consumer, Delivery, Failure,
    api::{SendInput, Text},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("ASYNCGATE_URL").unwrap_or("http://127.0.0.1:8080".to_owned());
    let key = env::var("ASYNCGATE_API_KEY").map_err(|_| "set ASYNCGATE_API_KEY")?;
    let client = Client::new(address, key)?;
    order(&client, "the fence").await?;
    let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
    println!("{:?}", consumer(&client)?.run(ctrl_c).await?);
    Ok(())
}

/// Sends a message.
pub async fn order(client: &Client, thing: &str) -> Result<(), Box<dyn Error>> {
    let message = SendInput {
        topic: "paint".to_owned(),
        payload_text: Some(Text(serde_json::to_string(thing)?)),
        ..Default::default()
    };
    client.send_message(&message).await?;
    Ok(())
}

/// Makes a consumer that handles eight messages at a time.
pub fn consumer(client: &Client) -> Result<Consumer, asyncgate_client::Error> {
    Consumer::builder(client, "paint", paint)
        .concurrency(8)
        .build()
}

/// Handles one message. It is acknowledged after a success and delivered again after a failure, so that
/// painting twice must do no harm.
async fn paint(delivery: Delivery) -> Result<(), Failure> {
    let thing: String = delivery.parse()?;
    println!("painting {thing}, delivery {}", delivery.message().attempt);
    Ok(())
}
