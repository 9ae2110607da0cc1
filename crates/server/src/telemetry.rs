//! Logs: one line per event on stderr, as JSON or for people, with a level that can be changed while running.
//!
//! Stdout belongs to the command line (and, over stdio, to the protocol). Secrets and payloads are never
//! logged: values that hold them have no field here, and their `Debug` does not show them.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, reload};

use crate::config::LogFormat;

/// What can go wrong with logging.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("log.level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging was set up twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
    #[error("logging is gone: {0}")]
    Gone(#[from] reload::Error),
}

/// Changes the level of a running program.
#[derive(Debug, Clone)]
pub struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Level {
    /// From now on, logs what `directives` say.
    pub fn set(&self, directives: &str) -> Result<(), Error> {
        self.filter.reload(EnvFilter::try_new(directives)?)?;
        Ok(())
    }
}

/// Sets up logging for the whole process.
pub fn start(format: LogFormat, directives: &str) -> Result<Level, Error> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(directives)?);
    let lines = match format {
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(stderr)
            .boxed(),
        LogFormat::Text => fmt::layer()
            .with_ansi(stderr().is_terminal())
            .with_writer(stderr)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()?;
    Ok(Level { filter: handle })
}
