//! Random chains and calls, with the decisions of the reference implementation (tenuo 0.3.3).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use crate::{object, policy};

#[test]
fn decisions_are_those_of_the_reference() {
    let file: Value = serde_json::from_str(include_str!("reference.json")).unwrap();
    let mut accepted = 0;
    for (at, case) in file["cases"].as_array().unwrap().iter().enumerate() {
        let warrants = case["warrants"].as_array().unwrap().iter();
        let decode = |text: &Value| URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap();
        let warrants: Vec<Vec<u8>> = warrants.map(decode).collect();
        let args = object(case["args"].clone());
        let call = asyncgate_warrants::Call {
            warrants: &warrants,
            tool: "read",
            args: &args,
            pop: None,
            now: file["now"].as_i64().unwrap(),
        };
        let refusal = asyncgate_warrants::verify(&policy(), &call).refusal;
        let expected = case["accepted"].as_bool().unwrap();
        assert_eq!(refusal.is_none(), expected, "case {at}: {case} {refusal:?}");
        accepted += usize::from(expected);
    }
    assert!(accepted > 20, "there is something to accept");
}
