//! `echo`: returns its payload.

use serde_json::json;

use crate::{Context, Failure, Outcome, Payload};

/// Returns the payload, byte for byte. The task itself holds the result, and the artifact says so.
pub async fn echo(context: Context, payload: Payload) -> Result<Outcome, Failure> {
    let place = json!([{ "type": "inline", "task_id": context.task().task_id }]);
    Outcome::raw(payload.into_raw()).with_artifacts(&place)
}
