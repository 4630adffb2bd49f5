//! The options for a service's approval rules, and their display.

use std::time::Duration;

use clap::{Args, ValueEnum};
use deskgate_definition::ApprovalPolicy;
use deskgate_definition::approvals::{OnDenial, Rule, RuleAction};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::records::Detail;

/// The fields of [`ApprovalPolicy`]. Rules of a kind that is given replace all rules of that kind.
#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    /// Tool calls that run by themselves: a tool or *, and perhaps a path, as in Write:docs, or hosts, as in
    /// Fetch:docs.example.com and Fetch:*.example.com; may be repeated, "none" for no such rule
    /// [default: Read, Grep, Glob and Skill run by themselves]
    #[arg(long, value_name = "TOOL[:PLACE]")]
    allow: Vec<String>,
    /// Tool calls that ask you first, whatever allows them [default: everything else]
    #[arg(long, value_name = "TOOL[:PLACE]")]
    ask: Vec<String>,
    /// Tool calls that never run, whatever allows them
    #[arg(long, value_name = "TOOL[:PLACE]")]
    deny: Vec<String>,
    /// How long a request waits for you before it counts as denied, from 60s to 168h [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    approval_expiry: Option<Duration>,
    /// What a denied tool call means for its run
    #[arg(long, value_name = "WHAT")]
    on_denial: Option<Denial>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Denial {
    /// The assistant is told, and goes on without it
    Tell,
    /// The run ends
    End,
}

impl RuleArgs {
    /// Applies the options to a draft's rules.
    pub(super) fn apply(self, mut approvals: ApprovalPolicy) -> Result<ApprovalPolicy, Failure> {
        for (action, given) in
            [(RuleAction::Allow, self.allow), (RuleAction::Ask, self.ask), (RuleAction::Deny, self.deny)]
        {
            if given.is_empty() {
                continue;
            }
            approvals.rules.retain(|rule| rule.action != action);
            if given != ["none"] {
                approvals.rules.extend(given.iter().map(|calls| Rule::over(action, calls)));
            }
        }
        if let Some(expiry) = self.approval_expiry {
            approvals.expiry_s = u32::try_from(expiry.as_secs())
                .map_err(|_| Failure::new(Exit::Usage, "--approval-expiry: at most 168h"))?;
        }
        approvals.on_denial = match self.on_denial {
            None => approvals.on_denial,
            Some(Denial::Tell) => OnDenial::TellAssistant,
            Some(Denial::End) => OnDenial::EndRun,
        };
        Ok(approvals)
    }
}

/// Adds the rules to a detail, one per line, in the order in which they decide.
pub(super) fn fields(detail: Detail, approvals: &ApprovalPolicy) -> Detail {
    let of = |action| approvals.rules.iter().filter(move |rule| rule.action == action);
    let denial = match approvals.on_denial {
        OnDenial::TellAssistant => "the assistant is told",
        OnDenial::EndRun => "ends the run",
    };
    detail
        .fields("rule", RuleAction::ALL.into_iter().flat_map(of))
        .field("otherwise", "Read, Grep, Glob and Skill run, everything else asks")
        .field("requests", format!("wait {} s, then count as denied; a denial: {denial}", approvals.expiry_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_one_kind_are_replaced_and_the_others_stay() {
        let rules = |deny: &[&str], ask: &[&str]| RuleArgs {
            allow: Vec::new(),
            ask: ask.iter().map(|text| (*text).to_owned()).collect(),
            deny: deny.iter().map(|text| (*text).to_owned()).collect(),
            approval_expiry: None,
            on_denial: None,
        };
        let first = rules(&["Read:keys", "*:a:b"], &["Grep"]).apply(ApprovalPolicy::default()).expect("applied");
        let texts: Vec<_> = first.rules.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["ask Grep", "deny Read:keys", "deny *:a:b"]);
        let second = rules(&["none"], &[]).apply(first).expect("applied");
        assert_eq!(second.rules.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ask Grep"]);
    }
}
