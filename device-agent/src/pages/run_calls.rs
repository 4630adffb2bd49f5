//! What a run's tool calls were to do and what they gave back, and the files that they changed.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_program::visible;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::CallStatus;
use serde::Deserialize;

use super::auth::Visitor;
use super::call_preview::{CallPreview, PREVIEW_LINES};
use super::diff::{DiffLayout, Layouts, html_bytes};
use super::frame::{Frame, Section};
use super::labels::{Shape, SpanLabel, TimeLabel};
use super::{PageError, Pages};
use crate::local::calls::{CallRecord, about};
use crate::local::{PlanPreview, ShowCall};

/// What a call was to do, and what it gave back.
pub(super) struct CallContent {
    pub(super) preview: CallPreview,
    pub(super) output: Option<String>,
    /// Whether a part of it is left out.
    pub(super) is_cut: bool,
}

impl CallContent {
    /// The content of a call as it is kept.
    fn whole(record: &CallRecord) -> Self {
        let preview = CallPreview::new(record.plan.as_ref(), record.arguments.as_deref());
        let output = record.output.as_deref().map(|text| visible::block(text, "")).filter(|text| !text.is_empty());
        Self { preview, output, is_cut: false }
    }

    /// Its beginning, if that fits into the room that a page has; it is taken off then.
    pub(super) fn preview(record: &CallRecord, room: &mut usize) -> Option<Self> {
        let Self { preview, output, .. } = Self::whole(record);
        let (preview, lines_cut) = preview.cut();
        let shown: Option<String> =
            output.as_deref().map(|text| text.split_inclusive('\n').take(PREVIEW_LINES).collect());
        // A list has the beginnings of long texts.
        let begins = |text: &Option<String>| text.as_deref().is_some_and(|text| text.ends_with('…'));
        let is_cut = lines_cut || shown != output || begins(&record.output) || begins(&record.arguments);
        let bytes = preview.page_bytes() + shown.as_deref().map_or(0, html_bytes);
        *room = room.checked_sub(bytes)?;
        Some(Self { preview, output: shown, is_cut })
    }
}

#[derive(Template)]
#[template(path = "call.html")]
struct CallPage {
    frame: Frame,
    run_id: RunId,
    tool: String,
    about: String,
    record: CallRecord,
    content: CallContent,
}

impl CallPage {
    /// What came of it, by the device's own record.
    fn state(&self) -> (Shape, &'static str) {
        let CallRecord { status, begun_at, ended_at, .. } = &self.record;
        match (status, begun_at, ended_at) {
            (CallStatus::Ok, ..) => (Shape::Good, "Done"),
            (CallStatus::Error, ..) => (Shape::Bad, "Failed"),
            (CallStatus::NotRun, ..) => (Shape::Over, "Not run"),
            (CallStatus::Unknown, Some(_), None) => (Shape::Unknown, "No end yet"),
            (CallStatus::Unknown, ..) => (Shape::Unknown, "Outcome unknown"),
        }
    }

    fn arguments(&self) -> String {
        match CallPreview::new(None, self.record.arguments.as_deref()) {
            CallPreview::Arguments(text) => text,
            _ => String::new(),
        }
    }

    fn took(&self) -> Option<SpanLabel> {
        self.record.begun_at.zip(self.record.ended_at).map(|(from, to)| SpanLabel::between(from, to))
    }
}

/// How the page of a call is shown.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallQuery {
    #[serde(default)]
    diff: DiffLayout,
}

/// `GET /runs/{id}/calls/{call}`: one call, as it is kept.
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((run_id, call_id)): Path<(RunId, String)>,
    Query(query): Query<CallQuery>,
) -> Result<Response, PageError> {
    let record = pages.handler().request(ShowCall { run_id, call_id }).await?;
    let (tool, about) = (visible::line(&record.tool), visible::first_words(&about(&record), 200));
    let title = visible::first_words(&format!("{tool} {about}"), 80);
    let frame = Frame::new(&pages, &visitor, Section::Runs, title).await;
    let mut content = CallContent::whole(&record);
    content.preview = content.preview.in_layout(Layouts::of(query.diff, "", ""));
    Ok(super::html(StatusCode::OK, &CallPage { frame, run_id, tool, about, record, content }))
}

/// A file that a run changed.
pub(super) struct ChangedFile {
    pub(super) place: String,
    pub(super) is_new: bool,
    /// How many lines its calls added ...
    pub(super) added: usize,
    /// ... and removed.
    pub(super) removed: usize,
    /// The calls that changed it, by their identifiers.
    pub(super) calls: Vec<String>,
    /// Whether nobody knows if it was changed.
    pub(super) is_unknown: bool,
}

/// The files that calls changed, in the order of their first change.
pub(super) fn changed_files(records: &[CallRecord]) -> Vec<ChangedFile> {
    let mut files: Vec<ChangedFile> = Vec::new();
    for record in records.iter().filter(|record| record.begun_at.is_some()) {
        let Some(plan) = &record.plan else { continue };
        let (PlanPreview::Change { before, .. }, Some(place)) = (&plan.shown, &plan.place) else { continue };
        let is_unknown = record.status == CallStatus::Unknown;
        if record.status != CallStatus::Ok && !is_unknown {
            continue;
        }
        let place = visible::line(place);
        let (added, removed) = CallPreview::new(Some(plan), None).lines_changed().unwrap_or_default();
        let index = files.iter().position(|file| file.place == place).unwrap_or_else(|| {
            let is_new = before.is_none();
            files.push(ChangedFile { place, is_new, added: 0, removed: 0, calls: Vec::new(), is_unknown: false });
            files.len() - 1
        });
        let file = &mut files[index];
        file.added += added;
        file.removed += removed;
        file.is_unknown |= is_unknown;
        file.calls.push(record.call_id.clone());
    }
    files
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::canonical::Sha256Digest;

    use super::super::run_samples::{at, call};
    use super::*;
    use crate::local::Plan;

    fn change(call_id: &str, place: &str, diff: &str, status: CallStatus) -> CallRecord {
        let before = diff.contains("\n-").then(|| Sha256Digest::of(b"before"));
        let shown = PlanPreview::Change { before, after: Sha256Digest::of(b"after"), diff: diff.to_owned() };
        let plan = Some(Plan { place: Some(place.to_owned()), shown });
        CallRecord { plan, status, ..call(call_id, "Edit") }
    }

    #[test]
    fn files_are_named_once_with_all_that_changed_in_them() {
        let edit = "@@ -1 +1,2 @@\n-one\n+two\n+three\n";
        let records = [
            change("call_1_1", "a.txt", edit, CallStatus::Ok),
            change("call_1_2", "new.txt", "@@ -0,0 +1 @@\n+one\n", CallStatus::Unknown),
            change("call_1_3", "a.txt", edit, CallStatus::Ok),
            change("call_1_4", "failed.txt", edit, CallStatus::Error),
            CallRecord { begun_at: None, ..change("call_1_5", "denied.txt", edit, CallStatus::NotRun) },
            call("call_1_6", "Read"),
        ];
        let files = changed_files(&records);
        let told: Vec<_> = files
            .iter()
            .map(|file| (file.place.as_str(), file.is_new, file.added, file.removed, file.calls.len(), file.is_unknown))
            .collect();
        assert_eq!(told, [("a.txt", false, 4, 2, 2, false), ("new.txt", true, 1, 0, 1, true)]);
    }

    #[test]
    fn a_preview_has_the_beginning_and_takes_no_more_room_than_there_is() {
        let diff = format!("@@ -0,0 +1,100 @@\n{}", "+line\n".repeat(100));
        let mut record = change("call_1_1", "a.txt", &diff, CallStatus::Ok);
        record.output = Some("x\n".repeat(100));
        let mut room = 10_000;
        let content = CallContent::preview(&record, &mut room).expect("it fits");
        let CallPreview::Difference(difference) = &content.preview else { panic!("a difference") };
        assert!(content.is_cut && difference.rows.len() == PREVIEW_LINES && difference.added == 100);
        assert_eq!(content.output.as_deref().map(|text| text.lines().count()), Some(PREVIEW_LINES));
        assert!(room < 10_000 - PREVIEW_LINES * 80, "{room}");
        let mut little = 100;
        assert!(CallContent::preview(&record, &mut little).is_none() && little == 100);
        let short = CallRecord { output: Some("fine".to_owned()), ended_at: Some(at(3)), ..call("call_1_2", "Read") };
        assert!(!CallContent::preview(&short, &mut room).expect("it fits").is_cut);
    }
}
