//! The owner's approval rules: which tool calls run by themselves, which ask first, and which never run.
//!
//! ```text
//! a deny that matches ──► denied        whatever else matches
//! an ask that matches ──► asks          whatever allows it
//! an allow that matches ► runs
//! none                 ─► Read, Grep, Glob and Skill run, everything else asks
//! ```
//!
//! | file | part |
//! |---|---|
//! | here | what stands in a definition, and whether it may |
//! | [`pattern`] | which files and folders a path stands for |
//! | [`host`] | which hosts a name stands for |
//! | `place` | which of the two a rule is about |
//! | [`rulebook`] | the verdict over a call, and what a tool never sees |
//! | [`scope`] | what "for the rest of the run" is about |

pub mod host;
pub mod pattern;
mod place;
pub mod rulebook;
pub mod scope;

use serde::{Deserialize, Serialize};

pub use host::HostPattern;
pub use pattern::{CaseRule, PathPattern};
use place::PlacePattern;
pub use rulebook::{HiddenPaths, RuleVerdict, Rulebook};
pub use scope::GrantScope;

/// The tools that come with the agent, by the names that rules use. Those of an MCP server have `__` in theirs.
const BUILT_IN_TOOLS: [&str; 9] = ["Read", "Grep", "Glob", "Edit", "Write", "Bash", "Fetch", "Deliver", "Skill"];
/// At most this many rules for each service.
const MAX_RULES: usize = 200;
/// The shortest and the longest time that a request may wait, in seconds.
const EXPIRY_RANGE_SECS: std::ops::RangeInclusive<u32> = 60..=7 * 24 * 3600;
/// How long a request waits unless the owner says otherwise, in seconds.
const DEFAULT_EXPIRY_SECS: u32 = 24 * 3600;

/// A service's approval rules, set by its owner beforehand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalPolicy {
    /// In the order they were written. Of the same action the first that matches is named as the reason.
    pub rules: Vec<Rule>,
    /// Seconds that a request waits for a person before it counts as denied.
    pub expiry_s: u32,
    /// What a denied call means for its run.
    pub on_denial: OnDenial,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self { rules: Vec::new(), expiry_s: DEFAULT_EXPIRY_SECS, on_denial: OnDenial::TellAssistant }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What happens to a call that it matches.
    pub action: RuleAction,
    /// A tool's name, or `*` for every tool.
    pub tool: String,
    /// The files and folders it is about, as a [`PathPattern`], or in a rule for Fetch the hosts, as a [`HostPattern`];
    /// absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

deskgate_protocol::words! {
    /// What a rule does with a call, in the order in which rules decide.
    pub enum RuleAction {
        /// The call is denied.
        Deny = "deny",
        /// A person is asked first.
        Ask = "ask",
        /// The call runs.
        Allow = "allow",
    }
}

/// What a denied call means for its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDenial {
    /// The assistant gets the denial as the call's result, and continues.
    TellAssistant,
    /// The run ends.
    EndRun,
}

impl ApprovalPolicy {
    /// Whether nothing was changed from the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the expiry and every rule. A rule that could never match is refused: a typing error in a deny rule would
    /// protect nothing without anybody noticing.
    ///
    /// # Errors
    /// The first problem, and what is valid.
    pub fn check(&self) -> Result<(), String> {
        if !EXPIRY_RANGE_SECS.contains(&self.expiry_s) {
            let (least, most) = EXPIRY_RANGE_SECS.into_inner();
            return Err(format!("expiry_s must be from {least} to {most}; it is {}", self.expiry_s));
        }
        if self.rules.len() > MAX_RULES {
            return Err(format!("a service has at most {MAX_RULES} rules; this one has {}", self.rules.len()));
        }
        self.rules.iter().try_for_each(|rule| rule.check().map_err(|problem| format!("{rule}: {problem}")))
    }

    /// The rules in the form that judges calls.
    ///
    /// # Errors
    /// A rule's path is no valid pattern.
    pub fn rulebook(&self) -> Result<Rulebook, String> {
        Rulebook::new(self)
    }
}

impl Rule {
    fn case(&self) -> CaseRule {
        if self.action == RuleAction::Allow { CaseRule::Exact } else { CaseRule::Folded }
    }

    /// Checks that it can match something.
    ///
    /// # Errors
    /// What is wrong with it, and what is valid.
    pub fn check(&self) -> Result<(), String> {
        let known = self.tool == "*" || BUILT_IN_TOOLS.contains(&self.tool.as_str()) || is_of_a_server(&self.tool);
        if !known {
            return Err(format!(
                "there is no tool {:?}; write *, one of {}, or the whole name of an MCP tool",
                self.tool,
                BUILT_IN_TOOLS.join(", ")
            ));
        }
        self.place().map(drop)
    }

    fn place(&self) -> Result<PlacePattern, String> {
        PlacePattern::new(&self.tool, self.path.as_deref(), self.case())
    }
}

fn is_of_a_server(tool: &str) -> bool {
    tool.contains("__") && tool.len() <= 128 && tool.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

impl Rule {
    /// A rule for the calls written as `Write`, `Write:docs`, `*:docs` or `Fetch:docs.example.com`.
    pub fn over(action: RuleAction, calls: &str) -> Self {
        let (tool, path) = calls.split_once(':').map_or((calls, None), |(tool, path)| (tool, Some(path.to_owned())));
        Self { action, tool: tool.trim().to_owned(), path }
    }
}

/// Reads a rule from one line as it is displayed. [`ApprovalPolicy::check`] checks what it means.
impl std::str::FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(line: &str) -> Result<Self, UnknownRule> {
        let (word, calls) = line.trim().split_once(' ').ok_or(UnknownRule)?;
        let action = RuleAction::ALL.into_iter().find(|action| action.as_str() == word).ok_or(UnknownRule)?;
        Ok(Self::over(action, calls.trim()))
    }
}

/// The text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rule is one line such as \"allow Write:docs\": allow, ask or deny, a tool or *, and perhaps : and a path, or a host after \
     Fetch:"
)]
pub struct UnknownRule;

/// As a rule is written on a command line.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.action.as_str(), self.tool)?;
        self.path.as_ref().map_or(Ok(()), |path| write!(f, ":{path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tool: &str, path: Option<&str>) -> ApprovalPolicy {
        let rule = Rule { action: RuleAction::Deny, tool: tool.to_owned(), path: path.map(str::to_owned) };
        ApprovalPolicy { rules: vec![rule], ..ApprovalPolicy::default() }
    }

    #[test]
    fn a_rule_that_could_never_match_is_refused_in_words_that_say_why() {
        for (tool, path, problem) in [
            ("Raed", None, "no tool"),
            ("read", None, "no tool"),
            ("Read", Some("/etc"), "below the working directory"),
            ("Read", Some("a/../b"), ".."),
            ("Read", Some(""), "empty"),
            ("Read", Some("[z-a]"), "pattern"),
            ("Bash", Some("src"), "no file"),
            ("shop__find", Some("src"), "no file"),
            ("Fetch", Some("docs"), "machine or network"),
            ("Fetch", Some("docs/*.md"), "exact"),
            ("Fetch", Some("https://example.com/"), "URL"),
            ("Fetch", Some("example.com:8443"), "no port"),
        ] {
            let refused = rule(tool, path).check().expect_err("refused");
            assert!(refused.contains(problem), "{tool} {path:?}: {refused}");
        }
        for (tool, path) in [("*", None), ("*", Some("src")), ("Write", Some("docs/**/*.md")), ("shop__find", None)]
            .into_iter()
            .chain([("Fetch", None), ("Fetch", Some("docs.example.com")), ("Fetch", Some("*.example.com"))])
        {
            assert_eq!(rule(tool, path).check(), Ok(()), "{tool} {path:?}");
        }
    }

    #[test]
    fn a_rule_is_read_as_it_is_shown() {
        for line in ["allow Write:docs", "deny *", "ask Read:a:b", "allow shop__find", "deny Fetch:*.example.com"] {
            assert_eq!(line.parse::<Rule>().map(|rule| rule.to_string()), Ok(line.to_owned()));
        }
        for line in ["", "allow", "Allow Write", "perhaps Write", "Write:docs"] {
            assert_eq!(line.parse::<Rule>(), Err(UnknownRule), "{line}");
        }
    }

    #[test]
    fn a_request_waits_from_a_minute_to_a_week() {
        for (expiry_s, good) in [(59, false), (60, true), (604_800, true), (604_801, false)] {
            assert_eq!(ApprovalPolicy { expiry_s, ..ApprovalPolicy::default() }.check().is_ok(), good, "{expiry_s}");
        }
    }

    #[test]
    fn a_definition_file_may_name_what_it_wants_to_and_nothing_else() {
        let read = |json: &str| serde_json::from_str::<ApprovalPolicy>(json);
        assert!(read("{}").expect("all defaults").is_default());
        let json = r#"{"rules":[{"action":"deny","tool":"Read","path":"keys"}],"on_denial":"end_run"}"#;
        let approvals = read(json).expect("valid");
        assert_eq!(
            (approvals.rules[0].to_string().as_str(), approvals.expiry_s),
            ("deny Read:keys", DEFAULT_EXPIRY_SECS)
        );
        assert!(read(r#"{"rule":[]}"#).is_err());
        assert!(read(r#"{"rules":[{"action":"never","tool":"Read"}]}"#).is_err());
    }
}
