//! Published services.

use deskgate_protocol::management::{ActivityKind, PublishEndpoint, PublishedEndpoint, TryDraft};
use deskgate_protocol::service::{DRAFT_VERSION, Endpoint, EndpointDevice};
use deskgate_protocol::{ApplicationId, DeviceId};
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::activity::{ActivityEntry, Owner};
use super::admissions::TAKES_OUTPUT_SQL;
use super::columns::{json, word};
use super::devices::{PRESENCE_SQL, Presence};
use super::quotas::{Making, QuotaKind, QuotaReached};
use super::{Error, Store};

/// The outcome of a publication.
#[derive(Clone, Debug)]
pub enum PublicationOutcome {
    /// This version is the published one, now or since an earlier repetition.
    Published(Box<PublishedEndpoint>),
    /// The device has no such application.
    NoSuchApplication,
    /// The application was disabled.
    Disabled,
    /// Another service of the application has this name.
    NameTaken,
    /// The published version is not the predecessor of this one.
    WrongVersion {
        /// The published version; 0 when nothing is published.
        published: u32,
    },
    /// It was unpublished, and its runs are still being told to end.
    StillEnding,
    /// A quota leaves no room for another service.
    QuotaReached(QuotaReached),
}

deskgate_protocol::words! {
    /// What a service answers to new work.
    pub(super) enum EndpointLife {
        /// It accepts it.
        Open = "open",
        /// Its owner disabled it.
        Disabled = "disabled",
        /// It is not published any more.
        Unpublished = "unpublished",
        /// Its application was disabled.
        Closed = "closed",
    }
}

/// The [`EndpointLife`] of `e`.
pub(super) const LIFE_SQL: &str = "CASE WHEN e.unpublished_at IS NOT NULL THEN 'unpublished'
    WHEN e.closed_at IS NOT NULL THEN 'closed' WHEN e.disabled_at IS NOT NULL THEN 'disabled' ELSE 'open' END";

const SERVICE_QUOTAS: [QuotaKind; 3] =
    [QuotaKind::ServicesPerApplication, QuotaKind::ServicesPerDevice, QuotaKind::ServicesPerAccount];

pub(super) const ENDPOINT_COLUMNS: &str =
    "e.endpoint_id, e.app_id, e.name, e.description, e.version, e.definition_sha256,
    e.tool_name, e.published_at, e.closed_at, e.unpublished_at, e.disabled_at";

impl Store {
    /// Publishes a version of a service of this device; a new service only if the quotas leave room for one. One that is
    /// published for the first time is called `tool_name` as a tool of MCP, or like that, unless its owner chose a name.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn publish(
        &self,
        owner: Owner,
        wanted: &PublishEndpoint,
        tool_name: &str,
    ) -> Result<PublicationOutcome, Error> {
        let sql = format!(
            "-- endpoints::publish
            WITH a AS (
                -- Locked, so that whoever disables it closes this service too, or comes first.
                SELECT app_id, device_id FROM applications
                WHERE app_id = $3 AND device_id = $2 AND state = 'active' FOR SHARE)
            INSERT INTO endpoints AS e (endpoint_id, app_id, device_id, name, description, version, definition_sha256,
                input_schema, output_schema, caller_schema, takes_files, read_only_version, chosen_tool_name, tool_name)
            SELECT $1, a.app_id, a.device_id, $4, $5, $6, $7, $8::text::json, $9::text::json, $10, $11, CASE WHEN $12 THEN $6::int END, $13, $14 FROM a
            WHERE ($6 = 1 OR EXISTS (SELECT FROM endpoints o WHERE o.endpoint_id = $1))
                AND NOT EXISTS (SELECT FROM endpoints o
                    WHERE o.app_id = $3 AND o.name = $4 AND o.endpoint_id <> $1 AND o.closed_at IS NULL)
            ON CONFLICT (endpoint_id) DO UPDATE SET name = $4, description = $5, version = $6, definition_sha256 = $7,
                input_schema = $8::text::json, output_schema = $9::text::json, caller_schema = $10,
                takes_files = $11, read_only_version = CASE WHEN $12 THEN $6::int END, chosen_tool_name = $13, tool_name = coalesce(e.tool_name, $14),
                published_at = CASE WHEN e.version = $6 AND e.closed_at IS NULL THEN e.published_at ELSE now() END,
                -- What was unpublished begins anew; what is disabled stays so.
                disabled_at = CASE WHEN e.closed_at IS NULL THEN e.disabled_at END, closed_at = NULL, unpublished_at = NULL
            WHERE e.app_id = $3 AND e.device_id = $2 AND e.runs_to_tell_as IS NULL
                AND (e.version = $6 - 1 OR (e.version = $6 AND e.definition_sha256 = $7))
            RETURNING {ENDPOINT_COLUMNS}, e.published_at = now() AS fresh"
        );
        let version = i32::try_from(wanted.version).unwrap_or(i32::MAX);
        let text = |schema: &Option<Value>| schema.as_ref().map(Value::to_string);
        let params: [&(dyn ToSql + Sync); 14] = [
            &wanted.endpoint_id.uuid(),
            &owner.device_id.uuid(),
            &wanted.app_id.uuid(),
            &wanted.name,
            &wanted.description,
            &version,
            &wanted.definition_sha256.0.as_slice(),
            &text(&wanted.data.input_schema),
            &text(&wanted.data.output_schema),
            &wanted.data.caller_schema,
            &wanted.data.takes_files,
            &wanted.data.read_only,
            &wanted.data.tool_name,
            &tool_name,
        ];
        let published_now = |row: &Row| {
            let note = ActivityEntry {
                app_id: Some(wanted.app_id),
                what: ActivityKind::ServicePublished,
                about: Some(wanted.endpoint_id.to_string()),
                name: Some(wanted.name.clone()),
            };
            Ok(row.try_get::<_, bool>("fresh")?.then_some(note))
        };
        let about = Some(wanted.endpoint_id.uuid());
        let making = Making { kinds: &SERVICE_QUOTAS, app_id: Some(wanted.app_id), about, replaces: false };
        match self.execute_within_quotas(owner, &making, &sql, &params, published_now).await? {
            Ok(Some(row)) => Ok(PublicationOutcome::Published(published(&row)?.into())),
            Ok(None) => self.why_not_published(owner.device_id, wanted).await,
            Err(reached) => Ok(PublicationOutcome::QuotaReached(reached)),
        }
    }

    /// Notes a draft of this device that its owner wants to try, as a service that callers have never seen; only if the quotas
    /// leave room for one. Nothing is changed of a service that is known. False: the application is not active, or the identifier
    /// is taken.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_draft(&self, owner: Owner, wanted: &TryDraft) -> Result<Result<bool, QuotaReached>, Error> {
        let sql = format!(
            "-- endpoints::note_draft
            WITH a AS (
                SELECT app_id FROM applications WHERE app_id = $3 AND device_id = $2 AND state = 'active' FOR SHARE)
            INSERT INTO endpoints AS e (endpoint_id, app_id, device_id, name, description, version, definition_sha256,
                closed_at, unpublished_at)
            SELECT $1, a.app_id, $2, $4, '', {DRAFT_VERSION}, $5, now(), now() FROM a
            ON CONFLICT (endpoint_id) DO UPDATE SET version = e.version WHERE e.app_id = $3 AND e.device_id = $2
            RETURNING 1"
        );
        let params: [&(dyn ToSql + Sync); 5] = [
            &wanted.endpoint_id.uuid(),
            &owner.device_id.uuid(),
            &wanted.app_id.uuid(),
            &wanted.name,
            &wanted.definition_sha256.0.as_slice(),
        ];
        let about = Some(wanted.endpoint_id.uuid());
        let making = Making { kinds: &SERVICE_QUOTAS, app_id: Some(wanted.app_id), about, replaces: false };
        let noted = self.execute_within_quotas(owner, &making, &sql, &params, |_| Ok(None)).await?;
        Ok(noted.map(|row| row.is_some()))
    }

    async fn why_not_published(
        &self,
        device_id: DeviceId,
        wanted: &PublishEndpoint,
    ) -> Result<PublicationOutcome, Error> {
        let sql = "-- endpoints::why_not_published
            SELECT (SELECT state = 'active' FROM applications WHERE app_id = $1 AND device_id = $2),
                EXISTS (SELECT FROM endpoints
                    WHERE app_id = $1 AND name = $3 AND endpoint_id <> $4 AND closed_at IS NULL),
                coalesce((SELECT version FROM endpoints WHERE endpoint_id = $4 AND device_id = $2), 0),
                EXISTS (SELECT FROM endpoints WHERE endpoint_id = $4 AND runs_to_tell_as IS NOT NULL)";
        let (app, endpoint) = (wanted.app_id.uuid(), wanted.endpoint_id.uuid());
        let row = self.durable_one(sql, &[&app, &device_id.uuid(), &wanted.name, &endpoint]).await?;
        Ok(match (row.try_get(0)?, row.try_get(1)?) {
            (None, _) => PublicationOutcome::NoSuchApplication,
            (Some(false), _) => PublicationOutcome::Disabled,
            (Some(true), true) => PublicationOutcome::NameTaken,
            (Some(true), false) if row.try_get(3)? => PublicationOutcome::StillEnding,
            (Some(true), false) => {
                PublicationOutcome::WrongVersion { published: row.try_get::<_, i32>(2)?.unsigned_abs() }
            }
        })
    }

    /// The services that a device has published, also those that are not any more, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn published_by(&self, device_id: DeviceId) -> Result<Vec<PublishedEndpoint>, Error> {
        let sql = format!(
            "SELECT {ENDPOINT_COLUMNS} FROM endpoints e WHERE device_id = $1 ORDER BY endpoint_id -- endpoints::published_by"
        );
        self.durable_rows(&sql, &[&device_id.uuid()]).await?.iter().map(published).collect()
    }

    /// The published and enabled services of an application, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn enabled_endpoints(&self, app_id: ApplicationId) -> Result<Vec<Endpoint>, Error> {
        let columns = directory_columns();
        let sql = format!(
            "-- endpoints::enabled
            SELECT {columns} FROM endpoints e JOIN devices d USING (device_id)
            WHERE e.app_id = $1 AND {LIFE_SQL} = 'open' AND d.access_enabled AND d.revoked_at IS NULL ORDER BY e.endpoint_id"
        );
        self.durable_rows(&sql, &[&app_id.uuid()]).await?.iter().map(endpoint).collect()
    }

    /// The service of an application that this tool of MCP is, whether it takes work at the moment or not.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn endpoint_of_tool(&self, app_id: ApplicationId, tool_name: &str) -> Result<Option<Endpoint>, Error> {
        let columns = directory_columns();
        let sql = format!(
            "-- endpoints::of_tool
            SELECT {columns} FROM endpoints e JOIN devices d USING (device_id)
            WHERE e.app_id = $1 AND e.tool_name = $2 AND e.closed_at IS NULL AND d.revoked_at IS NULL"
        );
        self.durable_opt(&sql, &[&app_id.uuid(), &tool_name]).await?.as_ref().map(endpoint).transpose()
    }
}

/// What callers may know of the service `e` of the device `d`.
fn directory_columns() -> String {
    format!(
        "e.endpoint_id, e.name, e.description, e.version, e.input_schema, e.output_schema, {TAKES_OUTPUT_SQL} AS caller_schema,
        e.takes_files, e.tool_name, coalesce(e.read_only_version = e.version, false) AS read_only, d.last_seen_at,
        {PRESENCE_SQL} AS presence"
    )
}

fn endpoint(row: &Row) -> Result<Endpoint, Error> {
    let presence: Presence = word(row.try_get("presence")?)?;
    Ok(Endpoint {
        id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        version: row.try_get::<_, i32>("version")?.unsigned_abs(),
        input_schema: json(row, "input_schema")?,
        output_schema: json(row, "output_schema")?,
        caller_schema: row.try_get("caller_schema")?,
        takes_files: row.try_get("takes_files")?,
        tool_name: row.try_get("tool_name")?,
        read_only: row.try_get("read_only")?,
        device: EndpointDevice {
            connected: presence == Presence::Connected,
            last_seen_at: row.try_get::<_, Option<jiff::Timestamp>>("last_seen_at")?.map(Into::into),
        },
    })
}

pub(super) fn published(row: &Row) -> Result<PublishedEndpoint, Error> {
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    Ok(PublishedEndpoint {
        endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        app_id: row.try_get::<_, uuid::Uuid>("app_id")?.into(),
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        version: row.try_get::<_, i32>("version")?.unsigned_abs(),
        tool_name: row.try_get("tool_name")?,
        definition_sha256: super::columns::digest(row.try_get("definition_sha256")?)?,
        published_at: row.try_get::<_, jiff::Timestamp>("published_at")?.into(),
        closed_at: moment("closed_at")?,
        unpublished_at: moment("unpublished_at")?,
        disabled_at: moment("disabled_at")?,
    })
}
