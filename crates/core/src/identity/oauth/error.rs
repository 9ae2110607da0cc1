//! The errors of OAuth, by the names that clients know.

/// An error by its name on the wire (RFC 6749, 7009, 7591 and 8707).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "the names say it, and they are those of the wire"
)]
pub enum ErrorCode {
    InvalidRequest,
    InvalidClient,
    InvalidGrant,
    InvalidScope,
    InvalidTarget,
    UnsupportedGrantType,
    UnsupportedResponseType,
    AccessDenied,
    InvalidRedirectUri,
    InvalidClientMetadata,
    ServerError,
    TemporarilyUnavailable,
}

impl ErrorCode {
    /// Returns the error's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::InvalidScope => "invalid_scope",
            Self::InvalidTarget => "invalid_target",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::AccessDenied => "access_denied",
            Self::InvalidRedirectUri => "invalid_redirect_uri",
            Self::InvalidClientMetadata => "invalid_client_metadata",
            Self::ServerError => "server_error",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
        }
    }
}

/// A refusal of a request, in words for whoever wrote the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{description}")]
pub struct Refusal {
    /// The error.
    pub code: ErrorCode,
    /// One sentence that says what is wrong.
    pub description: &'static str,
}

impl Refusal {
    /// Makes a refusal.
    pub const fn new(code: ErrorCode, description: &'static str) -> Self {
        Self { code, description }
    }

    /// Makes the refusal of a request that is not well formed.
    pub const fn request(description: &'static str) -> Self {
        Self::new(ErrorCode::InvalidRequest, description)
    }
}
