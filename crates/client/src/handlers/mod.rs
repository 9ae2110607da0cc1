//! Reference handlers: small and useful, and examples of how to write one.
//!
//! Each is registered under the name of its task type:
//!
//! ```no_run
//! # use asyncgate_client::{Client, Worker, handlers};
//! # fn example(client: &Client) -> Result<Worker, asyncgate_client::Error> {
//! let http_get = handlers::HttpGet::new(handlers::HttpGetOptions::default())?;
//! Worker::builder(client)
//!     .handle("echo", handlers::echo)
//!     .handle("sleep_then_return", handlers::sleep_then_return)
//!     .handle("http_get", http_get.handler())
//!     .build()
//! # }
//! ```

mod echo;
mod http_get;
mod location;
mod sleep_then_return;

pub use echo::echo;
pub use http_get::{HttpGet, HttpGetOptions};
pub use sleep_then_return::sleep_then_return;
