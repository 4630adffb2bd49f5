//! The content of ended runs: their texts, in order of a conversation and deleted at their caller's word.

use deskgate_protocol::{ApplicationId, ConversationId, EndpointId, RunId};

use super::devices::PRESENCE_SQL;
use super::files::RELEASE_SQL;
use super::runs::{StoredRun, stored_run};
use super::{Error, Page, PagePosition, Store};

/// About how many bytes of texts a page of messages has. Its first message is there however long it is.
const MAX_PAGE_TEXT_BYTES: i64 = 4 * 1024 * 1024;

/// What came of the wish to delete a run's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentDeletion {
    /// It is gone, now or since before.
    Deleted,
    /// The run has not ended.
    NotEnded,
    /// There is no such run.
    NoRun,
}

/// Whose messages a page has.
#[derive(Clone, Debug)]
pub struct MessageQuery<'a> {
    /// The application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: &'a str,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// Only messages of this generation.
    pub generation: Option<u32>,
    /// Only messages after this position, newest first.
    pub before: Option<PagePosition>,
}

impl Store {
    /// Deletes the input, the output and the result of an ended run, what its events say in words, and what a webhook kept of the
    /// event that it was made from. The rest of the record stays.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn delete_run_content(
        &self,
        app_id: ApplicationId,
        subject: &str,
        run_id: RunId,
        endpoints: &[EndpointId],
    ) -> Result<ContentDeletion, Error> {
        let sql = format!(
            "-- run_content::delete
            WITH found AS (
                SELECT run_id, finished_at IS NOT NULL AS ended FROM runs
                WHERE run_id = $1 AND app_id = $2 AND subject = $3
                    AND (cardinality($4::uuid[]) = 0 OR endpoint_id = ANY($4)) FOR UPDATE
            ), emptied AS (
                UPDATE runs SET input = '{{\"text\":\"\"}}', output = NULL, artifacts = NULL, content_deleted_at = now(),
                    result = CASE WHEN result IS NOT NULL
                        THEN json_build_object('text', '', 'finish_reason', result->'finish_reason') END
                WHERE run_id IN (SELECT run_id FROM found WHERE ended) AND content_deleted_at IS NULL RETURNING run_id
            ), events AS (
                UPDATE run_events SET data = CASE type
                    WHEN 'artifact.created' THEN json_build_object(
                        'artifact_id', data->'artifact_id', 'content_deleted', true)
                    ELSE json_build_object('message_id', data->'message_id', 'text', '', 'content_deleted', true) END
                WHERE run_id IN (SELECT run_id FROM emptied) AND type IN ('message.completed', 'artifact.created')
            ), received AS (
                UPDATE webhook_receipts SET body = NULL WHERE run_id IN (SELECT run_id FROM emptied)
            ), gone AS (SELECT run_id FROM emptied), {RELEASE_SQL}
            SELECT ended FROM found"
        );
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&run_id.uuid(), &app_id.uuid(), &subject, &endpoints.iter().map(|id| id.uuid()).collect::<Vec<_>>()];
        Ok(match self.durable_opt(&sql, &params).await? {
            None => ContentDeletion::NoRun,
            Some(row) if row.try_get(0)? => ContentDeletion::Deleted,
            Some(_) => ContentDeletion::NotEnded,
        })
    }

    /// A page of a conversation's messages, newest first, with inputs and results, without receipts and positions
    /// in the queue.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn messages_of_conversation(
        &self,
        sought: &MessageQuery<'_>,
        limit: u32,
    ) -> Result<Page<StoredRun>, Error> {
        let sql = format!(
            "-- run_content::messages
            SELECT r.*, NULL::bigint AS queue_position, NULL::bigint AS conversation_position, {PRESENCE_SQL} AS presence FROM (
                SELECT *, sum(bytes) OVER newest_first AS total, row_number() OVER newest_first AS place,
                    count(*) OVER () AS found FROM (
                    SELECT *, octet_length(input::text) + coalesce(octet_length(result::text), 0)
                        + coalesce(octet_length(output::text), 0) AS bytes
                    FROM runs WHERE conversation_id = $1 AND app_id = $2 AND subject = $3
                        AND (created_at, run_id) < ($4, $5) AND ($6::integer IS NULL OR generation = $6)
                    ORDER BY created_at DESC, run_id DESC LIMIT $7) newest
                WINDOW newest_first AS (ORDER BY created_at DESC, run_id DESC)) r
            JOIN devices d USING (device_id)
            WHERE r.place = 1 OR r.total <= {MAX_PAGE_TEXT_BYTES}
            ORDER BY r.created_at DESC, r.run_id DESC"
        );
        let before = sought.before.unwrap_or(PagePosition::LIST_START);
        let generation = sought.generation.map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        let rows = self
            .filtered_rows(
                &sql,
                &[
                    &sought.conversation_id.uuid(),
                    &sought.app_id.uuid(),
                    &sought.subject,
                    &before.moment,
                    &before.id,
                    &generation,
                    &i64::from(limit + 1),
                ],
            )
            .await?;
        let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get("found"))?;
        let mut entries = rows.iter().take(limit as usize).map(stored_run).collect::<Result<Vec<_>, _>>()?;
        entries.iter_mut().for_each(|stored| stored.run.receipt = None);
        let has_more = i64::try_from(entries.len()).is_ok_and(|shown| shown < found);
        let next = entries
            .last()
            .filter(|_| has_more)
            .map(|StoredRun { run, .. }| PagePosition { moment: run.created_at.0, id: run.run_id.uuid() });
        Ok(Page { entries, next })
    }
}
