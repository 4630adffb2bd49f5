//! Control operations: requested, and delivered to the device. `confirmations` stores the device's results.
//!
//! The commit that ends a run completes its stop (`migrations/0002`). The run, or the conversation, is locked before
//! its operation.

use std::time::Duration;

use deskgate_protocol::control::Order;
use deskgate_protocol::operation::{
    ControlOperation, OperationErrorCode, OperationKind, OperationOutcome, OperationTarget, OutcomeCode, RequestedBy,
};
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{ApplicationId, ConversationId, DeviceId, EndpointId, EventId, OperationId, RunId};
use serde_json::json;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use super::activity::{self, ActivityActor, Owner};
use super::columns::word;
use super::leases::SessionKey;
use super::messages::generation_column;
use super::requests::{self, RequestKey, RequestResult};
use super::{Error, MAX_CONFLICT_RETRIES, Store, commit, with_timeout};
use crate::notify::Topic;

/// Attempts from here on are of runs that a restored backup left in doubt. Earlier attempts never have such a number,
/// so a device's reports of them change nothing.
pub const FIRST_RESTORED_ATTEMPT: i32 = 1_000_000;

/// A request for an operation.
#[derive(Clone, Debug)]
pub struct OperationRequest {
    /// Its identifier, if it is begun.
    pub operation_id: OperationId,
    /// The requester, who owns the target.
    pub by: Requester,
    /// The requested action.
    pub what: OperationAction,
}

/// The requester of an operation.
#[derive(Clone, Debug)]
pub enum Requester {
    /// An application, for a subject.
    Application {
        /// The application.
        app_id: ApplicationId,
        /// Its key, or a webhook of it.
        actor: ActivityActor,
        /// Its subject.
        subject: String,
        /// The request, so that a repetition is known; `None`: it is known by the message that it belongs to.
        request: Option<RequestKey>,
        /// Whether the rate allows a new operation. The result of an earlier request is found all the same.
        within_rate: bool,
    },
    /// The person at this device, or the administrator in their place.
    Person(Owner),
}

impl Requester {
    fn word(&self) -> RequestedBy {
        match self {
            Self::Application { .. } => RequestedBy::Application,
            Self::Person(owner) => owner.stops_as(),
        }
    }

    fn doer(&self) -> ActivityActor {
        match self {
            Self::Application { actor, .. } => *actor,
            Self::Person(owner) => ActivityActor::Person(owner.by),
        }
    }

    fn request(&self) -> Option<&RequestKey> {
        match self {
            Self::Application { request, .. } => request.as_ref(),
            Self::Person(_) => None,
        }
    }

    fn is_within_rate(&self) -> bool {
        match self {
            Self::Application { within_rate, .. } => *within_rate,
            Self::Person(_) => true,
        }
    }

    /// The requester's columns in a row: this application and subject, or this device.
    fn owner(&self) -> (Option<uuid::Uuid>, Option<&str>, Option<uuid::Uuid>) {
        match self {
            Self::Application { app_id, subject, .. } => (Some(app_id.uuid()), Some(subject), None),
            Self::Person(owner) => (None, None, Some(owner.device_id.uuid())),
        }
    }
}

/// The condition on the owner of a row. Statements have the owner as their second to fourth parameter.
const OWNER_CONDITION: &str =
    "CASE WHEN $4::uuid IS NULL THEN app_id = $2::uuid AND subject = $3::text ELSE device_id = $4 END";

/// An action that can be requested.
#[derive(Clone, Debug)]
pub enum OperationAction {
    /// End a run.
    Stop {
        /// The run.
        run_id: RunId,
        /// The attempt that the caller means; `None` for any.
        expected_attempt: Option<u32>,
        /// The caller's own words.
        reason: Option<String>,
        /// How long the ended run is kept, if it ends at once.
        retention: Duration,
    },
    /// Begin a conversation anew.
    Reset {
        /// The conversation.
        conversation_id: ConversationId,
        /// The generation that the caller means.
        expected_generation: u32,
    },
}

/// The open operations that a session receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderSelection {
    /// Those that were not delivered to it.
    New,
    /// All: a device carries out a repeated operation once.
    All,
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub enum OperationReply {
    /// There is an operation: a new one, the open one, or that of the same request.
    Operation {
        /// Its record.
        operation: ControlOperation,
        /// Whether the request was repeated.
        replayed: bool,
    },
    /// The request's identity belongs to another body.
    Reused(RequestResult),
    /// The application and subject have no such run or conversation.
    NoSuchTarget,
    /// There would be an operation, but the request is beyond the rate.
    OverRate,
    /// The run is in another attempt.
    OtherAttempt {
        /// The current attempt.
        current: u32,
    },
    /// The conversation is in another generation.
    OtherGeneration {
        /// The current generation.
        current: u32,
    },
    /// A message of the conversation is not final yet.
    Busy {
        /// The run of that message.
        active_run_id: RunId,
    },
}

/// An operation as it is stored.
#[derive(Clone, Debug)]
pub struct StoredOperation {
    /// The record.
    pub operation: ControlOperation,
    /// The service of its target.
    pub endpoint_id: EndpointId,
}

impl Store {
    /// Begins an operation, or finds the one that is open already.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. [`Error::Unavailable`]: a twin of the request is faster
    /// at each try.
    pub async fn request_operation(&self, asked: &OperationRequest) -> Result<OperationReply, Error> {
        let (answer, device) = with_timeout(async {
            let mut client = self.client().await?;
            for _ in 0..MAX_CONFLICT_RETRIES {
                let transaction = client.transaction().await?;
                match answer(&transaction, asked).await? {
                    Some(answer) => {
                        commit(transaction, "operations::ask").await?;
                        client.give_back();
                        return Ok(answer);
                    }
                    None => transaction.rollback().await?,
                }
            }
            Err(Error::Unavailable("a twin of this request was always faster".to_owned()))
        })
        .await?;
        if let OperationAction::Stop { run_id, .. } = asked.what {
            self.notifier().notify(Topic::Run(run_id));
        }
        if let Some(device_id) = device {
            self.notifier().notify(Topic::Control(device_id));
        }
        Ok(answer)
    }

    /// One operation of this application and subject.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn operation(
        &self,
        app_id: ApplicationId,
        subject: &str,
        operation_id: OperationId,
    ) -> Result<Option<StoredOperation>, Error> {
        let sql = "-- operations::operation
            SELECT * FROM control_operations WHERE operation_id = $1 AND app_id = $2 AND subject = $3";
        let row = self.durable_opt(sql, &[&operation_id.uuid(), &app_id.uuid(), &subject]).await?;
        row.as_ref().map(stored).transpose()
    }

    /// One operation on something of this device's, of any requester.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn operation_of_device(
        &self,
        device_id: DeviceId,
        operation_id: OperationId,
    ) -> Result<Option<ControlOperation>, Error> {
        let sql = "-- operations::operation_of_device
            SELECT * FROM control_operations WHERE operation_id = $1 AND device_id = $2";
        let row = self.durable_opt(sql, &[&operation_id.uuid(), &device_id.uuid()]).await?;
        Ok(row.as_ref().map(stored).transpose()?.map(|stored| stored.operation))
    }

    /// The open operations that a session is to receive, oldest first; they count as delivered from now on.
    ///
    /// After an error they may count already, so the next call asks for [`OrderSelection::All`].
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn deliver(
        &self,
        session: SessionKey,
        which: OrderSelection,
    ) -> Result<Vec<(OperationId, Order)>, Error> {
        let sql = "-- operations::deliver
            UPDATE control_operations o SET state = 'delivered', delivered_epoch = $2,
                delivered_at = coalesce(o.delivered_at, now())
            FROM devices d
            WHERE o.device_id = $1 AND o.completed_at IS NULL AND ($3 OR o.delivered_epoch IS DISTINCT FROM $2)
                AND d.device_id = $1 AND d.epoch = $2 AND d.revoked_at IS NULL
            RETURNING o.operation_id, o.kind, o.run_id, o.conversation_id, o.generation, o.created_at";
        let all = which == OrderSelection::All;
        let rows = self.relaxed_rows(sql, &[&session.device_id.uuid(), &session.epoch_column(), &all]).await?;
        let mut orders = rows.iter().map(order).collect::<Result<Vec<_>, _>>()?;
        orders.sort_by_key(|(created_at, operation_id, _)| (*created_at, *operation_id));
        Ok(orders.into_iter().map(|(_, operation_id, order)| (operation_id, order)).collect())
    }
}

/// With the device to notify.
type ReplyWithDevice = (OperationReply, Option<DeviceId>);

/// `None` when another commit came between: try again.
async fn answer(transaction: &Transaction<'_>, asked: &OperationRequest) -> Result<Option<ReplyWithDevice>, Error> {
    let request = asked.by.request();
    if let Some(request) = request
        && let Some(known) = requests::find_request(transaction, request).await?
    {
        return match known.existing {
            RequestResult::Operation(id) if known.fingerprint == request.fingerprint => {
                // Deleted with its run since the line above: next time the request is not known either.
                let operation = read(transaction, id).await?;
                Ok(operation.map(|operation| (OperationReply::Operation { operation, replayed: true }, None)))
            }
            existing => Ok(Some((OperationReply::Reused(existing), None))),
        };
    }
    let found = match &asked.what {
        OperationAction::Stop { .. } => stop(transaction, asked).await?,
        OperationAction::Reset { .. } => reset(transaction, asked).await?,
    };
    let (operation_id, made, device) = match found {
        OperationLookup::No(answer) => return Ok(Some((answer, None))),
        OperationLookup::Open(operation_id) => (operation_id, false, None),
        OperationLookup::Begun(device) => (asked.operation_id, true, device),
    };
    if let Some(request) = request
        && !requests::remember(transaction, request, RequestResult::Operation(operation_id), made).await?
    {
        return Ok(None);
    }
    if made {
        activity::write_operation(transaction, asked.by.doer(), operation_id).await?;
    }
    let operation = read(transaction, operation_id).await?;
    Ok(operation.map(|operation| (OperationReply::Operation { operation, replayed: false }, device)))
}

/// The operation that exists already, or was begun.
enum OperationLookup {
    No(OperationReply),
    Open(OperationId),
    /// With the device to notify.
    Begun(Option<DeviceId>),
}

async fn stop(transaction: &Transaction<'_>, asked: &OperationRequest) -> Result<OperationLookup, Error> {
    let OperationAction::Stop { run_id, expected_attempt, reason, retention } = &asked.what else {
        unreachable!("`answer` calls this for a stop")
    };
    let sql = format!(
        "-- operations::lock_run
        SELECT state, (started_at IS NOT NULL)::integer + restarts, device_id, stop_operation_id FROM runs WHERE run_id = $1 AND {OWNER_CONDITION} FOR UPDATE"
    );
    let (app_id, subject, device_id) = asked.by.owner();
    let Some(row) = transaction.query_opt(&sql, &[&run_id.uuid(), &app_id, &subject, &device_id]).await? else {
        return Ok(OperationLookup::No(OperationReply::NoSuchTarget));
    };
    let (state, current): (RunState, u32) = (word(row.try_get(0)?)?, row.try_get::<_, i32>(1)?.unsigned_abs());
    let device_id = DeviceId::from(row.try_get::<_, uuid::Uuid>(2)?);
    let is_final = EventType::ending(state).is_some();
    if !is_final && expected_attempt.is_some_and(|expected| expected != current) {
        return Ok(OperationLookup::No(OperationReply::OtherAttempt { current }));
    }
    if !asked.by.is_within_rate() {
        return Ok(OperationLookup::No(OperationReply::OverRate));
    }
    // Read behind the lock, with a snapshot of its own: a stop that was begun meanwhile is seen.
    if let Some(last) = row.try_get::<_, Option<uuid::Uuid>>(3)?.map(OperationId::from)
        && read(transaction, last).await?.is_some_and(|last| last.completed_at.is_none())
    {
        return Ok(OperationLookup::Open(last));
    }
    let sql = "-- operations::begin_stop
        INSERT INTO control_operations (operation_id, app_id, subject, endpoint_id, device_id, kind, run_id, reason,
            state, outcome, run_state, completed_at)
        SELECT $1, app_id, subject, endpoint_id, device_id, 'run.stop', run_id, $3,
            CASE WHEN $4 THEN 'completed' ELSE 'pending' END, CASE WHEN $4 THEN 'already_final' END,
            CASE WHEN $4 THEN state END, CASE WHEN $4 THEN now() END
        FROM runs WHERE run_id = $2";
    transaction.execute(sql, &[&asked.operation_id.uuid(), &run_id.uuid(), reason, &is_final]).await?;
    if is_final {
        return Ok(OperationLookup::Begun(None));
    }
    let never_started = state == RunState::Queued;
    let kind = if never_started { EventType::RunCancelled } else { EventType::RunCancelling };
    let by = asked.by.word();
    let data = match never_started {
        true => json!({ "effects": "none" }),
        false => json!({ "operation_id": asked.operation_id, "requested_by": by }),
    };
    let sql = if never_started { CANCEL_QUEUED_SQL } else { CANCEL_STARTED_SQL };
    let (operation_id, event_id) = (asked.operation_id.uuid(), EventId::new().uuid());
    let (id, by, kind, data) = (run_id.uuid(), by.as_str(), kind.as_str(), data.to_string());
    let mut params: Vec<&(dyn ToSql + Sync)> = vec![&id, &operation_id, &by, &event_id, &kind, &data];
    let retention = retention.as_secs_f64();
    if never_started {
        params.push(&retention);
    }
    transaction.execute(sql, &params).await?;
    Ok(OperationLookup::Begun((!never_started).then_some(device_id)))
}

/// The run was not executed, even if it is offered at this moment: a device begins after a durable start, and none is
/// written any more.
const CANCEL_QUEUED_SQL: &str = "-- operations::cancel_queued
    WITH ended AS (
        UPDATE runs SET state = 'cancelled', stop_operation_id = $2, stop_requested_at = now(), stop_requested_by = $3,
            finished_at = now(), purge_at = now() + make_interval(secs => $7), offered_until = NULL,
            last_sequence = last_sequence + 1
        WHERE run_id = $1 RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $4, $5, $6::text::json FROM ended";

/// A run with an unknown outcome keeps its state: only its device can say whether something can be cancelled.
const CANCEL_STARTED_SQL: &str = "-- operations::cancelling
    WITH moved AS (
        UPDATE runs SET state = CASE WHEN state = 'awaiting_reconciliation' THEN state ELSE 'cancelling' END,
            stop_operation_id = $2, stop_requested_at = now(), stop_requested_by = $3,
            last_sequence = last_sequence + 1
        WHERE run_id = $1 RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $4, $5, $6::text::json FROM moved";

/// Stops a run for a newer message of its conversation. Returns the device to notify.
pub(super) async fn interrupt(
    transaction: &Transaction<'_>,
    by: &Requester,
    run_id: RunId,
    retention: Duration,
) -> Result<Option<DeviceId>, Error> {
    let reason = Some("A newer message of its conversation interrupts it.".to_owned());
    let what = OperationAction::Stop { run_id, expected_attempt: None, reason, retention };
    let asked = OperationRequest { operation_id: OperationId::new(), by: by.clone(), what };
    let OperationLookup::Begun(device_id) = stop(transaction, &asked).await? else {
        // Its stop was asked for before, or the message is beyond the rate and will not be accepted.
        return Ok(None);
    };
    activity::write_operation(transaction, by.doer(), asked.operation_id).await?;
    Ok(device_id)
}

async fn reset(transaction: &Transaction<'_>, asked: &OperationRequest) -> Result<OperationLookup, Error> {
    let OperationAction::Reset { conversation_id, expected_generation } = &asked.what else {
        unreachable!("`answer` calls this for a reset")
    };
    let sql = format!(
        "-- operations::lock_conversation
        SELECT generation, active_run_id, reset_operation_id, device_id FROM conversations
        WHERE conversation_id = $1 AND {OWNER_CONDITION} FOR UPDATE"
    );
    let (app_id, subject, device_id) = asked.by.owner();
    let Some(row) = transaction.query_opt(&sql, &[&conversation_id.uuid(), &app_id, &subject, &device_id]).await?
    else {
        return Ok(OperationLookup::No(OperationReply::NoSuchTarget));
    };
    let current = row.try_get::<_, i32>(0)?.unsigned_abs();
    if current != *expected_generation {
        return Ok(OperationLookup::No(OperationReply::OtherGeneration { current }));
    }
    if let Some(active) = row.try_get::<_, Option<uuid::Uuid>>(1)? {
        return Ok(OperationLookup::No(OperationReply::Busy { active_run_id: active.into() }));
    }
    if !asked.by.is_within_rate() {
        return Ok(OperationLookup::No(OperationReply::OverRate));
    }
    if let Some(open) = row.try_get::<_, Option<uuid::Uuid>>(2)? {
        return Ok(OperationLookup::Open(open.into()));
    }
    let device_id = DeviceId::from(row.try_get::<_, uuid::Uuid>(3)?);
    let sql = "-- operations::begin_reset
        WITH taken AS (
            UPDATE conversations SET reset_operation_id = $1, updated_at = now() WHERE conversation_id = $2
            RETURNING app_id, subject, endpoint_id, device_id, conversation_id)
        INSERT INTO control_operations (operation_id, app_id, subject, endpoint_id, device_id, kind, conversation_id,
            generation)
        SELECT $1, app_id, subject, endpoint_id, device_id, 'conversation.reset', conversation_id, $3 FROM taken";
    let generation = generation_column(current);
    transaction.execute(sql, &[&asked.operation_id.uuid(), &conversation_id.uuid(), &generation]).await?;
    Ok(OperationLookup::Begun(Some(device_id)))
}

async fn read(transaction: &Transaction<'_>, operation_id: OperationId) -> Result<Option<ControlOperation>, Error> {
    let sql = "SELECT * FROM control_operations WHERE operation_id = $1 -- operations::read";
    let row = transaction.query_opt(sql, &[&operation_id.uuid()]).await?;
    Ok(row.as_ref().map(stored).transpose()?.map(|stored| stored.operation))
}

fn order(row: &Row) -> Result<(jiff::Timestamp, OperationId, Order), Error> {
    let missing = || Error::Data("an operation without its target".to_owned());
    let order = match word(row.try_get("kind")?)? {
        OperationKind::RunStop => {
            Order::Stop { run_id: row.try_get::<_, Option<uuid::Uuid>>("run_id")?.ok_or_else(missing)?.into() }
        }
        OperationKind::ConversationReset => Order::Reset {
            conversation: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.ok_or_else(missing)?.into(),
            generation: row.try_get::<_, Option<i32>>("generation")?.ok_or_else(missing)?.unsigned_abs(),
        },
    };
    Ok((row.try_get("created_at")?, row.try_get::<_, uuid::Uuid>("operation_id")?.into(), order))
}

fn stored(row: &Row) -> Result<StoredOperation, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    let run_state = row.try_get::<_, Option<&str>>("run_state")?.map(word).transpose()?;
    let closed: Option<i32> = row.try_get("generation")?;
    let outcome = row.try_get::<_, Option<&str>>("outcome")?.map(word::<OutcomeCode>).transpose()?;
    let error = row.try_get::<_, Option<&str>>("error")?;
    let operation = ControlOperation {
        operation_id: row.try_get::<_, uuid::Uuid>("operation_id")?.into(),
        kind: word(row.try_get("kind")?)?,
        target: OperationTarget {
            run_id: row.try_get::<_, Option<uuid::Uuid>>("run_id")?.map(Into::into),
            conversation_id: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        },
        state: word(row.try_get("state")?)?,
        outcome: outcome.map(|code| OperationOutcome {
            code,
            run_state,
            new_generation: closed.map(|closed| closed.unsigned_abs() + 1),
        }),
        // There is one reason so far.
        error: error.map(|_| OperationErrorCode::DeviceRemoved.error()),
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        delivered_at: moment("delivered_at")?,
        completed_at: moment("completed_at")?,
    };
    Ok(StoredOperation { operation, endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into() })
}
