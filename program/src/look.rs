//! How a list looks to a person at a terminal: ages instead of times, short identifiers, colours. Whatever reads a pipe or a
//! file gets exact values and no colours.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::LazyLock;

use deskgate_protocol::Timestamp;

use crate::visible;

/// How many characters of an identifier stand for it in a list.
pub const SHORT_ID_CHARS: usize = 4;

const MINUTE_SECONDS: i64 = 60;
const HOUR_SECONDS: i64 = 60 * MINUTE_SECONDS;
const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;
/// From then on a date says more than an age.
const MAX_AGE_DAYS: i64 = 30;

/// What the standard output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether a person reads: times are ages, identifiers are short.
    pub is_short: bool,
    /// Whether there are colours.
    pub has_colours: bool,
}

/// How this process prints.
static LOOK: LazyLock<Look> = LazyLock::new(|| {
    let is_short = std::io::stdout().is_terminal();
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    Look { is_short, has_colours: is_short && !is_set("NO_COLOR") && !is_dumb }
});

impl Look {
    /// Exact values without colours.
    pub const EXACT: Self = Self { is_short: false, has_colours: false };

    /// How this process prints.
    pub fn current() -> Self {
        *LOOK
    }
}

/// The colour of a state, which only repeats its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// Under way, or waiting for its turn.
    Waiting,
    /// A person should look.
    Attention,
    /// Failed.
    Failed,
    /// Of no interest any more, or less than the rest.
    Quiet,
}

impl Tone {
    /// The parameter of "select graphic rendition" (ECMA-48, 8.3.117).
    const fn parameter(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Waiting => "36",
            Self::Attention => "33",
            Self::Failed => "31",
            Self::Quiet => "2",
        }
    }
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Text, as it is.
    Text(String),
    /// A moment: an age on a terminal.
    Time(Option<Timestamp>),
    /// An identifier: its last characters on a terminal.
    Id(String),
    /// A word with a tone.
    Toned(String, Tone),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Timestamp> for Cell {
    fn from(at: Timestamp) -> Self {
        Self::Time(Some(at))
    }
}

impl From<Option<Timestamp>> for Cell {
    fn from(at: Option<Timestamp>) -> Self {
        Self::Time(at)
    }
}

impl Cell {
    /// An identifier.
    pub fn id(id: impl Display) -> Self {
        Self::Id(id.to_string())
    }

    /// A state.
    pub fn toned(word: impl Display, tone: Tone) -> Self {
        Self::Toned(word.to_string(), tone)
    }

    /// Its text in one line, without colours; `now` is what ages are counted to.
    pub(crate) fn text(&self, look: Look, now: Timestamp) -> String {
        match self {
            Self::Text(text) | Self::Toned(text, _) => visible::line(text),
            Self::Time(None) => String::new(),
            Self::Time(Some(at)) if look.is_short => age(*at, now),
            Self::Time(Some(at)) => at.to_string(),
            Self::Id(id) if look.is_short => short_id(&visible::line(id)),
            Self::Id(id) => visible::line(id),
        }
    }

    /// Its tone, if it has one.
    pub(crate) const fn tone(&self) -> Option<Tone> {
        match self {
            Self::Toned(_, tone) => Some(*tone),
            Self::Id(_) => Some(Tone::Quiet),
            Self::Text(_) | Self::Time(_) => None,
        }
    }
}

/// How long ago a moment was, or in how long it is: `12s ago`, `3h ago`, `in 2d`; after thirty days its date.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.0.as_second() - at.0.as_second();
    let span = match seconds.abs() {
        0 => return "now".to_owned(),
        span @ ..MINUTE_SECONDS => format!("{span}s"),
        span @ ..HOUR_SECONDS => format!("{}m", span / MINUTE_SECONDS),
        span @ ..DAY_SECONDS => format!("{}h", span / HOUR_SECONDS),
        span if span < MAX_AGE_DAYS * DAY_SECONDS => format!("{}d", span / DAY_SECONDS),
        _ => return at.to_string().split('T').next().unwrap_or_default().to_owned(),
    };
    if seconds > 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// The last characters of an identifier, as `…a4f7`; a text that is none stays.
pub fn short_id(id: &str) -> String {
    match id.split_once('_') {
        Some((_, bits)) if bits.len() == 32 && bits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("…{}", &bits[bits.len() - SHORT_ID_CHARS..])
        }
        _ => id.to_owned(),
    }
}

/// What stands before and behind a coloured text until it is printed: nobody else's text can contain it, so that only this
/// program's own tables have colours.
static MARK: LazyLock<String> = LazyLock::new(|| {
    use std::hash::{BuildHasher, RandomState};
    format!("\u{fdd0}{:016x}", RandomState::new().hash_one(std::process::id()))
});

/// A text with the colour of its tone, once it is printed.
pub(crate) fn painted(text: &str, tone: Option<Tone>, look: Look) -> String {
    match tone {
        Some(tone) if look.has_colours => format!("{0}[{1}m{text}{0}[0m", *MARK, tone.parameter()),
        _ => text.to_owned(),
    }
}

/// The text with its colours, for a terminal.
pub(crate) fn with_colours(text: String) -> String {
    if text.contains('\u{fdd0}') { text.replace(MARK.as_str(), "\u{1b}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn an_age_has_one_unit_and_becomes_a_date_after_thirty_days() {
        let now = moment("2026-11-21T12:00:00Z");
        for (at, said) in [
            ("2026-11-21T12:00:00Z", "now"),
            ("2026-11-21T11:59:01Z", "59s ago"),
            ("2026-11-21T11:59:00Z", "1m ago"),
            ("2026-11-21T10:00:01Z", "1h ago"),
            ("2026-11-19T13:00:00Z", "1d ago"),
            ("2026-10-22T12:00:01Z", "29d ago"),
            ("2026-10-22T12:00:00Z", "2026-10-22"),
            ("2026-11-23T13:00:00Z", "in 2d"),
        ] {
            assert_eq!(age(moment(at), now), said);
        }
    }

    #[test]
    fn only_identifiers_are_shortened() {
        assert_eq!(short_id("run_0192a7c41f3b7d2e8a90b1c2d3e4a4f7"), "…a4f7");
        for other in ["run_of_last_week", "shop", "", "key_", "a_0192a7c41f3b7d2e8a90b1c2d3e4a4f"] {
            assert_eq!(short_id(other), other);
        }
    }

    #[test]
    fn colours_are_this_programs_alone() {
        let colours = Look { is_short: true, has_colours: true };
        let painted = painted("failed", Some(Tone::Failed), colours);
        assert_eq!(with_colours(visible::text(&painted)), "\u{1b}[31mfailed\u{1b}[0m");
        let forged = visible::text("\u{fdd0}0000000000000000[31mall is well \u{1b}[8m");
        assert_eq!(with_colours(forged.clone()), forged);
        assert!(!forged.contains('\u{1b}'));
    }
}
