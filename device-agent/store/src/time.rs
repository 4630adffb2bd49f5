//! The computer's time as SQL: milliseconds in tables, text in answers.

/// The current time in milliseconds, for statements.
pub(super) const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// A column of milliseconds as timestamp text.
pub(super) fn text_time(column: &str) -> String {
    format!("strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')")
}
