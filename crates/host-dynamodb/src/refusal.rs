//! Refusals of DynamoDB: requests that it answers with an error.

use asyncgate_store::Error;
use http::StatusCode;
use serde_json::Value;

/// The most characters of a server's message that are repeated.
const MAX_MESSAGE_CHARS: usize = 300;

/// The reason why a request was not done.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The condition does not hold. Holds the row as it is, if DynamoDB told it.
    ConditionFailed(Option<Value>),
    /// A transaction was cancelled, because conditions do not hold or because others were faster. Holds the
    /// outcome of each part.
    Cancelled(Vec<Part>),
    /// Another transaction is writing the row.
    Conflict,
    /// Any other error.
    Failed(Error),
}

/// The outcome of one part of a cancelled transaction.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// The part would have been done.
    Accepted,
    /// Its condition does not hold. Holds the row as it is, if DynamoDB told it.
    ConditionFailed(Option<Value>),
    /// Another transaction is writing the row.
    Conflict,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Failed(error) => error,
            Refusal::ConditionFailed(_) | Refusal::Cancelled(_) | Refusal::Conflict => {
                Self::Conflict
            }
        }
    }
}

impl Refusal {
    pub(crate) fn unavailable(cause: &str) -> Self {
        Self::Failed(Error::Unavailable(format!("DynamoDB: {cause}")))
    }

    pub(crate) fn corrupt(what: &str) -> Self {
        Self::Failed(corrupt(what))
    }

    /// Reads an answer whose status is not 200.
    pub(crate) fn read(status: StatusCode, answer: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let kind = answer["__type"].as_str().unwrap_or_default();
        let kind = kind.rsplit('#').next().unwrap_or_default();
        match kind {
            "ConditionalCheckFailedException" => Self::ConditionFailed(item(&answer)),
            "TransactionConflictException" => Self::Conflict,
            "TransactionCanceledException" => cancelled(&answer["CancellationReasons"]),
            _ if is_about_credentials(status, kind) => {
                let kind = if kind.is_empty() { "no reason" } else { kind };
                Self::unavailable(&format!(
                    "the credentials are not accepted or may not do this, or this machine's clock is wrong ({status}, {kind})"
                ))
            }
            "" => Self::unavailable(&format!("it answered with {status} and no reason")),
            kind => {
                let message = answer["message"].as_str().or(answer["Message"].as_str());
                Self::unavailable(&format!("{kind}: {}", shortened(message)))
            }
        }
    }
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::Corrupt(format!("DynamoDB: {what}"))
}

fn shortened(message: Option<&str>) -> String {
    let message = message.unwrap_or_default();
    message.chars().take(MAX_MESSAGE_CHARS).collect()
}

/// Returns true for refusals whose message may quote the signed text, and thereby a token.
fn is_about_credentials(status: StatusCode, kind: &str) -> bool {
    let known = [
        "Signature",
        "Token",
        "UnrecognizedClient",
        "AuthFailure",
        "InvalidAccessKey",
    ];
    let silent = kind.is_empty() && matches!(status.as_u16(), 401 | 403);
    silent || known.iter().any(|part| kind.contains(part))
}

fn item(reason: &Value) -> Option<Value> {
    reason.get("Item").filter(|item| item.is_object()).cloned()
}

fn cancelled(reasons: &Value) -> Refusal {
    let Some(reasons) = reasons.as_array() else {
        return Refusal::unavailable("a transaction was cancelled without a reason");
    };
    let mut parts = Vec::with_capacity(reasons.len());
    for reason in reasons {
        parts.push(match reason["Code"].as_str().unwrap_or("None") {
            "None" => Part::Accepted,
            "ConditionalCheckFailed" => Part::ConditionFailed(item(reason)),
            "TransactionConflict" => Part::Conflict,
            code => {
                let message = shortened(reason["Message"].as_str());
                return Refusal::unavailable(&format!("{code}: {message}"));
            }
        });
    }
    Refusal::Cancelled(parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, answer: &Value) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        Refusal::read(status, answer.to_string().as_bytes())
    }

    fn text(refusal: Refusal) -> String {
        let Refusal::Failed(error) = refusal else {
            panic!("{refusal:?}");
        };
        error.to_string()
    }

    #[test]
    fn conditions_and_conflicts_are_distinguished_from_failures() {
        let kind = |kind: &str| format!("com.amazonaws.dynamodb.v20120810#{kind}");
        let unmet =
            json!({ "__type": kind("ConditionalCheckFailedException"), "Item": { "a": 1 } });
        assert_eq!(
            read(400, &unmet),
            Refusal::ConditionFailed(Some(json!({ "a": 1 })))
        );
        let taken = json!({ "__type": kind("TransactionConflictException") });
        assert_eq!(read(400, &taken), Refusal::Conflict);
        let reasons = |last: &str| {
            json!({ "__type": kind("TransactionCanceledException"), "CancellationReasons": [
                { "Code": "None" },
                { "Code": "ConditionalCheckFailed", "Item": { "a": 1 } },
                { "Code": "ConditionalCheckFailed" },
                { "Code": last, "Message": "words" },
            ] })
        };
        let parts = vec![
            Part::Accepted,
            Part::ConditionFailed(Some(json!({ "a": 1 }))),
            Part::ConditionFailed(None),
            Part::Conflict,
        ];
        assert_eq!(
            read(400, &reasons("TransactionConflict")),
            Refusal::Cancelled(parts)
        );
        for (refusal, shown) in [
            (
                read(400, &reasons("ThrottlingError")),
                "ThrottlingError: words",
            ),
            (
                read(
                    400,
                    &json!({ "__type": "x#ThrottlingException", "message": "slow" }),
                ),
                "ThrottlingException: slow",
            ),
            (
                read(
                    400,
                    &json!({ "__type": "x#AccessDeniedException", "Message": "no PutItem" }),
                ),
                "AccessDeniedException: no PutItem",
            ),
            (read(500, &json!({})), "500"),
            (Refusal::read(StatusCode::BAD_GATEWAY, b"<html>"), "502"),
        ] {
            let text = text(refusal);
            assert!(text.contains(shown), "{text}");
        }
    }

    #[test]
    fn messages_about_credentials_are_not_repeated() {
        for kind in [
            "InvalidSignatureException",
            "UnrecognizedClientException",
            "ExpiredTokenException",
            "MissingAuthenticationTokenException",
            "SignatureDoesNotMatch",
        ] {
            let message = "should have been x-amz-security-token:t0ken";
            let answer = json!({ "__type": format!("x#{kind}"), "message": message });
            let text = text(read(400, &answer));
            assert!(text.contains(kind) && !text.contains("t0ken"), "{text}");
        }
        assert!(text(read(403, &json!({}))).contains("credentials"));
    }
}
