//! Spans around the operations of the mailbox, for operators who follow a call. They exist while the log
//! is at `debug`; otherwise each costs a comparison.

use asyncgate_api::Spec;
use tracing::{Level, Span, field::Empty};

use super::mailbox::scope;
use crate::{CorrId, Engine, Touches};

/// Opens the span of a call, for the operations that have one.
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

/// Opens the span of one round of the watch over messages.
pub(crate) fn scanner(engine: &Engine) -> Span {
    tracing::debug_span!("svc.mailbox.scanner", profile = engine.settings().profile)
}

/// Notes a message on the span of the call under way. Of many messages, the last one stays.
pub(crate) fn note(topic_class: &str, shard: Option<u16>, attempt: Option<u32>) {
    record(|span| {
        span.record("topic_class", topic_class);
        span.record("shard", shard);
        span.record("attempt", attempt);
    });
}

/// Notes where a sent message went. Its topic was noted before the call ran.
pub(crate) fn note_shard(shard: Option<u16>) {
    record(|span| {
        span.record("shard", shard);
    });
}

/// Notes what a call touches, before it runs. Topics appear by their classes only: their names are for
/// no log.
pub(crate) fn note_touches(engine: &Engine, spec: &Spec, touches: Touches<'_>) {
    if !tracing::enabled!(Level::DEBUG) || matches!(touches, Touches::Nothing) {
        return;
    }
    let settings = engine.settings();
    let topic_class = touches.topics().last();
    let topic_class = topic_class.map(|topic| settings.topic_class(topic));
    Span::current().record("topic_class", topic_class);
    tracing::trace!(
        event = "call.touches",
        operation = spec.name,
        topic_class,
        topics = touches.topics().count(),
        bytes = touches.bytes(),
    );
}

/// Notes the result of the role check.
pub(crate) fn note_authorised(authorised: bool) {
    let result = if authorised { "ok" } else { "denied" };
    record(|span| {
        span.record("auth.result", result);
    });
}

/// Notes the time for which a receiver keeps messages.
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
