//! The inbox: tool calls that wait for their owner, and those that were decided.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::ApprovalId;
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::{DurationText, Shape, TimeLabel};
use super::live::Topic;
use super::overview::Names;
use super::wait_times::WaitTimes;
use super::{PageError, Pages};
use crate::local::{ApprovalState, ApprovalView, DecideApproval, Decision, ListApprovals, PlanPreview};
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
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    frame: Frame,
    decided: bool,
    cards: Vec<ApprovalCard>,
    waits: Option<WaitTimes>,
    /// Why a submitted decision had no effect.
    too_late: Option<String>,
}

/// One request.
pub(super) struct ApprovalCard {
    pub(super) view: ApprovalView,
    pub(super) application: String,
    /// The page of its service.
    service_page: Option<String>,
    pub(super) asked: ApprovalPreview,
}

/// The plan of a call as a person has to see it: without hidden, reordering or control characters.
pub(super) enum ApprovalPreview {
    Difference(Vec<DiffLine>),
    Command {
        command: String,
        words: Vec<String>,
    },
    Page(String),
    Arguments(String),
    /// Its run is settled, and the plan is deleted.
    Gone,
}

/// One line of a difference.
pub(super) struct DiffLine {
    pub(super) class: &'static str,
    pub(super) text: String,
}

impl ApprovalCard {
    pub(super) fn new(view: ApprovalView, names: &Names) -> Self {
        let asked = match (&view.approval.plan, &view.approval.arguments) {
            (Some(plan), Some(arguments)) => match &plan.shown {
                PlanPreview::Change { diff, .. } => {
                    ApprovalPreview::Difference(diff.trim_end_matches('\n').split('\n').map(DiffLine::new).collect())
                }
                PlanPreview::Command { command, words } => ApprovalPreview::Command {
                    command: visible::block(command, ""),
                    words: words.iter().map(|word| visible::line(word)).collect(),
                },
                PlanPreview::Page { url } => ApprovalPreview::Page(visible::line(url)),
                PlanPreview::Arguments => {
                    let text = serde_json::to_string_pretty(arguments).unwrap_or_default();
                    ApprovalPreview::Arguments(visible::block(&text, ""))
                }
            },
            _ => ApprovalPreview::Gone,
        };
        let application = view.app_id.map_or_else(|| "unknown".to_owned(), |app_id| names.application(app_id));
        let service_page = names.service_page(view.approval.endpoint_id);
        Self { view, application, service_page, asked }
    }

    /// The icon of its tool.
    fn icon(&self) -> &'static str {
        match self.view.approval.tool.as_str() {
            "Read" => "file",
            "Grep" => "grep",
            "Glob" => "folder",
            "Edit" | "Write" => "edit",
            "Bash" => "terminal",
            "Fetch" => "connection",
            // Those of servers elsewhere.
            _ => "webhook",
        }
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
        self.view.approval.state == ApprovalState::Waiting
    }

    pub(super) fn answer(&self) -> (Shape, &'static str) {
        match self.view.approval.state {
            ApprovalState::Waiting => (Shape::Paused, "Waiting"),
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

impl DiffLine {
    fn new(text: &str) -> Self {
        let class = match text.as_bytes().first() {
            Some(b'+') => "added",
            Some(b'-') => "removed",
            Some(b'@') => "place",
            _ => "same",
        };
        Self { class, text: visible::line(text.strip_suffix('\r').unwrap_or(text)) }
    }
}

/// `GET /approvals`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<ApprovalsQuery>,
) -> Result<Response, PageError> {
    inbox(&pages, &visitor, filter.decided, None).await
}

async fn inbox(
    pages: &Pages,
    visitor: &Visitor,
    decided: bool,
    too_late: Option<String>,
) -> Result<Response, PageError> {
    let (mut frame, names) =
        tokio::join!(Frame::new(pages, visitor, Section::Approvals, "Approvals"), Names::new(pages));
    let mut views = pages.handler().request(ListApprovals { all: decided, run_id: None }).await?;
    // Tab, navigation and list tell the same number; a request may have come since the frame counted.
    frame.approvals = views.iter().filter(|view| view.approval.state == ApprovalState::Waiting).count();
    if decided {
        views.retain(|view| view.approval.state != ApprovalState::Waiting);
    }
    let waits = if decided { WaitTimes::of(&views) } else { None };
    let status = if too_late.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let cards = views.into_iter().map(|view| ApprovalCard::new(view, &names)).collect();
    Ok(super::html(status, &ApprovalsPage { frame, decided, cards, waits, too_late }))
}

/// `POST /approvals/{id}`
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
    let decided = pages.handler().request(DecideApproval { approval_id, decision }).await;
    pages.live().changed(Topic::Approvals);
    match decided {
        Ok(_) => Ok(Redirect::to("/approvals").into_response()),
        Err(no) => inbox(&pages, &visitor, false, Some(no.message)).await,
    }
}
