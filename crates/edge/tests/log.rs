//! What the log says of a fault. The test has a process to itself: an event that another test's thread meets first may
//! be taken for one that nobody wants, on all threads.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use asyncgate_api::Code;
use asyncgate_edge::log_fault;
use asyncgate_engine::Fault;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Keeps the level and the fields of every event.
#[derive(Default)]
struct Recorder(Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut events = self.0.lock().unwrap();
        events.push((*event.metadata().level(), text.0));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn failures_are_errors_with_their_cause_and_refusals_are_for_debugging() {
    let recorder = Recorder::default();
    let events = Arc::clone(&recorder.0);
    tracing::subscriber::with_default(recorder, || {
        for code in Code::ALL {
            let fault = Fault::new(code, "what the caller sent").because("why");
            log_fault(&fault, "c-1");
        }
    });
    let events = events.lock().unwrap();
    assert_eq!(events.len(), Code::ALL.len());
    for (code, (level, text)) in Code::ALL.iter().zip(&*events) {
        let failed = code.http_status() >= 500;
        let expected = if failed { Level::ERROR } else { Level::DEBUG };
        assert_eq!(*level, expected, "{text}");
        assert_eq!(text.contains("cause=\"why\""), failed, "{text}");
        assert!(text.contains("c-1") && !text.contains("sent"), "{text}");
    }
}
