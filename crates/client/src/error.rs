//! Why a call was not done: one error with a kind for programs and a sentence for people.
//!
//! Every message says what to do about it. Payloads and credentials never appear in one.

use std::{borrow::Cow, fmt, time::Duration};

use asyncgate_api::{Code, ErrorBody};

/// A call that was not done, or of which it is not known.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    /// What was attempted, e.g. `create_task`.
    what: Cow<'static, str>,
    /// What a person can act on.
    message: String,
    /// How often it was sent.
    attempts: u32,
    retry_after: Option<Duration>,
}

/// What sort of failure it was.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// The server answered that it does not do this. Nothing was changed, but for what admission may
    /// have counted: when its backend gave no answer (`HOST_UNAVAILABLE`), or the limit can be overdrawn.
    Refused(ErrorBody),
    /// There was no way to the server, or the connection broke.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// What answered does not speak as an AsyncGate does.
    Protocol,
    /// The call was not sent, because it or the client's settings make no sense.
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
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn refused(body: ErrorBody) -> Self {
        let mut message = format!("{} ({})", body.message, body.code.as_str());
        let advice = match body.code.http_status() {
            401 => "; check the key",
            403 => "; this key may not do that",
            _ => "",
        };
        message.push_str(advice);
        Self::new(Kind::Refused(body), message)
    }

    pub(crate) fn during(mut self, what: &'static str, attempts: u32) -> Self {
        self.0.what = Cow::Borrowed(what);
        self.0.attempts = attempts;
        self
    }

    pub(crate) fn after(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    /// What sort of failure it was.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The code of a refusal.
    pub fn code(&self) -> Option<Code> {
        self.refusal().map(|body| body.code)
    }

    /// The correlation id of a refusal, which finds it in the server's log.
    pub fn corr_id(&self) -> Option<&str> {
        self.refusal().map(|body| body.corr_id.as_str())
    }

    /// The whole answer of a refusal.
    pub fn refusal(&self) -> Option<&ErrorBody> {
        match &self.0.kind {
            Kind::Refused(body) => Some(body),
            Kind::Unreachable | Kind::Timeout | Kind::Protocol | Kind::Invalid => None,
        }
    }

    /// How long the server asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How often the call was sent.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// Whether the same call may succeed later without anybody changing anything. It does not say
    /// that the call was not done: [`Client`](crate::Client) tells when it repeats one by itself.
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
