//! Problems that prevent work: logged once where they occur, shown while they last.

use std::fmt;

use deskgate_protocol::ids::{EndpointId, RunId};
use tracing::warn;

use super::{Dispatcher, Link};

/// One such problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DispatcherProblem {
    /// Journal writes fail, so new runs are refused.
    Journal(String),
    /// A service's definition cannot be read, so its runs are refused. Other services continue.
    Service(EndpointId, String),
}

impl fmt::Display for DispatcherProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => write!(f, "The journal cannot be written, so no new runs are taken: {error}."),
            Self::Service(endpoint_id, error) => {
                write!(f, "The definition of {endpoint_id} cannot be read, so none of its runs are taken: {error}.")
            }
        }
    }
}

impl<L: Link> Dispatcher<L> {
    /// A journal write failed; it will be repeated.
    pub(super) fn journal_failed(&mut self, run_id: RunId, error: &deskgate_store::Error) {
        self.note(run_id, DispatcherProblem::Journal(error.to_string()));
        self.retry_soon();
    }

    /// The definition for an offer could not be read.
    pub(super) fn definition_failed(&mut self, run_id: RunId, endpoint_id: EndpointId, error: &deskgate_store::Error) {
        self.note(run_id, DispatcherProblem::Service(endpoint_id, error.to_string()));
    }

    fn note(&mut self, run_id: RunId, problem: DispatcherProblem) {
        if self.problem.as_ref() != Some(&problem) {
            warn!(%run_id, %problem, "something stands in the way of work");
        }
        self.problem = Some(problem);
    }

    /// A journal write succeeded.
    pub(super) fn journal_works(&mut self) {
        if matches!(self.problem, Some(DispatcherProblem::Journal(_))) {
            self.problem = None;
        }
    }

    /// A definition was read.
    pub(super) fn definition_works(&mut self, of: EndpointId) {
        if matches!(self.problem, Some(DispatcherProblem::Service(endpoint_id, _)) if endpoint_id == of) {
            self.problem = None;
        }
    }

    /// Tests whether the journal can be written again, if no other write is due.
    pub(super) async fn try_journal(&mut self) {
        if matches!(self.problem, Some(DispatcherProblem::Journal(_))) && self.retry_at.is_none() {
            match self.journal.probe().await {
                Ok(()) => self.journal_works(),
                Err(_) => self.retry_soon(),
            }
        }
    }
}
