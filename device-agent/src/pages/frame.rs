//! The frame around every page: navigation, status of connection and access, and what waits for the owner.

use super::Pages;
use super::auth::Visitor;
use super::labels::{LineLabel, Shape};
use crate::local::{AgentStatus, GetStatus, HealthProblem, ListApprovals, ProblemCode};
use crate::settings::{Mode, Theme};

/// A section in the side bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Approvals,
    Runs,
    Conversations,
    Applications,
    Deliveries,
    Spending,
    Connection,
    Removed,
    Health,
    Settings,
    /// A page outside the side bar.
    Help,
}

impl Section {
    /// The sections in the order of the side bar: section, address, name, and the key after `g`.
    pub(super) const ALL: &[(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Overview, "/", "Overview", "o"),
        (Self::Approvals, "/approvals", "Approvals", "a"),
        (Self::Runs, "/runs", "Runs", "r"),
        (Self::Conversations, "/conversations", "Conversations", "c"),
        (Self::Applications, "/applications", "Applications", "p"),
        (Self::Deliveries, "/deliveries", "Deliveries", "d"),
        (Self::Spending, "/spending", "Spending", "b"),
        (Self::Connection, "/connection", "Connection", "n"),
        (Self::Removed, "/removed", "Removed", "v"),
        (Self::Health, "/health", "Health", "h"),
        (Self::Settings, "/settings", "Settings", "s"),
    ];
}

/// One entry of the side bar.
pub(super) struct NavItem {
    pub(super) address: &'static str,
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) here: bool,
    /// How many items wait there.
    pub(super) count: usize,
}

/// The content of a page's frame.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) section: Section,
    pub(super) token: String,
    /// `None` while the agent changes its connection.
    pub(super) status: Option<AgentStatus>,
    pub(super) approvals: usize,
    /// The search text.
    pub(super) search: String,
    theme: Theme,
}

impl Frame {
    /// Builds the frame of a page. Values that cannot be queried are shown as unknown.
    pub(super) async fn new(pages: &Pages, visitor: &Visitor, section: Section, title: impl Into<String>) -> Self {
        let settings = pages.handler().store.settings();
        let (status, approvals, theme) = tokio::join!(
            pages.handler().request(GetStatus {}),
            pages.handler().request(ListApprovals { all: false, run_id: None }),
            settings.get::<Theme>()
        );
        Self {
            title: title.into(),
            section,
            token: visitor.token.clone(),
            status: status.ok(),
            approvals: approvals.map_or(0, |waiting| waiting.iter().filter(|view| view.pending.is_none()).count()),
            search: String::new(),
            theme: theme.unwrap_or_default(),
        }
    }

    /// The theme, if it was chosen against the system's.
    pub(super) fn theme(&self) -> Option<&'static str> {
        (self.theme != Theme::System).then(|| self.theme.as_str())
    }

    pub(super) fn items(&self) -> impl Iterator<Item = NavItem> {
        Section::ALL.iter().map(|(section, address, name, key)| NavItem {
            address,
            name,
            key,
            here: *section == self.section,
            count: match section {
                Section::Approvals => self.approvals,
                Section::Health => self.status.as_ref().map_or(0, |status| status.problems.len()),
                _ => 0,
            },
        })
    }

    /// The title of the tab, which shows what waits.
    pub(super) fn tab(&self) -> String {
        let count = if self.approvals == 0 { String::new() } else { format!("({}) ", self.approvals) };
        format!("{count}{} – {} – Deskgate", self.title, self.device())
    }

    pub(super) fn device(&self) -> &str {
        self.status.as_ref().map_or("this computer", |status| &status.device_name)
    }

    pub(super) fn line(&self) -> LineLabel {
        LineLabel::of(self.status.as_ref().map(|status| &status.line))
    }

    pub(super) fn mode(&self) -> &'static str {
        match self.status.as_ref().map(|status| status.mode) {
            Some(Mode::BuiltIn) => "Built-in",
            Some(Mode::Remote) => "Remote gateway",
            Some(Mode::Hosted) => "Hosted gateway",
            None => "Gateway",
        }
    }

    /// Whether requests are accepted; `None` if unknown.
    pub(super) fn access(&self) -> Option<bool> {
        Some(self.status.as_ref()?.access.as_ref()?.enabled)
    }

    pub(super) fn access_shape(&self) -> Shape {
        match self.access() {
            Some(true) => Shape::Good,
            Some(false) => Shape::Paused,
            None => Shape::Unknown,
        }
    }

    /// The page where a problem can be dealt with.
    pub(super) fn page_of(problem: &HealthProblem) -> String {
        match (problem.code, &problem.about) {
            (ProblemCode::RunsUnsettled, Some(run_id)) => format!("/runs/{run_id}"),
            (ProblemCode::RunsUnsettled, None) => "/runs?state=awaiting_reconciliation".to_owned(),
            (ProblemCode::ApprovalExpires, Some(approval_id)) => format!("/approvals#{approval_id}"),
            (ProblemCode::BudgetReached | ProblemCode::BudgetNearlySpent, Some(scope)) => format!("/spending/{scope}"),
            _ => "/health".to_owned(),
        }
    }

    /// The worst lasting problem, and how many more there are.
    pub(super) fn banner(&self) -> Option<(&HealthProblem, usize)> {
        let problems = &self.status.as_ref()?.problems;
        // The health page shows all of them.
        let worst = problems.first().filter(|_| self.section != Section::Health)?;
        Some((worst, problems.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::Timestamp;

    use super::*;
    use crate::local::Severity;

    #[test]
    fn a_problem_leads_to_the_page_where_something_can_be_done_about_it() {
        let page = |code: ProblemCode, about: Option<&str>| {
            Frame::page_of(&HealthProblem {
                code,
                severity: Severity::Warn,
                title: String::new(),
                about: about.map(str::to_owned),
                text: String::new(),
                next: String::new(),
                since: Timestamp::now(),
                hides: Vec::new(),
                ignored: false,
            })
        };
        assert_eq!(page(ProblemCode::RunsUnsettled, Some("run_1")), "/runs/run_1");
        assert_eq!(page(ProblemCode::RunsUnsettled, None), "/runs?state=awaiting_reconciliation");
        assert_eq!(page(ProblemCode::ApprovalExpires, Some("apr_1")), "/approvals#apr_1");
        assert_eq!(page(ProblemCode::BudgetReached, Some("device")), "/spending/device");
        assert_eq!(page(ProblemCode::FileLoose, Some("home")), "/health");
    }
}
