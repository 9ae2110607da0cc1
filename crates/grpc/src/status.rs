//! The one shape of an error: a status, with details for programs.

use std::{collections::HashMap, time::Duration};

use asyncgate_api::Code;
use asyncgate_edge::log_fault;
use asyncgate_engine::Fault;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

/// The name of the system whose codes the reasons are.
const DOMAIN: &str = "asyncgate";

/// Returns a fault as a status, and logs it.
pub(crate) fn status(fault: &Fault, corr_id: &str) -> Status {
    log_fault(fault, corr_id);
    let code = fault.code;
    let mut details = ErrorDetails::new();
    details.set_error_info(code.as_str(), DOMAIN, metadata(fault, corr_id));
    // A full mailbox and a message that is too large have the same status: this tells them apart.
    if let Some(seconds) = fault.retry_after_seconds {
        details.set_retry_info(Some(Duration::from_secs(u64::from(seconds))));
    }
    Status::with_error_details(status_code(code), fault.message.as_ref(), details)
}

/// Returns the details of the fault as texts.
fn metadata(fault: &Fault, corr_id: &str) -> HashMap<String, String> {
    let details = fault.details.iter().map(|(name, value)| {
        let text = value.as_str().map(str::to_owned);
        (name.clone(), text.unwrap_or_else(|| value.to_string()))
    });
    details
        .chain([("corr_id".to_owned(), corr_id.to_owned())])
        .collect()
}

const fn status_code(code: Code) -> tonic::Code {
    match code {
        Code::BadRequest | Code::LimitExceeded | Code::ESchema | Code::TimestampOutOfWindow => {
            tonic::Code::InvalidArgument
        }
        Code::Unauthorized | Code::ECapAuth | Code::InvalidSignature => {
            tonic::Code::Unauthenticated
        }
        Code::Forbidden | Code::ECapScope | Code::ProtectedKey | Code::TenantSuspended => {
            tonic::Code::PermissionDenied
        }
        Code::TaskNotFound
        | Code::ReceiptNotFound
        | Code::NotFound
        | Code::ENotFound
        | Code::UnknownPolicy
        | Code::UnknownIngress => tonic::Code::NotFound,
        Code::MethodNotAllowed => tonic::Code::Unimplemented,
        Code::EDuplicate | Code::NonceReuse => tonic::Code::AlreadyExists,
        Code::InvalidStateTransition
        | Code::LeaseInvalidOrExpired
        | Code::IdempotencyConflict
        | Code::EIntegrity
        | Code::EStaleLease
        | Code::ENotLeased
        | Code::ELeased
        | Code::EIdemConflict
        | Code::Conflict => tonic::Code::FailedPrecondition,
        Code::TooLarge
        | Code::EFrameTooLarge
        | Code::QuotaExceeded
        | Code::RateLimit
        | Code::ESaturated => tonic::Code::ResourceExhausted,
        Code::Unavailable | Code::EUnavailable | Code::HostUnavailable => tonic::Code::Unavailable,
        Code::Internal => tonic::Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_mailbox_has_its_status() {
        for (code, expected) in [
            (Code::ESchema, tonic::Code::InvalidArgument),
            (Code::ECapAuth, tonic::Code::Unauthenticated),
            (Code::ECapScope, tonic::Code::PermissionDenied),
            (Code::EDuplicate, tonic::Code::AlreadyExists),
            (Code::EFrameTooLarge, tonic::Code::ResourceExhausted),
            (Code::EIntegrity, tonic::Code::FailedPrecondition),
            (Code::ESaturated, tonic::Code::ResourceExhausted),
            (Code::EUnavailable, tonic::Code::Unavailable),
            (Code::ENotFound, tonic::Code::NotFound),
            (Code::EStaleLease, tonic::Code::FailedPrecondition),
            (Code::ENotLeased, tonic::Code::FailedPrecondition),
            (Code::ELeased, tonic::Code::FailedPrecondition),
            (Code::EIdemConflict, tonic::Code::FailedPrecondition),
            (Code::Internal, tonic::Code::Internal),
        ] {
            let status = status(&Fault::new(code, "no"), "c");
            assert_eq!(status.code(), expected, "{}", code.as_str());
            assert_eq!(status.message(), "no");
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.reason, code.as_str());
            assert_eq!(info.metadata["corr_id"], "c");
        }
    }

    #[test]
    fn only_who_may_try_again_is_told_when() {
        let full = Fault::new(Code::ESaturated, "full").retry_after(7);
        let large = Fault::new(Code::EFrameTooLarge, "large").with("limit", 5);
        let (full, large) = (status(&full, "c"), status(&large, "c"));
        let delay = full.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(Duration::from_secs(7)));
        assert!(large.get_details_retry_info().is_none());
        assert_eq!(
            large.get_details_error_info().unwrap().metadata["limit"],
            "5"
        );
    }

    #[test]
    fn the_cause_stays_in_the_log() {
        let fault = Fault::new(Code::Internal, "a defect").because("secret");
        let status = status(&fault, "c");
        assert!(!String::from_utf8_lossy(status.details()).contains("secret"));
    }
}
