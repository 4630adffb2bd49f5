//! Lists of runs, by position: each page begins where the one before ended, so the hundredth costs as much as the
//! first, and rows that arrive meanwhile move nothing.

use std::collections::BTreeMap;

use deskgate_protocol::{ApplicationId, ConversationId, EndpointId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::devices::PRESENCE_SQL;
use super::runs::{RUN_SUMMARY_COLUMNS, StoredRun, stored_run};
use super::{Error, Page, PagePosition, Store};

/// The filter of a caller's list.
#[derive(Clone, Debug)]
pub struct RunQuery<'a> {
    /// The application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: &'a str,
    /// Only entries after this position, newest first.
    pub before: Option<PagePosition>,
    /// Only what was created then or later.
    pub not_before: Option<jiff::Timestamp>,
    /// Only runs of these services; empty: of all.
    pub endpoints: Vec<EndpointId>,
    /// Only messages of this conversation.
    pub conversation: Option<ConversationId>,
    /// Only runs with all of these labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Only these stored states; `None`: all.
    pub states: Option<Vec<&'static str>>,
    /// Only queued runs that wait for this.
    pub waiting: WaitCause,
    /// The common beginning of the identities of all requests under one Idempotency-Key.
    pub key: Option<[u8; 16]>,
}

/// The cause for which a queued run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// Any cause.
    Any,
    /// Its device is connected and busy.
    ForRoom,
    /// Its device is away.
    ForDevice,
}

/// How many runs one page examines: a filter that few runs match would otherwise read them all. The next page goes on
/// after them.
const MAX_EXAMINED_RUNS: i64 = 10_000;

/// Whether a run matches, of those at this position and of this caller.
const FILTER_CONDITION: &str =
    "($6::uuid[] IS NULL OR r.endpoint_id = ANY($6)) AND ($7::text[] IS NULL OR r.state = ANY($7))
    AND ($8::boolean IS NULL OR r.state <> 'queued' OR (presence <> 'connected') = $8)
    AND ($10::uuid IS NULL OR r.conversation_id = $10)
    AND ($11::text IS NULL OR r.metadata::jsonb @> $11::text::jsonb)";

/// A run that a page examined.
struct ExaminedRun {
    run: StoredRun,
    fits: bool,
    /// Whether the page ended here.
    is_last: bool,
}

impl Store {
    /// A page of a caller's runs, newest first, without inputs, results and positions in the queue.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn runs_of_caller(&self, sought: &RunQuery<'_>, limit: u32) -> Result<Page<StoredRun>, Error> {
        let examined = match sought.key {
            Some(key) => self.runs_under_key(sought, key, limit + 1).await?,
            None => self.runs_by_place(sought, limit + 1).await?,
        };
        let page = Page::of(examined, limit, ExaminedRun::place);
        let last_examined = page.entries.last().filter(|last| last.is_last).map(ExaminedRun::place);
        let fitting = page.entries.into_iter().filter(|examined| examined.fits).map(|examined| examined.run);
        Ok(Page { entries: fitting.collect(), next: page.next.or(last_examined) })
    }

    /// The last examined run is read whether it matches or not: the end of a short page and its content must come from
    /// one snapshot of the table, or rows that come and go between two would be skipped or shown twice.
    async fn runs_by_place(&self, sought: &RunQuery<'_>, count: u32) -> Result<Vec<ExaminedRun>, Error> {
        // The bounds are always there, so that one plan with one index fits every page.
        let sql = format!(
            "-- run_list::by_place
            SELECT {RUN_SUMMARY_COLUMNS}, presence, ({FILTER_CONDITION}) IS TRUE AS fits, r.place = {MAX_EXAMINED_RUNS} AS is_last FROM (
                SELECT *, row_number() OVER (ORDER BY created_at DESC, run_id DESC) AS place
                FROM runs WHERE app_id = $1 AND subject = $2 AND (created_at, run_id) < ($3, $4) AND created_at >= $5
                ORDER BY created_at DESC, run_id DESC LIMIT {MAX_EXAMINED_RUNS}) r
            JOIN devices d USING (device_id) CROSS JOIN LATERAL (SELECT {PRESENCE_SQL} AS presence) p
            WHERE ({FILTER_CONDITION}) OR r.place = {MAX_EXAMINED_RUNS}
            ORDER BY r.created_at DESC, r.run_id DESC LIMIT $9"
        );
        self.list(&sql, sought, None, count).await
    }

    async fn runs_under_key(
        &self,
        sought: &RunQuery<'_>,
        key: [u8; 16],
        count: u32,
    ) -> Result<Vec<ExaminedRun>, Error> {
        let sql = format!(
            "-- run_list::under_key
            SELECT {RUN_SUMMARY_COLUMNS}, presence, true AS fits, false AS is_last FROM runs r
            JOIN devices d USING (device_id) CROSS JOIN LATERAL (SELECT {PRESENCE_SQL} AS presence) p
            WHERE r.identity >= $12 AND r.identity <= $13 AND r.app_id = $1 AND r.subject = $2
                AND (r.created_at, r.run_id) < ($3, $4) AND r.created_at >= $5 AND {FILTER_CONDITION}
            ORDER BY r.created_at DESC, r.run_id DESC LIMIT $9"
        );
        let (first, last) = ([key, [0; 16]].concat(), [key, [255; 16]].concat());
        self.list(&sql, sought, Some((first, last)), count).await
    }

    async fn list(
        &self,
        sql: &str,
        sought: &RunQuery<'_>,
        identities: Option<(Vec<u8>, Vec<u8>)>,
        count: u32,
    ) -> Result<Vec<ExaminedRun>, Error> {
        let endpoints: Vec<_> = sought.endpoints.iter().map(|id| id.uuid()).collect();
        let endpoints = Some(endpoints).filter(|endpoints| !endpoints.is_empty());
        let away = match sought.waiting {
            WaitCause::Any => None,
            WaitCause::ForRoom => Some(false),
            WaitCause::ForDevice => Some(true),
        };
        let (app_id, before, count) = (sought.app_id.uuid(), sought.before(), i64::from(count));
        let not_before = sought.not_before();
        let conversation = sought.conversation.map(|id| id.uuid());
        let labels = (!sought.labels.is_empty()).then(|| serde_json::to_string(sought.labels)).transpose()?;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&app_id, &sought.subject, &before.moment, &before.id];
        params.extend([&not_before as &(dyn ToSql + Sync), &endpoints, &sought.states, &away, &count, &conversation]);
        params.push(&labels);
        if let Some((first, last)) = &identities {
            params.extend([first as &(dyn ToSql + Sync), last]);
        }
        self.filtered_rows(sql, &params).await?.iter().map(examined).collect()
    }
}

impl ExaminedRun {
    fn place(&self) -> PagePosition {
        PagePosition { moment: self.run.run.created_at.0, id: self.run.run.run_id.uuid() }
    }
}

fn examined(row: &Row) -> Result<ExaminedRun, Error> {
    Ok(ExaminedRun { run: stored_run(row)?, fits: row.try_get("fits")?, is_last: row.try_get("is_last")? })
}

impl RunQuery<'_> {
    fn before(&self) -> PagePosition {
        self.before.unwrap_or(PagePosition::LIST_START)
    }

    /// Our records are newer than the epoch, and the database does not know every time that jiff does.
    fn not_before(&self) -> jiff::Timestamp {
        self.not_before.unwrap_or_default().max(jiff::Timestamp::UNIX_EPOCH)
    }
}
