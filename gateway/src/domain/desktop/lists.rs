//! The desktop's lists: runs, conversations, and activity.

use deskgate_protocol::management::{
    ActivityPage, ConversationPage, FindByEnd, FoundByEnd, ListActivity, ListConversations, ListRuns, ListedRun,
    RunPage,
};

use super::{Desktop, DesktopResult, invalid, visible_run};
use crate::domain::lookup;
use crate::store::device_lists::{DeviceConversationQuery, DeviceRunQuery, RunLookup};
use crate::store::runs::RunWithText;

impl Desktop {
    /// A page of runs, newest first.
    ///
    /// # Errors
    /// `Invalid`: the text to find is not the identifier of a run, a conversation or a stop. `Unavailable`: the
    /// database does not answer, or refuses the statement.
    pub async fn runs(&self, request: ListRuns) -> DesktopResult<RunPage> {
        let ListRuns { limit, before, states, app_id, endpoint_id, find } = request;
        let about = find.as_deref().map(about).transpose()?;
        let sought = DeviceRunQuery { before, states, app_id, endpoint_id, about };
        let page = self.store.runs_of_device(self.device_id, &sought, page_size(limit)).await?;
        let runs = page.entries.into_iter().map(listed).collect();
        Ok(RunPage { runs, has_more: page.next.is_some(), next: page.next.map(Into::into) })
    }

    /// Records by the end of their identifier.
    ///
    /// # Errors
    /// `Invalid`: this is not the end of an identifier. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn find_by_end(&self, request: FindByEnd) -> DesktopResult<FoundByEnd> {
        let found = lookup::by_end(&self.store, Some(self.device_id), &request).await?;
        found.ok_or_else(|| invalid(lookup::NO_END.to_owned()))
    }

    /// A page of the applications' activity, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn activity(&self, request: ListActivity) -> DesktopResult<ActivityPage> {
        let limit = page_size(request.limit) as usize;
        let ListActivity { before, app_id, .. } = request;
        let mut entries = self.store.activity(self.device_id, app_id, before, limit as i64 + 1).await?;
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|last| last.activity_id);
        Ok(ActivityPage { entries, next })
    }

    /// A page of conversations, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn conversations(&self, request: ListConversations) -> DesktopResult<ConversationPage> {
        let ListConversations { limit, before, app_id, state } = request;
        let sought = DeviceConversationQuery { before, app_id, state };
        let page = self.store.conversations_of_device(self.device_id, &sought, page_size(limit)).await?;
        let next = page.next.map(Into::into);
        Ok(ConversationPage { conversations: page.entries, has_more: next.is_some(), next })
    }
}

/// A run as its owner's lists show it.
pub(super) fn listed(found: RunWithText) -> ListedRun {
    let RunWithText { stored, asked, answered } = found;
    ListedRun { run: visible_run(stored), asked, answered }
}

/// The object that an identifier names.
fn about(text: &str) -> DesktopResult<RunLookup> {
    let text = text.trim();
    let found = text
        .parse()
        .map(RunLookup::Run)
        .or_else(|_| text.parse().map(RunLookup::Conversation))
        .or_else(|_| text.parse().map(RunLookup::Operation));
    found.map_err(|_| {
        invalid(
            "runs are found by the identifier of a run (run_…), a conversation (conv_…) or a stop (op_…)".to_owned(),
        )
    })
}

/// The most entries of a page, given the requested limit.
fn page_size(limit: u32) -> u32 {
    limit.clamp(1, 100)
}
