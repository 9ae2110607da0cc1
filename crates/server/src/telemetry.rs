//! Logs: one line per event on stderr, as JSON or for people. Level and format can be changed while the
//! server runs.
//!
//! Stdout belongs to the command line (and, over stdio, to the protocol). Secrets and payloads are never
//! logged: values that hold them have no field here, and their `Debug` does not show them.

use std::fmt;
use std::io::{IsTerminal, stderr};

use asyncgate_engine::{CorrId, Remote};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FmtSpan, Format, Full, JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::{LookupSpan, Registry, Scope};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

use crate::clock;
use crate::config::{LogFormat, Profile, Settings};
use crate::reloadable::Reloadable;

/// A failure to set up logging.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("log.level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging was set up twice: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
    #[error("logging is gone: {0}")]
    Gone(#[from] reload::Error),
}

/// Changes the logs of a running program.
#[derive(Debug, Clone)]
pub struct Logs {
    filter: reload::Handle<EnvFilter, Registry>,
    format: Reloadable<LogFormat>,
}

impl Logs {
    /// Puts the level and the format of these settings in force.
    pub fn set(&self, settings: &Settings) -> Result<(), Error> {
        self.filter
            .reload(EnvFilter::try_new(&settings.log_level)?)?;
        self.format.set(settings.log_format);
        Ok(())
    }
}

/// Sets up logging for the whole process.
pub fn start(settings: &Settings) -> Result<Logs, Error> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(&settings.log_level)?);
    let terminal = stderr().is_terminal();
    let format = Reloadable::new(settings.log_format);
    let lines = LineFormat {
        format: format.clone(),
        terminal,
        text: Format::default().with_timer(Wall),
        profile: settings.profile,
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(terminal)
        // Spans are part of the log while it is at `debug`; their ends say how long they took.
        .with_span_events(FmtSpan::CLOSE)
        .fmt_fields(JsonFields::new())
        .event_format(lines)
        .with_writer(stderr);
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .try_init()?;
    Ok(Logs {
        filter: handle,
        format,
    })
}

/// Writes the machine's time into every line.
struct Wall;

impl FormatTime for Wall {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{}", clock::wall())
    }
}

/// Writes one line per event.
struct LineFormat {
    format: Reloadable<LogFormat>,
    terminal: bool,
    text: Format<Full, Wall>,
    profile: Profile,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let as_text = match self.format.get() {
            LogFormat::Text => true,
            LogFormat::Json => false,
            LogFormat::Auto => self.terminal,
        };
        if as_text {
            return self.text.format_event(context, writer, event);
        }
        let mut line = Map::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            // The fields of an inner span, and then of the event itself, replace those of an outer one.
            if let Some(noted) = span.extensions().get::<FormattedFields<N>>()
                && let Ok(noted) = serde_json::from_str::<Map<String, Value>>(noted)
            {
                line.extend(noted);
            }
            line.insert("span".to_owned(), span.name().into());
        }
        writeln!(writer, "{}", json_line(line, event, self.profile))
    }
}

/// Returns one object with the time, the level, the service, the request and the event's own fields.
/// The event cannot replace the fields that are written last.
fn json_line(noted: Map<String, Value>, event: &Event<'_>, profile: Profile) -> Value {
    let mut fields = Fields(noted);
    event.record(&mut fields);
    let mut line = fields.0;
    if let Some(remote) = Remote::current() {
        line.insert("remote_addr".to_owned(), remote.to_string().into());
    }
    if !line.contains_key("corr_id")
        && let Some(corr_id) = CorrId::current()
    {
        line.insert("corr_id".to_owned(), (*corr_id.text).into());
    }
    let metadata = event.metadata();
    for (name, value) in [
        ("ts", clock::wall().to_string()),
        ("level", metadata.level().to_string()),
        ("service", "asyncgate".to_owned()),
        ("profile", profile.as_str().to_owned()),
        ("target", metadata.target().to_owned()),
    ] {
        line.insert(name.to_owned(), Value::from(value));
    }
    Value::Object(line)
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
