//! Applications and their keys.

use std::collections::HashMap;
use std::net::IpAddr;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{
    ActivityKind, Application, ApplicationState, KeyRecord, KeyWarning, OutstandingWork, Scope,
};
use deskgate_protocol::{ApplicationId, DeviceId, EndpointId, KeyId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::activity::{ActivityEntry, Owner};
use super::columns::{count, word};
use super::quotas::{Making, QuotaKind, QuotaReached};
use super::{Error, Store};

/// The resets of application `a` that the device has not acknowledged.
pub(super) const OPEN_RESETS_SQL: &str = "(
    SELECT operation_id FROM control_operations
    WHERE device_id = a.device_id AND app_id = a.app_id AND completed_at IS NULL AND kind = 'conversation.reset')";

/// The runs of application `a` that have not ended: queued ones, whose stop ends them, and started ones.
pub(super) const UNFINISHED_RUNS_SQL: &str = "(
    SELECT run_id, endpoint_id, 'queued' AS state, NULL::uuid AS stop_operation_id FROM run_queue
    WHERE device_id = a.device_id AND app_id = a.app_id AND offered_until IS NULL
    UNION ALL
    SELECT run_id, endpoint_id, 'queued', NULL FROM run_queue
    WHERE device_id = a.device_id AND app_id = a.app_id AND offered_until IS NOT NULL
    UNION ALL
    SELECT run_id, endpoint_id, state, stop_operation_id FROM runs
    WHERE device_id = a.device_id AND app_id = a.app_id
        AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling'))";

/// A key as it is checked: its rights and its state, and the digest of its text.
#[derive(Clone, Debug)]
pub struct StoredKey {
    /// The record.
    pub key: KeyRecord,
    /// SHA-256 of the full text.
    pub digest: Sha256Digest,
    /// Whether it is neither revoked nor expired, by the database's clock; or would be, if its application were not
    /// disabled.
    pub live: bool,
    /// Whether its application is disabled.
    pub disabled: bool,
}

const KEY_COLUMNS: &str = "k.key_id, k.app_id, k.name, k.last4, k.scopes, k.endpoints, k.fixed_subject, k.created_at,
    k.expires_at, k.revoked_at, k.allowed_cidrs, k.last_used_at, k.last_address, k.new_address_at,
    k.new_address_at > now() - interval '7 days' AS is_new_address,
    coalesce(k.last_used_at, k.created_at) < now() - interval '90 days' AS is_unused,
    (k.revoked_at IS NULL AND coalesce(k.expires_at, 'infinity') > now()) AS is_live";
pub(super) const LIVE_KEY_CONDITION: &str = "(k.revoked_at IS NULL AND coalesce(k.expires_at, 'infinity') > now())";
/// Also keys that were valid until their application was disabled: their callers get that reason.
const LIVE_OR_DISABLED_KEY_CONDITION: &str =
    "(k.revoked_at IS NOT DISTINCT FROM a.disabled_at AND coalesce(k.expires_at, 'infinity') > now())";

/// An application, and the device that it belongs to.
#[derive(Clone, Debug)]
pub struct ApplicationWithDevice {
    /// The application.
    pub application: Application,
    /// The device that it belongs to.
    pub device_id: DeviceId,
}

/// The filter of the administrator's list of applications.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplicationQuery<'a> {
    /// Only older ones.
    pub before: Option<ApplicationId>,
    /// Only of this device.
    pub device_id: Option<DeviceId>,
    /// Only in this state; otherwise all that were not removed.
    pub state: Option<ApplicationState>,
    /// Only of this name.
    pub name: Option<&'a str>,
}

/// The secret part of a key to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewSecret<'a> {
    /// The key's identifier.
    pub key_id: KeyId,
    /// The last characters of the secret.
    pub last4: &'a str,
    /// SHA-256 of the key's text.
    pub digest: Sha256Digest,
}

/// A key to be stored.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// Its identifier.
    pub key_id: KeyId,
    /// Its name.
    pub name: &'a str,
    /// The last characters of its secret.
    pub last4: &'a str,
    /// SHA-256 of its text.
    pub digest: Sha256Digest,
    /// Its scopes.
    pub scopes: &'a [Scope],
    /// The services it is limited to.
    pub endpoints: &'a [EndpointId],
    /// The one subject it may name.
    pub fixed_subject: Option<&'a str>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// The networks from which it may be used.
    pub allowed_cidrs: &'a [String],
}

impl Store {
    /// Creates an application with its first key, if the quotas leave room for one. `None` if the device has one of this
    /// name.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn create_application(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        name: &str,
        key: &NewKey<'_>,
    ) -> Result<Result<Option<(Application, KeyRecord)>, QuotaReached>, Error> {
        let sql = format!(
            "-- applications::create
            WITH created AS (
                INSERT INTO applications (app_id, device_id, name) VALUES ($11, $10, $12)
                ON CONFLICT (device_id, name) WHERE state <> 'removed' DO NOTHING RETURNING app_id, created_at
            ), k AS (
                INSERT INTO application_keys AS k (key_id, app_id, name, last4, digest, scopes, endpoints, fixed_subject, expires_at,
                    allowed_cidrs)
                SELECT $1, app_id, $2, $3, $4, $5, $6, $7, $8, $9 FROM created RETURNING *)
            SELECT {KEY_COLUMNS}, c.created_at AS app_created_at FROM k JOIN created c USING (app_id)"
        );
        let created = |_: &Row| Ok(Some(note(app_id, ActivityKind::ApplicationCreated, None, name)));
        let kinds = &[QuotaKind::ApplicationsPerDevice, QuotaKind::ApplicationsPerAccount];
        let making = Making { kinds, app_id: None, about: None, replaces: false };
        let row = match self.insert_key(&making, &sql, key, owner, &[&app_id.uuid(), &name], created).await? {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(None)),
            Err(reached) => return Ok(Err(reached)),
        };
        let created_at = row.try_get::<_, jiff::Timestamp>("app_created_at")?.into();
        let application = Application {
            app_id,
            name: name.to_owned(),
            created_at,
            live_keys: 1,
            state: ApplicationState::Active,
            disabled_at: None,
            completed_at: None,
            removed_at: None,
            outstanding: None,
        };
        Ok(Ok(Some((application, stored_key(&row)?))))
    }

    /// A device's applications that were not removed, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn applications(&self, device_id: DeviceId) -> Result<Vec<Application>, Error> {
        let sql = select(
            "WHERE a.device_id = $1 AND a.state <> 'removed' ORDER BY a.created_at, a.app_id -- applications::of_device",
        );
        let rows = self.durable_rows(&sql, &[&device_id.uuid()]).await?;
        rows.iter().map(application).collect()
    }

    /// One application of this device, removed or not.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn application(&self, device_id: DeviceId, app_id: ApplicationId) -> Result<Option<Application>, Error> {
        let sql = select("WHERE a.device_id = $1 AND a.app_id = $2 -- applications::one");
        let row = self.durable_opt(&sql, &[&device_id.uuid(), &app_id.uuid()]).await?;
        row.as_ref().map(application).transpose()
    }

    /// Applications of all devices, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn placed_applications(
        &self,
        sought: &ApplicationQuery<'_>,
        limit: i64,
    ) -> Result<Vec<ApplicationWithDevice>, Error> {
        let sql = select(
            "WHERE a.app_id < $1 AND ($2::uuid IS NULL OR a.device_id = $2) AND ($4::text IS NULL OR a.name = $4)
                AND (a.state = $3 OR $3::text IS NULL AND a.state <> 'removed')
            ORDER BY a.app_id DESC LIMIT $5 -- applications::placed",
        );
        let before = sought.before.map_or(uuid::Uuid::max(), ApplicationId::uuid);
        let (device_id, state) = (sought.device_id.map(DeviceId::uuid), sought.state.map(|state| state.as_str()));
        let params: [&(dyn ToSql + Sync); 5] = [&before, &device_id, &state, &sought.name, &limit];
        self.filtered_rows(&sql, &params).await?.iter().map(placed).collect()
    }

    /// One application of any device, removed or not.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn placed_application(&self, app_id: ApplicationId) -> Result<Option<ApplicationWithDevice>, Error> {
        let sql = select("WHERE a.app_id = $1 -- applications::placed_one");
        self.durable_opt(&sql, &[&app_id.uuid()]).await?.as_ref().map(placed).transpose()
    }

    /// Adds a key to an active application of this device, if the quotas leave room for one. `None` if it has no such
    /// application.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn create_key(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        key: &NewKey<'_>,
    ) -> Result<Result<Option<KeyRecord>, QuotaReached>, Error> {
        let sql = format!(
            "-- applications::create_key
            WITH a AS (
                -- Locked, so that whoever disables it revokes this key too, or comes first.
                SELECT app_id FROM applications WHERE device_id = $10 AND app_id = $11 AND state = 'active' FOR SHARE)
            INSERT INTO application_keys AS k (key_id, app_id, name, last4, digest, scopes, endpoints, fixed_subject, expires_at,
                    allowed_cidrs)
            SELECT $1, app_id, $2, $3, $4, $5, $6, $7, $8, $9 FROM a RETURNING {KEY_COLUMNS}"
        );
        let created = |row: &Row| key_note(row, ActivityKind::KeyCreated).map(Some);
        let kinds = &[QuotaKind::KeysPerApplication];
        let making = Making { kinds, app_id: Some(app_id), about: None, replaces: false };
        match self.insert_key(&making, &sql, key, owner, &[&app_id.uuid()], created).await? {
            Ok(row) => Ok(Ok(row.as_ref().map(stored_key).transpose()?)),
            Err(reached) => Ok(Err(reached)),
        }
    }

    async fn insert_key(
        &self,
        making: &Making<'_>,
        sql: &str,
        key: &NewKey<'_>,
        owner: Owner,
        more: &[&(dyn ToSql + Sync)],
        did: impl Fn(&Row) -> Result<Option<ActivityEntry>, Error>,
    ) -> Result<Result<Option<Row>, QuotaReached>, Error> {
        let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str()).collect();
        let endpoints: Vec<_> = key.endpoints.iter().map(|endpoint| endpoint.uuid()).collect();
        let (key_id, digest, expires_at) =
            (key.key_id.uuid(), key.digest.0.as_slice(), key.expires_at.map(|time| time.0));
        let device_id = owner.device_id.uuid();
        let own: [&(dyn ToSql + Sync); 10] = [
            &key_id,
            &key.name,
            &key.last4,
            &digest,
            &scopes,
            &endpoints,
            &key.fixed_subject,
            &expires_at,
            &key.allowed_cidrs,
            &device_id,
        ];
        self.execute_within_quotas(owner, making, sql, &[&own[..], more].concat(), did).await
    }

    /// The keys of an application of this device, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn keys(&self, device_id: DeviceId, app_id: ApplicationId) -> Result<Vec<KeyRecord>, Error> {
        let sql = format!(
            "-- applications::keys
            SELECT {KEY_COLUMNS} FROM application_keys k JOIN applications a USING (app_id)
            WHERE a.device_id = $1 AND k.app_id = $2 ORDER BY k.created_at, k.key_id"
        );
        self.durable_rows(&sql, &[&device_id.uuid(), &app_id.uuid()]).await?.iter().map(stored_key).collect()
    }

    /// Revokes a key of this device, once and for good. `None` if it has no such key.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn revoke_key(&self, owner: Owner, key_id: KeyId) -> Result<Option<KeyRecord>, Error> {
        let sql = format!(
            "-- applications::revoke_key
            UPDATE application_keys k SET revoked_at = coalesce(k.revoked_at, now()) FROM applications a
            WHERE a.app_id = k.app_id AND a.device_id = $1 AND k.key_id = $2 RETURNING {KEY_COLUMNS},
                k.revoked_at = now() AS fresh"
        );
        let revoked = |row: &Row| match row.try_get("fresh")? {
            true => key_note(row, ActivityKind::KeyRevoked).map(Some),
            false => Ok(None),
        };
        let row = self.execute_with_activity(owner, &sql, &[&owner.device_id.uuid(), &key_id.uuid()], revoked).await?;
        row.as_ref().map(stored_key).transpose()
    }

    /// Replaces a live key of this device by another one with the same rights; the old one stays valid for `overlap_s`
    /// seconds, and counts against the quotas then. `None` if it has no such live key.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn roll_key(
        &self,
        owner: Owner,
        old: KeyId,
        overlap_s: u32,
        new: &NewSecret<'_>,
    ) -> Result<Result<Option<KeyRecord>, QuotaReached>, Error> {
        let sql = format!(
            "-- applications::roll_key
            WITH old AS (
                SELECT k.* FROM application_keys k JOIN applications a USING (app_id)
                WHERE a.device_id = $1 AND k.key_id = $2 AND {LIVE_KEY_CONDITION} AND a.state = 'active'
                FOR UPDATE OF k FOR SHARE OF a
            ), ending AS (
                UPDATE application_keys k SET expires_at = least(k.expires_at, now() + make_interval(secs => $3))
                FROM old WHERE k.key_id = old.key_id
            )
            INSERT INTO application_keys AS k (key_id, app_id, name, last4, digest, scopes, endpoints, fixed_subject,
                expires_at, allowed_cidrs)
            SELECT $4, app_id, name, $5, $6, scopes, endpoints, fixed_subject, expires_at, allowed_cidrs FROM old
            RETURNING {KEY_COLUMNS}"
        );
        let overlap = f64::from(overlap_s);
        let (device_id, old, key_id, digest) =
            (owner.device_id.uuid(), old.uuid(), new.key_id.uuid(), new.digest.0.as_slice());
        let params: [&(dyn ToSql + Sync); 6] = [&device_id, &old, &overlap, &key_id, &new.last4, &digest];
        let rolled = |row: &Row| key_note(row, ActivityKind::KeyRolled).map(Some);
        let kinds = &[QuotaKind::KeysPerApplication];
        let making = Making { kinds, app_id: None, about: Some(old), replaces: overlap_s == 0 };
        match self.execute_within_quotas(owner, &making, &sql, &params, rolled).await? {
            Ok(row) => Ok(Ok(row.as_ref().map(stored_key).transpose()?)),
            Err(reached) => Ok(Err(reached)),
        }
    }

    /// Records that a key is used, and from where, unless that was done within the last minute.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_key_use(&self, key_id: KeyId, from: Option<IpAddr>) -> Result<(), Error> {
        let sql = "-- applications::note_key_use
            UPDATE application_keys SET last_used_at = now(), last_address = coalesce($2, last_address),
                new_address_at = CASE WHEN $2 <> last_address THEN now() ELSE new_address_at END
            WHERE key_id = $1 AND (coalesce(last_used_at, '-infinity') < now() - interval '1 minute'
                OR $2::text IS DISTINCT FROM last_address)";
        let from = from.map(|from| from.to_canonical().to_string());
        self.relaxed_rows(sql, &[&key_id.uuid(), &from]).await.map(drop)
    }

    /// A key with all that is needed to check it.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn key(&self, key_id: KeyId) -> Result<Option<StoredKey>, Error> {
        let sql = format!(
            "SELECT {KEY_COLUMNS}, k.digest, {LIVE_OR_DISABLED_KEY_CONDITION} AS live, a.disabled_at IS NOT NULL AS disabled
            FROM application_keys k JOIN applications a USING (app_id) WHERE k.key_id = $1 -- applications::key"
        );
        let Some(row) = self.durable_opt(&sql, &[&key_id.uuid()]).await? else { return Ok(None) };
        let digest = super::columns::digest(row.try_get("digest")?)?;
        Ok(Some(StoredKey {
            key: stored_key(&row)?,
            digest,
            live: row.try_get("live")?,
            disabled: row.try_get("disabled")?,
        }))
    }

    /// The keys among these that are neither revoked nor expired, or were not when their application was disabled; each
    /// with its state.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn live_keys(&self, key_ids: &[KeyId]) -> Result<HashMap<KeyId, bool>, Error> {
        let sql = format!(
            "SELECT k.key_id, a.disabled_at IS NOT NULL FROM application_keys k JOIN applications a USING (app_id)
            WHERE k.key_id = ANY($1) AND {LIVE_OR_DISABLED_KEY_CONDITION} -- applications::live_keys"
        );
        let key_ids: Vec<_> = key_ids.iter().map(|key_id| key_id.uuid()).collect();
        let rows = self.durable_rows(&sql, &[&key_ids]).await?;
        rows.iter().map(|row| Ok((row.try_get::<_, uuid::Uuid>(0)?.into(), row.try_get(1)?))).collect()
    }
}

/// Reads applications `a`, each with what its disabling waits for. The condition stands inside, so that runs of other
/// applications are not even counted.
pub(super) fn select(more: &str) -> String {
    format!(
        "SELECT a.app_id, a.device_id, a.name, a.created_at, a.state, a.disabled_at, a.completed_at, a.removed_at, w.*,
            (SELECT count(*) FROM application_keys k WHERE k.app_id = a.app_id AND {LIVE_KEY_CONDITION}) AS live_keys
        FROM applications a LEFT JOIN LATERAL (
            SELECT count(*) FILTER (WHERE u.state <> 'awaiting_reconciliation') AS runs_to_stop,
                count(*) FILTER (WHERE u.state = 'awaiting_reconciliation') AS runs_to_reconcile,
                (SELECT count(*) FROM {OPEN_RESETS_SQL} o) AS resets
            FROM {UNFINISHED_RUNS_SQL} u WHERE a.state = 'disabling') w ON true {more}"
    )
}

pub(super) fn application(row: &Row) -> Result<Application, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    let state: ApplicationState = word(row.try_get("state")?)?;
    let outstanding = OutstandingWork {
        runs_to_stop: count(row, "runs_to_stop")?,
        runs_to_reconcile: count(row, "runs_to_reconcile")?,
        resets: count(row, "resets")?,
    };
    Ok(Application {
        app_id: row.try_get::<_, uuid::Uuid>("app_id")?.into(),
        name: row.try_get("name")?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        live_keys: count(row, "live_keys")?,
        state,
        disabled_at: moment("disabled_at")?,
        completed_at: moment("completed_at")?,
        removed_at: moment("removed_at")?,
        outstanding: (state == ApplicationState::Disabling).then_some(outstanding),
    })
}

fn placed(row: &Row) -> Result<ApplicationWithDevice, Error> {
    Ok(ApplicationWithDevice {
        application: application(row)?,
        device_id: row.try_get::<_, uuid::Uuid>("device_id")?.into(),
    })
}

fn stored_key(row: &Row) -> Result<KeyRecord, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    Ok(KeyRecord {
        key_id: row.try_get::<_, uuid::Uuid>("key_id")?.into(),
        app_id: row.try_get::<_, uuid::Uuid>("app_id")?.into(),
        name: row.try_get("name")?,
        last4: row.try_get("last4")?,
        scopes: row.try_get::<_, Vec<&str>>("scopes")?.into_iter().map(word).collect::<Result<_, _>>()?,
        endpoints: row.try_get::<_, Vec<uuid::Uuid>>("endpoints")?.into_iter().map(Into::into).collect(),
        fixed_subject: row.try_get("fixed_subject")?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        expires_at: moment("expires_at")?,
        revoked_at: moment("revoked_at")?,
        allowed_cidrs: row.try_get("allowed_cidrs")?,
        last_used_at: moment("last_used_at")?,
        last_address: row.try_get("last_address")?,
        new_address_at: moment("new_address_at")?,
        warnings: warnings(row)?,
    })
}

fn warnings(row: &Row) -> Result<Vec<KeyWarning>, Error> {
    if !row.try_get::<_, bool>("is_live")? {
        return Ok(Vec::new());
    }
    let is = |column| Ok::<_, Error>(row.try_get::<_, Option<bool>>(column)? == Some(true));
    let warned = [(KeyWarning::NewAddress, is("is_new_address")?), (KeyWarning::Unused, is("is_unused")?)];
    Ok(warned.into_iter().filter_map(|(warning, is)| is.then_some(warning)).collect())
}

fn note(app_id: ApplicationId, what: ActivityKind, about: Option<String>, name: &str) -> ActivityEntry {
    ActivityEntry { app_id: Some(app_id), what, about, name: Some(name.to_owned()) }
}

fn key_note(row: &Row, what: ActivityKind) -> Result<ActivityEntry, Error> {
    let key = stored_key(row)?;
    Ok(note(key.app_id, what, Some(key.key_id.to_string()), &key.name))
}
