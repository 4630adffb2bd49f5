//! A call with its plan: what is judged, asked about, recorded, and run.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tool::Plan;

/// A call with its plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// Unique within the run.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What kind of effect the call can have.
    pub kind: ToolKind,
    /// The exact arguments for the tool.
    pub arguments: Value,
    /// What the call would do.
    pub plan: Plan,
}

impl PlannedCall {
    /// The digest that binds a decision to a call and recognises a repeated call: the tool, its exact arguments, and
    /// the path. The change itself is not part of it: once the call has happened, it finds another file.
    pub fn digest(&self) -> Sha256Digest {
        let Self { tool, arguments, plan, .. } = self;
        Sha256Digest::of_json(&json!({ "tool": tool, "arguments": arguments, "place": plan.place }))
            .expect("a call is JSON: its keys are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::PlanPreview;

    #[test]
    fn a_digest_is_of_tool_arguments_and_place_and_of_nothing_that_time_changes() {
        let plan = Plan { place: Some("a".to_owned()), shown: PlanPreview::Arguments };
        let arguments = json!({ "x": 1, "y": 2 });
        let call = PlannedCall {
            call_id: "call_1_1".to_owned(),
            tool: "Write".to_owned(),
            kind: ToolKind::Write,
            arguments,
            plan,
        };
        let mut others = vec![call.clone(); 4];
        others[0].tool = "Edit".to_owned();
        others[1].arguments = json!({ "x": 2, "y": 2 });
        others[2].plan.place = Some("b".to_owned());
        others[3].plan.place = None;
        assert!(others.iter().all(|other| other.digest() != call.digest()));
        let mut same = vec![call.clone(); 3];
        same[0].call_id = "call_1_2".to_owned();
        same[1].arguments = serde_json::from_str(r#"{ "y": 2.0, "x": 1 }"#).expect("JSON");
        let (before, after) = (Some(Sha256Digest::of(b"old")), Sha256Digest::of(b"new"));
        same[2].plan.shown = PlanPreview::Change { before, after, diff: "-old\n+new".to_owned() };
        assert!(same.iter().all(|same| same.digest() == call.digest()));
    }
}
