//! Incoming webhooks: their owners' settings, and their encrypted secrets.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{ActivityKind, WebhookSettings};
use deskgate_protocol::{ApplicationId, DeviceId, HookId, RunId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{Json, ToSql};

use super::activity::{ActivityEntry, Owner};
use super::columns::json;
use super::quotas::{Making, QuotaKind, QuotaReached};
use super::{Error, Store};

/// A webhook as its owner sees it.
#[derive(Clone, Debug)]
pub struct StoredWebhook {
    /// Its identifier.
    pub hook_id: HookId,
    /// The application whose runs are made.
    pub app_id: ApplicationId,
    /// Its settings.
    pub settings: WebhookSettings,
    /// Whether events make runs.
    pub enabled: bool,
    /// Until when the previous secret is valid too.
    pub old_secret_until: Option<Timestamp>,
    /// When an event was last received, where that was asked for.
    pub last_received_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A webhook as it is loaded for an event.
#[derive(Clone, Debug)]
pub struct WebhookReceiver {
    /// The webhook.
    pub webhook: StoredWebhook,
    /// The encrypted secrets that are valid now, the newest first.
    pub secrets: Vec<Vec<u8>>,
    /// This moment by the database's clock, in seconds since 1970.
    pub now_s: i64,
}

/// The outcome of creating a webhook.
#[derive(Clone, Debug)]
pub enum WebhookCreation {
    /// The webhook was created.
    Created(Box<StoredWebhook>),
    /// The device has no such active application with such a service.
    NoSuchService,
    /// A quota leaves no room for another one.
    QuotaReached(QuotaReached),
}

const WEBHOOK_COLUMNS: &str = "w.hook_id, w.app_id, w.settings, w.enabled, w.created_at, w.updated_at,
    CASE WHEN w.old_secret_until > now() THEN w.old_secret_until END AS old_secret_until";
const LAST_RECEIPT_COLUMN: &str = "(SELECT r.received_at FROM webhook_receipts r WHERE r.hook_id = w.hook_id
        ORDER BY r.receipt_id DESC LIMIT 1) AS last_received_at";

impl Store {
    /// Creates a webhook for a service of this device, if the quotas leave room for one.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn create_webhook(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        hook_id: HookId,
        settings: &WebhookSettings,
        sealed: &[u8],
    ) -> Result<WebhookCreation, Error> {
        let sql = format!(
            "-- webhooks::create
            WITH place AS (
                -- Locked, so that whoever disables it comes before or after.
                SELECT a.app_id, e.endpoint_id FROM applications a JOIN endpoints e ON e.app_id = a.app_id AND e.closed_at IS NULL
                WHERE a.device_id = $1 AND a.app_id = $2 AND a.state = 'active' AND e.endpoint_id = $3 FOR SHARE OF a
            ), w AS (
                INSERT INTO webhooks (hook_id, app_id, endpoint_id, settings, secret)
                SELECT $4, app_id, endpoint_id, $5, $6 FROM place RETURNING *)
            SELECT {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN} FROM w"
        );
        let (app, endpoint, hook) = (app_id.uuid(), settings.endpoint_id.uuid(), hook_id.uuid());
        let json = Json(settings);
        let kinds = &[QuotaKind::WebhooksPerApplication];
        let making = Making { kinds, app_id: Some(app_id), about: None, replaces: false };
        let device_id = owner.device_id.uuid();
        let params: [&(dyn ToSql + Sync); 6] = [&device_id, &app, &endpoint, &hook, &json, &sealed];
        let created = |_: &Row| Ok(Some(note(app_id, ActivityKind::WebhookCreated, hook_id, &settings.name)));
        Ok(match self.execute_within_quotas(owner, &making, &sql, &params, created).await? {
            Ok(Some(row)) => WebhookCreation::Created(Box::new(webhook(&row)?)),
            Ok(None) => WebhookCreation::NoSuchService,
            Err(reached) => WebhookCreation::QuotaReached(reached),
        })
    }

    /// A device's webhooks that were not removed, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn webhooks(
        &self,
        device_id: DeviceId,
        app_id: Option<ApplicationId>,
    ) -> Result<Vec<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::of_device
            SELECT {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN} FROM webhooks w JOIN applications a USING (app_id)
            WHERE a.device_id = $1 AND ($2::uuid IS NULL OR w.app_id = $2) AND w.removed_at IS NULL ORDER BY w.hook_id"
        );
        let app_id = app_id.map(ApplicationId::uuid);
        self.filtered_rows(&sql, &[&device_id.uuid(), &app_id]).await?.iter().map(webhook).collect()
    }

    /// One webhook of this device that was not removed.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn webhook(&self, device_id: DeviceId, hook_id: HookId) -> Result<Option<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::one
            SELECT {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN} FROM webhooks w JOIN applications a USING (app_id)
            WHERE a.device_id = $1 AND w.hook_id = $2 AND w.removed_at IS NULL"
        );
        self.durable_opt(&sql, &[&device_id.uuid(), &hook_id.uuid()]).await?.as_ref().map(webhook).transpose()
    }

    /// Changes a webhook's settings, to a service of the same application. `None` if there is no such webhook or
    /// service.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn change_webhook(
        &self,
        owner: Owner,
        hook_id: HookId,
        settings: &WebhookSettings,
    ) -> Result<Option<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::change
            UPDATE webhooks w SET settings = $3, endpoint_id = e.endpoint_id, updated_at = now()
            FROM applications a JOIN endpoints e ON e.app_id = a.app_id
            WHERE a.app_id = w.app_id AND a.device_id = $1 AND w.hook_id = $2 AND w.removed_at IS NULL
                AND e.endpoint_id = $4 RETURNING {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN}"
        );
        let (device, hook, endpoint) = (owner.device_id.uuid(), hook_id.uuid(), settings.endpoint_id.uuid());
        let row = self
            .execute_with_activity(
                owner,
                &sql,
                &[&device, &hook, &Json(settings), &endpoint],
                did(ActivityKind::WebhookChanged),
            )
            .await?;
        row.as_ref().map(webhook).transpose()
    }

    /// Enables or disables a webhook of this device. `None` if it does not exist.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn enable_webhook(
        &self,
        owner: Owner,
        hook_id: HookId,
        enabled: bool,
    ) -> Result<Option<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::enable
            UPDATE webhooks w SET enabled = $3, updated_at = CASE w.enabled WHEN $3 THEN w.updated_at ELSE now() END
            FROM applications a
            WHERE a.app_id = w.app_id AND a.device_id = $1 AND w.hook_id = $2 AND w.removed_at IS NULL
            RETURNING {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN}, w.updated_at = now() AS fresh"
        );
        let what = if enabled { ActivityKind::WebhookEnabled } else { ActivityKind::WebhookDisabled };
        let changed = |row: &Row| if row.try_get("fresh")? { did(what)(row) } else { Ok(None) };
        let row = self
            .execute_with_activity(owner, &sql, &[&owner.device_id.uuid(), &hook_id.uuid(), &enabled], changed)
            .await?;
        row.as_ref().map(webhook).transpose()
    }

    /// Gives a webhook of this device another secret; the old one stays valid for `overlap_s` seconds. `None` if it
    /// does not exist.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn roll_webhook(
        &self,
        owner: Owner,
        hook_id: HookId,
        overlap_s: u32,
        sealed: &[u8],
    ) -> Result<Option<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::roll
            UPDATE webhooks w SET secret = $3, updated_at = now(),
                old_secret = CASE WHEN $4::float8 > 0 THEN w.secret END,
                old_secret_until = CASE WHEN $4 > 0 THEN now() + make_interval(secs => $4) END
            FROM applications a
            WHERE a.app_id = w.app_id AND a.device_id = $1 AND w.hook_id = $2 AND w.removed_at IS NULL RETURNING {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN}"
        );
        let overlap = f64::from(overlap_s);
        let (device, hook) = (owner.device_id.uuid(), hook_id.uuid());
        let row = self
            .execute_with_activity(
                owner,
                &sql,
                &[&device, &hook, &sealed, &overlap],
                did(ActivityKind::WebhookSecretRolled),
            )
            .await?;
        row.as_ref().map(webhook).transpose()
    }

    /// Removes a webhook of this device, its secrets and its receipts. `None` if it does not exist.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn remove_webhook(&self, owner: Owner, hook_id: HookId) -> Result<Option<StoredWebhook>, Error> {
        let sql = format!(
            "-- webhooks::remove
            WITH receipts AS (
                DELETE FROM webhook_receipts r USING webhooks w JOIN applications a USING (app_id)
                WHERE w.hook_id = r.hook_id AND w.hook_id = $2 AND a.device_id = $1)
            UPDATE webhooks w SET removed_at = now(), secret = NULL, old_secret = NULL, old_secret_until = NULL
            FROM applications a
            WHERE a.app_id = w.app_id AND a.device_id = $1 AND w.hook_id = $2 AND w.removed_at IS NULL RETURNING {WEBHOOK_COLUMNS}, {LAST_RECEIPT_COLUMN}"
        );
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&owner.device_id.uuid(), &hook_id.uuid()];
        let row = self.execute_with_activity(owner, &sql, &params, did(ActivityKind::WebhookRemoved)).await?;
        row.as_ref().map(webhook).transpose()
    }

    /// An existing webhook, with all that is needed for an event.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn receiving_webhook(&self, hook_id: HookId) -> Result<Option<WebhookReceiver>, Error> {
        let sql = format!(
            "-- webhooks::receiving
            SELECT {WEBHOOK_COLUMNS}, NULL::timestamptz AS last_received_at, w.secret, CASE WHEN w.old_secret_until > now() THEN w.old_secret END AS old_secret,
                floor(extract(epoch FROM now()))::int8 AS now_s
            FROM webhooks w WHERE w.hook_id = $1 AND w.removed_at IS NULL"
        );
        let Some(row) = self.durable_opt(&sql, &[&hook_id.uuid()]).await? else { return Ok(None) };
        let (secret, old): (Vec<u8>, Option<Vec<u8>>) = (row.try_get("secret")?, row.try_get("old_secret")?);
        let secrets = [Some(secret), old].into_iter().flatten().collect();
        Ok(Some(WebhookReceiver { webhook: webhook(&row)?, secrets, now_s: row.try_get("now_s")? }))
    }

    /// The run that an event made before.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn run_of_event(&self, identity: Sha256Digest) -> Result<Option<RunId>, Error> {
        let sql = "-- webhooks::run_of_event
            SELECT run_id FROM runs WHERE identity = $1";
        let row = self.durable_opt(sql, &[&identity.0.as_slice()]).await?;
        Ok(row.map(|row| row.try_get::<_, uuid::Uuid>(0)).transpose()?.map(RunId::from))
    }
}

fn did(what: ActivityKind) -> impl Fn(&Row) -> Result<Option<ActivityEntry>, Error> {
    move |row| {
        let webhook = webhook(row)?;
        Ok(Some(note(webhook.app_id, what, webhook.hook_id, &webhook.settings.name)))
    }
}

fn note(app_id: ApplicationId, what: ActivityKind, hook_id: HookId, name: &str) -> ActivityEntry {
    ActivityEntry { app_id: Some(app_id), what, about: Some(hook_id.to_string()), name: Some(name.to_owned()) }
}

fn webhook(row: &Row) -> Result<StoredWebhook, Error> {
    let moment = |name| row.try_get::<_, jiff::Timestamp>(name).map(Timestamp::from);
    Ok(StoredWebhook {
        hook_id: row.try_get::<_, uuid::Uuid>("hook_id")?.into(),
        app_id: row.try_get::<_, uuid::Uuid>("app_id")?.into(),
        settings: json(row, "settings")?.ok_or_else(|| Error::Data("a webhook without settings".to_owned()))?,
        enabled: row.try_get("enabled")?,
        old_secret_until: row.try_get::<_, Option<jiff::Timestamp>>("old_secret_until")?.map(Timestamp::from),
        last_received_at: row.try_get::<_, Option<jiff::Timestamp>>("last_received_at")?.map(Timestamp::from),
        created_at: moment("created_at")?,
        updated_at: moment("updated_at")?,
    })
}
