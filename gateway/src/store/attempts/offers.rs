//! Hands runs to a device: claims them from the queue, and offers them.

use std::time::Duration;

use deskgate_protocol::control::Offer;
use deskgate_protocol::{EndpointId, RunId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::store::columns::{digest, json};
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};

/// What a device has room for, beside its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRoom {
    /// The services whose runs stay queued.
    pub full: Vec<EndpointId>,
    /// How many runs of these services fit; of the others any number does.
    pub places: Vec<(EndpointId, u32)>,
    /// Runs of other services are not looked for.
    pub only: Option<Vec<EndpointId>>,
}

impl ServiceRoom {
    fn is_unlimited(&self) -> bool {
        self.full.is_empty() && self.places.is_empty() && self.only.is_none()
    }
}

/// The claim. `$but` and `$chosen` are for a device whose services have places: the usual claim reads no extra rows for
/// them.
macro_rules! claim {
    ($name:literal, $but:literal, $chosen:literal) => {
        concat!(
            $name,
            "
            WITH entitled AS (
                -- Locked, so that a newer session waits for this claim and then takes it over.
                SELECT device_id FROM devices
                WHERE device_id = $1 AND epoch = $2 AND access_enabled AND revoked_at IS NULL
                    AND asleep_since IS NULL FOR SHARE
            ), next AS (
                SELECT q.run_id, q.endpoint_id, q.created_at
                FROM run_queue q CROSS JOIN LATERAL (
                    SELECT FROM runs WHERE run_id = q.run_id AND state = 'queued' AND offered_until IS NULL
                    FOR UPDATE SKIP LOCKED) free
                WHERE q.device_id = (SELECT device_id FROM entitled) AND q.offered_until IS NULL
                    -- Written so that the index of expiries is no way to it.
                    AND q.queue_expires_at - now() > interval '0'",
            $but,
            "
                ORDER BY q.created_at, q.run_id LIMIT $3)
            -- By an array: nobody knows beforehand how many `next` has, and a join is planned for a tenth of the queue.
            UPDATE runs r SET attempt = attempt + 1, epoch = $2, offered_until = now() + make_interval(secs => $4),
                device_seq = 0
            WHERE r.run_id = ANY (ARRAY(",
            $chosen,
            "))
            RETURNING r.run_id, attempt, endpoint_id, endpoint_version, definition_sha256, subject, input, conversation_id,
                generation, max_duration_s, traceparent, created_at"
        )
    };
}

const CLAIM_SQL: &str = claim!("-- attempts::claim", "", "SELECT run_id FROM next");
/// Reads past the queued runs of services without a place, at most as many as there are. The oldest that are left are
/// taken as far as their services have places, so at least one is.
const CLAIM_WITHIN_SQL: &str = claim!(
    "-- attempts::claim_within",
    " AND q.endpoint_id <> ALL ($5) AND ($8::uuid[] IS NULL OR q.endpoint_id = ANY ($8))",
    "SELECT run_id FROM (
                SELECT run_id, endpoint_id, row_number() OVER (PARTITION BY endpoint_id ORDER BY created_at, run_id) AS nth
                FROM next) ranked LEFT JOIN unnest($6::uuid[], $7::bigint[]) AS room (endpoint_id, places) USING (endpoint_id)
            WHERE places IS NULL OR nth <= places"
);

impl Store {
    /// Claims up to `limit` queued runs for a session's device, oldest first, each with a fresh attempt, within the room
    /// that their services have. If runs are queued that have room, at least one is claimed.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn claim(
        &self,
        session: SessionKey,
        limit: u32,
        room: &ServiceRoom,
        offer: Duration,
    ) -> Result<Vec<Offer>, Error> {
        let limit = i64::from(limit);
        let ids = |services: &[EndpointId]| services.iter().map(|id| id.uuid()).collect::<Vec<_>>();
        let (full, only) = (ids(&room.full), room.only.as_deref().map(ids));
        let (limited, places): (Vec<_>, Vec<_>) =
            room.places.iter().map(|(id, places)| (id.uuid(), i64::from(*places))).unzip();
        let params: [&(dyn ToSql + Sync); 8] = [
            &session.device_id.uuid(),
            &session.epoch_column(),
            &limit,
            &offer.as_secs_f64(),
            &full,
            &limited,
            &places,
            &only,
        ];
        let rows = match room.is_unlimited() {
            true => self.relaxed_rows(CLAIM_SQL, &params[..4]).await?,
            false => self.relaxed_rows(CLAIM_WITHIN_SQL, &params).await?,
        };
        let aged =
            |row: &Row| -> Result<_, Error> { Ok((row.try_get::<_, jiff::Timestamp>("created_at")?, offer_of(row)?)) };
        let mut offers = rows.iter().map(aged).collect::<Result<Vec<_>, Error>>()?;
        // Runs of one commit share one time.
        offers.sort_by_key(|(created_at, offer)| (*created_at, offer.run_id));
        Ok(offers.into_iter().map(|(_, offer)| offer).collect())
    }

    /// Skips attempts that the device holds and the table does not know: a claim is not durable before its start is,
    /// and a crash of the database can undo it. The next one gets a number that the device never had, so that a report
    /// of the old attempt cannot be taken for the new one.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn pass_over_lost_claims(&self, session: SessionKey, attempts: &[(RunId, u32)]) -> Result<(), Error> {
        // Many claims are not lost at once; a device that claims so cannot use the numbers up.
        let sql = "-- attempts::pass_over_lost_claims
            UPDATE runs r SET attempt = lost.attempt FROM unnest($3::uuid[], $4::integer[]) AS lost (run_id, attempt)
            WHERE r.run_id = lost.run_id AND r.device_id = $1 AND r.state = 'queued' AND r.offered_until IS NULL
                AND lost.attempt > r.attempt AND lost.attempt - 1000 < r.attempt
                AND EXISTS (SELECT FROM devices WHERE device_id = $1 AND epoch = $2)
            RETURNING r.run_id";
        let runs: Vec<_> = attempts.iter().map(|(run_id, _)| run_id.uuid()).collect();
        let said: Vec<_> = attempts.iter().map(|(_, attempt)| i32::try_from(*attempt).unwrap_or(i32::MAX)).collect();
        let params: [&(dyn ToSql + Sync); 4] = [&session.device_id.uuid(), &session.epoch_column(), &runs, &said];
        for row in self.durable_rows(sql, &params).await? {
            let run_id = RunId::from(row.try_get::<_, uuid::Uuid>(0)?);
            tracing::info!(%run_id, device_id = %session.device_id, "the database had lost that the device was offered this run");
        }
        Ok(())
    }

    /// The offer of an attempt that the session holds already; none if its run has ended.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn offer(&self, session: SessionKey, run_id: RunId) -> Result<Option<Offer>, Error> {
        let sql = "-- attempts::offer
            SELECT run_id, attempt, endpoint_id, endpoint_version, definition_sha256, subject, input, conversation_id,
                generation, max_duration_s, traceparent
            FROM runs WHERE run_id = $1 AND device_id = $2 AND epoch = $3 AND finished_at IS NULL";
        let params: [&(dyn ToSql + Sync); 3] = [&run_id.uuid(), &session.device_id.uuid(), &session.epoch_column()];
        self.durable_opt(sql, &params).await?.as_ref().map(offer_of).transpose()
    }
}

fn offer_of(row: &Row) -> Result<Offer, Error> {
    let missing = || Error::Data("a run without an input".to_owned());
    Ok(Offer {
        run_id: row.try_get::<_, uuid::Uuid>("run_id")?.into(),
        attempt: row.try_get::<_, i32>("attempt")?.unsigned_abs(),
        endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        endpoint_version: row.try_get::<_, i32>("endpoint_version")?.unsigned_abs(),
        definition_sha256: digest(row.try_get("definition_sha256")?)?,
        subject: Some(row.try_get("subject")?),
        input: json(row, "input")?.ok_or_else(missing)?,
        conversation: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        generation: row.try_get::<_, Option<i32>>("generation")?.map(i32::unsigned_abs),
        max_duration_s: row.try_get::<_, i32>("max_duration_s")?.unsigned_abs(),
        traceparent: row.try_get("traceparent")?,
    })
}
