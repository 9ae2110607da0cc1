//! The Rust client of AsyncGate, and a runtime for workers.
//!
//! It knows the wire contract (`asyncgate-api`) and nothing of the server.
//!
//! ```no_run
//! # use asyncgate_client::{Client, Error, Outcome, Worker, api::CreateTaskInput};
//! # async fn example() -> Result<(), Error> {
//! let client = Client::new("http://127.0.0.1:8080", "secret")?;
//! let task = CreateTaskInput { task_type: "greet".to_owned(), ..Default::default() };
//! client.create_task(&task).await?;
//!
//! let worker = Worker::builder(client)
//!     .id("w1")
//!     .concurrency(8)
//!     .handle("greet", |_, payload| async move {
//!         let name: String = payload.parse()?;
//!         Outcome::json(&format!("Hello {name}"))
//!     })
//!     .build()?;
//! worker.run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Architecture Invariant:** a payload or result is carried as the bytes it was given, and never
//! reaches a log.

mod address;
mod admission;
mod answer;
mod client;
mod connect;
mod consumer;
mod error;
mod exchange;
mod fields;
pub mod handlers;
mod live;
mod mailbox;
mod operations;
mod pages;
mod pool;
mod random;
mod request;
mod retry;
mod runtime;
mod worker;

/// The wire contract.
pub use asyncgate_api as api;

pub use client::{Builder, Client};
pub use consumer::{Consumer, ConsumerBuilder, Delivery};
pub use error::{Error, Kind};
pub use pages::{Items, has_ended};
pub use retry::Retry;
pub use runtime::{Cause, End, Summary};
pub use worker::{Context, Event, Failure, Outcome, Payload, Worker, WorkerBuilder};
