//! The closed set of error codes, and the one error body that carries them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was not done. Stable: programs match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request cannot be understood: malformed JSON, an unknown field, a value out of bounds.
    BadRequest,
    /// No credential, or one that does not hold.
    Unauthorized,
    /// The credential holds, but does not allow this.
    Forbidden,
    /// No such task in the caller's tenant.
    TaskNotFound,
    /// No such receipt in the caller's tenant.
    ReceiptNotFound,
    /// No such route or thing.
    NotFound,
    /// The task is in a state that does not allow this.
    InvalidStateTransition,
    /// The lease is not the task's current one, or has ended.
    LeaseInvalidOrExpired,
    /// The idempotency key was used before, for other content.
    IdempotencyConflict,
    /// The body or a part of it is larger than allowed.
    TooLarge,
    /// A count or size limit of the contract is exceeded.
    LimitExceeded,
    /// The tenant has used up a quota.
    QuotaExceeded,
    /// Too many requests; try again after `Retry-After`.
    RateLimit,
    /// The server cannot do this now; nothing was changed; try again after `Retry-After`.
    Unavailable,
    /// A defect of the server. The correlation id finds it in the log.
    Internal,
}

impl Code {
    /// Every code, for documents and tests.
    pub const ALL: [Self; 15] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::TaskNotFound,
        Self::ReceiptNotFound,
        Self::NotFound,
        Self::InvalidStateTransition,
        Self::LeaseInvalidOrExpired,
        Self::IdempotencyConflict,
        Self::TooLarge,
        Self::LimitExceeded,
        Self::QuotaExceeded,
        Self::RateLimit,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The code as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BAD_REQUEST",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Forbidden => "FORBIDDEN",
            Self::TaskNotFound => "TASK_NOT_FOUND",
            Self::ReceiptNotFound => "RECEIPT_NOT_FOUND",
            Self::NotFound => "NOT_FOUND",
            Self::InvalidStateTransition => "INVALID_STATE_TRANSITION",
            Self::LeaseInvalidOrExpired => "LEASE_INVALID_OR_EXPIRED",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::TooLarge => "TOO_LARGE",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::RateLimit => "RATE_LIMIT",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

/// The body of every error answer. Details that help a program stand beside these fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The code in snake case.
    pub error: String,
    /// The code.
    pub code: Code,
    /// One sentence for people that says what to do.
    pub message: String,
    /// The correlation id, also in `X-Corr-Id` and in the server's log.
    pub corr_id: String,
    /// Details that help a program: `status`, `limit`, `retry_after`, ...
    #[serde(flatten)]
    pub details: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_name_is_the_serialized_name() {
        for code in Code::ALL {
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.as_str()));
        }
    }
}
