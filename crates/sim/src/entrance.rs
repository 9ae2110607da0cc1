//! The two ways into the engine: with JSON, like REST and MCP, and with typed values, like gRPC.

use std::any::Any;

use asyncgate_engine::{Caller, Engine, Execute, Fault, Source, decode, execute};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

/// A success answer.
#[derive(Debug)]
pub struct Answer {
    /// The output.
    pub output: Output,
    /// True if the answer said that something was created.
    pub created: bool,
}

/// An operation's output.
#[derive(Debug)]
pub enum Output {
    /// Encoded as JSON.
    Json(Vec<u8>),
    /// The value itself.
    Typed(Box<dyn Any + Send>),
}

impl Output {
    /// Returns the output, which must be of this type.
    pub fn read<T: DeserializeOwned + 'static>(self) -> Result<T, String> {
        match self {
            // The parser is faster on text that was checked as a whole than on bytes.
            Self::Json(json) => str::from_utf8(&json)
                .map_err(|error| error.to_string())
                .and_then(|text| serde_json::from_str(text).map_err(|error| error.to_string())),
            Self::Typed(output) => match output.downcast() {
                Ok(output) => Ok(*output),
                Err(_) => Err("another type".to_owned()),
            },
        }
    }
}

/// Runs an operation with typed values.
pub type Typed = for<'a> fn(&'a Engine, &'a Caller, &'a str) -> Answering<'a>;

/// The running call.
pub type Answering<'a> = BoxFuture<'a, Result<Answer, Fault>>;

/// Runs an operation like gRPC does: reads the input itself and takes the output unencoded.
pub fn typed<'a, O>(engine: &'a Engine, caller: &'a Caller, input: &'a str) -> Answering<'a>
where
    O: Execute<Output: 'static>,
{
    Box::pin(async move {
        let input = decode::<O>(Source::Json(input.as_bytes()));
        let output = execute::<O>(engine, caller, input).await?;
        Ok(Answer {
            created: O::created(&output),
            output: Output::Typed(Box::new(output)),
        })
    })
}
