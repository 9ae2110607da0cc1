//! The MCP facade: the engine's operations as tools, over streamable HTTP and over stdio.
//!
//! Both eras of the protocol are served side by side: 2026-07-28, where every request stands
//! alone, and the revisions up to 2025-11-25, which begin with `initialize`. Neither needs a
//! session here: the server keeps no state between requests.
//!
//! Invariants:
//! - No rule of the product lives here. A tool is an entry of the engine's registry; its arguments
//!   reach the engine, and its output reaches the client, byte for byte.
//! - A wrong *message* is a JSON-RPC error. A tool that says *no* is a result with `isError`,
//!   because a model can read it and do better.
//! - Over HTTP nothing is answered before `Origin` and the credential have been checked.

mod backend;
mod batch;
mod client;
mod compact;
mod dispatch;
mod endpoint;
mod era;
mod headers;
mod instructions;
mod jsonrpc;
mod line_reader;
mod names;
mod options;
mod origin;
mod portable;
mod stdio;
mod tools;
mod toolsets;
mod wire;

#[cfg(test)]
mod fake;

use std::{io, sync::Arc};

use asyncgate_engine::{Authenticator, Caller, Engine};
use axum::Router;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

pub use endpoint::PATH;
pub use names::ToolNames;
pub use options::Options;
pub use toolsets::{Toolsets, Unreadable};

use crate::{backend::EngineBackend, client::Client, dispatch::Dispatcher, tools::Catalogue};

/// Returns the HTTP endpoint `/mcp`.
pub fn router(engine: Arc<Engine>, auth: Arc<dyn Authenticator>, options: Options) -> Router {
    let dispatcher = Dispatcher::new(EngineBackend::new(engine), &options);
    endpoint::mount(dispatcher, auth, options)
}

/// Serves one client over a pair of streams, one JSON-RPC message per line, as `caller`.
///
/// A call that waits does not hold up others. The end of `reader` ends the service once the calls
/// under way are answered.
///
/// # Errors
/// When a stream fails.
pub fn stdio<'a>(
    engine: Arc<Engine>,
    caller: Caller,
    options: Options,
    reader: Box<dyn AsyncRead + Unpin + Send + 'a>,
    writer: Box<dyn AsyncWrite + Unpin + Send + 'a>,
) -> BoxFuture<'a, io::Result<()>> {
    let dispatcher = Dispatcher::new(EngineBackend::new(engine), &options);
    let client = Client {
        caller,
        toolsets: options.toolsets,
    };
    // Boxed, so that it is compiled here and not where it is awaited.
    Box::pin(stdio::serve(dispatcher, client, reader, writer))
}

/// Returns all tools as `tools/list` gives them: `{"tools": [...]}`.
pub fn tool_list() -> serde_json::Value {
    let catalogue = Catalogue::new(&backend::operations(), ToolNames::default());
    let tools = catalogue.list(|_, _| true);
    let tools: serde_json::Value = serde_json::from_str(&tools).unwrap_or_default();
    serde_json::json!({ "tools": tools })
}
