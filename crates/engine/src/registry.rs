//! The one list of operations. Facades mount what stands here and nothing else.

use asyncgate_api::Spec;
use futures_util::future::BoxFuture;
use schemars::Schema;

use crate::{Caller, Engine, Fault};

/// An operation's input as a facade received it.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A JSON object.
    Json(&'a [u8]),
    /// `name=value` pairs, percent-encoded, as in a query string.
    Form(&'a str),
}

/// A success: the output, already encoded, and whether something new came to be.
#[derive(Debug)]
pub struct Answer {
    /// The output as JSON.
    pub json: Vec<u8>,
    /// True when the call created something (HTTP 201).
    pub created: bool,
}

/// One operation as facades see it.
#[derive(Debug)]
pub struct Entry {
    /// Name, place and promises.
    pub spec: &'static Spec,
    /// The JSON Schema of the input.
    pub input_schema: fn() -> Schema,
    /// The JSON Schema of the output.
    pub output_schema: fn() -> Schema,
    /// Decodes, authorises, runs and encodes.
    pub call: for<'a> fn(&'a Engine, &'a Caller, Source<'a>) -> BoxFuture<'a, Result<Answer, Fault>>,
}

/// Every operation, in the order documents list them.
pub fn registry() -> &'static [Entry] {
    &[]
}
