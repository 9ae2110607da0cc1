//! Spans around the operations of the mailbox, for those who follow a call. They exist while the log
//! is at `debug`; otherwise they cost a comparison.

use asyncgate_api::Spec;
use tracing::{Level, Span, field::Empty};

use super::mailbox::scope;
use crate::{CorrId, Engine};

/// The span of a call. Operations that have none are not followed.
pub(crate) fn of(engine: &Engine, spec: &Spec) -> Span {
    macro_rules! open {
        ($name:literal) => {
            tracing::debug_span!(
                $name,
                corr_id = CorrId::current().as_ref().map(|id| &*id.text),
                profile = engine.settings().profile,
                auth.scope = scope(spec),
                auth.result = Empty,
                topic_class = Empty,
                shard = Empty,
                attempt = Empty,
                visibility_ms = Empty,
            )
        };
    }
    match spec.name {
        "mailbox_send" | "mailbox_send_batch" => open!("svc.mailbox.send"),
        "mailbox_recv" => open!("svc.mailbox.recv"),
        "mailbox_ack" | "mailbox_ack_batch" => open!("svc.mailbox.ack"),
        "mailbox_nack" => open!("svc.mailbox.nack"),
        "mailbox_dlq_reprocess" => open!("svc.mailbox.dlq.reprocess"),
        _ => Span::none(),
    }
}

/// The span of one round of the watch over messages.
pub(crate) fn scanner(engine: &Engine) -> Span {
    tracing::debug_span!("svc.mailbox.scanner", profile = engine.settings().profile)
}

/// Notes on the span of the call under way what it met. Of many messages, the last.
pub(crate) fn note(topic_class: &str, shard: Option<u16>, attempt: Option<u32>) {
    record(|span| {
        span.record("topic_class", topic_class);
        span.record("shard", shard);
        span.record("attempt", attempt);
    });
}

/// Notes whether the caller may do what the call asks for.
pub(crate) fn note_authorised(authorised: bool) {
    let result = if authorised { "ok" } else { "denied" };
    record(|span| {
        span.record("auth.result", result);
    });
}

/// Notes how long a receiver keeps messages.
pub(crate) fn note_visibility(millis: i64) {
    record(|span| {
        span.record("visibility_ms", millis);
    });
}

fn record(what: impl FnOnce(&Span)) {
    if tracing::enabled!(Level::DEBUG) {
        what(&Span::current());
    }
}
