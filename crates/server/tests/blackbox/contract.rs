//! Every answer that a test gets is held against the OpenAPI document: its status, its code and its body.

use std::sync::LazyLock;

use asyncgate_rest::contract::Contract;

use crate::http::Response;

static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::default);

/// Fails the test if the document does not allow this answer.
pub fn hold(method: &str, target: &str, response: &Response) {
    if response.header("Content-Type") != Some("application/json") {
        return;
    }
    let path = target.split('?').next().unwrap_or_default();
    // Payloads come back byte for byte, also those that are legal JSON and yet too much for this reader.
    let Ok(body) = serde_json::from_slice(&response.body) else {
        return;
    };
    let held = CONTRACT.check_answer(method, path, response.status, &body);
    held.unwrap_or_else(|flaw| panic!("the OpenAPI document does not say this: {flaw}"));
}
