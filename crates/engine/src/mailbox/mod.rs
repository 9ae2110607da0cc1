//! Parts that the operations of the mailbox share.

mod meter;
mod receiving;
mod stream;
mod sweep;
mod view;

use asyncgate_api::Code;
use asyncgate_core::{
    LeaseId, MessageId,
    mailbox::{Full, Policy, Rejection},
};

pub(crate) use meter::DrainMeter;
pub(crate) use receiving::{Order, max_bytes, max_messages};
pub use stream::{MessageStream, Streamed};
pub(crate) use view::{corr_id, dead_letter, envelope, record};

use crate::{Engine, Fault, input};

impl Engine {
    /// Turns a refusal by a rule of the mailbox into a fault.
    pub(crate) fn mailbox_fault(&self, rejection: Rejection) -> Fault {
        let message = rejection.to_string();
        match rejection {
            Rejection::NotFound => Fault::new(Code::ENotFound, message),
            Rejection::StaleLease => Fault::new(Code::EStaleLease, message),
            Rejection::NotLeased => Fault::new(Code::ENotLeased, message),
            Rejection::Leased => Fault::new(Code::ELeased, message),
            Rejection::LeaseMissing => Fault::bad_request(message).with("field", "lease"),
            Rejection::IdemConflict { msg_id } => {
                Fault::new(Code::EIdemConflict, message).with("msg_id", msg_id.to_string())
            }
            Rejection::TooLarge { limit } => {
                Fault::new(Code::EFrameTooLarge, message).with("limit", limit)
            }
            Rejection::Saturated(full) => Fault::new(Code::ESaturated, message)
                .with("queue", full.as_str())
                .retry_after(self.room_in_seconds(full)),
        }
    }

    /// Estimates the seconds until there is room again.
    fn room_in_seconds(&self, full: Full) -> u32 {
        let now = self.now();
        match full {
            Full::Dedup { until } => meter::seconds(until.millis_since(now)),
            Full::Topic { .. } | Full::Inflight => self.drain_meter.seconds_per_message(now),
        }
    }
}

/// Reads the id of a message.
pub(crate) fn message_id(text: &str) -> Result<MessageId, Fault> {
    text.parse()
        .map_err(|error| Fault::bad_request(format!("msg_id is {error}")))
}

/// Reads the lease of a delivery, if the call names one.
pub(crate) fn lease(text: Option<&str>) -> Result<Option<LeaseId>, Fault> {
    text.map(|text| input::id("lease", text)).transpose()
}

/// Reads the time for which a receiver keeps messages.
pub(crate) fn visibility_ms(policy: &Policy, wished: Option<i64>) -> Result<i64, Fault> {
    let wished = wished.unwrap_or(policy.default_visibility_ms);
    let bounds = policy.visibility_min_ms..=policy.visibility_max_ms;
    input::within("visibility_ms", wished, &bounds)
}
