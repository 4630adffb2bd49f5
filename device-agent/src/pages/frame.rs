//! The frame around every page: navigation, status of connection and access, and what waits for the owner.

use super::auth::Visitor;
use super::labels::{LineLabel, Shape};
use super::{Pages, style};
use crate::local::{AgentStatus, GetStatus, HealthProblem, ListApprovals, ProblemCode, Severity};
use crate::settings::{Mode, Theme};

/// A section in the side bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Approvals,
    Runs,
    Conversations,
    Services,
    Applications,
    Deliveries,
    Spending,
    Connection,
    Health,
    Settings,
    Removed,
    /// A page outside the side bar.
    Help,
}

impl Section {
    /// The sections of the side bar, in groups: what happens, what there is, and the computer itself.
    pub(super) const GROUPS: [&'static [Self]; 3] = [
        &[Self::Overview, Self::Approvals, Self::Runs, Self::Conversations],
        &[Self::Services, Self::Applications, Self::Deliveries, Self::Spending, Self::Connection],
        &[Self::Health, Self::Settings, Self::Removed],
    ];
    /// Those of the bar at the bottom of a narrow window; the others are behind its last button.
    pub(super) const BOTTOM: &'static [Self] = &[Self::Overview, Self::Approvals, Self::Runs, Self::Services];

    /// Its address, its name, its icon, and its key after `g`.
    fn entry(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Overview => ("/", "Overview", "overview", "o"),
            Self::Approvals => ("/approvals", "Approvals", "approvals", "a"),
            Self::Runs => ("/runs", "Runs", "runs", "r"),
            Self::Conversations => ("/conversations", "Conversations", "conversations", "c"),
            Self::Services => ("/services", "Services", "services", "e"),
            Self::Applications => ("/applications", "Applications", "applications", "p"),
            Self::Deliveries => ("/deliveries", "Deliveries", "deliveries", "d"),
            Self::Spending => ("/spending", "Spending", "spending", "b"),
            Self::Connection => ("/connection", "Connection", "connection", "n"),
            Self::Health => ("/health", "Health", "health", "h"),
            Self::Settings => ("/settings", "Settings", "settings", "s"),
            Self::Removed => ("/removed", "Removed", "removed", "v"),
            Self::Help => ("/help", "Shortcuts", "more", "?"),
        }
    }
}

/// One entry of the navigation.
pub(super) struct NavItem {
    pub(super) address: &'static str,
    pub(super) name: &'static str,
    pub(super) icon: &'static str,
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
    /// The number of the newest change before it was made, if it can be had again.
    pub(super) changes: Option<u64>,
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
            changes: visitor.changes,
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

    fn item(&self, section: Section) -> NavItem {
        let (address, name, icon, key) = section.entry();
        let count = match section {
            Section::Approvals => self.approvals,
            Section::Health => self.status.as_ref().map_or(0, |status| status.problems.len()),
            _ => 0,
        };
        NavItem { address, name, icon, key, here: section == self.section, count }
    }

    /// The entries of the side bar, in groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = Vec<NavItem>> + '_ {
        Section::GROUPS.into_iter().map(|group| group.iter().map(|section| self.item(*section)).collect())
    }

    /// The entries of the bar at the bottom of a narrow window.
    pub(super) fn bottom(&self) -> impl Iterator<Item = NavItem> + '_ {
        Section::BOTTOM.iter().map(|section| self.item(*section))
    }

    /// The entries that a narrow window has behind its button for more.
    pub(super) fn more(&self) -> impl Iterator<Item = NavItem> + '_ {
        let all = Section::GROUPS.into_iter().flatten().chain(&[Section::Help]);
        all.filter(|section| !Section::BOTTOM.contains(section)).map(|section| self.item(*section))
    }

    /// Whether the page that is shown is one of those.
    pub(super) fn is_behind_more(&self) -> bool {
        !Section::BOTTOM.contains(&self.section)
    }

    /// How many interrupted runs need their owner's decision.
    pub(super) fn unsettled(&self) -> usize {
        let runs = self.status.as_ref().and_then(|status| status.work.runs.as_array());
        runs.map_or(0, |runs| runs.iter().filter(|run| run["standing"] == "awaiting_reconciliation").count())
    }

    /// The mark of the tab, which shows that a decision waits.
    pub(super) fn mark(&self) -> &'static str {
        if self.approvals + self.unsettled() > 0 { style::WAITING_MARK_PATH } else { style::MARK_PATH }
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

    /// How grave a problem is, as a tone.
    pub(super) fn tone(&self, problem: &HealthProblem) -> Shape {
        match problem.severity {
            Severity::Fail => Shape::Bad,
            Severity::Warn => Shape::Paused,
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
    use std::collections::HashSet;

    use deskgate_protocol::Timestamp;

    use super::*;

    /// Every section is in exactly one group, and has a key of its own.
    #[test]
    fn every_section_is_reached_once_by_its_name_and_by_its_key() {
        let all: Vec<_> = Section::GROUPS.into_iter().flatten().map(|section| section.entry()).collect();
        let addresses: HashSet<_> = all.iter().map(|entry| entry.0).collect();
        let keys: HashSet<_> = all.iter().map(|entry| entry.3).collect();
        assert_eq!((addresses.len(), keys.len()), (all.len(), all.len()));
        assert!(Section::BOTTOM.iter().all(|section| Section::GROUPS.into_iter().flatten().any(|one| one == section)));
    }

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
