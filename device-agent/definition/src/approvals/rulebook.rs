//! The verdict about a call, and the paths hidden from a tool.
//!
//! Two properties of rules with a path:
//!
//! - Grep and Glob search folders. Files that must not be read are left out of the results. Where reading asks first, a
//!   search that may reach such a file asks too.
//! - A command has no path and may reach any file. Where rules deny files or ask about them, no rule lets a command run
//!   by itself. A tool of an MCP server works elsewhere and reaches none of these files.

use std::path::Path;
use std::sync::Arc;

use super::{ApprovalPolicy, OnDenial, PathPattern, PlacePattern, RuleAction};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    /// The call runs.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call is denied.
    Deny,
}

/// The rules of one service, in the form that judges calls.
#[derive(Clone, Debug)]
pub struct Rulebook {
    rules: Arc<[(RuleAction, String, PlacePattern)]>,
    /// Seconds that a request waits.
    pub expiry_s: u32,
    /// What a denied call means for its run.
    pub on_denial: OnDenial,
}

/// The rulebook of a service without rules.
impl Default for Rulebook {
    fn default() -> Self {
        let ApprovalPolicy { expiry_s, on_denial, .. } = ApprovalPolicy::default();
        Self { rules: Arc::new([]), expiry_s, on_denial }
    }
}

impl Rulebook {
    pub(super) fn new(approvals: &ApprovalPolicy) -> Result<Self, String> {
        let read = |rule: &super::Rule| Ok((rule.action, rule.tool.clone(), rule.place()?));
        let rules = approvals.rules.iter().map(read).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { rules: rules.into(), expiry_s: approvals.expiry_s, on_denial: approvals.on_denial })
    }

    /// What happens to a call of `tool` about `place`: a path relative to the working directory, for Fetch a host; `None`
    /// for a call that is about neither. `is_command`: the call runs something that may reach any file.
    pub fn verdict(&self, tool: &str, place: Option<&str>, is_command: bool) -> RuleVerdict {
        if self.of(RuleAction::Deny, tool).any(|pattern| pattern.covers(tool, place)) {
            return RuleVerdict::Deny;
        }
        if self.of(RuleAction::Ask, tool).any(|pattern| pattern.covers(tool, place))
            || self.may_come_across(tool, place)
        {
            return RuleVerdict::Ask;
        }
        let allowed = match self.of(RuleAction::Allow, tool).any(|pattern| pattern.covers(tool, place)) {
            true => true,
            false => matches!(tool, "Read" | "Grep" | "Glob" | "Skill"),
        };
        match allowed && !(is_command && self.guards_files()) {
            true => RuleVerdict::Allow,
            false => RuleVerdict::Ask,
        }
    }

    /// The paths hidden from `tool`, whichever folder it searches and whichever link it follows.
    pub fn hidden_from(&self, tool: &str) -> HiddenPaths {
        let own = self.of(RuleAction::Deny, tool);
        // What must not be read must not be found either, and not be handed out.
        let reading = self.of(RuleAction::Deny, "Read").filter(|_| searches(tool) || tool == "Deliver");
        HiddenPaths(own.chain(reading).filter_map(PlacePattern::paths).cloned().collect())
    }

    /// Whether there are files that a rule denies or asks about.
    fn guards_files(&self) -> bool {
        self.rules.iter().any(|(action, _, pattern)| *action != RuleAction::Allow && pattern.paths().is_some())
    }

    /// Whether a search of this path may reach a file about which a rule asks first.
    fn may_come_across(&self, tool: &str, place: Option<&str>) -> bool {
        let Some(place) = place.filter(|_| searches(tool)).map(Path::new) else { return false };
        let asked = self.of(RuleAction::Ask, tool).chain(self.of(RuleAction::Ask, "Read"));
        asked.filter_map(PlacePattern::paths).any(|pattern| pattern.may_touch(place))
    }

    /// The rules of one action for a tool, as their places.
    fn of(&self, action: RuleAction, tool: &str) -> impl Iterator<Item = &PlacePattern> {
        self.rules
            .iter()
            .filter(move |(kind, name, _)| *kind == action && (name == "*" || name == tool))
            .map(|(_, _, pattern)| pattern)
    }
}

/// Whether a tool shows files below a folder.
fn searches(tool: &str) -> bool {
    matches!(tool, "Grep" | "Glob")
}

/// The paths hidden from a tool.
#[derive(Clone, Debug, Default)]
pub struct HiddenPaths(Vec<PathPattern>);

impl HiddenPaths {
    /// Whether no path is hidden.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a path, relative to the working directory, is hidden.
    pub fn covers(&self, place: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.covers(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::Rule;

    fn rulebook(rules: &[(RuleAction, &str, Option<&str>)]) -> Rulebook {
        let rule = |(action, tool, path): &(RuleAction, &str, Option<&str>)| Rule {
            action: *action,
            tool: (*tool).to_owned(),
            path: path.map(str::to_owned),
        };
        let approvals = ApprovalPolicy { rules: rules.iter().map(rule).collect(), ..ApprovalPolicy::default() };
        approvals.check().expect("rules that may be written");
        approvals.rulebook().expect("readable")
    }

    use RuleAction::{Allow, Ask, Deny};

    #[test]
    fn without_rules_what_only_looks_runs_and_everything_else_asks() {
        let none = rulebook(&[]);
        for tool in ["Read", "Grep", "Glob", "Skill"] {
            assert_eq!(none.verdict(tool, Some("a"), false), RuleVerdict::Allow);
        }
        for tool in ["Edit", "Write", "Bash", "Fetch", "shop__find", "SomethingNew"] {
            assert_eq!(none.verdict(tool, None, false), RuleVerdict::Ask);
        }
    }

    #[test]
    fn a_deny_beats_an_ask_beats_an_allow_in_whatever_order_they_are_written() {
        let mut rules = vec![(Allow, "*", None), (Ask, "Write", Some("docs")), (Deny, "Write", Some("docs/law"))];
        for _ in 0..rules.len() {
            rules.rotate_left(1);
            let book = rulebook(&rules);
            assert_eq!(book.verdict("Write", Some("notes"), false), RuleVerdict::Allow);
            assert_eq!(book.verdict("Write", Some("docs/a"), false), RuleVerdict::Ask);
            assert_eq!(book.verdict("Write", Some("docs/law/a"), false), RuleVerdict::Deny);
            assert_eq!(book.verdict("shop__find", None, false), RuleVerdict::Allow);
        }
    }

    #[test]
    fn what_may_not_be_read_is_hidden_from_every_search_and_a_search_that_may_find_what_asks_asks_too() {
        let book = rulebook(&[(Deny, "Read", Some("keys")), (Ask, "Read", Some("letters/*.txt"))]);
        for tool in ["Read", "Grep", "Glob"] {
            assert!(book.hidden_from(tool).covers(Path::new("keys/a")), "{tool}");
        }
        assert!(!book.hidden_from("Write").covers(Path::new("keys/a")));
        assert_eq!(book.verdict("Read", Some("keys/a"), false), RuleVerdict::Deny);
        assert_eq!(book.verdict("Grep", Some("."), false), RuleVerdict::Ask);
        assert_eq!(book.verdict("Glob", Some("letters"), false), RuleVerdict::Ask);
        assert_eq!(book.verdict("Grep", Some("src"), false), RuleVerdict::Allow);
        let book = rulebook(&[(Deny, "Grep", Some("big"))]);
        assert!(book.hidden_from("Grep").covers(Path::new("big/a")) && book.hidden_from("Read").is_empty());
    }

    #[test]
    fn no_rule_lets_a_command_run_by_itself_where_rules_guard_files() {
        let beside = |rule: (RuleAction, &str, Option<&str>)| {
            let book = rulebook(&[(Allow, "*", None), rule]);
            (book.verdict("Bash", None, true), book.verdict("shop__find", None, false))
        };
        for (action, tool, path) in [
            (Deny, "Read", "keys"),
            (Deny, "*", "keys"),
            (Ask, "Read", "letters/*.txt"),
            (Ask, "Write", "docs"),
            (Ask, "*", "**"),
        ] {
            let verdicts = beside((action, tool, Some(path)));
            assert_eq!(verdicts, (RuleVerdict::Ask, RuleVerdict::Allow), "{action:?} {tool}:{path}");
        }
        for (rule, verdict) in [
            ((Allow, "Write", Some("docs")), RuleVerdict::Allow),
            ((Ask, "Write", None), RuleVerdict::Allow),
            ((Deny, "Bash", None), RuleVerdict::Deny),
        ] {
            assert_eq!(beside(rule).0, verdict, "{rule:?}");
        }
    }

    #[test]
    fn fetch_is_judged_by_its_host_and_by_nothing_that_is_about_files() {
        let fetch = |book: &Rulebook, host| book.verdict("Fetch", Some(host), false);
        let book = rulebook(&[
            (Allow, "Fetch", Some("Docs.Example.com")),
            (Allow, "Fetch", Some("*.example.org")),
            (Ask, "Fetch", Some("news.example.org")),
            (Deny, "Fetch", Some("*.ads.example.org")),
        ]);
        for (host, verdict) in [
            ("docs.example.com", RuleVerdict::Allow),
            ("example.com", RuleVerdict::Ask),
            ("a.docs.example.com", RuleVerdict::Ask),
            ("a.example.org", RuleVerdict::Allow),
            ("example.org", RuleVerdict::Ask),
            ("news.example.org", RuleVerdict::Ask),
            ("x.ads.example.org", RuleVerdict::Deny),
        ] {
            assert_eq!(fetch(&book, host), verdict, "{host}");
        }
        assert_eq!(book.verdict("Fetch", None, false), RuleVerdict::Ask);
        assert_eq!(fetch(&rulebook(&[(Allow, "Fetch", None)]), "any.example"), RuleVerdict::Allow);
        assert_eq!(fetch(&rulebook(&[(Allow, "*", None)]), "any.example"), RuleVerdict::Allow);
        assert_eq!(fetch(&rulebook(&[(Allow, "*", Some("**"))]), "any.example"), RuleVerdict::Ask);
        let book = rulebook(&[(Allow, "Fetch", None), (Deny, "*", Some("any.example")), (Deny, "*", Some("**"))]);
        assert_eq!(fetch(&book, "any.example"), RuleVerdict::Allow, "these rules are about files");
        let book = rulebook(&[(Allow, "*", None), (Deny, "Fetch", Some("keys.example.com"))]);
        assert_eq!(book.verdict("Bash", None, true), RuleVerdict::Allow, "no file is guarded");
        assert_eq!(book.verdict("Read", Some("keys.example.com"), false), RuleVerdict::Allow);
        assert!(book.hidden_from("Read").is_empty() && book.hidden_from("Grep").is_empty());
    }
}
