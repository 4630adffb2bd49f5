//! The run that a service was tried with, beside the service's form: what its page shows of it, in place.

use askama::Template;
use deskgate_protocol::ids::{EndpointId, RunId};
use deskgate_protocol::management::{RunDetail, ShowRun};
use deskgate_protocol::run::Run;

use super::approvals::{ApprovalCard, DECIDED_ON_TRIAL, UndoableDecision};
use super::auth::Visitor;
use super::call_preview::CallPreview;
use super::labels::{Shape, TimeLabel, VersionLabel};
use super::overview::{Names, RunRow};
use super::run_entries::{self, RunEntry, RunTurn};
use super::runs::RunWriting;
use super::{Pages, markdown};
use crate::local::{ListApprovals, ListCalls, ShowRunSpending, Spending, UNDO_TIME};

/// What the forms in it carry.
struct FormToken {
    token: String,
}

#[derive(Template)]
#[template(path = "trial.html")]
pub(super) struct Trial {
    frame: FormToken,
    row: RunRow,
    entries: Vec<RunEntry>,
    writing: RunWriting,
    spending: Option<Spending>,
    /// Decisions about its calls that can still be undone.
    undoable: Vec<UndoableDecision>,
    /// What the forms say about where they were.
    decided_on: &'static str,
}

/// The choice of the published version in the form, beside the draft.
pub(super) const OF_PUBLISHED: &str = "published";

/// The address of a service's page with a run that it is tried with.
pub(super) fn page(service_page: &str, run_id: RunId) -> String {
    format!("{service_page}?tried={run_id}#try")
}

impl Trial {
    /// A run of a service; `None` if it is one of another service, or cannot be had.
    pub(super) async fn of(pages: &Pages, visitor: &Visitor, run_id: RunId, endpoint_id: EndpointId) -> Option<Self> {
        let handler = pages.handler();
        let (names, detail, approvals, records, spending) = tokio::join!(
            Names::new(pages),
            handler.manage(ShowRun { run_id, after: 0, wait_s: 0 }),
            handler.request(ListApprovals { all: true, run_id: Some(run_id) }),
            handler.request(ListCalls { run_id }),
            handler.request(ShowRunSpending { run_id }),
        );
        let RunDetail { run, events, .. } = detail.ok().filter(|detail| detail.run.endpoint_id == endpoint_id)?;
        let approvals = approvals.unwrap_or_default().into_iter();
        let requests: Vec<_> = approvals.map(|view| ApprovalCard::new(view, &names)).collect();
        let undoable = requests.iter().filter_map(UndoableDecision::of).collect();
        let entries = run_entries::entries(&run, &events, requests, records.unwrap_or_default());
        let mut writing = RunWriting::new(pages, run_id);
        // It is among the others by now.
        writing.message.take_if(|message| run_entries::has_said(&entries, &message.message_id));
        let frame = FormToken { token: visitor.token.clone() };
        let (row, spending) = (names.row(run), spending.unwrap_or_default());
        Some(Self { frame, row, entries, writing, spending, undoable, decided_on: DECIDED_ON_TRIAL })
    }

    fn run(&self) -> &Run {
        &self.row.run
    }

    fn turns(&self) -> Vec<RunTurn<'_>> {
        run_entries::turns(&self.entries)
    }
}
