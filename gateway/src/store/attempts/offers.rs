//! Hands runs to a device: claims them from the queue, and offers them.

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::control::Offer;
use deskgate_protocol::{DeviceId, EndpointId, RunId};
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
    pub(super) fn is_unlimited(&self) -> bool {
        self.full.is_empty() && self.places.is_empty() && self.only.is_none()
    }
}

/// Queued runs of a device, `$device`, that nobody else is about to take, oldest first.
macro_rules! free_runs {
    ($device:literal, $but:literal, $limit:literal) => {
        concat!(
            "SELECT q.run_id, q.endpoint_id, q.created_at
                FROM run_queue q CROSS JOIN LATERAL (
                    SELECT FROM runs WHERE run_id = q.run_id AND state = 'queued' AND offered_until IS NULL
                    FOR UPDATE SKIP LOCKED) free
                WHERE q.device_id = ",
            $device,
            " AND NOT q.awaits_turn AND q.offered_until IS NULL
                    -- Written so that the index of expiries is no way to it.
                    AND q.queue_expires_at - now() > interval '0'",
            $but,
            "
                ORDER BY q.created_at, q.run_id LIMIT ",
            $limit
        )
    };
}

/// What an offer is made of.
macro_rules! offer_columns {
    () => {
        "run_id, attempt, endpoint_id, endpoint_version, definition_sha256, subject, input, output, conversation_id, generation,
                max_duration_s, traceparent, depth"
    };
}

/// The claim of a device. `$but` and `$chosen` are for one whose services have places: the usual claim reads no extra rows
/// for them.
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
            ), next AS (",
            free_runs!("(SELECT device_id FROM entitled)", $but, "$3"),
            ")
            -- By an array: nobody knows beforehand how many `next` has, and a join is planned for a tenth of the queue.
            UPDATE runs SET attempt = attempt + 1, epoch = $2, offered_until = now() + make_interval(secs => $4),
                device_seq = 0
            WHERE run_id = ANY (ARRAY(",
            $chosen,
            "))
            RETURNING created_at, ",
            offer_columns!()
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

/// The claims of several devices. A device whose row somebody holds is left out: the claim of one device waits for it, and
/// here the others would too.
const CLAIM_SHARED_SQL: &str = concat!(
    "-- attempts::claim_shared
            WITH entitled AS (
                SELECT d.device_id, a.slots
                FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS a (device_id, epoch, slots)
                    JOIN devices d USING (device_id, epoch)
                WHERE d.device_id = ANY ($1) AND d.access_enabled AND d.revoked_at IS NULL AND d.asleep_since IS NULL
                FOR SHARE OF d SKIP LOCKED
            ), next AS (
                SELECT oldest.run_id FROM entitled CROSS JOIN LATERAL (",
    free_runs!("entitled.device_id", "", "entitled.slots"),
    ") oldest
            ), claimed AS (
                UPDATE runs SET attempt = attempt + 1, epoch = ($2::bigint[])[array_position($1, device_id)],
                    offered_until = now() + make_interval(secs => $4), device_seq = 0
                WHERE run_id = ANY (ARRAY(SELECT run_id FROM next))
                RETURNING device_id, created_at, ",
    offer_columns!(),
    ")
            SELECT device_id, claimed.* FROM entitled LEFT JOIN claimed USING (device_id)"
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
        oldest_first(rows.iter())
    }

    /// Claims for several devices at once, each up to as many runs as its session has slots, see [`Store::claim`]. A session
    /// without an answer may be no longer its device's, or somebody holds the device: it has to claim by itself.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub(super) async fn claim_shared(
        &self,
        claims: &[(SessionKey, u32)],
        offer: Duration,
    ) -> Result<HashMap<DeviceId, Vec<Offer>>, Error> {
        let devices: Vec<_> = claims.iter().map(|(session, _)| session.device_id.uuid()).collect();
        let epochs: Vec<_> = claims.iter().map(|(session, _)| session.epoch_column()).collect();
        let slots: Vec<_> = claims.iter().map(|(_, slots)| i64::from(*slots)).collect();
        let params: [&(dyn ToSql + Sync); 4] = [&devices, &epochs, &slots, &offer.as_secs_f64()];
        let mut by_device: HashMap<DeviceId, Vec<Row>> = HashMap::new();
        for row in self.relaxed_rows(CLAIM_SHARED_SQL, &params).await? {
            by_device.entry(row.try_get::<_, uuid::Uuid>(0)?.into()).or_default().push(row);
        }
        let is_claimed = |row: &&Row| !matches!(row.try_get::<_, Option<uuid::Uuid>>("run_id"), Ok(None));
        let offers = |(device_id, rows): (DeviceId, Vec<Row>)| {
            let offers = oldest_first(rows.iter().filter(is_claimed));
            // One device's record fails nobody else.
            let offers =
                offers.inspect_err(|error| tracing::warn!(%device_id, %error, "a claimed run could not be read"));
            Some((device_id, offers.ok()?))
        };
        Ok(by_device.into_iter().filter_map(offers).collect())
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
        let sql = concat!(
            "-- attempts::offer
            SELECT ",
            offer_columns!(),
            " FROM runs WHERE run_id = $1 AND device_id = $2 AND epoch = $3 AND finished_at IS NULL"
        );
        let params: [&(dyn ToSql + Sync); 3] = [&run_id.uuid(), &session.device_id.uuid(), &session.epoch_column()];
        self.durable_opt(sql, &params).await?.as_ref().map(offer_of).transpose()
    }
}

/// The offers of claimed runs, the oldest run first.
fn oldest_first<'a>(rows: impl Iterator<Item = &'a Row>) -> Result<Vec<Offer>, Error> {
    let aged =
        |row: &Row| -> Result<_, Error> { Ok((row.try_get::<_, jiff::Timestamp>("created_at")?, offer_of(row)?)) };
    let mut offers = rows.map(aged).collect::<Result<Vec<_>, Error>>()?;
    // Runs of one commit share one time.
    offers.sort_by_key(|(created_at, offer)| (*created_at, offer.run_id));
    Ok(offers.into_iter().map(|(_, offer)| offer).collect())
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
        output: json(row, "output")?,
        conversation: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        generation: row.try_get::<_, Option<i32>>("generation")?.map(i32::unsigned_abs),
        max_duration_s: row.try_get::<_, i32>("max_duration_s")?.unsigned_abs(),
        traceparent: row.try_get("traceparent")?,
        depth: row.try_get::<_, i16>("depth")?.try_into().unwrap_or(u8::MAX),
    })
}
