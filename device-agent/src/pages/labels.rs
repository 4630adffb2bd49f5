//! Labels: states as icon and word, times and durations for people.
//!
//! Colour alone never shows a state: the icon comes before the word, and the colour repeats it.

use std::fmt;

use askama::Template;
use deskgate_protocol::Timestamp;
use deskgate_protocol::run::{Run, RunState};
use deskgate_protocol::service::DRAFT_VERSION;

use crate::local::LineView;

/// The shapes of states: which icon, and in which tone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// It is well.
    Good,
    /// It failed.
    Bad,
    /// Something is under way.
    Active,
    /// It needs its owner.
    Paused,
    /// It waits, and nobody has to do anything.
    Waiting,
    /// It is over.
    Over,
    /// Nobody knows.
    Unknown,
}

impl Shape {
    /// Every shape.
    #[cfg(test)]
    pub(super) const ALL: [Self; 7] =
        [Self::Good, Self::Bad, Self::Active, Self::Paused, Self::Waiting, Self::Over, Self::Unknown];

    /// The name of its icon.
    pub(super) fn icon(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "failed",
            Self::Active => "running",
            Self::Paused => "attention",
            Self::Waiting | Self::Unknown => "waiting",
            Self::Over => "over",
        }
    }

    /// Its tone, as a class of the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "failed",
            Self::Active | Self::Waiting => "waiting",
            Self::Paused => "attention",
            Self::Over | Self::Unknown => "over",
        }
    }

    /// Whether its icon moves.
    pub(super) fn moves(self) -> bool {
        self == Self::Active
    }

    /// The state with its word. Templates write it with `|safe`; the word is escaped.
    pub(super) fn state(self, word: impl fmt::Display) -> StateLabel {
        StateLabel { shape: self, word: word.to_string(), pill: false }
    }

    /// The icon alone, where the word is a sentence of its own beside it.
    pub(super) fn icon_alone(self) -> StateLabel {
        self.state("")
    }

    /// The same on a ground of its own, beside a heading.
    pub(super) fn pill(self, word: impl fmt::Display) -> StateLabel {
        StateLabel { pill: true, ..self.state(word) }
    }
}

/// The icon of a tool, by its name.
pub(super) fn tool_icon(tool: &str) -> &'static str {
    match tool {
        "Read" => "file",
        "Grep" => "grep",
        "Glob" => "folder",
        "Edit" | "Write" => "edit",
        "Bash" => "terminal",
        "Fetch" => "connection",
        // Those of servers elsewhere.
        _ => "webhook",
    }
}

/// A state as every page shows it: an icon and a word, in a tone that repeats them.
#[derive(Template)]
#[template(path = "state.html")]
pub(super) struct StateLabel {
    shape: Shape,
    word: String,
    pill: bool,
}

/// The status of the connection to the gateway. Its problems are shown as health problems.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLabel {
    pub(super) shape: Shape,
    pub(super) word: &'static str,
}

impl LineLabel {
    pub(super) fn of(view: Option<&LineView>) -> Self {
        let (shape, word) = match view {
            Some(LineView::Connected { .. }) => (Shape::Good, "connected"),
            Some(LineView::Connecting) | None => (Shape::Waiting, "connecting"),
            Some(LineView::Disconnected { .. }) => (Shape::Paused, "disconnected"),
            Some(LineView::Refused { .. }) => (Shape::Bad, "refused"),
        };
        Self { shape, word }
    }
}

/// A run's state.
#[derive(Clone, Debug)]
pub(super) struct RunStateLabel {
    pub(super) shape: Shape,
    pub(super) word: &'static str,
    /// Why, and what happens next.
    pub(super) next: String,
}

impl RunStateLabel {
    /// The word alone.
    pub(super) fn word(state: RunState) -> &'static str {
        Self::told(state).1
    }

    pub(super) fn of(run: &Run) -> Self {
        let (shape, word, next) = Self::told(run.state);
        let reason = run.state_reason.as_ref().map(|reason| reason.message.clone());
        Self { shape, word, next: reason.unwrap_or_else(|| next.to_owned()) }
    }

    fn told(state: RunState) -> (Shape, &'static str, &'static str) {
        match state {
            RunState::Queued => (Shape::Waiting, "Queued", "It starts when this computer has room for it."),
            RunState::WaitingForDevice => {
                (Shape::Waiting, "Waiting for device", "It starts when this computer is back.")
            }
            RunState::Running => (Shape::Active, "Running", "The assistant is running on this computer."),
            RunState::AwaitingApproval => (Shape::Paused, "Awaiting approval", "It waits for your decision."),
            RunState::AwaitingReconciliation => {
                (Shape::Paused, "Interrupted", "Nobody knows how it ended. It needs your decision.")
            }
            RunState::Cancelling => (Shape::Active, "Cancelling", "It is being stopped."),
            RunState::Succeeded => (Shape::Good, "Succeeded", "The caller can read its result."),
            RunState::Failed => (Shape::Bad, "Failed", "The caller can read why."),
            RunState::Cancelled => (Shape::Over, "Cancelled", "It was stopped."),
            RunState::Expired => (Shape::Over, "Expired", "It was not started in the time it was given."),
        }
    }
}

/// A number of things.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountLabel<'a>(pub(super) &'a u32, pub(super) &'a str);

impl fmt::Display for CountLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if *self.0 == 1 { "" } else { "s" })
    }
}

/// The version that a run is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionLabel<'a>(pub(super) &'a u32);

impl fmt::Display for VersionLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            DRAFT_VERSION => f.write_str("draft"),
            version => write!(f, "version {version}"),
        }
    }
}

/// A large number, with commas.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberLabel(pub(super) u64);

impl fmt::Display for NumberLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            let comma = if at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
            write!(f, "{comma}{digit}")?;
        }
        Ok(())
    }
}

/// A time: how long ago, with the exact time as a tooltip. It is markup of digits and its own words, so templates write
/// it with `|safe`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLabel<'a>(pub(super) &'a Timestamp);

impl fmt::Display for TimeLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, now) = (self.0.0.as_second(), Timestamp::now().0.as_second());
        let words = if seconds > now { format!("in {}", AgeText(seconds - now)) } else { ago(now - seconds) };
        write!(f, "<time datetime=\"{0}\" title=\"{0}\">{words}</time>", self.0)
    }
}

fn ago(seconds: i64) -> String {
    if seconds < 5 { "just now".to_owned() } else { format!("{} ago", AgeText(seconds)) }
}

/// A duration in seconds, in its largest unit: what is exact is in the tooltip.
#[derive(Clone, Copy, Debug)]
struct AgeText(i64);

impl fmt::Display for AgeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0.max(0) {
            seconds @ 0..60 => (seconds, "s"),
            seconds @ 60..3600 => (seconds / 60, "min"),
            seconds @ 3600..86400 => (seconds / 3600, "h"),
            seconds => (seconds / 86400, "d"),
        };
        write!(f, "{number} {unit}")
    }
}

/// The day of a time in this computer's time zone, in words.
pub(super) fn day(at: Timestamp) -> String {
    day_beside(jiff::Zoned::now().date(), at.0.to_zoned(jiff::tz::TimeZone::system()).date())
}

fn day_beside(today: jiff::civil::Date, day: jiff::civil::Date) -> String {
    match (today - day).get_days() {
        0 => "Today".to_owned(),
        1 => "Yesterday".to_owned(),
        _ if today.year() == day.year() => day.strftime("%A, %-d %B").to_string(),
        _ => day.strftime("%-d %B %Y").to_string(),
    }
}

/// A duration in milliseconds, short ones with tenths of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanLabel(pub(super) u64);

impl SpanLabel {
    /// The time from one moment to another.
    pub(super) fn between(from: Timestamp, to: Timestamp) -> Self {
        Self(u64::try_from(to.0.as_millisecond() - from.0.as_millisecond()).unwrap_or_default())
    }
}

impl fmt::Display for SpanLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => write!(f, "{:.1} s", self.0 as f64 / 1000.0),
            _ => DurationText(i64::try_from(self.0 / 1000).unwrap_or(i64::MAX)).fmt(f),
        }
    }
}

/// A duration in seconds, in two units.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurationText(pub(super) i64);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0);
        match seconds {
            0..60 => write!(f, "{seconds} s"),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3600..86400 => write!(f, "{} h {} min", seconds / 3600, seconds % 3600 / 60),
            _ => write!(f, "{} d {} h", seconds / 86400, seconds % 86400 / 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_a_comma_at_every_thousand() {
        let shown = [0, 999, 1_000, 123_456, 5_000_000].map(|number| NumberLabel(number).to_string());
        assert_eq!(shown, ["0", "999", "1,000", "123,456", "5,000,000"]);
    }

    #[test]
    fn days_have_the_names_that_people_use() {
        let today = jiff::civil::date(2026, 11, 23);
        let shown = ["2026-11-23", "2026-11-22", "2026-11-20", "2025-12-31"]
            .map(|day| day_beside(today, day.parse().expect("a day")));
        assert_eq!(shown, ["Today", "Yesterday", "Friday, 20 November", "31 December 2025"]);
    }

    #[test]
    fn a_state_is_an_icon_and_a_word_that_cannot_be_markup() {
        let shown = Shape::Paused.pill("<b>").to_string();
        assert!(shown.contains("#attention") && shown.contains("&#60;b&#62;"), "{shown}");
    }

    #[test]
    fn lengths_have_two_units_at_most() {
        let text = |seconds| DurationText(seconds).to_string();
        assert_eq!((text(0), text(59), text(61)), ("0 s".to_owned(), "59 s".to_owned(), "1 min 1 s".to_owned()));
        assert_eq!(
            (text(3_660), text(90_000), text(-5)),
            ("1 h 1 min".to_owned(), "1 d 1 h".to_owned(), "0 s".to_owned())
        );
    }
}
