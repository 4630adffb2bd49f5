//! Devices: pairing, presence, access. Their sessions are in [`super::leases`].

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::SessionRefusal;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::management::ActivityKind;
use deskgate_protocol::{DeviceId, GatewayId, Timestamp};
use tokio_postgres::Row;

use super::accounts::{Account, account};
use super::activity::{ActivityEntry, Owner};
use super::columns::{json, word};
use super::{Error, Store};
use crate::notify::Topic;

/// The value that stands for the host key of a server's own sshd.
const SSHD_HOST_KEY: &str = "sshd";

deskgate_protocol::words! {
    /// The presence of a device.
    pub enum Presence {
        /// Its session is up and takes work.
        Connected = "connected",
        /// Its session is up; its user paused access.
        Paused = "paused",
        /// It announced its sleep, and was not seen since.
        Asleep = "asleep",
        /// It was refused because of its version, and not admitted since.
        Incompatible = "incompatible",
        /// It is away.
        Offline = "offline",
    }
}

/// The presence of the device `d`, in SQL.
pub(super) const PRESENCE_SQL: &str = "CASE
    WHEN d.asleep_since IS NOT NULL THEN 'asleep'
    WHEN d.connected_epoch = d.epoch AND d.lease_expires_at > now()
        THEN CASE WHEN d.access_enabled THEN 'connected' ELSE 'paused' END
    WHEN d.refusal ->> 'code' = 'version_mismatch' THEN 'incompatible'
    ELSE 'offline' END";

/// A paired device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its identifier.
    pub device_id: DeviceId,
    /// The name its user gave it.
    pub name: String,
    /// Its key.
    pub public_key: PublicKey,
    /// The account that paired it; `None`: the gateway's administrator did, or it is built in.
    pub account: Option<Account>,
    /// When it was paired.
    pub paired_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Its presence.
    pub presence: Presence,
    /// Since when it sleeps, as it announced.
    pub asleep_since: Option<Timestamp>,
    /// When it was last seen.
    pub last_seen_at: Option<Timestamp>,
    /// The version it last said hello with.
    pub device_version: Option<String>,
    /// Why it was last refused, unless it was admitted since.
    pub refusal: Option<SessionRefusal>,
    /// The number of its newest session.
    pub epoch: u64,
    /// Whether its services accept requests.
    pub access_enabled: bool,
    /// When that was last changed.
    pub access_changed_at: Option<Timestamp>,
}

const DEVICE_COLUMNS: &str = "d.*";

impl Store {
    /// The gateway's own identifier, common to all replicas.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn gateway_id(&self) -> Result<GatewayId, Error> {
        let row = self.durable_one("SELECT gateway_id FROM gateway -- devices::gateway_id", &[]).await?;
        Ok(row.try_get::<_, uuid::Uuid>(0)?.into())
    }

    /// Makes a control token valid, for ever or until it is rotated.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn add_control_token(&self, digest: Sha256Digest) -> Result<(), Error> {
        let sql = "-- devices::add_control_token
            INSERT INTO control_tokens (digest) VALUES ($1) ON CONFLICT DO NOTHING";
        self.durable_rows(sql, &[&digest.0.as_slice()]).await.map(drop)
    }

    /// Ends every control token but this one after `overlap`.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn end_other_control_tokens(&self, digest: Sha256Digest, overlap: Duration) -> Result<(), Error> {
        let sql = "-- devices::end_other_control_tokens
            UPDATE control_tokens
            SET expires_at = least(coalesce(expires_at, 'infinity'), now() + make_interval(secs => $2))
            WHERE digest <> $1";
        self.durable_rows(sql, &[&digest.0.as_slice(), &overlap.as_secs_f64()]).await.map(drop)
    }

    /// The digests of the control tokens that are valid now.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn control_tokens(&self) -> Result<Vec<Sha256Digest>, Error> {
        let sql = "-- devices::control_tokens
            SELECT digest FROM control_tokens WHERE coalesce(expires_at, 'infinity') > now()";
        self.durable_rows(sql, &[]).await?.iter().map(|row| super::columns::digest(row.try_get(0)?)).collect()
    }

    /// Pairs a device. A key that was paired before keeps its state, also when it was revoked.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn pair_device(&self, name: &str, public_key: &PublicKey) -> Result<Device, Error> {
        let sql = "-- devices::pair_device
            INSERT INTO devices (device_id, name, public_key) VALUES ($1, $2, $3) ON CONFLICT (public_key) DO NOTHING";
        let key = public_key.to_string();
        self.durable_rows(sql, &[&DeviceId::new().uuid(), &name, &key]).await?;
        self.device_by_key(public_key).await?.ok_or_else(|| Error::Data("a paired device is missing".to_owned()))
    }

    /// The device with this key.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn device_by_key(&self, public_key: &PublicKey) -> Result<Option<Device>, Error> {
        let sql = format!(
            "SELECT {DEVICE_COLUMNS}, {PRESENCE_SQL} AS presence FROM devices d WHERE public_key = $1 -- devices::by_key"
        );
        self.durable_opt(&sql, &[&public_key.to_string()]).await?.as_ref().map(device).transpose()
    }

    /// Every device, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn devices(&self) -> Result<Vec<Device>, Error> {
        let sql = format!(
            "SELECT {DEVICE_COLUMNS}, {PRESENCE_SQL} AS presence FROM devices d ORDER BY paired_at -- devices::all"
        );
        self.durable_rows(&sql, &[]).await?.iter().map(device).collect()
    }

    /// A page of devices, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn devices_before(&self, before: Option<DeviceId>, limit: i64) -> Result<Vec<Device>, Error> {
        let sql = format!(
            "SELECT {DEVICE_COLUMNS}, {PRESENCE_SQL} AS presence FROM devices d WHERE d.device_id < $1
            ORDER BY d.device_id DESC LIMIT $2 -- devices::before"
        );
        let before = before.map_or(uuid::Uuid::max(), DeviceId::uuid);
        self.durable_rows(&sql, &[&before, &limit]).await?.iter().map(device).collect()
    }

    /// The device with this identifier.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn device(&self, device_id: DeviceId) -> Result<Option<Device>, Error> {
        let sql = format!(
            "SELECT {DEVICE_COLUMNS}, {PRESENCE_SQL} AS presence FROM devices d WHERE device_id = $1 -- devices::one"
        );
        self.durable_opt(&sql, &[&device_id.uuid()]).await?.as_ref().map(device).transpose()
    }

    /// Gives a device another name. False if there is no such device.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn rename_device(&self, device_id: DeviceId, name: &str) -> Result<bool, Error> {
        let sql = "UPDATE devices SET name = $2 WHERE device_id = $1 RETURNING 1 -- devices::rename";
        Ok(self.durable_opt(sql, &[&device_id.uuid(), &name]).await?.is_some())
    }

    /// Enables or pauses access to everything a device published.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn set_access(&self, owner: Owner, enabled: bool) -> Result<(), Error> {
        let sql = "-- devices::set_access
            UPDATE devices SET access_changed_at = CASE WHEN access_enabled = $2 THEN access_changed_at ELSE now() END,
                access_enabled = $2
            WHERE device_id = $1 RETURNING access_changed_at = now() AS fresh";
        let what = if enabled { ActivityKind::AccessEnabled } else { ActivityKind::AccessPaused };
        let changed = |row: &Row| {
            let fresh = row.try_get::<_, Option<bool>>("fresh")? == Some(true);
            Ok(fresh.then_some(ActivityEntry { app_id: None, what, about: None, name: None }))
        };
        self.execute_with_activity(owner, sql, &[&owner.device_id.uuid(), &enabled], changed).await?;
        self.notifier().notify(Topic::Queue(owner.device_id));
        Ok(())
    }

    /// Stores why a device was refused.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_refusal(
        &self,
        public_key: &PublicKey,
        version: &str,
        refusal: &SessionRefusal,
    ) -> Result<(), Error> {
        let sql = "-- devices::note_refusal
            UPDATE devices SET refusal = $3::text::json, device_version = $2, last_seen_at = now(), asleep_since = NULL
            WHERE public_key = $1";
        let refusal = serde_json::to_string(refusal)?;
        self.relaxed_rows(sql, &[&public_key.to_string(), &version, &refusal]).await.map(drop)
    }

    /// Stores the host key that a device has received; `None`: it came through a server's sshd, which has its own.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_host_key(&self, device_id: DeviceId, fingerprint: Option<&str>) -> Result<(), Error> {
        let sql = "-- devices::note_host_key
            UPDATE devices SET told_host_key = $2 WHERE device_id = $1 AND told_host_key IS DISTINCT FROM $2";
        self.relaxed_rows(sql, &[&device_id.uuid(), &fingerprint.unwrap_or(SSHD_HOST_KEY)]).await.map(drop)
    }

    /// The names of paired devices that know this host key, and of those that must learn it.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn devices_by_host_key(&self, fingerprint: &str) -> Result<(Vec<String>, Vec<String>), Error> {
        let sql = "-- devices::told_of_host_key
            SELECT name, told_host_key IS NOT DISTINCT FROM $1 FROM devices
            WHERE revoked_at IS NULL AND account_issuer IS NULL AND told_host_key IS DISTINCT FROM $2 ORDER BY name";
        let (mut told, mut not_told) = (Vec::new(), Vec::new());
        for row in self.relaxed_rows(sql, &[&fingerprint, &SSHD_HOST_KEY]).await? {
            let names = if row.try_get(1)? { &mut told } else { &mut not_told };
            names.push(row.try_get(0)?);
        }
        Ok((told, not_told))
    }
}

/// The version that a device last said hello with; revoked devices are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceVersion {
    /// Its name.
    pub name: String,
    /// `None`: it never connected.
    pub version: Option<String>,
}

/// The devices of a database that another version of this program may have written.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn device_versions(client: &tokio_postgres::Client) -> Result<Vec<DeviceVersion>, Error> {
    let sql = "-- devices::met
        SELECT name, device_version FROM devices WHERE revoked_at IS NULL ORDER BY paired_at";
    let rows = client.query(sql, &[]).await?;
    rows.iter().map(|row| Ok(DeviceVersion { name: row.try_get(0)?, version: row.try_get(1)? })).collect()
}

fn device(row: &Row) -> Result<Device, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    Ok(Device {
        device_id: row.try_get::<_, uuid::Uuid>("device_id")?.into(),
        name: row.try_get("name")?,
        public_key: word(row.try_get("public_key")?)?,
        account: account(row)?,
        paired_at: row.try_get::<_, jiff::Timestamp>("paired_at")?.into(),
        revoked_at: moment("revoked_at")?,
        presence: word(row.try_get("presence")?)?,
        asleep_since: moment("asleep_since")?,
        last_seen_at: moment("last_seen_at")?,
        device_version: row.try_get("device_version")?,
        refusal: json(row, "refusal")?,
        epoch: row.try_get::<_, i64>("epoch")?.unsigned_abs(),
        access_enabled: row.try_get("access_enabled")?,
        access_changed_at: moment("access_changed_at")?,
    })
}
