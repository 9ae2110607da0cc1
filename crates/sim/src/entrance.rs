//! The two ways into the engine: with JSON, as REST and MCP go in, and with typed values, as gRPC does.

use std::any::Any;

use asyncgate_engine::{Caller, Engine, Execute, Fault, Source, decode, execute};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

/// A success.
#[derive(Debug)]
pub struct Answer {
    /// What was answered.
    pub output: Output,
    /// Whether the answer said that something came to be.
    pub created: bool,
}

/// An operation's output as it came out.
#[derive(Debug)]
pub enum Output {
    /// Encoded.
    Json(Vec<u8>),
    /// As it is.
    Typed(Box<dyn Any + Send>),
}

impl Output {
    /// The output, which must be of this type.
    pub fn read<T: DeserializeOwned + 'static>(self) -> Result<T, String> {
        match self {
            // Text that is checked as a whole is read more quickly than bytes.
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

/// What a call answers with.
pub type Answering<'a> = BoxFuture<'a, Result<Answer, Fault>>;

/// Runs an operation as gRPC does: it reads the input itself and is given the output as it is.
pub fn typed<'a, O>(engine: &'a Engine, caller: &'a Caller, input: &'a str) -> Answering<'a>
where
    O: Execute<Output: 'static>,
{
    Box::pin(async move {
        let input = decode::<O::Input>(Source::Json(input.as_bytes()));
        let output = execute::<O>(engine, caller, input).await?;
        Ok(Answer {
            created: O::created(&output),
            output: Output::Typed(Box::new(output)),
        })
    })
}
