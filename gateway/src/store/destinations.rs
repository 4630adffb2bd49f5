//! The destinations of deliveries: one callback for each application, and listeners while they poll.

use std::time::Duration;

use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::management::{ActivityKind, Callback, CallbackFormat};
use deskgate_protocol::{ApplicationId, DestinationId, DeviceId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::activity::{ActivityEntry, Owner};
use super::columns::word;
use super::quotas::{Making, QuotaKind, QuotaReached};
use super::{Error, Store};

/// A callback that is set for the first time.
#[derive(Clone, Debug)]
pub struct NewCallback<'a> {
    /// Its identifier.
    pub destination_id: DestinationId,
    /// Its secret, encrypted for this identifier.
    pub sealed_secret: &'a [u8],
}

/// A change of a callback; `None` leaves the value.
#[derive(Clone, Debug, Default)]
pub struct CallbackChange<'a> {
    /// The address and its host.
    pub address: Option<(&'a str, &'a str)>,
    /// The events.
    pub types: Option<&'a [CallbackEvent]>,
    /// Whether deliveries are sent.
    pub enabled: Option<bool>,
    /// Whether the beginning of each answer is stored.
    pub keep_answers: Option<bool>,
    /// The form of the ends of runs.
    pub format: Option<CallbackFormat>,
}

/// A listener to be opened.
#[derive(Clone, Debug)]
pub struct NewListener<'a> {
    /// Its identifier.
    pub destination_id: DestinationId,
    /// The application.
    pub app_id: ApplicationId,
    /// The subscribed event types.
    pub types: &'a [CallbackEvent],
    /// Its secret, encrypted for this identifier.
    pub sealed_secret: &'a [u8],
    /// How long it lives without a poll.
    pub lives: Duration,
}

/// Deliveries of one callback are counted up to here.
const MAX_COUNTED_DELIVERIES: i64 = 10_000;
/// The host of deliveries that go only to the desktop itself.
const LISTENER_HOST: &str = "localhost";

fn select(more: &str) -> String {
    format!(
        "SELECT t.*, EXISTS (SELECT FROM allowed_hosts h WHERE h.host = t.host) AS host_allowed,
            CASE WHEN t.old_secret_until > now() THEN t.old_secret_until END AS rolls_until,
            (SELECT count(*) FROM (SELECT FROM deliveries d WHERE d.destination_id = t.destination_id
                AND d.state = 'pending' LIMIT {MAX_COUNTED_DELIVERIES}) p) AS pending
        FROM destinations t JOIN applications a USING (app_id) WHERE t.kind = 'callback' {more}"
    )
}

impl Store {
    /// The callback of an application of this device.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn callback(&self, device_id: DeviceId, app_id: ApplicationId) -> Result<Option<Callback>, Error> {
        let sql = select("AND a.device_id = $1 AND t.app_id = $2 -- destinations::callback");
        self.durable_opt(&sql, &[&device_id.uuid(), &app_id.uuid()]).await?.as_ref().map(callback).transpose()
    }

    /// The callbacks of this device's applications that were not removed, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn callbacks(&self, device_id: DeviceId) -> Result<Vec<Callback>, Error> {
        let sql = select(
            "AND a.device_id = $1 AND a.state <> 'removed' ORDER BY t.created_at, t.app_id -- destinations::callbacks",
        );
        self.durable_rows(&sql, &[&device_id.uuid()]).await?.iter().map(callback).collect()
    }

    /// Sets the callback of an active application of this device for the first time. False if there is no such
    /// application, or it has one.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn create_callback(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        new: &NewCallback<'_>,
        change: &CallbackChange<'_>,
    ) -> Result<bool, Error> {
        let sql = "-- destinations::create_callback
            WITH a AS (
                -- Locked, so that whoever disables it closes this too, or comes first.
                SELECT app_id FROM applications WHERE device_id = $1 AND app_id = $2 AND state = 'active' FOR SHARE)
            INSERT INTO destinations (destination_id, app_id, kind, url, host, types, sealed_secret, keep_answers, format,
                disabled_at, disabled_for)
            SELECT $3, app_id, 'callback', $4, $5, $6, $7, $8, $10, CASE WHEN $9 THEN NULL ELSE now() END,
                CASE WHEN $9 THEN NULL ELSE 'owner' END
            FROM a ON CONFLICT (app_id) WHERE kind = 'callback' DO NOTHING RETURNING host";
        let (url, host) = change.address.unwrap_or_default();
        let types = words(change.types.unwrap_or(&CallbackEvent::RUN_END_EVENTS));
        let (keep, enabled) = (change.keep_answers.unwrap_or(false), change.enabled.unwrap_or(true));
        let format = change.format.unwrap_or_default().as_str();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
            &owner.device_id.uuid(),
            &app_id.uuid(),
            &new.destination_id.uuid(),
            &url,
            &host,
            &types,
            &new.sealed_secret,
            &keep,
            &enabled,
            &format,
        ];
        let set = |_: &Row| Ok(Some(note(app_id, ActivityKind::CallbackSet, host)));
        Ok(self.execute_with_activity(owner, sql, &params, set).await?.is_some())
    }

    /// Changes the callback of an active application of this device. False if it has none.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn change_callback(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        change: &CallbackChange<'_>,
    ) -> Result<bool, Error> {
        let sql = "-- destinations::change_callback
            WITH before AS (
                SELECT t.destination_id, t.disabled_at FROM destinations t JOIN applications a USING (app_id)
                WHERE a.device_id = $1 AND t.app_id = $2 AND t.kind = 'callback' AND a.state = 'active' FOR UPDATE OF t)
            UPDATE destinations t SET url = coalesce($3, url), host = coalesce($4, host), types = coalesce($5, types),
                keep_answers = coalesce($6, keep_answers), format = coalesce($8, format), updated_at = now(),
                disabled_at = CASE WHEN $7 THEN NULL WHEN NOT $7 THEN coalesce(t.disabled_at, now())
                    ELSE t.disabled_at END,
                disabled_for = CASE WHEN $7 THEN NULL WHEN NOT $7 THEN coalesce(t.disabled_for, 'owner')
                    ELSE t.disabled_for END,
                -- Another address, or another try, has not failed yet.
                failing_since = CASE WHEN $7 OR url <> $3 THEN NULL ELSE t.failing_since END
            FROM before b WHERE t.destination_id = b.destination_id
            RETURNING t.host, b.disabled_at IS NULL AS was_on, t.disabled_at IS NULL AS is_on";
        let (url, host) = change.address.unzip();
        let types = change.types.map(words);
        let (device, app) = (owner.device_id.uuid(), app_id.uuid());
        let format = change.format.map(CallbackFormat::as_str);
        let only_switched = change.address.is_none()
            && change.types.is_none()
            && change.keep_answers.is_none()
            && change.format.is_none();
        let changed = |row: &Row| {
            let (was_on, is_on): (bool, bool) = (row.try_get("was_on")?, row.try_get("is_on")?);
            let what = match (was_on, is_on) {
                (true, false) => ActivityKind::CallbackDisabled,
                (false, true) => ActivityKind::CallbackEnabled,
                _ if only_switched => return Ok(None),
                _ => ActivityKind::CallbackSet,
            };
            Ok(Some(note(app_id, what, row.try_get("host")?)))
        };
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
            [&device, &app, &url, &host, &types, &change.keep_answers, &change.enabled, &format];
        Ok(self.execute_with_activity(owner, sql, &params, changed).await?.is_some())
    }

    /// The identifier of an application's callback, which is the encryption context of its secrets.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn callback_id(
        &self,
        device_id: DeviceId,
        app_id: ApplicationId,
    ) -> Result<Option<DestinationId>, Error> {
        let sql = "-- destinations::callback_id
            SELECT t.destination_id FROM destinations t JOIN applications a USING (app_id)
            WHERE a.device_id = $1 AND t.app_id = $2 AND t.kind = 'callback' AND a.state = 'active'";
        let row = self.durable_opt(sql, &[&device_id.uuid(), &app_id.uuid()]).await?;
        row.map(|row| Ok(row.try_get::<_, Uuid>(0)?.into())).transpose()
    }

    /// Gives a callback another secret; the old one stays valid beside it for a while.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn roll_callback_secret(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        destination_id: DestinationId,
        sealed_secret: &[u8],
        overlap: Duration,
    ) -> Result<bool, Error> {
        let sql = "-- destinations::roll_secret
            UPDATE destinations t SET sealed_secret = $3, updated_at = now(),
                sealed_old_secret = CASE WHEN $4::float8 > 0 THEN sealed_secret END,
                old_secret_until = CASE WHEN $4::float8 > 0 THEN now() + make_interval(secs => $4) END
            FROM applications a WHERE a.app_id = t.app_id AND a.device_id = $1 AND t.destination_id = $2
            RETURNING t.host";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&owner.device_id.uuid(), &destination_id.uuid(), &sealed_secret, &overlap.as_secs_f64()];
        let rolled = |row: &Row| Ok(Some(note(app_id, ActivityKind::CallbackSecretRolled, row.try_get(0)?)));
        Ok(self.execute_with_activity(owner, sql, &params, rolled).await?.is_some())
    }

    /// Opens a listener to an active application of this device, if the quotas leave room for one; returns when it ends.
    /// `None` if there is no such application.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn open_listener(
        &self,
        owner: Owner,
        new: &NewListener<'_>,
    ) -> Result<Result<Option<Timestamp>, QuotaReached>, Error> {
        let sql = "-- destinations::open_listener
            WITH a AS (SELECT app_id FROM applications WHERE device_id = $1 AND app_id = $2 AND state = 'active' FOR SHARE)
            INSERT INTO destinations (destination_id, app_id, kind, host, types, sealed_secret, expires_at)
            SELECT $3, app_id, 'listener', $4, $5, $6, now() + make_interval(secs => $7) FROM a RETURNING expires_at";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            &owner.device_id.uuid(),
            &new.app_id.uuid(),
            &new.destination_id.uuid(),
            &LISTENER_HOST,
            &words(new.types),
            &new.sealed_secret,
            &new.lives.as_secs_f64(),
        ];
        let opened = |_: &Row| {
            let (app_id, what) = (Some(new.app_id), ActivityKind::ListenerOpened);
            Ok(Some(ActivityEntry { app_id, what, about: None, name: None }))
        };
        let kinds = &[QuotaKind::ListenersPerApplication];
        let making = Making { kinds, app_id: Some(new.app_id), about: None, replaces: false };
        match self.execute_within_quotas(owner, &making, sql, &params, opened).await? {
            Ok(None) => Ok(Ok(None)),
            Ok(Some(row)) => Ok(Ok(Some(row.try_get::<_, jiff::Timestamp>(0)?.into()))),
            Err(reached) => Ok(Err(reached)),
        }
    }

    /// Extends a listener's life. False if it ended before.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn keep_listener(
        &self,
        device_id: DeviceId,
        listener_id: DestinationId,
        lives: Duration,
    ) -> Result<bool, Error> {
        let sql = "-- destinations::keep_listener
            UPDATE destinations t SET expires_at = now() + make_interval(secs => $3)
            FROM applications a WHERE a.app_id = t.app_id AND a.device_id = $1 AND t.destination_id = $2
                AND t.kind = 'listener' AND t.expires_at > now() AND t.disabled_at IS NULL
            RETURNING 1";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&device_id.uuid(), &listener_id.uuid(), &lives.as_secs_f64()];
        Ok(!self.relaxed_rows(sql, &params).await?.is_empty())
    }

    /// Ends a listener. False if it is not this device's.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn close_listener(&self, device_id: DeviceId, listener_id: DestinationId) -> Result<bool, Error> {
        let sql = "-- destinations::close_listener
            UPDATE destinations t SET expires_at = least(t.expires_at, now())
            FROM applications a WHERE a.app_id = t.app_id AND a.device_id = $1 AND t.destination_id = $2
                AND t.kind = 'listener' RETURNING 1";
        Ok(self.durable_opt(sql, &[&device_id.uuid(), &listener_id.uuid()]).await?.is_some())
    }

    /// Whether any callback is enabled; otherwise due deliveries need not be polled.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn has_callbacks(&self) -> Result<bool, Error> {
        let sql = "-- destinations::any
            SELECT EXISTS (SELECT FROM destinations WHERE disabled_at IS NULL AND kind = 'callback')";
        Ok(self.relaxed_rows(sql, &[]).await?.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
    }

    /// Deletes listeners that ended long ago, with their undelivered events. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_listeners(&self) -> Result<usize, Error> {
        // Deliveries that were being queued when they ended are in by then; delivered ones went before (`retention`).
        let sql = "-- destinations::forget_listeners
            WITH ended AS (
                SELECT destination_id FROM destinations
                WHERE kind = 'listener' AND expires_at < now() - interval '2 hours' LIMIT 100 FOR UPDATE SKIP LOCKED
            ), untold AS (
                DELETE FROM deliveries WHERE state = 'pending' AND destination_id IN (SELECT destination_id FROM ended)
                RETURNING delivery_id
            ), attempts AS (
                DELETE FROM delivery_attempts WHERE delivery_id IN (SELECT delivery_id FROM untold))
            DELETE FROM destinations WHERE destination_id IN (SELECT destination_id FROM ended) RETURNING 1";
        Ok(self.durable_rows(sql, &[]).await?.len())
    }
}

pub(super) fn words(types: &[CallbackEvent]) -> Vec<&'static str> {
    types.iter().map(|kind| kind.as_str()).collect()
}

fn note(app_id: ApplicationId, what: ActivityKind, host: &str) -> ActivityEntry {
    ActivityEntry { app_id: Some(app_id), what, about: None, name: Some(host.to_owned()) }
}

fn callback(row: &Row) -> Result<Callback, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    let types: Vec<&str> = row.try_get("types")?;
    Ok(Callback {
        app_id: row.try_get::<_, Uuid>("app_id")?.into(),
        url: row.try_get::<_, Option<String>>("url")?.unwrap_or_default(),
        host_allowed: row.try_get("host_allowed")?,
        types: types.into_iter().map(word).collect::<Result<_, _>>()?,
        keep_answers: row.try_get("keep_answers")?,
        format: word(row.try_get("format")?)?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        updated_at: row.try_get::<_, jiff::Timestamp>("updated_at")?.into(),
        off_since: moment("disabled_at")?,
        off: row.try_get::<_, Option<&str>>("disabled_for")?.map(word).transpose()?,
        failing_since: moment("failing_since")?,
        old_secret_until: moment("rolls_until")?,
        pending: u32::try_from(row.try_get::<_, i64>("pending")?).unwrap_or(u32::MAX),
    })
}
