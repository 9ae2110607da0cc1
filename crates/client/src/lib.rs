#![doc = include_str!("../README.md")]
//!
//! # Where to begin
//!
//! | to | use |
//! |---|---|
//! | call an operation | a method of [`Client`]; its inputs and outputs are in [`api`] |
//! | do tasks | [`Worker`]; [`handlers`] holds some that are ready |
//! | handle the messages of a topic | [`Consumer`], or [`Client::receive_stream`] |
//! | read a long list | the streams of [`Client`]: [`Client::tasks`], [`Client::receipts`], [`Client::topics`] and others |
//! | wait for the end of a task | [`Client::wait_for_task`] |
//! | decide what to do about an error | [`Error::kind`] and [`Error::code`] |
//!
//! **Architecture Invariant:** it knows the wire contract (`asyncgate-api`) and nothing of the server. A payload
//! or result is carried as the bytes it was given, and never reaches a log.

#![warn(missing_docs)]

mod admission;
mod builder;
mod client;
mod connect;
mod consumer;
mod error;
mod exchange;
mod fields;
pub mod handlers;
mod identity;
mod lines;
mod live;
mod mailbox;
mod mcp;
mod oauth;
mod operations;
mod pages;
mod pool;
mod random;
mod request;
mod retry;
mod runtime;
mod vitals;
mod wire;
mod worker;

/// The wire contract.
pub use asyncgate_api as api;

pub use builder::ClientBuilder;
pub use client::Client;
pub use consumer::{Consumer, ConsumerBuilder, Delivery};
pub use error::{Error, Kind};
pub use mcp::{Mcp, Messages};
pub use oauth::{CodeExchange, LoginServer, Tokens};
pub use pages::{Items, has_ended};
pub use retry::Retry;
pub use runtime::{Cause, End, Summary};
pub use vitals::Readiness;
pub use worker::{Context, Event, Failure, Outcome, Payload, Worker, WorkerBuilder};

#[cfg(test)]
mod tests {
    const README: &str = include_str!("../README.md");

    #[test]
    fn the_programs_of_the_front_page_are_the_examples() {
        let mut shown = README.split("```rust,no_run\n").skip(1);
        for example in [
            include_str!("../examples/agent.rs"),
            include_str!("../examples/worker.rs"),
            include_str!("../examples/consumer.rs"),
        ] {
            let (_, program) = example.split_once("\n\nuse ").unwrap();
            let (shown, _) = shown.next().unwrap().split_once("```").unwrap();
            assert_eq!(shown, format!("use {program}"));
        }
        assert!(shown.next().is_none());
    }
}
