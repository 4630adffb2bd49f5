//! A call with what it would do: what is judged, asked about, written down, and run.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Plan;

/// A call whose effect was planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// Unique within the run.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What kind of effect it can have.
    pub kind: ToolKind,
    /// Exactly what the tool gets.
    pub arguments: Value,
    /// What it would do.
    pub plan: Plan,
}

impl PlannedCall {
    /// What a decision is bound to: the tool, its exact arguments, and what they would have done when they were shown.
    pub fn digest(&self) -> Sha256Digest {
        let Self { tool, arguments, plan, .. } = self;
        Sha256Digest::of_json(&json!({ "tool": tool, "arguments": arguments, "plan": plan }))
            .expect("a call is JSON: its keys are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Shown;

    #[test]
    fn every_part_of_a_call_that_decides_changes_its_digest() {
        let plan = Plan { place: Some("a".to_owned()), shown: Shown::Arguments };
        let arguments = json!({ "x": 1 });
        let call = PlannedCall {
            call_id: "call_1_1".to_owned(),
            tool: "Write".to_owned(),
            kind: ToolKind::Write,
            arguments,
            plan,
        };
        let mut others = vec![call.clone(); 4];
        others[0].tool = "Edit".to_owned();
        others[1].arguments = json!({ "x": 2 });
        others[2].plan.place = Some("b".to_owned());
        others[3].plan.shown = Shown::Command { command: "ls".to_owned(), words: vec!["ls".to_owned()] };
        assert!(others.iter().all(|other| other.digest() != call.digest()));
        assert_eq!(PlannedCall { call_id: "call_1_2".to_owned(), ..call.clone() }.digest(), call.digest());
    }
}
