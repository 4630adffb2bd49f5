//! Shows tool calls: to the person who decides about one, complete and without deceptive characters, and those of a run with
//! what came of them.

use deskgate_protocol::RunId;
use deskgate_protocol::receipt::CallStatus;
use serde_json::Value;

use crate::local::calls::{CallRecord, about, reason};
use crate::local::{Evidence, OnDisk, Plan, PlanPreview};
use deskgate_program::visible::{block, first_words, line};

/// Characters of what a call was about that a line shows.
const MAX_ABOUT_CHARS: usize = 80;

/// The plan of a call. It is complete: a difference that was cut carries a notice, and the arguments are shown below.
pub(super) fn planned(plan: &Plan, arguments: &Value) -> String {
    let mut text = String::new();
    match &plan.shown {
        PlanPreview::Arguments => {}
        PlanPreview::Change { before, after, diff } => {
            let what = if before.is_some() { "changes" } else { "makes" };
            let was = before.map(|digest| format!("from sha256 {digest} ")).unwrap_or_default();
            text += &format!("{what} the file {was}to sha256 {after}\n");
            text += &block(diff.trim_end_matches('\n'), "  | ");
        }
        PlanPreview::Command { command, words } => {
            text += "runs the command\n";
            text += &block(command, "  | ");
            text += "its words, as far as they can be told apart\n";
            words.iter().for_each(|word| text += &format!("  | [{}]\n", line(word)));
        }
        PlanPreview::Delivery { name, media_type, size, sha256, text: beginning } => {
            text +=
                &format!("hands out {} to the application: {size} bytes, {media_type}, sha256 {sha256}\n", line(name));
            if let Some(beginning) = beginning {
                text += &block(beginning, "  | ");
            }
        }
        PlanPreview::Page { url } => text += &format!("gets the page\n{}", block(url, "  | ")),
    }
    text += "exact arguments\n";
    text + &block(&serde_json::to_string_pretty(arguments).unwrap_or_default(), "  | ")
}

/// What came of a call.
fn outcome(call: &CallRecord) -> &'static str {
    match (call.status, call.ended_at) {
        (CallStatus::Ok, _) => "done",
        (CallStatus::Error, _) => "failed",
        (CallStatus::NotRun, _) => "not run",
        (CallStatus::Unknown, None) => "no end yet",
        (CallStatus::Unknown, Some(_)) => "unknown",
    }
}

/// How long a call took.
fn took(call: &CallRecord) -> String {
    let span = call.begun_at.zip(call.ended_at).map(|(from, to)| to.0.as_millisecond() - from.0.as_millisecond());
    span.map(|millis| format!("{:.1} s", millis.max(0) as f64 / 1000.0)).unwrap_or_default()
}

/// The tool calls of a run, a line each; below one that failed, why.
pub(super) fn listed(run_id: RunId, calls: &[CallRecord]) -> String {
    let Some(last) = calls.last() else { return String::new() };
    let mut text = "\nTool calls\n".to_owned();
    for call in calls {
        let about = first_words(&about(call), MAX_ABOUT_CHARS);
        let (outcome, tool) = (outcome(call), line(&call.tool));
        text += format!("  {outcome:<10}  {:>7}  {tool} {about}", took(call)).trim_end();
        text.push('\n');
        if let Some(why) = reason(call) {
            text += &format!("  {:<10}  {:>7}  {}\n", "", "", first_words(why, MAX_ABOUT_CHARS));
        }
    }
    text + &format!("One of them whole: deskgate run call {run_id} {}\n", last.call_id)
}

/// One call of a run, whole.
pub(super) fn whole(call: &CallRecord) -> String {
    let mut text = format!("{} {}\n", line(&call.tool), first_words(&about(call), MAX_ABOUT_CHARS));
    text += &format!("{}, attempt {}", outcome(call), call.attempt);
    if let Some(begun_at) = call.begun_at {
        text += &format!(", began {begun_at}, took {}", took(call));
    }
    text.push('\n');
    let arguments: Option<Value> = call.arguments.as_deref().and_then(|text| serde_json::from_str(text).ok());
    match (&call.plan, arguments, &call.arguments) {
        (Some(plan), Some(arguments), _) => text += &planned(plan, &arguments),
        (None, Some(arguments), _) => {
            text += &block(&serde_json::to_string_pretty(&arguments).unwrap_or_default(), "  | ");
        }
        (_, None, Some(arguments)) => text += &block(arguments, "  | "),
        (_, None, None) => text += "its arguments are not kept\n",
    }
    match &call.output {
        Some(output) => text + "what it gave back\n" + &block(output, "  | "),
        None => text + "it gave nothing back\n",
    }
}

/// The writing calls of a run that is not settled. `waiting`: the run that its owner has to settle.
pub(super) fn evidence(calls: &[Evidence], waiting: Option<RunId>) -> String {
    let Some(run_id) = waiting else { return String::new() };
    if calls.is_empty() {
        return String::new();
    }
    let mut text =
        "\nThis run was interrupted while it may have been writing. What it wrote, or was about to:\n".to_owned();
    for Evidence { intent, on_disk } in calls {
        let outcome = match intent.ok {
            Some(true) => "it reported success",
            Some(false) => "it reported an error",
            None => "NOBODY KNOWS WHAT CAME OF IT; it may have happened",
        };
        let place = intent.plan.place.as_deref().map_or("no single place".to_owned(), line);
        text += &format!(
            "\n{} {place}: {outcome} (attempt {}, began {})\n",
            line(&intent.tool),
            intent.attempt,
            intent.begun_at
        );
        text += match on_disk {
            OnDisk::AsBefore => "on disk now: as it was before the tool call\n",
            OnDisk::AsPlanned => "on disk now: as the tool call was to make it\n",
            OnDisk::Neither => "on disk now: neither as before nor as planned\n",
            OnDisk::Unknown => "on disk now: cannot be told\n",
        };
        if intent.ok.is_none() {
            text += &planned(&intent.plan, &intent.arguments);
        }
    }
    text + &format!("\nConfirm the outcome: deskgate run reconcile {run_id} --finished | --not-done | --run-again\n")
}
