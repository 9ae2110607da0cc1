//! Answers, in the exact words of the deployed signers.

use serde::Serialize;

use crate::delay::State;

/// The reason why a request was not served. Clients compare these texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The body is no request.
    InvalidInput,
    /// The key version is no number, or there is no such key.
    InvalidKeyVersion,
    /// The signature is missing or not that of the domain's address.
    Unauthenticated,
    /// The nonce is missing or behind the counter.
    InvalidNonce,
    /// It is too early, or there are no more attempts.
    ExceededQuota,
    /// The domain is disabled.
    Disabled,
    /// The server does not serve domains.
    Unavailable,
    /// The state could not be stored.
    NotStored,
    /// The state could not be read.
    NotLoaded,
    /// Anything else.
    Unknown,
}

impl Problem {
    /// Returns the text that a client reads.
    pub const fn text(self) -> &'static str {
        match self {
            Self::InvalidInput => "CELO_ODIS_WARN_01 BAD_INPUT Invalid input parameters",
            Self::InvalidKeyVersion => {
                "CELO_ODIS_WARN_12 BAD_INPUT Request key version header is invalid"
            }
            Self::Unauthenticated => {
                "CELO_ODIS_WARN_02 BAD_INPUT Missing or invalid authentication"
            }
            Self::InvalidNonce => {
                "CELO_ODIS_WARN_16 BAD_INPUT SequentialDelayDomain nonce check failed on Signer request"
            }
            Self::ExceededQuota => "CELO_ODIS_WARN_03 QUOTA Requester exceeded service query quota",
            Self::Disabled => "CELO_ODIS_WARN_11 BAD_INPUT Provided domain is disabled",
            Self::Unavailable => "CELO_ODIS_WARN_13 BAD_INPUT API is unavailable",
            Self::NotStored => "CELO_ODIS_ERR_01 DB_ERR Failed to update database entry",
            Self::NotLoaded => "CELO_ODIS_ERR_03 DB_ERR Failed to get database entry",
            Self::Unknown => "CELO_ODIS_ERR_00 Something went wrong",
        }
    }

    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidInput | Self::InvalidKeyVersion => 400,
            Self::Unauthenticated | Self::InvalidNonce => 401,
            Self::Disabled => 403,
            Self::ExceededQuota => 429,
            Self::NotStored | Self::NotLoaded | Self::Unknown => 500,
            Self::Unavailable => 503,
        }
    }
}

/// The state of a domain with the server's time, which clients use instead of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Status {
    timer: i64,
    counter: u64,
    disabled: bool,
    now: i64,
}

impl Status {
    /// Builds the status of a domain at `now`, in seconds since 1970.
    pub const fn new(state: State, now: i64) -> Self {
        Self {
            timer: state.timer,
            counter: state.counter,
            disabled: state.disabled,
            now,
        }
    }
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Body {
    /// True if the request was served.
    pub success: bool,
    /// The version of the server.
    pub version: &'static str,
    /// The problem, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// The evaluation, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The state of the domain, once it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// An answer, independent of the HTTP library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The body, sent as JSON.
    pub body: Body,
    /// Seconds until another try can succeed, if known.
    pub retry_after: Option<u64>,
    /// The key that was used, for the header `odis-key-version`.
    pub key_version: Option<u64>,
}

impl Answer {
    /// Builds the answer to a served request, with the new state.
    pub(crate) const fn served(version: &'static str, status: Status) -> Self {
        Self {
            code: 200,
            body: Body {
                success: true,
                version,
                error: None,
                signature: None,
                status: Some(status),
            },
            retry_after: None,
            key_version: None,
        }
    }

    /// Builds the answer to a request that was not served.
    pub const fn refused(version: &'static str, problem: Problem, status: Option<Status>) -> Self {
        Self {
            code: problem.status(),
            body: Body {
                success: false,
                version,
                error: Some(problem.text()),
                signature: None,
                status,
            },
            retry_after: None,
            key_version: None,
        }
    }
}
