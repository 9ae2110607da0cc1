//! Faults: a public code and message, and an internal cause that is only logged.

use std::borrow::Cow;

use asyncgate_api::{Code, Misread};
use asyncgate_core::{
    Rejection,
    identity::{self, KeyRejection, QuotaExceeded},
};
use asyncgate_store::Error;
use serde_json::{Map, Value};

use crate::rate_headers::Header;

/// The time after which a tenant with too many classes of tasks may try again: some of its tasks may have ended.
const CLASSES_RETRY_SECS: u32 = 10;
/// The detail that marks a compressed body as a bomb.
const BOMB: &str = "ratio_cap";
/// The detail of a fault for which the disk is to blame.
const STORAGE: &str = "storage";
/// The detail of a fault of a server that has more to do than it can.
const BUSY: &str = "saturated";

/// A refusal or a failure, ready for any facade.
///
/// `message` and `details` are public. `cause` never leaves the process except into the log.
#[derive(Debug)]
pub struct Fault {
    /// The stable code.
    pub code: Code,
    /// One public sentence.
    pub message: Cow<'static, str>,
    /// Public details for programs, merged into the error body.
    pub details: Map<String, Value>,
    /// The seconds after which trying again makes sense.
    pub retry_after_seconds: Option<u32>,
    /// The internal cause, for the log.
    pub cause: Option<String>,
    /// HTTP headers of the answer.
    pub headers: Vec<Header>,
    /// True if somebody tried to cross a line that only an attacker or a mistake crosses. The audit log says so.
    pub is_alarm: bool,
}

impl Fault {
    /// Makes a fault with a public message and nothing else.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
            retry_after_seconds: None,
            cause: None,
            headers: Vec::new(),
            is_alarm: false,
        }
    }

    /// Makes the fault of an input that cannot be accepted as it stands.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// Makes the fault of a stream whose credential has ended.
    pub fn credential_ended() -> Self {
        Self::new(Code::Unauthorized, "the credential has ended")
    }

    /// Makes the fault of a body that is larger than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes");
        Self::new(Code::TooLarge, message).with("limit", limit)
    }

    /// Returns the refusal of a caller that holds more memory than its share.
    pub fn crowded(what: &str) -> Self {
        let message =
            format!("too many {what} of yours are under way; try again when some are done");
        Self::new(Code::RateLimit, message).retry_after(1)
    }

    /// Makes the fault of a compressed body that would unpack to more than `cap` times its size.
    pub fn bomb(cap: u32) -> Self {
        let message = format!("the body unpacks to more than {cap} times its size");
        Self::bad_request(message)
            .with("reason", BOMB)
            .with("limit", cap)
    }

    /// Returns true for the fault of a compressed body that unpacks to too much.
    pub(crate) fn is_bomb(&self) -> bool {
        self.details
            .get("reason")
            .is_some_and(|reason| reason == BOMB)
    }

    /// Returns what a server that failed lacks: room, its disk, or something else that it needs.
    pub(crate) fn outage(&self) -> &'static str {
        match self.details.get("reason").and_then(Value::as_str) {
            Some(STORAGE) => STORAGE,
            Some(BUSY) => BUSY,
            Some(_) | None => "degraded",
        }
    }

    /// Adds a public detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Adds the seconds after which trying again makes sense.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self.with("retry_after", seconds)
    }

    /// Marks the refusal as one that somebody should look at.
    #[must_use]
    pub const fn alarm(mut self) -> Self {
        self.is_alarm = true;
        self
    }

    /// Adds the internal cause, for the log.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl From<Misread> for Fault {
    fn from(misread: Misread) -> Self {
        let fault = Self::bad_request(misread.message);
        match misread.field {
            Some(field) => fault.with("field", field),
            None => fault,
        }
    }
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        let message = rejection.to_string();
        match rejection {
            Rejection::TaskNotFound => Self::new(Code::TaskNotFound, "no such task"),
            Rejection::ReceiptNotFound => Self::new(Code::ReceiptNotFound, "no such receipt"),
            Rejection::LeaseInvalid => Self::new(
                Code::LeaseInvalidOrExpired,
                "the lease is not the task's current one, or has ended: stop working on the task",
            ),
            Rejection::InvalidTransition { status } => {
                Self::new(Code::InvalidStateTransition, message).with("status", status.as_str())
            }
            Rejection::IdempotencyConflict { task_id } => {
                Self::new(Code::IdempotencyConflict, message).with("task_id", task_id.to_string())
            }
            Rejection::Unlocatable => Self::new(
                Code::BadRequest,
                "this server wants proof: give artifacts or delivery_proof",
            ),
            Rejection::NotOwner => Self::new(Code::Forbidden, "this belongs to another principal"),
            Rejection::TooLarge { limit, .. } => {
                Self::new(Code::TooLarge, message).with("limit", limit)
            }
            Rejection::TooManyClasses { limit } => Self::new(Code::QuotaExceeded, message)
                .with("limit", limit)
                .retry_after(CLASSES_RETRY_SECS),
            Rejection::Quota(exceeded) => exceeded.into(),
            Rejection::LimitExceeded { limit, .. } => {
                Self::new(Code::LimitExceeded, message).with("limit", limit)
            }
        }
    }
}

impl From<identity::Rejection> for Fault {
    fn from(rejection: identity::Rejection) -> Self {
        let message = rejection.to_string();
        let code = match rejection {
            identity::Rejection::NotFound => Code::NotFound,
            identity::Rejection::AnotherTenant | identity::Rejection::Narrowed => Code::Forbidden,
            identity::Rejection::Beyond(scope) => {
                return Self::new(Code::Forbidden, message).with("required_scope", scope.as_str());
            }
            identity::Rejection::UnfitName
            | identity::Rejection::ServerItself
            | identity::Rejection::MacaroonLife
            | identity::Rejection::Password(_)
            | identity::Rejection::Client(_) => Code::BadRequest,
            identity::Rejection::NameTaken
            | identity::Rejection::OwnTenant
            | identity::Rejection::Key(
                KeyRejection::Ended | KeyRejection::Replaced | KeyRejection::LastPlatformAdmin,
            ) => Code::Conflict,
            identity::Rejection::Key(KeyRejection::TwoExpiries | KeyRejection::ExpiryNotAhead) => {
                Code::BadRequest
            }
        };
        Self::new(code, message)
    }
}

impl From<QuotaExceeded> for Fault {
    fn from(exceeded: QuotaExceeded) -> Self {
        let message = exceeded.to_string();
        Self::new(Code::QuotaExceeded, message)
            .with("quota", exceeded.quota.as_str())
            .with("limit", exceeded.limit)
            .with("current", exceeded.current)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let cause = error.to_string();
        match error {
            Error::Busy | Error::Conflict => Self::new(
                Code::Unavailable,
                "the server is busy; nothing was changed; try again",
            )
            .with("reason", BUSY)
            .retry_after(1),
            Error::Unavailable(_) => Self::new(
                Code::Unavailable,
                "storage is not available; nothing was changed; try again",
            )
            .with("reason", STORAGE)
            .retry_after(5),
            Error::Unknown(_) => Self::new(
                Code::Unavailable,
                "storage failed while it kept this, and nobody knows whether it did; look before you repeat it, or repeat \
                 it with the same idempotency key",
            )
            .with("reason", STORAGE)
            .retry_after(5),
            Error::Corrupt(_) => {
                Self::new(Code::Internal, "stored data could not be read").with("reason", STORAGE)
            }
        }
        .because(cause)
    }
}
