//! Invitations of devices: created, seen, answered once, and forgotten.

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::invitation::InvitationToken;
use deskgate_protocol::{DeviceId, InvitationId, Timestamp};
use tokio_postgres::Row;

use super::columns::word;
use super::{Error, Store};

/// For how long an invitation that has ended stays readable.
const KEPT_AFTER_END: Duration = Duration::from_secs(7 * 24 * 3600);

deskgate_protocol::words! {
    /// How far an invitation is.
    pub enum InvitationState {
        /// No device came with it.
        Open = "open",
        /// A device came, and waits for the administrator.
        Waiting = "waiting",
        /// The administrator confirmed the device, which has not yet come with the control token that it was given.
        Confirmed = "confirmed",
        /// The device came with its token, and the invitation is used up.
        Paired = "paired",
        /// The administrator refused the device, or took the invitation back.
        Refused = "refused",
        /// It ended without an answer.
        Expired = "expired",
    }
}

/// The state of the invitation `i`, in SQL.
const STATE_SQL: &str =
    "CASE WHEN i.paired_at IS NOT NULL THEN 'paired' WHEN i.confirmed_at IS NOT NULL THEN 'confirmed' WHEN i.refused_at IS NOT NULL THEN 'refused'
    WHEN i.expires_at <= now() THEN 'expired' WHEN i.public_key IS NULL THEN 'open' ELSE 'waiting' END";

/// An invitation, without its secret.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Its identifier.
    pub invitation_id: InvitationId,
    /// What the administrator calls it.
    pub note: Option<String>,
    /// The SSH key that it opens the tunnel with.
    pub tunnel_key: PublicKey,
    /// How far it is.
    pub state: InvitationState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends. A confirmed device that lost its answer may come again until then.
    pub expires_at: Timestamp,
    /// The device that came with it last.
    pub device: Option<InvitedDevice>,
}

/// A device that came with an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitedDevice {
    /// Its key.
    pub public_key: PublicKey,
    /// The name that its user gave it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it came.
    pub came_at: Timestamp,
}

impl Store {
    /// Writes down an invitation that ends after `lasts`.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn create_invitation(
        &self,
        token: &InvitationToken,
        note: Option<&str>,
        lasts: Duration,
    ) -> Result<Invitation, Error> {
        let sql = format!(
            "-- invitations::create
            INSERT INTO invitations AS i (invitation_id, note, secret_digest, tunnel_key, expires_at)
            VALUES ($1, $2, $3, $4, date_trunc('second', now() + make_interval(secs => $5)))
            RETURNING i.*, {STATE_SQL} AS state"
        );
        let (invitation_id, digest) = (InvitationId::new().uuid(), token.digest());
        let tunnel_key = PublicKey::of(&token.tunnel_key()).to_string();
        let lasts = lasts.as_secs_f64();
        let row = self.durable_one(&sql, &[&invitation_id, &note, &digest.0.as_slice(), &tunnel_key, &lasts]).await?;
        invitation(&row)
    }

    /// Invitations, newest first, at most so many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn invitations(&self, limit: i64) -> Result<Vec<Invitation>, Error> {
        let sql = format!(
            "-- invitations::all
            SELECT i.*, {STATE_SQL} AS state FROM invitations i ORDER BY created_at DESC, invitation_id DESC LIMIT $1"
        );
        self.durable_rows(&sql, &[&limit]).await?.iter().map(invitation).collect()
    }

    /// One invitation.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn invitation(&self, invitation_id: InvitationId) -> Result<Option<Invitation>, Error> {
        let sql =
            format!("SELECT i.*, {STATE_SQL} AS state FROM invitations i WHERE invitation_id = $1 -- invitations::one");
        self.durable_opt(&sql, &[&invitation_id.uuid()]).await?.as_ref().map(invitation).transpose()
    }

    /// The invitation whose secret has this digest, whatever its state.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn invitation_by_secret(&self, digest: Sha256Digest) -> Result<Option<Invitation>, Error> {
        let sql = format!(
            "SELECT i.*, {STATE_SQL} AS state FROM invitations i WHERE secret_digest = $1 -- invitations::by_secret"
        );
        self.durable_opt(&sql, &[&digest.0.as_slice()]).await?.as_ref().map(invitation).transpose()
    }

    /// Whether an invitation that has not ended opens the tunnel with this key.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn is_invited(&self, tunnel_key: &PublicKey) -> Result<bool, Error> {
        let sql = "-- invitations::is_invited
            SELECT FROM invitations WHERE tunnel_key = $1 AND refused_at IS NULL AND expires_at > now()";
        Ok(self.durable_opt(sql, &[&tunnel_key.to_string()]).await?.is_some())
    }

    /// Notes the device that came with an invitation, in place of one that came before and was not confirmed. `None`: the
    /// invitation was answered or has ended.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_invited(
        &self,
        invitation_id: InvitationId,
        public_key: &PublicKey,
        name: &str,
        version: &str,
    ) -> Result<Option<Invitation>, Error> {
        let sql = format!(
            "-- invitations::note_invited
            UPDATE invitations i SET public_key = $2, device_name = $3, device_version = $4, came_at = now()
            WHERE invitation_id = $1 AND confirmed_at IS NULL AND refused_at IS NULL AND expires_at > now()
            RETURNING i.*, {STATE_SQL} AS state"
        );
        let key = public_key.to_string();
        let row = self.durable_opt(&sql, &[&invitation_id.uuid(), &key, &name, &version]).await?;
        row.as_ref().map(invitation).transpose()
    }

    /// Confirms the device with this key, which is paired in the same commit. `None`: another device came meanwhile, or the
    /// invitation was answered or has ended.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn confirm_invited(
        &self,
        invitation_id: InvitationId,
        public_key: &PublicKey,
        name: &str,
    ) -> Result<Option<Invitation>, Error> {
        let sql = format!(
            "-- invitations::confirm
            WITH i AS (
                UPDATE invitations SET confirmed_at = now()
                WHERE invitation_id = $1 AND public_key = $2 AND confirmed_at IS NULL AND refused_at IS NULL
                    AND expires_at > now()
                RETURNING *),
            paired AS (
                INSERT INTO devices (device_id, name, public_key) SELECT $3, $4, public_key FROM i
                ON CONFLICT (public_key) DO NOTHING)
            SELECT i.*, {STATE_SQL} AS state FROM i"
        );
        let (key, device_id) = (public_key.to_string(), DeviceId::new().uuid());
        let row = self.durable_opt(&sql, &[&invitation_id.uuid(), &key, &device_id, &name]).await?;
        row.as_ref().map(invitation).transpose()
    }

    /// Refuses whoever came or will come with an invitation. `None`: it was answered or has ended.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn refuse_invited(&self, invitation_id: InvitationId) -> Result<Option<Invitation>, Error> {
        let sql = format!(
            "-- invitations::refuse
            UPDATE invitations i SET refused_at = now()
            WHERE invitation_id = $1 AND confirmed_at IS NULL AND refused_at IS NULL AND expires_at > now()
            RETURNING i.*, {STATE_SQL} AS state"
        );
        self.durable_opt(&sql, &[&invitation_id.uuid()]).await?.as_ref().map(invitation).transpose()
    }

    /// Gives a confirmed device its control token: the offered one, encrypted and its digest, unless the device was given one
    /// before that is still valid. Returns the one that counts, encrypted. `None`: the invitation has ended, is used up, or
    /// belongs to another device.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn give_invited_token(
        &self,
        invitation_id: InvitationId,
        public_key: &PublicKey,
        sealed: &[u8],
        digest: Sha256Digest,
    ) -> Result<Option<Vec<u8>>, Error> {
        let sql = "-- invitations::give_token
            WITH i AS (
                UPDATE invitations SET
                    token_sealed = CASE WHEN is_known THEN token_sealed ELSE $3 END,
                    token_digest = CASE WHEN is_known THEN token_digest ELSE $4 END
                FROM (SELECT EXISTS (
                    SELECT FROM control_tokens t JOIN invitations o ON o.token_digest = t.digest
                    WHERE o.invitation_id = $1 AND t.expires_at IS NULL) AS is_known) k
                WHERE invitation_id = $1 AND public_key = $2 AND confirmed_at IS NOT NULL AND paired_at IS NULL
                    AND expires_at > now()
                RETURNING token_sealed, token_digest),
            valid AS (INSERT INTO control_tokens (digest) SELECT token_digest FROM i ON CONFLICT DO NOTHING)
            SELECT token_sealed FROM i";
        let key = public_key.to_string();
        let row = self.durable_opt(sql, &[&invitation_id.uuid(), &key, &sealed, &digest.0.as_slice()]).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }

    /// Notes that a device came with this control token: an invitation that gave it is used up, and forgets it. Returns
    /// that invitation.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn use_up_invitation(&self, token: Sha256Digest) -> Result<Option<InvitationId>, Error> {
        let sql = "-- invitations::use_up
            UPDATE invitations SET paired_at = now(), token_sealed = NULL
            WHERE token_digest = $1 AND paired_at IS NULL RETURNING invitation_id";
        let row = self.durable_opt(sql, &[&token.0.as_slice()]).await?;
        row.map(|row| Ok(row.try_get::<_, uuid::Uuid>(0)?.into())).transpose()
    }

    /// Deletes invitations that ended a week ago. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_invitations(&self) -> Result<usize, Error> {
        let sql = "-- invitations::forget
            DELETE FROM invitations WHERE expires_at < now() - make_interval(secs => $1) RETURNING 1";
        Ok(self.durable_rows(sql, &[&KEPT_AFTER_END.as_secs_f64()]).await?.len())
    }
}

fn invitation(row: &Row) -> Result<Invitation, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Timestamp::from));
    let missing = |what: &str| Error::Data(format!("an invited device without {what}"));
    let device = match row.try_get::<_, Option<&str>>("public_key")? {
        None => None,
        Some(key) => Some(InvitedDevice {
            public_key: word(key)?,
            name: row.try_get::<_, Option<String>>("device_name")?.ok_or_else(|| missing("a name"))?,
            version: row.try_get::<_, Option<String>>("device_version")?.ok_or_else(|| missing("a version"))?,
            came_at: moment("came_at")?.ok_or_else(|| missing("a time"))?,
        }),
    };
    Ok(Invitation {
        invitation_id: row.try_get::<_, uuid::Uuid>("invitation_id")?.into(),
        note: row.try_get("note")?,
        tunnel_key: word(row.try_get("tunnel_key")?)?,
        state: word(row.try_get("state")?)?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        expires_at: row.try_get::<_, jiff::Timestamp>("expires_at")?.into(),
        device,
    })
}
