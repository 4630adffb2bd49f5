//! Messages: runs that take their conversation in the same commit that accepts them, or wait for it.
//!
//! Each is a commit of its own. It locks one conversation and waits for no other lock, so a transaction that releases
//! several conversations at once can never deadlock with it. One that interrupts locks the run that it stops first, as
//! every end of a run does. The commit that ends a run passes its conversation on to the next message
//! (`migrations/0031`).

use std::time::Duration;

use deadpool_postgres::{GenericClient, Transaction};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{ConversationId, DeviceId, EventId, OperationId, RunId};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::admissions::{AcceptedRun, InputSchema, LOCKED_FILES_SQL, SERVICE_OUTPUT_SQL, Submission, TAKES_OUTPUT_SQL};
use super::columns::{digest, json, word};
use super::counts::{ADD_COUNT_SQL, INSERT_COUNT_SQL};
use super::deliveries::ACCEPTANCE_DESTINATIONS_SQL;
use super::devices::PRESENCE_SQL;
use super::endpoints::{EndpointLife, LIFE_SQL};
use super::operations::{self, Requester};
use super::{Error, MAX_CONFLICT_RETRIES, Store, commit, with_timeout};
use crate::notify::Topic;
use deskgate_program::crash;

/// A run to be admitted into a conversation.
#[derive(Clone, Debug)]
pub struct Message {
    /// The run; its service is the conversation's.
    pub submission: Submission,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The generation that the caller means.
    pub expected_generation: u32,
    /// What becomes of it while the conversation works on another one.
    pub when_busy: WhenBusy,
}

/// What becomes of a message to a busy conversation.
#[derive(Clone, Debug)]
pub enum WhenBusy {
    /// It is refused.
    Reject,
    /// It waits for its turn.
    Enqueue,
    /// The run that the conversation works on is stopped, and it waits for its turn.
    Interrupt {
        /// Who stops the run.
        by: Requester,
        /// How long the stopped run is kept, if it ends at once.
        retention: Duration,
    },
}

/// How many messages of one conversation may wait.
pub const MAX_WAITING_MESSAGES: u32 = 16;
/// How many messages of a conversation, `c`, wait.
const WAITING_SQL: &str =
    "(SELECT count(*) FROM run_queue w WHERE w.conversation_id = c.conversation_id AND w.awaits_turn)";

/// The outcome of a message.
#[derive(Clone, Debug)]
pub enum MessageAdmission {
    /// The message is durable.
    Accepted(AcceptedRun),
    /// The same identity was admitted before.
    Known {
        /// The earlier run.
        run_id: RunId,
        /// The digest of the earlier body.
        fingerprint: Sha256Digest,
    },
    /// The application and subject have no such conversation, or its service is gone.
    NoSuchConversation,
    /// The application was disabled after its key was checked.
    Disabled,
    /// The desktop user paused access.
    Paused,
    /// The desktop user disabled the service.
    ServiceDisabled,
    /// The conversation is in another generation.
    OtherGeneration {
        /// The current generation.
        current: u32,
    },
    /// The conversation is busy.
    Busy {
        /// The run of another message.
        active_run_id: Option<RunId>,
        /// A reset.
        operation_id: Option<OperationId>,
        /// The messages that wait, if a further one could not.
        waiting_messages: Option<u32>,
    },
    /// The application's queue is full.
    QueueFull,
    /// The service takes no schema of a run.
    OutputNotTaken,
    /// The service takes no files.
    FilesNotTaken,
    /// A file of the input was deleted meanwhile.
    FileGone,
    /// The service has a schema of inputs, and the input was not checked by it.
    Unchecked(InputSchema),
}

impl Store {
    /// Admits a message if its conversation is in the generation the caller means, and idle or the message may wait.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. [`Error::Unavailable`]: the conversation changes during
    /// each try.
    pub async fn admit_message(&self, message: &Message) -> Result<MessageAdmission, Error> {
        let said = with_timeout(async {
            for _ in 0..MAX_CONFLICT_RETRIES {
                let accepted = match &message.when_busy {
                    WhenBusy::Reject => self.admit_alone(message).await?,
                    WhenBusy::Enqueue | WhenBusy::Interrupt { .. } => self.admit_in_turn(message).await?,
                };
                if let Some(accepted) = accepted {
                    return Ok(MessageAdmission::Accepted(accepted));
                }
                if let Some(said) = self.why_not_said(message).await? {
                    return Ok(said);
                }
            }
            Err(Error::Unavailable("the conversation kept changing".to_owned()))
        })
        .await?;
        if let MessageAdmission::Accepted(accepted) = &said {
            self.notifier().notify(Topic::Queue(accepted.device_id));
        }
        Ok(said)
    }

    /// The run of an identity, with the digest of its body.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn known_message(&self, identity: Sha256Digest) -> Result<Option<(RunId, Sha256Digest)>, Error> {
        let sql = "-- messages::known
            SELECT run_id, fingerprint FROM runs WHERE identity = $1";
        let row = self.durable_opt(sql, &[&identity.0.as_slice()]).await?;
        row.map(|row| Ok((row.try_get::<_, uuid::Uuid>(0)?.into(), digest(row.try_get(1)?)?))).transpose()
    }

    /// Admits a message to an idle conversation.
    async fn admit_alone(&self, message: &Message) -> Result<Option<AcceptedRun>, Error> {
        let client = self.client().await?;
        crash::before("messages::accept");
        let accepted = admit(&*client, message).await?;
        crash::after("messages::accept");
        client.give_back();
        Ok(accepted)
    }

    /// Admits a message to a conversation that may be busy. Interrupting, the stop is of the same commit.
    async fn admit_in_turn(&self, message: &Message) -> Result<Option<AcceptedRun>, Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await?;
        let stopped = match &message.when_busy {
            WhenBusy::Interrupt { by, retention } => {
                stop_active(&transaction, message.conversation_id, by, *retention).await?
            }
            WhenBusy::Reject | WhenBusy::Enqueue => None,
        };
        // With a snapshot from behind this lock, the next statement sees every message that was accepted before.
        let sql = "-- messages::lock_conversation
            SELECT FROM conversations WHERE conversation_id = $1 FOR NO KEY UPDATE";
        transaction.query_opt(sql, &[&message.conversation_id.uuid()]).await?;
        let Some(accepted) = admit(&transaction, message).await? else {
            transaction.rollback().await?;
            client.give_back();
            return Ok(None);
        };
        commit(transaction, "messages::accept_in_turn").await?;
        client.give_back();
        if let Some(StoppedRun { run_id, device_id }) = stopped {
            self.notifier().notify(Topic::Run(run_id));
            device_id.into_iter().for_each(|device_id| self.notifier().notify(Topic::Control(device_id)));
        }
        Ok(Some(accepted))
    }

    /// Why a message was not admitted, in the order in which reasons count; `None` when none is left.
    async fn why_not_said(&self, message: &Message) -> Result<Option<MessageAdmission>, Error> {
        let sql = format!(
            "-- messages::why_not
            SELECT k.run_id, k.fingerprint, d.access_enabled, c.generation, c.active_run_id, c.reset_operation_id,
                {WAITING_SQL} AS waiting_messages, {LIFE_SQL}, $5::text IS NULL OR {TAKES_OUTPUT_SQL} AS takes_output, e.version,
                cardinality($7::uuid[]) = 0 OR e.takes_files AS takes_files,
                (SELECT count(*) FROM files WHERE file_id = ANY($7)) < cardinality($7) AS file_gone,
                CASE WHEN $6::int IS DISTINCT FROM e.version THEN e.input_schema::text END AS input_schema
            FROM (SELECT) request
            LEFT JOIN runs k ON k.identity = $4
            LEFT JOIN conversations c ON c.conversation_id = $1 AND c.app_id = $2 AND c.subject = $3
            LEFT JOIN endpoints e ON e.endpoint_id = c.endpoint_id
            LEFT JOIN devices d ON d.device_id = c.device_id AND d.revoked_at IS NULL"
        );
        let Message { submission: s, conversation_id, expected_generation, when_busy } = message;
        let params: [&(dyn ToSql + Sync); 7] = [
            &conversation_id.uuid(),
            &s.app_id.uuid(),
            &s.subject,
            &s.identity.0.as_slice(),
            &s.output,
            &s.checked_version_column(),
            &file_numbers(s),
        ];
        let row = self.durable_one(&sql, &params).await?;
        if let Some(run_id) = row.try_get::<_, Option<uuid::Uuid>>(0)? {
            return Ok(Some(MessageAdmission::Known { run_id: run_id.into(), fingerprint: digest(row.try_get(1)?)? }));
        }
        let Some(access_enabled) = row.try_get::<_, Option<bool>>(2)? else {
            return Ok(Some(MessageAdmission::NoSuchConversation));
        };
        match word(row.try_get(7)?)? {
            EndpointLife::Unpublished => return Ok(Some(MessageAdmission::NoSuchConversation)),
            EndpointLife::Closed => return Ok(Some(MessageAdmission::Disabled)),
            _ if !access_enabled => return Ok(Some(MessageAdmission::Paused)),
            EndpointLife::Disabled => return Ok(Some(MessageAdmission::ServiceDisabled)),
            EndpointLife::Open => {}
        }
        let current = row.try_get::<_, i32>(3)?.unsigned_abs();
        let active_run_id = row.try_get::<_, Option<uuid::Uuid>>(4)?.map(RunId::from);
        let operation_id = row.try_get::<_, Option<uuid::Uuid>>(5)?.map(OperationId::from);
        let waiting_messages = match when_busy {
            WhenBusy::Reject => None,
            WhenBusy::Enqueue | WhenBusy::Interrupt { .. } => {
                let waiting: i64 = row.try_get("waiting_messages")?;
                u32::try_from(waiting).ok().filter(|waiting| *waiting >= MAX_WAITING_MESSAGES)
            }
        };
        let is_full = matches!(when_busy, WhenBusy::Reject) || waiting_messages.is_some();
        Ok(if current != *expected_generation {
            Some(MessageAdmission::OtherGeneration { current })
        } else if operation_id.is_some() || active_run_id.is_some() && is_full {
            Some(MessageAdmission::Busy { active_run_id, operation_id, waiting_messages })
        } else if !s.queue_open {
            Some(MessageAdmission::QueueFull)
        } else if !row.try_get::<_, bool>("takes_output")? {
            Some(MessageAdmission::OutputNotTaken)
        } else if !row.try_get::<_, bool>("takes_files")? {
            Some(MessageAdmission::FilesNotTaken)
        } else if row.try_get("file_gone")? {
            Some(MessageAdmission::FileGone)
        } else {
            InputSchema::of(&row)?.map(MessageAdmission::Unchecked)
        })
    }
}

/// A run that a message interrupted.
struct StoppedRun {
    run_id: RunId,
    /// The device to be told, if it has the run.
    device_id: Option<DeviceId>,
}

/// Stops the run that a conversation works on, if it works on one.
async fn stop_active(
    transaction: &Transaction<'_>,
    conversation_id: ConversationId,
    by: &Requester,
    retention: Duration,
) -> Result<Option<StoppedRun>, Error> {
    let sql = "-- messages::active_run
        SELECT r.run_id, r.state FROM conversations c JOIN runs r ON r.run_id = c.active_run_id
        WHERE c.conversation_id = $1 FOR UPDATE OF r";
    let Some(row) = transaction.query_opt(sql, &[&conversation_id.uuid()]).await? else { return Ok(None) };
    let run_id = RunId::from(row.try_get::<_, uuid::Uuid>(0)?);
    // It has ended while its lock was waited for.
    if EventType::ending(word::<RunState>(row.try_get(1)?)?).is_some() {
        return Ok(None);
    }
    let device_id = operations::interrupt(transaction, by, run_id, retention).await?;
    Ok(Some(StoppedRun { run_id, device_id }))
}

/// Writes a message, if it may be accepted.
async fn admit(client: &impl GenericClient, message: &Message) -> Result<Option<AcceptedRun>, Error> {
    let sql = format!(
            "-- messages::admit
            WITH {LOCKED_FILES_SQL}, taken AS (
                -- This may begin before the message before it ended, wait, and find the conversation idle: then
                -- it comes behind that end, also where people read the times. No two messages share a moment.
                UPDATE conversations c SET active_run_id = coalesce(c.active_run_id, $1),
                    updated_at = greatest(now(), c.updated_at + interval '1 microsecond')
                FROM endpoints e JOIN devices d ON d.device_id = e.device_id AND d.revoked_at IS NULL
                WHERE c.conversation_id = $2 AND c.app_id = $3 AND c.subject = $4 AND c.generation = $5
                    AND (c.active_run_id IS NULL OR $18 AND {WAITING_SQL} < {MAX_WAITING_MESSAGES})
                    AND c.reset_operation_id IS NULL
                    AND e.endpoint_id = c.endpoint_id AND {LIFE_SQL} = 'open' AND d.access_enabled AND $6
                    AND ($15::text IS NULL OR {TAKES_OUTPUT_SQL})
                    AND (e.input_schema IS NULL OR $16::int = e.version)
                    AND (cardinality($17::uuid[]) = 0
                        OR e.takes_files AND (SELECT count(*) FROM locked) = cardinality($17::uuid[]))
                    AND NOT EXISTS (SELECT FROM runs k WHERE k.identity = $7)
                RETURNING c.endpoint_id, e.version, e.definition_sha256, e.device_id, {PRESENCE_SQL} AS presence,
                    {SERVICE_OUTPUT_SQL} AS service_output, c.updated_at AS moment,
                    CASE WHEN c.active_run_id <> $1 THEN 1 + {WAITING_SQL} END AS position
            ), admitted AS (
                INSERT INTO runs (run_id, app_id, subject, endpoint_id, endpoint_version, definition_sha256, device_id,
                    identity, fingerprint, input, output, metadata, max_duration_s, traceparent, queue_expires_at,
                    conversation_id, generation, created_at, awaits_turn, depth)
                SELECT $1, $3, $4, endpoint_id, version, definition_sha256, device_id,
                    $7, $8, $9::text::json, coalesce($15::text::json, service_output), $10::text::json, $11, $12, moment + make_interval(secs => $13::int),
                    $2, $5, moment, position IS NOT NULL, $19
                FROM taken RETURNING device_id, app_id, created_at, queue_expires_at
            ), first_event AS (
                INSERT INTO run_events (run_id, sequence, event_id, type, data, created_at)
                SELECT $1, 1, $14, 'run.accepted', '{{}}', created_at FROM admitted
            ), given AS (
                INSERT INTO run_files (run_id, file_id) SELECT $1, l.file_id FROM admitted, locked l
            ), counted AS (
                {INSERT_COUNT_SQL} FROM admitted a GROUP BY a.device_id, a.app_id, a.created_at {ADD_COUNT_SQL}
            ), queued AS (
                INSERT INTO deliveries (delivery_id, destination_id, app_id, subject, event_id, run_id, sequence, type,
                    event_at, traceparent)
                SELECT new_delivery_id(), w.destination_id, s.app_id, $4, $14, $1, 1, 'run.accepted', s.created_at, $12
                FROM admitted s CROSS JOIN {ACCEPTANCE_DESTINATIONS_SQL})
            SELECT t.version, t.device_id, t.presence, a.created_at, a.queue_expires_at, t.service_output, t.position
            FROM taken t, admitted a"
        );
    let Message { submission: s, conversation_id, expected_generation, when_busy } = message;
    let may_wait = !matches!(when_busy, WhenBusy::Reject);
    let (identity, fingerprint) = (s.identity.0.as_slice(), s.fingerprint.0.as_slice());
    let generation = generation_column(*expected_generation);
    let params: [&(dyn ToSql + Sync); 19] = [
        &s.run_id.uuid(),
        &conversation_id.uuid(),
        &s.app_id.uuid(),
        &s.subject,
        &generation,
        &s.queue_open,
        &identity,
        &fingerprint,
        &s.input,
        &s.metadata,
        &s.max_duration_s,
        &s.traceparent,
        &s.queue_ttl_s,
        &EventId::new().uuid(),
        &s.output,
        &s.checked_version_column(),
        &file_numbers(s),
        &may_wait,
        &i16::from(s.depth),
    ];
    let statement = client.prepare_cached(&sql).await?;
    let row = match client.query_opt(&statement, &params).await {
        Ok(row) => row,
        // A twin was admitted after this statement read the tables, and its run is over already.
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(row) = row else { return Ok(None) };
    let position: Option<i64> = row.try_get("position")?;
    Ok(Some(AcceptedRun {
        endpoint_version: row.try_get::<_, i32>(0)?.unsigned_abs(),
        device_id: row.try_get::<_, uuid::Uuid>(1)?.into(),
        presence: word(row.try_get(2)?)?,
        created_at: row.try_get::<_, jiff::Timestamp>(3)?.into(),
        queue_expires_at: row.try_get::<_, jiff::Timestamp>(4)?.into(),
        service_output: json(&row, "service_output")?,
        conversation_position: position.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
    }))
}

fn file_numbers(submission: &Submission) -> Vec<uuid::Uuid> {
    submission.files.iter().map(|file| file.uuid()).collect()
}

/// The column's range is larger than any generation.
pub(super) fn generation_column(generation: u32) -> i32 {
    i32::try_from(generation).unwrap_or(i32::MAX)
}
