//! Runs: the list, one run, and its owner's actions.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_program::visible;
use deskgate_protocol::ids::{ApprovalId, RunId};
use deskgate_protocol::management::{ListRuns, RunDetail, RunPage, ShowRun, StopRun};
use deskgate_protocol::run::{Phase, Run, RunEvent, RunState};
use deskgate_protocol::service::DRAFT_VERSION;
use serde::Deserialize;

use super::approvals::{ApprovalCard, DECIDED_ON_RUN, UndoableDecision};
use super::auth::Visitor;
use super::call_preview::CallPreview;
use super::fields::{FormFields, older};
use super::frame::{Frame, Section};
use super::labels::{RunStateLabel, Shape, TimeLabel, VersionLabel};
use super::live::Topic;
use super::overview::{Names, RunRow};
use super::run_calls::{self, ChangedFile};
use super::run_entries::{self, RunEntry, RunTurn};
use super::timeline::Timeline;
use super::{PageError, Pages, markdown};
use crate::local::{
    ApprovalView, ErrorReply, ErrorReplyCode, Evidence, GetIdentity, ListApprovals, ListCalls, ModelFailure, OnDisk,
    OwnerFinding, ReceiptVerdict, ReconcileRun, ShowEvidence, ShowModelFailure, ShowRunSpending, Spending, UNDO_TIME,
    UnfinishedMessage,
};

/// How many runs one page shows.
const RUNS_PER_PAGE: u32 = 50;

/// How many bytes of an unfinished message are shown: its end.
const MAX_WRITING_BYTES: usize = 16 * 1024;

/// The filter of the list.
///
/// A form sends every field; empty ones are ignored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RunsQuery {
    #[serde(default)]
    before: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    app: String,
    #[serde(default)]
    service: String,
    #[serde(default)]
    find: String,
}

impl RunsQuery {
    /// The request; an invalid value counts as empty.
    fn request(&self) -> ListRuns {
        ListRuns {
            limit: RUNS_PER_PAGE,
            before: self.before.parse().ok(),
            states: self.state.parse().into_iter().collect(),
            app_id: self.app.parse().ok(),
            endpoint_id: self.service.parse().ok(),
            find: Some(self.find.trim()).filter(|text| !text.is_empty()).map(str::to_owned),
        }
    }

    fn is_narrow(&self) -> bool {
        [&self.state, &self.app, &self.service, &self.find].iter().any(|field| !field.is_empty())
    }

    /// The address of the page that begins at `before`, with the same filters.
    fn from(&self, before: RunId) -> String {
        let filters = [("state", &self.state), ("app", &self.app), ("service", &self.service), ("find", &self.find)];
        older("/runs", &filters, before)
    }
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    rows: Vec<RunRow>,
    older: Option<String>,
    filter: RunsQuery,
    names: Names,
    problem: Option<String>,
}

impl RunsPage {
    /// Whether it shows the newest runs, which change.
    fn first(&self) -> bool {
        self.filter.before.is_empty()
    }

    /// Whether it shows those that need a decision, which have a page of their own.
    fn shows_unsettled(&self) -> bool {
        self.filter.state == RunState::AwaitingReconciliation.as_str()
    }

    fn states(&self) -> impl Iterator<Item = (RunState, &'static str, bool)> {
        RunState::ALL.into_iter().map(|state| (state, RunStateLabel::word(state), state.as_str() == self.filter.state))
    }
}

/// `GET /runs`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<RunsQuery>,
) -> Result<Response, PageError> {
    let (frame, names) = tokio::join!(Frame::new(&pages, &visitor, Section::Runs, "Runs"), Names::new(&pages));
    let (page, problem) = match pages.handler().manage(filter.request()).await {
        Ok(page) => (page, None),
        // The search text is no identifier.
        Err(no) if no.code == ErrorReplyCode::Invalid => {
            (RunPage { runs: Vec::new(), has_more: false, next: None }, Some(no.message))
        }
        Err(no) => return Err(no.into()),
    };
    let older = page.next.map(|before| filter.from(before));
    let rows = page.runs.into_iter().map(|run| names.listed(run)).collect();
    Ok(super::html(StatusCode::OK, &RunsPage { frame, rows, older, filter, names, problem }))
}

/// What the assistant of a run is writing.
pub(super) struct RunWriting {
    pub(super) run_id: RunId,
    pub(super) message: Option<UnfinishedMessage>,
}

impl RunWriting {
    pub(super) fn new(pages: &Pages, run_id: RunId) -> Self {
        Self { run_id, message: pages.handler().writing(run_id) }
    }

    pub(super) fn message_id(&self) -> &str {
        self.message.as_ref().map_or("", |message| &message.message_id)
    }

    /// The end of it, as HTML.
    pub(super) fn html(&self) -> Option<String> {
        let text = &self.message.as_ref()?.text;
        let skipped = text.char_indices().map(|(place, _)| place).find(|place| text.len() - place <= MAX_WRITING_BYTES);
        let (begin, mark) = skipped.filter(|place| *place > 0).map_or((0, ""), |place| (place, "… "));
        Some(markdown::html(&format!("{mark}{}", &text[begin..])))
    }
}

#[derive(Template)]
#[template(path = "run-writing-alone.html")]
struct RunWritingPart {
    writing: RunWriting,
}

/// `GET /runs/{id}/writing`: the part of a run's page that changes with each word.
pub(super) async fn writing(State(pages): State<Pages>, _: Visitor, Path(run_id): Path<RunId>) -> Response {
    super::html(StatusCode::OK, &RunWritingPart { writing: RunWriting::new(&pages, run_id) })
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunDetailPage {
    frame: Frame,
    row: RunRow,
    /// For whom it was submitted.
    subject: Option<String>,
    /// The provider and the model of its version, if that is held here.
    model: Option<String>,
    timeline: Timeline,
    entries: Vec<RunEntry>,
    files: Vec<ChangedFile>,
    writing: RunWriting,
    steps: Vec<EventRow>,
    calls: Vec<UnsettledCallRow>,
    failure: Option<ModelFailure>,
    spending: Option<Spending>,
    undone: Vec<UndoneCallRow>,
    /// Decisions about its calls that can still be undone.
    undoable: Vec<UndoableDecision>,
    /// What the forms say about where they were.
    decided_on: &'static str,
    /// The page of its service.
    service_page: Option<String>,
    receipt: Option<ReceiptVerdict>,
}

/// One event in the list of steps.
struct EventRow {
    event: RunEvent,
    about: String,
}

impl EventRow {
    fn new(event: RunEvent) -> Self {
        let about = |name: &str| event.data.get(name).and_then(|value| value.as_str()).map(visible::line);
        let about = ["tool", "text", "reason", "resolution"].into_iter().find_map(about).unwrap_or_default();
        Self { event, about }
    }
}

impl RunDetailPage {
    fn run(&self) -> &Run {
        &self.row.run
    }

    /// How many of its newest events did not fit into the gateway's reply.
    fn events_left_out(&self) -> u64 {
        let shown = self.steps.last().map_or(0, |step| step.event.sequence);
        self.run().last_sequence.saturating_sub(shown)
    }

    fn unsettled(&self) -> bool {
        self.run().state == RunState::AwaitingReconciliation
    }

    fn turns(&self) -> Vec<RunTurn<'_>> {
        run_entries::turns(&self.entries)
    }
}

/// An approved call that was not carried out as it was shown.
struct UndoneCallRow {
    tool: String,
    place: String,
    why: String,
    approval_id: ApprovalId,
}

impl UndoneCallRow {
    fn new(view: &ApprovalView) -> Option<Self> {
        let why = view.not_carried_out()?;
        let place = view.approval.plan.as_ref().and_then(|plan| plan.place.as_deref());
        let place = place.map(visible::line).unwrap_or_default();
        Some(Self { tool: visible::line(&view.approval.tool), place, why, approval_id: view.approval.approval_id })
    }
}

/// A writing call of an unsettled run, in words.
struct UnsettledCallRow {
    tool: String,
    place: String,
    outcome: &'static str,
    on_disk: &'static str,
    /// What it was to do.
    preview: CallPreview,
}

impl UnsettledCallRow {
    fn new(call: &Evidence) -> Self {
        let outcome = match call.intent.ok {
            Some(true) => "It reported success.",
            Some(false) => "It reported an error.",
            None => "Nobody knows what came of it; it may have happened.",
        };
        let on_disk = match call.on_disk {
            OnDisk::AsBefore => "On disk now: as it was before the tool call.",
            OnDisk::AsPlanned => "On disk now: as the tool call was to make it.",
            OnDisk::Neither => "On disk now: neither as before nor as planned.",
            OnDisk::Unknown => "What is on disk now cannot be compared.",
        };
        let place = call.intent.plan.place.as_deref().map(visible::line).unwrap_or_default();
        let preview = CallPreview::new(Some(&call.intent.plan), Some(&call.intent.arguments.to_string()));
        Self { tool: visible::line(&call.intent.tool), place, outcome, on_disk, preview }
    }
}

/// The provider and the model of a run's version. A draft may be another one by now.
async fn model(pages: &Pages, run: &Run) -> Option<String> {
    let version = Some(run.endpoint_version).filter(|version| *version != DRAFT_VERSION)?;
    let held = pages.handler().store.services().published(run.endpoint_id, version).await;
    let (definition, _) = held.ok().flatten()?;
    Some(format!("{} · {}", definition.provider, definition.model))
}

/// `GET /runs/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(run_id): Path<RunId>,
) -> Result<Response, PageError> {
    let (mut frame, names, evidence, failure, spending, approvals, records, identity) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Runs, "Run"),
        Names::new(&pages),
        pages.handler().request(ShowEvidence { run_id }),
        pages.handler().request(ShowModelFailure { run_id }),
        pages.handler().request(ShowRunSpending { run_id }),
        pages.handler().request(ListApprovals { all: true, run_id: Some(run_id) }),
        pages.handler().request(ListCalls { run_id }),
        pages.handler().request(GetIdentity {}),
    );
    let RunDetail { run, events, subject } = pages.handler().manage(ShowRun { run_id, after: 0, wait_s: 0 }).await?;
    let model = model(&pages, &run).await;
    let timeline = Timeline::new(&run, &events);
    let calls = evidence.unwrap_or_default().iter().map(UnsettledCallRow::new).collect();
    let failure = failure.unwrap_or_default().filter(|_| run.state == RunState::Failed);
    let spending = spending.unwrap_or_default();
    let approvals = approvals.unwrap_or_default();
    let undone = approvals.iter().filter_map(UndoneCallRow::new).collect();
    let requests: Vec<_> = approvals.into_iter().map(|view| ApprovalCard::new(view, &names)).collect();
    let undoable = requests.iter().filter_map(UndoableDecision::of).collect();
    let records = records.unwrap_or_default();
    let files = run_calls::changed_files(&records);
    let entries = run_entries::entries(&run, &events, requests, records);
    let steps = events.into_iter().map(EventRow::new).collect();
    let receipt = identity.ok().and_then(|identity| ReceiptVerdict::of(&run, &identity.fingerprint));
    let mut writing = RunWriting::new(&pages, run_id);
    // It is among the others by now.
    writing.message.take_if(|message| run_entries::has_said(&entries, &message.message_id));
    let service_page = names.service_page(run.endpoint_id);
    let row = names.row(run);
    frame.title = row.name();
    let page = RunDetailPage {
        frame,
        row,
        subject,
        model,
        timeline,
        entries,
        files,
        writing,
        steps,
        calls,
        failure,
        spending,
        undone,
        undoable,
        decided_on: DECIDED_ON_RUN,
        service_page,
        receipt,
    };
    Ok(super::html(StatusCode::OK, &page))
}

#[derive(Template)]
#[template(path = "run-stop.html")]
struct StopQuestion {
    frame: Frame,
    run_id: RunId,
    started: bool,
}

/// `GET /runs/{id}/stop`: the question before it.
pub(super) async fn ask_stop(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(run_id): Path<RunId>,
) -> Result<Response, PageError> {
    let detail = pages.handler().manage(ShowRun { run_id, after: 0, wait_s: 0 }).await?;
    let frame = Frame::new(&pages, &visitor, Section::Runs, "Stop this run?").await;
    let started = detail.run.phase != Phase::Accepted || detail.run.state == RunState::AwaitingReconciliation;
    Ok(super::html(StatusCode::OK, &StopQuestion { frame, run_id, started }))
}

/// `POST /runs/{id}/stop`
pub(super) async fn stop(State(pages): State<Pages>, Path(run_id): Path<RunId>) -> Result<Redirect, PageError> {
    pages.handler().manage(StopRun { run_id }).await?;
    pages.live().changed(Topic::Runs);
    Ok(Redirect::to(&format!("/runs/{run_id}")))
}

#[derive(Template)]
#[template(path = "run-again.html")]
struct AgainQuestion {
    frame: Frame,
    run_id: RunId,
}

/// `GET /runs/{id}/again`: the question before an interrupted run is executed again.
pub(super) async fn ask_again(State(pages): State<Pages>, visitor: Visitor, Path(run_id): Path<RunId>) -> Response {
    let frame = Frame::new(&pages, &visitor, Section::Runs, "Run it again?").await;
    super::html(StatusCode::OK, &AgainQuestion { frame, run_id })
}

/// `POST /runs/{id}/reconcile`
pub(super) async fn reconcile(
    State(pages): State<Pages>,
    Path(run_id): Path<RunId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let finding = match fields.get("finding") {
        "finished" => OwnerFinding::Finished,
        "not_done" => OwnerFinding::NotDone,
        "run_again" => OwnerFinding::RunAgain,
        other => {
            let message = format!("{other:?} is none of the answers: it finished, it did not, run again.");
            return Err(PageError(ErrorReply { code: ErrorReplyCode::Invalid, message }));
        }
    };
    pages.handler().request(ReconcileRun { run_id, finding }).await?;
    pages.live().changed(Topic::Runs);
    Ok(Redirect::to(&format!("/runs/{run_id}")).into_response())
}
