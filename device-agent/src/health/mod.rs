//! What is wrong on this computer: one list of typed problems for the command line and the pages.
//!
//! | file | what it does |
//! |---|---|
//! | here | the words: finding, problem, report |
//! | [`code`] | the closed list of what can be wrong |
//! | [`tracker`] | makes a report of findings: waits for what may pass, hides what follows from something else |
//! | [`line`](mod@line), [`account`], [`work`], [`services`], [`computer`] | find what is wrong, each from what it is given |
//! | [`offline`] | looks without an agent |
//! | [`log`] | the end of the agent's log |
//! | [`bundle`] | what a person sends to whoever helps them |
//!
//! Whoever finds something says so each time they look; the board remembers since when.

pub mod account;
pub mod bundle;
pub mod code;
pub mod computer;
pub mod line;
pub mod log;
pub mod offline;
pub mod services;
pub mod tracker;
pub mod work;

use deskgate_protocol::Timestamp;
use deskgate_store::Setting;
use serde::{Deserialize, Serialize};

pub use code::{ProblemCode, Severity};
pub use tracker::ProblemTracker;

/// What somebody found who looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub code: ProblemCode,
    /// With what, where there are several: a service, a file.
    pub about: Option<String>,
    /// What was found.
    pub text: String,
    /// The one thing to do next.
    pub next: String,
}

impl Finding {
    /// About the agent as a whole.
    pub fn new(code: ProblemCode, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code, about: None, text: text.into(), next: next.into() }
    }

    /// About one of several.
    pub fn about(
        code: ProblemCode,
        about: impl Into<String>,
        text: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { about: Some(about.into()), ..Self::new(code, text, next) }
    }
}

/// A problem as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthProblem {
    /// What is wrong.
    pub code: ProblemCode,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in a few words.
    pub title: String,
    /// With what.
    pub about: Option<String>,
    /// What was found.
    pub text: String,
    /// The one thing to do next.
    pub next: String,
    /// When it was found first.
    pub since: Timestamp,
    /// What follows from it, by title, and is not shown by itself.
    pub hides: Vec<String>,
    /// Whether the owner wants to see it at its own place only.
    pub ignored: bool,
}

/// Everything that is wrong, the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The problems.
    pub problems: Vec<HealthProblem>,
    /// What was looked at and is fine, by title.
    pub fine: Vec<String>,
    /// What was not looked at, by title: models are asked only with `all`, and sandboxes are tried then and every few minutes.
    pub not_asked: Vec<String>,
}

impl HealthReport {
    /// The problems that the owner wants to hear of.
    pub fn open(&self) -> impl Iterator<Item = &HealthProblem> {
        self.problems.iter().filter(|problem| !problem.ignored)
    }

    /// Whether something of them fails.
    pub fn fails(&self) -> bool {
        self.open().any(|problem| problem.severity == Severity::Fail)
    }
}

/// A problem that the owner does not want to hear of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredProblem {
    /// Which.
    pub code: ProblemCode,
    /// Until when; `None`: until they say otherwise.
    pub until: Option<Timestamp>,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IgnoredProblems(pub Vec<IgnoredProblem>);

impl Setting for IgnoredProblems {
    const NAME: &'static str = "ignored_problems";
}
