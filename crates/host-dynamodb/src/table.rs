//! The table: requests that name it.

use serde_json::{Value, json};

use crate::{client::Client, refusal::Refusal};

/// A table and the client that reaches it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl Table {
    /// Returns the request with the table's name.
    pub(crate) fn with_name(&self, mut input: Value) -> Value {
        input["TableName"] = json!(self.name);
        input
    }

    pub(crate) async fn call(&self, operation: &str, input: Value) -> Result<Value, Refusal> {
        self.call_as_is(operation, &self.with_name(input)).await
    }

    /// Sends a request that names the table already, or whose parts do.
    pub(crate) async fn call_as_is(
        &self,
        operation: &str,
        input: &Value,
    ) -> Result<Value, Refusal> {
        self.client.call(operation, input).await
    }
}
