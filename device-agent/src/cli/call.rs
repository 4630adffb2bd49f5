//! Shows a tool call to the person who decides about it: complete, and without deceptive characters.

use deskgate_protocol::RunId;
use serde_json::Value;

use crate::local::{Evidence, OnDisk, Plan, PlanPreview};
use deskgate_program::visible::{block, line};

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
        PlanPreview::Page { url } => text += &format!("gets the page\n{}", block(url, "  | ")),
    }
    text += "exact arguments\n";
    text + &block(&serde_json::to_string_pretty(arguments).unwrap_or_default(), "  | ")
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
    text + &format!("\nConfirm the outcome: deskgate runs reconcile {run_id} --finished | --not-done | --run-again\n")
}
