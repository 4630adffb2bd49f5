//! Health: one list of typed problems for the command line and the pages.
//!
//! | file | what it does |
//! |---|---|
//! | here | the types: finding, problem, report |
//! | [`code`] | the closed list of problems |
//! | [`tracker`] | turns findings into a report: ignores short ones, hides consequences |
//! | [`line`](mod@line), [`account`], [`work`], [`services`], [`budgets`], [`computer`] | find problems in given states |
//! | [`offline`] | checks without an agent |
//! | [`reserve`] | disk space that the agent holds back |
//! | [`log`] | the end of the agent's log |
//! | [`log_follower`] | that log while it is written |
//! | [`bundle`] | the support bundle |
//!
//! A check reports its findings each time; the tracker keeps the time since when.

pub mod account;
pub mod budgets;
pub mod bundle;
pub mod code;
pub mod computer;
pub mod line;
pub mod log;
pub mod log_follower;
pub mod offline;
pub mod reserve;
pub mod services;
pub mod tracker;
pub mod work;

use deskgate_protocol::Timestamp;
use deskgate_store::Setting;
use serde::{Deserialize, Serialize};

pub use code::{ProblemCode, Severity};
pub use tracker::ProblemTracker;

/// The result of a failed health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub code: ProblemCode,
    /// The service, budget or file it is about, where there are several.
    pub about: Option<String>,
    /// The details.
    pub text: String,
    /// The one thing to do next.
    pub next: String,
}

impl Finding {
    /// A finding about the agent as a whole.
    pub fn new(code: ProblemCode, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code, about: None, text: text.into(), next: next.into() }
    }

    /// A finding about one of several things.
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
    /// The kind of problem.
    pub code: ProblemCode,
    /// The problem's severity.
    pub severity: Severity,
    /// The problem in a few words.
    pub title: String,
    /// The service or file it is about.
    pub about: Option<String>,
    /// The details.
    pub text: String,
    /// The one thing to do next.
    pub next: String,
    /// When it was first found.
    pub since: Timestamp,
    /// The titles of its consequences, which are hidden.
    pub hides: Vec<String>,
    /// Whether the owner ignores it: it is shown only in its own section.
    pub ignored: bool,
}

/// The health of the agent, the worst problem first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The problems.
    pub problems: Vec<HealthProblem>,
    /// The titles of the checks that passed.
    pub fine: Vec<String>,
    /// The titles of skipped checks: models are queried only with `all`, and sandboxes are tested then and every few
    /// minutes.
    pub not_asked: Vec<String>,
}

impl HealthReport {
    /// The problems that the owner has not ignored.
    pub fn open(&self) -> impl Iterator<Item = &HealthProblem> {
        self.problems.iter().filter(|problem| !problem.ignored)
    }

    /// Whether one of them is a failure.
    pub fn fails(&self) -> bool {
        self.open().any(|problem| problem.severity == Severity::Fail)
    }
}

/// A problem that the owner ignores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredProblem {
    /// The kind of problem.
    pub code: ProblemCode,
    /// When it is shown again; `None`: when the owner decides.
    pub until: Option<Timestamp>,
}

/// The ignored problems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IgnoredProblems(pub Vec<IgnoredProblem>);

impl Setting for IgnoredProblems {
    const NAME: &'static str = "ignored_problems";
}
