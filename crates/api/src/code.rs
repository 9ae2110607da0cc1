//! The closed set of error codes, and the one error body that carries them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Plane;

/// The reason why a request failed. Stable: programs match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request cannot be understood: malformed JSON, an unknown field, a value out of bounds.
    BadRequest,
    /// The credential is missing or not valid.
    Unauthorized,
    /// The credential is valid, but does not allow this.
    Forbidden,
    /// No such task in the caller's tenant.
    TaskNotFound,
    /// No such receipt in the caller's tenant.
    ReceiptNotFound,
    /// No such route or object.
    NotFound,
    /// The route does not take this method.
    MethodNotAllowed,
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
    /// The server cannot do this now; try again after `Retry-After`. Nothing was changed, unless the message says that nobody
    /// knows.
    Unavailable,
    /// A defect of the server. Its log has details under the correlation id.
    Internal,
    /// A mailbox request cannot be understood.
    ESchema,
    /// The credential for the mailbox is missing or not valid.
    ECapAuth,
    /// The credential is valid, but does not allow this in the mailbox.
    ECapScope,
    /// The message was sent before, and the sender asked for an error in that case.
    EDuplicate,
    /// A message or a request of the mailbox is larger than allowed.
    EFrameTooLarge,
    /// The mailbox is full; try again after `Retry-After`.
    ESaturated,
    /// The mailbox cannot do this now; nothing was changed.
    EUnavailable,
    /// Stored bytes do not match their hash.
    EIntegrity,
    /// No such message, or it is gone.
    ENotFound,
    /// The lease has ended and another receiver got the message.
    EStaleLease,
    /// The message is not with a receiver.
    ENotLeased,
    /// A receiver has the message.
    ELeased,
    /// The idem_key was used before, for other content.
    EIdemConflict,
    /// The backend of admission does not answer, and its failure mode allows nothing without it. The
    /// request may still take effect.
    HostUnavailable,
    /// No policy has this name.
    UnknownPolicy,
    /// The settings say that this key cannot be revoked.
    ProtectedKey,
    /// No ingress has this name.
    UnknownIngress,
    /// The signature of the body is missing or wrong.
    InvalidSignature,
    /// The sender's time is too far from the server's.
    TimestampOutOfWindow,
    /// The nonce was used before.
    NonceReuse,
    /// It cannot be done as things stand: the name is taken, or the thing has ended already.
    Conflict,
    /// The tenant is suspended. Its credentials are good again when it is not.
    TenantSuspended,
}

impl Code {
    /// Every code, for documents and tests.
    pub const ALL: [Self; 38] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::TaskNotFound,
        Self::ReceiptNotFound,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::InvalidStateTransition,
        Self::LeaseInvalidOrExpired,
        Self::IdempotencyConflict,
        Self::TooLarge,
        Self::LimitExceeded,
        Self::QuotaExceeded,
        Self::RateLimit,
        Self::Unavailable,
        Self::Internal,
        Self::ESchema,
        Self::ECapAuth,
        Self::ECapScope,
        Self::EDuplicate,
        Self::EFrameTooLarge,
        Self::ESaturated,
        Self::EUnavailable,
        Self::EIntegrity,
        Self::ENotFound,
        Self::EStaleLease,
        Self::ENotLeased,
        Self::ELeased,
        Self::EIdemConflict,
        Self::HostUnavailable,
        Self::UnknownPolicy,
        Self::ProtectedKey,
        Self::UnknownIngress,
        Self::InvalidSignature,
        Self::TimestampOutOfWindow,
        Self::NonceReuse,
        Self::Conflict,
        Self::TenantSuspended,
    ];

    /// Returns the code's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BAD_REQUEST",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Forbidden => "FORBIDDEN",
            Self::TaskNotFound => "TASK_NOT_FOUND",
            Self::ReceiptNotFound => "RECEIPT_NOT_FOUND",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::InvalidStateTransition => "INVALID_STATE_TRANSITION",
            Self::LeaseInvalidOrExpired => "LEASE_INVALID_OR_EXPIRED",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::TooLarge => "TOO_LARGE",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::RateLimit => "RATE_LIMIT",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
            Self::ESchema => "E_SCHEMA",
            Self::ECapAuth => "E_CAP_AUTH",
            Self::ECapScope => "E_CAP_SCOPE",
            Self::EDuplicate => "E_DUPLICATE",
            Self::EFrameTooLarge => "E_FRAME_TOO_LARGE",
            Self::ESaturated => "E_SATURATED",
            Self::EUnavailable => "E_UNAVAILABLE",
            Self::EIntegrity => "E_INTEGRITY",
            Self::ENotFound => "E_NOT_FOUND",
            Self::EStaleLease => "E_STALE_LEASE",
            Self::ENotLeased => "E_NOT_LEASED",
            Self::ELeased => "E_LEASED",
            Self::EIdemConflict => "E_IDEM_CONFLICT",
            Self::HostUnavailable => "HOST_UNAVAILABLE",
            Self::UnknownPolicy => "UNKNOWN_POLICY",
            Self::ProtectedKey => "PROTECTED_KEY",
            Self::UnknownIngress => "UNKNOWN_INGRESS",
            Self::InvalidSignature => "INVALID_SIGNATURE",
            Self::TimestampOutOfWindow => "TIMESTAMP_OUT_OF_WINDOW",
            Self::NonceReuse => "NONCE_REUSE",
            Self::Conflict => "CONFLICT",
            Self::TenantSuspended => "TENANT_SUSPENDED",
        }
    }
}

impl Code {
    /// Returns the HTTP status of the code.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest
            | Self::LimitExceeded
            | Self::ESchema
            | Self::TimestampOutOfWindow
            | Self::NonceReuse => 400,
            Self::Unauthorized | Self::ECapAuth | Self::InvalidSignature => 401,
            Self::Forbidden | Self::ECapScope | Self::ProtectedKey | Self::TenantSuspended => 403,
            Self::TaskNotFound
            | Self::ReceiptNotFound
            | Self::NotFound
            | Self::ENotFound
            | Self::UnknownPolicy
            | Self::UnknownIngress => 404,
            Self::MethodNotAllowed => 405,
            Self::InvalidStateTransition
            | Self::LeaseInvalidOrExpired
            | Self::EDuplicate
            | Self::EStaleLease
            | Self::ENotLeased
            | Self::ELeased
            | Self::Conflict => 409,
            Self::TooLarge | Self::EFrameTooLarge => 413,
            Self::IdempotencyConflict | Self::EIntegrity | Self::EIdemConflict => 422,
            Self::QuotaExceeded | Self::RateLimit | Self::ESaturated => 429,
            Self::Internal => 500,
            Self::Unavailable | Self::EUnavailable | Self::HostUnavailable => 503,
        }
    }
}

impl Plane {
    /// Returns this plane's own code for an error: clients of the mailbox know only the codes that
    /// begin with `E_`.
    pub const fn code(self, code: Code) -> Code {
        match (self, code) {
            (Self::Mailbox, Code::BadRequest | Code::LimitExceeded) => Code::ESchema,
            (Self::Mailbox, Code::Unauthorized) => Code::ECapAuth,
            (Self::Mailbox, Code::Forbidden) => Code::ECapScope,
            (Self::Mailbox, Code::NotFound) => Code::ENotFound,
            (Self::Mailbox, Code::TooLarge) => Code::EFrameTooLarge,
            (Self::Mailbox, Code::RateLimit | Code::QuotaExceeded) => Code::ESaturated,
            (Self::Mailbox, Code::Unavailable | Code::HostUnavailable) => Code::EUnavailable,
            (_, code) => code,
        }
    }
}

/// The body of every error answer. Details for programs stand beside these fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The code in snake case.
    pub error: String,
    /// The code.
    pub code: Code,
    /// One sentence for people about what to do.
    pub message: String,
    /// The correlation id, also in `X-Corr-Id` and in the server's log.
    pub corr_id: String,
    /// Details for programs: `status`, `limit`, `retry_after`, ...
    // Beside the fixed fields, not below them: each code documents its own details.
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

    /// Clients of the mailbox know only the codes of the mailbox.
    #[test]
    fn the_mailbox_has_a_code_of_its_own_for_what_can_stop_any_call() {
        for code in [
            Code::BadRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::NotFound,
            Code::TooLarge,
            Code::LimitExceeded,
            Code::QuotaExceeded,
            Code::RateLimit,
            Code::Unavailable,
            Code::HostUnavailable,
        ] {
            let own = Plane::Mailbox.code(code);
            assert!(own.as_str().starts_with("E_"), "{}", code.as_str());
            assert_eq!(own.http_status(), code.http_status(), "{}", code.as_str());
            assert_eq!(Plane::Tasks.code(code), code);
        }
    }
}
