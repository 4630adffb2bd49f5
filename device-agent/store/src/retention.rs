//! How long data of ended work is kept on this computer.

use serde::{Deserialize, Serialize};

/// For how many days data of ended work is kept on this computer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSettings {
    /// An ended run in the built-in gateway. On a server's gateway its administrator decides.
    pub runs: u32,
    /// A conversation's transcript, after its last message.
    pub conversations: u32,
    /// An ended run's answer in the journal. The fact that the run ended stays, so that it never runs twice.
    pub journal: u32,
    /// A tool call of an ended run: its arguments, its output, and what was approved.
    #[serde(default = "default_calls")]
    pub calls: u32,
    /// A line of the agent's log.
    pub log: u32,
}

impl RetentionSettings {
    /// The default until a person chooses.
    pub const DEFAULT: Self = Self { runs: 30, conversations: 90, journal: 90, calls: 30, log: 90 };
    /// The upper limit, in days.
    pub const MAX_DAYS: u32 = 365;

    /// Each value with its name for people.
    pub fn parts(&self) -> [(&'static str, u32); 5] {
        [
            ("keep-runs", self.runs),
            ("keep-conversations", self.conversations),
            ("keep-journal", self.journal),
            ("keep-calls", self.calls),
            ("keep-log", self.log),
        ]
    }

    /// Checks the values.
    ///
    /// # Errors
    /// One sentence for each value that is out of range.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let wrong = self.parts().into_iter().filter(|(_, days)| !(1..=Self::MAX_DAYS).contains(days));
        let wrong: Vec<_> =
            wrong.map(|(name, days)| format!("{name}: choose from 1 to {} days, not {days}", Self::MAX_DAYS)).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// For settings of an earlier version.
fn default_calls() -> u32 {
    RetentionSettings::DEFAULT.calls
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}
