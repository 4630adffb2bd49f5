//! The log's formats: text, lines for the journal, or JSON.
//!
//! In JSON each line is one flat object: the event's own fields and those of the request it belongs to.
//!
//! A request's fields are encoded once, when its span begins, and copied into each of its lines. Every acceptance
//! writes a line, so this is part of what an acceptance costs.

use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use deskgate_program::log_buffer::{LogBuffer, LogGuard};
use deskgate_program::visible::{self, LogWriter};
use serde_json::to_string;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Fields as members of a JSON object, each after a comma.
#[derive(Clone, Copy, Debug)]
pub struct JsonFields;

/// An event as one line.
#[derive(Clone, Copy, Debug)]
pub struct JsonFormat;

impl<'w> FormatFields<'w> for JsonFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut members = MemberWriter { writer, result: Ok(()) };
        fields.record(&mut members);
        members.result
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &tracing::span::Record<'_>) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

impl<S> FormatEvent<S, JsonFields> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        line.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut line)?;
        write!(line, "\",\"level\":\"{}\"", metadata.level())?;
        ctx.format_fields(line.by_ref(), event)?;
        for span in ctx.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>() {
                line.write_str(fields)?;
            }
        }
        writeln!(line, ",\"target\":\"{}\"}}", metadata.target())
    }
}

/// An event as a line for the journal, which reads the priority at its beginning (sd-daemon(3)). Time, program and host
/// are the journal's own.
#[derive(Clone, Copy, Debug)]
pub struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let mut text = String::new();
        ctx.format_fields(Writer::new(&mut text), event)?;
        for span in ctx.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>().filter(|fields| !fields.is_empty()) {
                text.push(' ');
                text.push_str(fields);
            }
        }
        // An embedded line break would begin a new entry with a priority of its own.
        writeln!(line, "<{priority}>{}", visible::line(&text.replace(['\n', '\r'], " ")))
    }
}

/// Starts writing the log to standard error, in the format of this name, until the guard is dropped.
///
/// # Errors
/// The system gives no thread, or no descriptor.
pub fn start(format: &str, filter: EnvFilter) -> io::Result<LogGuard> {
    let terminal = io::stderr().is_terminal();
    let colours = terminal && std::env::var_os("NO_COLOR").is_none();
    // Not `io::stderr()`, whose lock this one's writes would hold while nobody takes them.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let (buffer, guard) = LogBuffer::start(stderr)?;
    let writer = move || LogWriter::new(buffer.clone(), colours);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        "json" => builder.fmt_fields(JsonFields).event_format(JsonFormat).init(),
        "journald" => builder.with_ansi(false).event_format(JournalFormat).init(),
        "auto" if is_journal() => builder.with_ansi(false).event_format(JournalFormat).init(),
        "auto" if !terminal => builder.fmt_fields(JsonFields).event_format(JsonFormat).init(),
        _ => builder.with_ansi(colours).with_target(false).init(),
    }
    Ok(guard)
}

/// Whether standard error goes to the journal (systemd.exec(5), JOURNAL_STREAM).
fn is_journal() -> bool {
    let stderr = rustix::fs::fstat(io::stderr());
    let own = stderr.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    std::env::var("JOURNAL_STREAM").is_ok_and(|journal| own.is_ok_and(|own| own == journal))
}

/// Writes members, up to the first that cannot be written.
struct MemberWriter<'w> {
    writer: Writer<'w>,
    result: fmt::Result,
}

impl MemberWriter<'_> {
    fn member(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = write!(self.writer, ",\"{}\":{value}", field.name());
        }
    }

    fn text(&mut self, field: &Field, text: &str) {
        let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
        if is_plain {
            self.member(field, format_args!("\"{text}\""));
        } else {
            self.member(
                field,
                format_args!("{}", visible::json(&to_string(text).unwrap_or_else(|_| "null".to_owned()))),
            );
        }
    }
}

impl Visit for MemberWriter<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.member(field, format_args!("{value}")),
            // JSON has no such number.
            false => self.text(field, &value.to_string()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for LogBuffer {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// The lines that are written meanwhile.
    fn lines(work: impl FnOnce()) -> Vec<Value> {
        let kept = LogBuffer::default();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(JsonFields)
            .event_format(JsonFormat)
            .with_writer(kept.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = kept.0.lock().expect("no panic").clone();
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(text.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{202e}')), "it steers: {text:?}");
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    #[test]
    fn a_line_is_one_flat_object_whatever_its_values_contain() {
        let hostile = "a \"quoted\"\\ \u{1}\u{1b}[31m\nline {\"level\":\"x\"} é \u{202e}";
        let written = lines(|| {
            tracing::info!(text = hostile, shown = %hostile, debug = ?hostile, n = -3, big = u64::MAX, yes = true, "said {}", 1);
            tracing::warn!(part = 0.5, none = f64::NAN);
        });
        let [first, second] = &written[..] else { panic!("{written:?}") };
        let expected = json!({
            "level": "INFO", "target": module_path!(), "message": "said 1", "text": hostile, "shown": hostile,
            "debug": format!("{hostile:?}"), "n": -3, "big": u64::MAX, "yes": true,
        });
        for (name, value) in expected.as_object().expect("an object") {
            assert_eq!(&first[name], value, "{name}");
        }
        assert!(first["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{first}");
        assert_eq!((&second["part"], &second["none"]), (&json!(0.5), &json!("NaN")));
    }

    #[test]
    fn the_journal_reads_the_priority_of_a_line_and_no_text_makes_a_line_of_its_own() {
        let kept = LogBuffer::default();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).event_format(JournalFormat).with_writer(kept.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("request", request_id = "req_1");
            let _inside = span.enter();
            tracing::warn!(code = "late", "one\n<0>two");
            tracing::info!("three");
        });
        let text = String::from_utf8(kept.0.lock().expect("no panic").clone()).expect("UTF-8");
        let expected = "<4>one <0>two code=\"late\" request_id=\"req_1\"\n<6>three request_id=\"req_1\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_line_of_a_request_has_the_fields_of_the_request_also_those_learned_later() {
        let written = lines(|| {
            let span = tracing::info_span!("request", request_id = "req_1", trace_id = tracing::field::Empty);
            let _inside = span.enter();
            tracing::info!("before");
            span.record("trace_id", "4bf9");
            tracing::info!(run_id = "run_1", "after");
        });
        assert_eq!((&written[0]["request_id"], &written[0]["trace_id"]), (&json!("req_1"), &Value::Null));
        assert_eq!((&written[1]["request_id"], &written[1]["trace_id"]), (&json!("req_1"), &json!("4bf9")));
        assert_eq!(written[1]["run_id"], "run_1");
    }
}
