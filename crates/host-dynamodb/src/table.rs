//! The table: requests that name it.

use serde_json::{Value, json};

use crate::{client::Client, refusal::Refusal};

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl Table {
    /// The same request with the table's name.
    pub(crate) fn named(&self, mut input: Value) -> Value {
        input["TableName"] = json!(self.name);
        input
    }

    pub(crate) async fn call(&self, operation: &str, input: Value) -> Result<Value, Refusal> {
        self.call_unnamed(operation, &self.named(input)).await
    }

    /// For requests whose parts name the table.
    pub(crate) async fn call_unnamed(
        &self,
        operation: &str,
        input: &Value,
    ) -> Result<Value, Refusal> {
        self.client.call(operation, input).await
    }
}
