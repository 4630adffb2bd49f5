//! The list of a caller's runs: filters, and their form in the store.

use std::collections::BTreeMap;

use deskgate_protocol::run::{Phase, Run, RunState};
use deskgate_protocol::{ConversationId, EndpointId, Timestamp};

use super::access::Caller;
use super::refusal::Refusal;
use super::runs::visible_run;
use crate::store::run_list::{RunQuery, WaitCause};
use crate::store::{Page, PagePosition, Store};

/// The filter of a list of runs; `None` excludes nothing.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only runs of this service.
    pub endpoint_id: Option<EndpointId>,
    /// Only messages of this conversation.
    pub conversation_id: Option<ConversationId>,
    /// Only runs whose visible state is this one.
    pub state: Option<RunState>,
    /// Only runs in this phase.
    pub phase: Option<Phase>,
    /// Only runs that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only runs that were accepted under this key, at any address.
    pub idempotency_key: Option<String>,
    /// Only runs whose `created_at`, as it is shown, is later.
    pub created_after: Option<Timestamp>,
    /// Only runs whose `created_at`, as it is shown, is earlier.
    pub created_before: Option<Timestamp>,
}

/// At most `limit` runs that this caller may see, older than `before`, without inputs and results.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn list(
    store: &Store,
    caller: &Caller,
    filter: &RunFilter,
    before: Option<PagePosition>,
    limit: u32,
) -> Result<Page<Run>, Refusal> {
    let Some(sought) = sought(caller, filter, before) else { return Ok(Page::EMPTY_PAGE) };
    Ok(store.runs_of_caller(&sought, limit).await?.map(visible_run))
}

/// The filter as the store takes it; `None` when nothing can match.
fn sought<'a>(caller: &'a Caller, filter: &'a RunFilter, before: Option<PagePosition>) -> Option<RunQuery<'a>> {
    let fits = |state: &RunState| {
        filter.state.is_none_or(|wanted| wanted == *state) && filter.phase.is_none_or(|phase| phase == state.phase())
    };
    let seen_as: Vec<RunState> = RunState::ALL.into_iter().filter(fits).collect();
    let endpoints = caller.shown(filter.endpoint_id)?;
    let bound = filter.created_before.map(|time| PagePosition { moment: at_least(time), id: uuid::Uuid::nil() });
    Some(RunQuery {
        app_id: caller.app_id(),
        subject: caller.subject(),
        before: [before, bound].into_iter().flatten().min(),
        not_before: filter.created_after.map(next_shown),
        endpoints,
        conversation: filter.conversation_id,
        labels: &filter.labels,
        waiting: match (seen_as.contains(&RunState::Queued), seen_as.contains(&RunState::WaitingForDevice)) {
            (true, false) => WaitCause::ForRoom,
            (false, true) => WaitCause::ForDevice,
            _ => WaitCause::Any,
        },
        states: (seen_as.len() < RunState::ALL.len()).then(|| stored(&seen_as)),
        key: filter.idempotency_key.as_deref().map(|key| super::admission::under_key(caller, key)),
    })
    .filter(|sought| !seen_as.is_empty() && sought.before.is_none_or(|place| place.moment.as_second() >= 0))
}

/// The states as they are stored: there `waiting_for_device` is `queued`.
fn stored(seen_as: &[RunState]) -> Vec<&'static str> {
    let stored = |state: &RunState| match state {
        RunState::WaitingForDevice => RunState::Queued.as_str(),
        other => other.as_str(),
    };
    let mut words: Vec<_> = seen_as.iter().map(stored).collect();
    words.dedup();
    words
}

/// Times are shown in whole milliseconds, cut off. This is the first moment that is shown as `time`
/// or later.
fn at_least(time: Timestamp) -> jiff::Timestamp {
    let shown = cut(time.0);
    if shown < time.0 { next_shown(time) } else { shown }
}

/// The first moment that is shown as later than `time`.
fn next_shown(time: Timestamp) -> jiff::Timestamp {
    cut(time.0).checked_add(jiff::SignedDuration::from_millis(1)).unwrap_or(jiff::Timestamp::MAX)
}

fn cut(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(time.as_nanosecond().div_euclid(1_000_000) as i64).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        Timestamp(text.parse().expect("a time"))
    }

    #[test]
    fn bounds_compare_with_times_as_they_are_shown() {
        let (whole, fine) = (time("2026-11-21T09:14:50.123Z"), time("2026-11-21T09:14:50.123456Z"));
        let next = time("2026-11-21T09:14:50.124Z").0;
        assert_eq!((next_shown(whole), next_shown(fine)), (next, next));
        assert_eq!((at_least(whole), at_least(fine)), (whole.0, next));
    }

    #[test]
    fn waiting_for_a_device_is_stored_as_queued() {
        assert_eq!(stored(&[RunState::Queued, RunState::WaitingForDevice, RunState::Running]), ["queued", "running"]);
    }
}
