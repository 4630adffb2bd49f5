//! The limits in a definition.

use serde::{Deserialize, Serialize};

use super::{Budget, McpServer, ToolName};

/// The limits of one run, and how many runs execute at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLimits {
    /// Model calls in one run.
    pub max_turns: u32,
    /// Awake seconds in one run. An offer may ask for less, never for more.
    pub max_duration_s: u32,
    /// Runs of this service at the same time.
    pub concurrency: u32,
    /// Tokens that the model may write in one run, over all of its calls; absent: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Tokens that the model takes in one call; see [`super::Definition::context_tokens`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// What all model calls of one run may use up.
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            max_turns: 50,
            max_duration_s: 3600,
            concurrency: 4,
            max_output_tokens: None,
            context_tokens: None,
            budget: Budget::default(),
        }
    }
}

/// The largest value of a token limit.
const MAX_TOKEN_LIMIT: u64 = 10_000_000;

impl RunLimits {
    /// The defaults for a new service with these tools: where runs could change each other's files, they run one at a
    /// time.
    pub fn default_for(tools: &[ToolName], servers: &[McpServer]) -> Self {
        let concurrency = if may_change(tools, servers) { 1 } else { Self::default().concurrency };
        Self { concurrency, ..Self::default() }
    }

    /// How many runs of a service with these tools execute at the same time, and why, for its owner.
    pub fn concurrency_in_words(&self, tools: &[ToolName], servers: &[McpServer]) -> String {
        match (self.concurrency, may_change(tools, servers)) {
            (1, true) => {
                "1 run at a time: it can change things, and runs beside each other could undo each other's work"
                    .to_owned()
            }
            (1, false) => "1 run at a time, although it only reads".to_owned(),
            (most, true) => format!("up to {most} runs at the same time, although they can change the same things"),
            (most, false) => format!("up to {most} runs at the same time: it only reads"),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let bounds = [
            ("max_turns", self.max_turns, 1000),
            ("max_duration_s", self.max_duration_s, 24 * 3600),
            ("concurrency", self.concurrency, 64),
        ];
        if let Some((field, value, most)) = bounds.iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            return Err(format!("{field} must be from 1 to {most}; it is {value}"));
        }
        if !self.budget.limits_of_nothing().is_empty() {
            return Err("a run's budget must be more than nothing; leave it out for none".to_owned());
        }
        let tokens = [("max_output_tokens", self.max_output_tokens, 1), ("context_tokens", self.context_tokens, 1024)];
        match tokens
            .iter()
            .find(|(_, value, least)| value.is_some_and(|value| !(*least..=MAX_TOKEN_LIMIT).contains(&value)))
        {
            Some((field, value, least)) => {
                Err(format!("{field} must be from {least} to {MAX_TOKEN_LIMIT}; it is {}", value.unwrap_or_default()))
            }
            None => Ok(()),
        }
    }
}

/// Whether a run with these tools can change something. The tools of servers count, whatever they say of themselves.
fn may_change(tools: &[ToolName], servers: &[McpServer]) -> bool {
    tools.iter().any(|tool| tool.writes()) || !servers.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_change_something_runs_one_at_a_time_unless_its_owner_chose_otherwise_and_says_why() {
        let words = |tools: &[ToolName], chosen: Option<u32>| {
            let usual = RunLimits::default_for(tools, &[]);
            let limits = RunLimits { concurrency: chosen.unwrap_or(usual.concurrency), ..usual };
            limits.concurrency_in_words(tools, &[])
        };
        let (reads, writes) = ([ToolName::Read, ToolName::Grep], [ToolName::Read, ToolName::Edit]);
        assert!(words(&writes, None).starts_with("1 run at a time: it can change things"));
        assert_eq!(words(&reads, None), "up to 4 runs at the same time: it only reads");
        assert_eq!(words(&[], None), words(&reads, None));
        assert!(words(&writes, Some(3)).contains("3 runs at the same time, although"));
        assert!(words(&reads, Some(1)).contains("although it only reads"));
    }

    #[test]
    fn limits_of_tokens_are_checked_and_one_that_is_absent_is_not_written() {
        let none = RunLimits::default();
        assert!(!serde_json::to_string(&none).expect("JSON").contains("tokens"), "a digest stays what it was");
        for (max_output_tokens, context_tokens, fits) in [
            (Some(1), Some(1024), true),
            (Some(0), None, false),
            (None, Some(1023), false),
            (Some(MAX_TOKEN_LIMIT + 1), None, false),
        ] {
            let limits = RunLimits { max_output_tokens, context_tokens, ..none };
            assert_eq!(limits.check().is_ok(), fits, "{limits:?}");
        }
    }
}
