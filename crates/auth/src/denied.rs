//! The reasons why nobody is let in, and what callers are told of them.

use asyncgate_api::Code;
use asyncgate_core::{PrincipalKey, TenantId};
use asyncgate_engine::Fault;
use asyncgate_store::Error;

use crate::verify;

/// A refusal to let somebody in.
#[derive(Debug)]
pub(crate) struct Denied {
    pub why: Why,
    /// Whose credential it is, as far as that is known.
    pub tenant: Option<TenantId>,
    pub principal: Option<PrincipalKey>,
}

/// The reasons.
#[derive(Debug)]
pub(crate) enum Why {
    /// There is no credential.
    Missing,
    /// The credential is not valid. The cause is for the log only.
    NotValid {
        form: Form,
        cause: &'static str,
        /// True if it has nothing in common with any credential of ours, so that it may be a guess at the shared key.
        unlike_ours: bool,
    },
    /// The tenant is suspended.
    Suspended,
    /// The client has shown too many wrong credentials.
    TooManyGuesses { retry_after_secs: u32 },
    /// Too many credentials are being verified.
    Busy,
    /// The store cannot say.
    Store(Error),
}

/// What a credential looks like. Nobody learns more of one that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Macaroon,
    Other,
}

impl From<Why> for Denied {
    fn from(why: Why) -> Self {
        Self {
            why,
            tenant: None,
            principal: None,
        }
    }
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Why::Store(error).into()
    }
}

impl From<verify::Refusal> for Denied {
    fn from(refusal: verify::Refusal) -> Self {
        let why = match refusal {
            verify::Refusal::Wrong => return Self::not_valid("the secret of the key is wrong"),
            verify::Refusal::TooManyGuesses { retry_after_secs } => {
                Why::TooManyGuesses { retry_after_secs }
            }
            verify::Refusal::Busy => Why::Busy,
        };
        why.into()
    }
}

impl Denied {
    /// Refuses a credential that is no macaroon.
    pub(crate) fn not_valid(cause: &'static str) -> Self {
        Self::refused(Form::Other, cause)
    }

    /// Refuses a macaroon.
    pub(crate) fn bad_macaroon(cause: &'static str) -> Self {
        Self::refused(Form::Macaroon, cause)
    }

    fn refused(form: Form, cause: &'static str) -> Self {
        let unlike_ours = false;
        Why::NotValid {
            form,
            cause,
            unlike_ours,
        }
        .into()
    }

    /// Says that the credential has nothing in common with any of ours.
    pub(crate) fn unlike_ours(mut self) -> Self {
        if let Why::NotValid { unlike_ours, .. } = &mut self.why {
            *unlike_ours = true;
        }
        self
    }

    pub(crate) fn is_unlike_ours(&self) -> bool {
        matches!(
            self.why,
            Why::NotValid {
                unlike_ours: true,
                ..
            }
        )
    }

    /// Says whose credential it is.
    pub(crate) fn of(self, tenant: TenantId, principal: &PrincipalKey) -> Self {
        Self {
            tenant: Some(tenant),
            principal: Some(principal.clone()),
            ..self
        }
    }

    /// Returns the reason in a few words, if it is the credential's fault and not the server's.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        match &self.why {
            Why::Missing => Some("there is no credential"),
            Why::NotValid { cause, .. } => Some(cause),
            Why::Suspended => Some("the tenant is suspended"),
            Why::TooManyGuesses { .. } => Some("too many wrong credentials came from this client"),
            Why::Busy | Why::Store(_) => None,
        }
    }
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        let cause = denied.cause();
        let fault = match denied.why {
            Why::Missing => Self::new(
                Code::Unauthorized,
                "a credential is needed: send it as `Authorization: Bearer <key>`",
            ),
            Why::NotValid { form, .. } => {
                let code = match form {
                    Form::Macaroon => Code::ECapAuth,
                    Form::Other => Code::Unauthorized,
                };
                Self::new(code, "the credential is not valid")
            }
            Why::Suspended => Self::new(Code::TenantSuspended, "the tenant is suspended"),
            Why::TooManyGuesses { retry_after_secs } => Self::new(
                Code::RateLimit,
                "too many wrong credentials came from this address; try again later",
            )
            .retry_after(retry_after_secs),
            Why::Busy => Self::new(
                Code::Unavailable,
                "too many credentials are being verified; try again shortly",
            )
            .retry_after(1),
            Why::Store(error) => error.into(),
        };
        match cause {
            Some(cause) => fault.because(cause),
            None => fault,
        }
    }
}
