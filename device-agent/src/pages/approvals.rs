//! The inbox: tool calls that wait for their owner, and those that were decided.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::ApprovalId;
use serde::Deserialize;

use super::auth::Visitor;
use super::call_preview::CallPreview;
use super::diff::{DiffLayout, Layouts};
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::{DurationText, Shape, TimeLabel, tool_icon};
use super::live::Topic;
use super::overview::Names;
use super::wait_times::WaitTimes;
use super::{PageError, Pages, trial};
use crate::local::{
    ApprovalState, ApprovalView, DecideSoon, Decision, ListApprovals, ShowApproval, UNDO_TIME, UndoDecision,
};
use deskgate_program::visible;

/// Characters of a reason in the list.
const MAX_REASON_CHARS: usize = 60;
/// With fewer seconds left, a request stands out.
const URGENT_S: i64 = 300;

/// The filter of the list.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ApprovalsQuery {
    #[serde(default)]
    decided: bool,
    #[serde(default)]
    diff: DiffLayout,
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: Frame,
    decided: bool,
    cards: Vec<ApprovalCard>,
    /// Decisions that can still be undone.
    undoable: Vec<UndoableDecision>,
    /// What the forms say about where they were.
    decided_on: &'static str,
    waits: Option<WaitTimes>,
    /// Why a submitted decision had no effect.
    too_late: Option<String>,
}

/// The page of a run, as its forms name it.
pub(super) const DECIDED_ON_RUN: &str = "run";
/// The page of a service, beside whose form it is tried.
pub(super) const DECIDED_ON_TRIAL: &str = "trial";
const DECIDED_IN_INBOX: &str = "inbox";

/// A decision that does not count yet.
pub(super) struct UndoableDecision {
    pub(super) approval_id: ApprovalId,
    pub(super) shape: Shape,
    pub(super) word: &'static str,
    pub(super) tool: String,
    pub(super) place: String,
}

impl UndoableDecision {
    /// That of a request, if it has one.
    pub(super) fn of(card: &ApprovalCard) -> Option<Self> {
        let (shape, word) = card.answer();
        let approval_id = card.view.approval.approval_id;
        card.view.pending.as_ref().map(|_| Self { approval_id, shape, word, tool: card.tool(), place: card.place() })
    }
}

/// One request.
pub(super) struct ApprovalCard {
    pub(super) view: ApprovalView,
    pub(super) application: String,
    /// The page of its service.
    pub(super) service_page: Option<String>,
    pub(super) asked: CallPreview,
    /// Whether something of it is left out; never while it waits.
    pub(super) is_cut: bool,
}

impl ApprovalCard {
    pub(super) fn new(view: ApprovalView, names: &Names) -> Self {
        let arguments = view.approval.arguments.as_ref().map(ToString::to_string);
        let asked = CallPreview::new(view.approval.plan.as_ref(), arguments.as_deref());
        let waits = view.approval.state == ApprovalState::Waiting;
        let (asked, is_cut) = if waits { (asked, false) } else { asked.cut() };
        let application = view.app_id.map_or_else(|| "unknown".to_owned(), |app_id| names.application(app_id));
        let service_page = names.service_page(view.approval.endpoint_id);
        Self { view, application, service_page, asked, is_cut }
    }

    /// The icon of its tool.
    fn icon(&self) -> &'static str {
        tool_icon(&self.view.approval.tool)
    }

    /// For whom the application asked.
    fn subject(&self) -> Option<String> {
        self.view.approval.subject.as_deref().map(visible::line)
    }

    /// How its reason begins.
    fn begins(&self) -> String {
        visible::first_words(&self.view.approval.why, MAX_REASON_CHARS)
    }

    /// Whether it expires soon.
    fn is_urgent(&self) -> bool {
        let left = self.view.approval.expires_at.0.as_second() - Timestamp::now().0.as_second();
        self.waits() && left < URGENT_S
    }

    pub(super) fn tool(&self) -> String {
        visible::line(&self.view.approval.tool)
    }

    pub(super) fn place(&self) -> String {
        let plan = self.view.approval.plan.as_ref();
        plan.and_then(|plan| plan.place.as_deref()).map(visible::line).unwrap_or_default()
    }

    pub(super) fn why(&self) -> String {
        visible::block(&self.view.approval.why, "")
    }

    pub(super) fn waits(&self) -> bool {
        self.view.approval.state == ApprovalState::Waiting && self.view.pending.is_none()
    }

    pub(super) fn answer(&self) -> (Shape, &'static str) {
        match self.view.approval.state {
            ApprovalState::Waiting => match self.view.pending.as_ref().map(|pending| &pending.decision) {
                None => (Shape::Paused, "Waiting"),
                Some(Decision::Once) => (Shape::Good, "Allowed once"),
                Some(Decision::ForRun) => (Shape::Good, "Allowed for the rest of the run"),
                Some(Decision::Deny { .. }) => (Shape::Bad, "Denied"),
            },
            ApprovalState::Approved => (Shape::Good, "Allowed once"),
            ApprovalState::ApprovedForRun => (Shape::Good, "Allowed for the rest of the run"),
            ApprovalState::Denied => (Shape::Bad, "Denied"),
            ApprovalState::Expired => (Shape::Bad, "Expired, which counts as denied"),
            ApprovalState::Withdrawn => (Shape::Over, "Withdrawn: the run ended first"),
        }
    }

    /// How long the answer took.
    pub(super) fn waited(&self) -> Option<DurationText> {
        self.view.waited_s().map(DurationText)
    }

    /// The remaining time in percent, for the bar.
    fn left(&self) -> i64 {
        let approval = &self.view.approval;
        let (asked, expires) = (approval.asked_at.0.as_second(), approval.expires_at.0.as_second());
        let left = expires - Timestamp::now().0.as_second();
        (left * 100 / (expires - asked).max(1)).clamp(0, 100)
    }
}

/// `GET /approvals`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<ApprovalsQuery>,
) -> Result<Response, PageError> {
    inbox(&pages, &visitor, filter, None).await
}

async fn inbox(
    pages: &Pages,
    visitor: &Visitor,
    ApprovalsQuery { decided, diff }: ApprovalsQuery,
    too_late: Option<String>,
) -> Result<Response, PageError> {
    let (mut frame, names) =
        tokio::join!(Frame::new(pages, visitor, Section::Approvals, "Approvals"), Names::new(pages));
    let views = pages.handler().request(ListApprovals { all: decided, run_id: None }).await?;
    // Tab, navigation and list tell the same number; a request may have come since the frame counted.
    let waits = |view: &&ApprovalView| view.approval.state == ApprovalState::Waiting && view.pending.is_none();
    frame.approvals = views.iter().filter(waits).count();
    let (undoable, mut views): (Vec<_>, Vec<_>) = views.into_iter().partition(|view| view.pending.is_some());
    if decided {
        views.retain(|view| view.approval.state != ApprovalState::Waiting);
    }
    let waits = if decided { WaitTimes::of(&views) } else { None };
    let status = if too_late.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let card = |view: ApprovalView| {
        let place = format!("#{}", view.approval.approval_id);
        let mut card = ApprovalCard::new(view, &names);
        card.asked = card.asked.in_layout(Layouts::of(diff, if decided { "decided=true" } else { "" }, &place));
        card
    };
    let cards = views.into_iter().map(card).collect();
    let undoable = undoable.into_iter().filter_map(|view| UndoableDecision::of(&card(view))).collect();
    let decided_on = DECIDED_IN_INBOX;
    Ok(super::html(status, &ApprovalsPage { frame, decided, cards, undoable, decided_on, waits, too_late }))
}

/// To the page on which a form was sent: the inbox, the run of its request, or the service that it tries.
async fn back(pages: &Pages, fields: &FormFields, approval_id: ApprovalId) -> Result<Response, PageError> {
    let from = fields.get("from");
    if ![DECIDED_ON_RUN, DECIDED_ON_TRIAL].contains(&from) {
        return Ok(Redirect::to("/approvals").into_response());
    }
    let approval = pages.handler().request(ShowApproval { approval_id }).await?.approval;
    let service_page = match from == DECIDED_ON_TRIAL {
        true => Names::new(pages).await.service_page(approval.endpoint_id),
        false => None,
    };
    Ok(Redirect::to(&match service_page {
        Some(page) => trial::page(&page, approval.run_id),
        None => format!("/runs/{}", approval.run_id),
    })
    .into_response())
}

/// `POST /approvals/{id}/undo`: a decision that does not count yet.
pub(super) async fn undo(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(approval_id): Path<ApprovalId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let undone = pages.handler().request(UndoDecision { approval_id }).await;
    pages.live().changed(Topic::Approvals);
    match undone {
        Ok(()) => back(&pages, &fields, approval_id).await,
        Err(no) => inbox(&pages, &visitor, ApprovalsQuery::default(), Some(no.message)).await,
    }
}

/// `POST /approvals/{id}`: counts once the time to undo it is over.
pub(super) async fn decide(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(approval_id): Path<ApprovalId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let decision = match fields.get("decision") {
        "once" => Decision::Once,
        "for_run" => Decision::ForRun,
        // Any other value denies.
        _ => Decision::Deny { reason: fields.filled("reason") },
    };
    let decided = pages.handler().request(DecideSoon { approval_id, decision }).await;
    pages.live().changed(Topic::Approvals);
    match decided {
        Ok(_) => back(&pages, &fields, approval_id).await,
        Err(no) => inbox(&pages, &visitor, ApprovalsQuery::default(), Some(no.message)).await,
    }
}
