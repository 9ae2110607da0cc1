//! The error of a call: one type with a kind for programs and a sentence for people.
//!
//! Every message says what to do about it. Payloads and credentials never appear in one.

use std::{borrow::Cow, fmt, time::Duration};

use asyncgate_api::{Code, ErrorBody};

/// A call that was not done, or may not have been done.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    /// The operation, e.g. `create_task`.
    what: Cow<'static, str>,
    /// A sentence that a person can act on.
    message: String,
    /// The number of times that it was sent.
    attempts: u32,
    retry_after: Option<Duration>,
    /// True if the call was sent with a credential.
    had_key: bool,
}

/// The sort of a failure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// The server refused. It changed nothing, except that admission may have counted the call: if its
    /// backend gave no answer (`HOST_UNAVAILABLE`), or if the limit can be overdrawn.
    Refused(ErrorBody),
    /// No connection could be made, or it broke.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// The answer is not one that an AsyncGate gives.
    Protocol,
    /// The call was not sent, because it or the client's settings are not valid.
    Invalid,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: Cow::Borrowed(""),
            message: message.into(),
            attempts: 1,
            retry_after: None,
            had_key: true,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn refused(body: ErrorBody, had_key: bool) -> Self {
        let mut message = format!("{} ({})", body.message, body.code.as_str());
        let advice = match (body.code.http_status(), had_key) {
            (401, true) => "; check the key",
            (401, false) => "; no key was sent",
            (403, _) => "; this key may not do that",
            _ => "",
        };
        message.push_str(advice);
        let mut error = Self::new(Kind::Refused(body), message);
        error.0.had_key = had_key;
        error
    }

    pub(crate) fn during(mut self, what: &'static str, attempts: u32) -> Self {
        self.0.what = Cow::Borrowed(what);
        self.0.attempts = attempts;
        self
    }

    /// Adds that nobody knows whether the call was done.
    pub(crate) fn unsure(mut self) -> Self {
        self.0.message.push_str("; the call may have been done");
        self
    }

    pub(crate) fn after(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    /// Returns the sort of failure.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// Returns the code of a refusal.
    pub fn code(&self) -> Option<Code> {
        self.refusal().map(|body| body.code)
    }

    /// Returns the correlation id of a refusal, by which it can be found in the server's log.
    pub fn corr_id(&self) -> Option<&str> {
        self.refusal().map(|body| body.corr_id.as_str())
    }

    /// Returns the whole answer of a refusal.
    pub fn refusal(&self) -> Option<&ErrorBody> {
        match &self.0.kind {
            Kind::Refused(body) => Some(body),
            Kind::Unreachable | Kind::Timeout | Kind::Protocol | Kind::Invalid => None,
        }
    }

    /// Returns true if the server wants a credential and the client has none.
    pub fn needs_key(&self) -> bool {
        let refusal = self.refusal().map(|body| body.code.http_status());
        refusal == Some(401) && !self.0.had_key
    }

    /// Returns the time that the server asked to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the number of times that the call was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Returns true if the same call may succeed later without a change by anybody. The call may have
    /// been done all the same: [`Client`](crate::Client) says which calls it repeats by itself.
    pub fn is_transient(&self) -> bool {
        match &self.0.kind {
            Kind::Refused(body) => matches!(
                body.code,
                Code::RateLimit
                    | Code::Unavailable
                    | Code::Internal
                    | Code::QuotaExceeded
                    | Code::ESaturated
                    | Code::EUnavailable
                    | Code::HostUnavailable
            ),
            Kind::Unreachable | Kind::Timeout | Kind::Protocol => true,
            Kind::Invalid => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.what.is_empty() {
            write!(f, "{}: ", self.0.what)?;
        }
        f.write_str(&self.0.message)?;
        if self.0.attempts > 1 {
            write!(f, " (tried {} times)", self.0.attempts)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.to_string())
            .finish()
    }
}

impl std::error::Error for Error {}
