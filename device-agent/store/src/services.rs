//! Drafts and published versions of services, as rows.

use std::path::PathBuf;

use deskgate_definition::{CheckReport, Definition, FolderIdentity, Service, Version};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::{DraftId, EndpointId};
use rusqlite::{OptionalExtension, Row, Transaction, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Error, Store};

/// The services' handle.
#[derive(Clone, Debug)]
pub struct Services {
    pub(super) store: Store,
}

/// How many versions of a service are shown.
pub const MAX_SHOWN_VERSIONS: u32 = 50;

/// A frozen version with its number, which the gateway may not have confirmed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrozenVersion {
    /// The endpoint's identifier for callers.
    pub endpoint_id: EndpointId,
    /// The version's number.
    pub version: u32,
    /// The definition's digest.
    pub digest: Sha256Digest,
}

/// The result of freezing a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeOutcome {
    /// The draft is frozen, now or by an earlier try: publish it at the gateway.
    Frozen(FrozenVersion),
    /// Another content was frozen, and it is unknown whether the gateway published it.
    Unsettled(FrozenVersion),
    /// There is no such service.
    Gone,
}

impl Services {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Saves a new service.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn insert(&self, service: &Service) -> Result<(), Error> {
        let (id, app) = (service.draft_id.to_string(), service.app_id.to_string());
        let (definition, created_at) = (text(&service.draft), service.created_at.to_string());
        self.store
            .durably(move |tx| {
                tx.execute(
                    "INSERT INTO service (draft_id, app_id, definition, created_at, changed_at)
                     VALUES (?1, ?2, ?3, ?4, ?4)",
                    params![id, app, definition, created_at],
                )?;
                Ok(())
            })
            .await
    }

    /// Replaces the draft; false if there is no such service.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_draft(&self, draft_id: DraftId, definition: &Definition) -> Result<bool, Error> {
        let definition = text(definition);
        self.update(
            "UPDATE service SET definition = ?2, changed_at = ?3 WHERE draft_id = ?1",
            vec![draft_id.to_string(), definition, Timestamp::now().to_string()],
        )
        .await
    }

    /// Replaces the draft if it is still `from`; true if it was.
    ///
    /// # Errors
    /// The database cannot be read or written, or the service is damaged.
    pub async fn replace_draft(&self, draft_id: DraftId, from: &Definition, to: &Definition) -> Result<bool, Error> {
        let (from, to) = (from.clone(), text(to));
        self.store
            .durably(move |tx| {
                let found = services(tx, "s.draft_id = ?1", &draft_id.to_string())?;
                let is_same = found.iter().any(|service| service.draft == from);
                if is_same {
                    let sql = "UPDATE service SET definition = ?2 WHERE draft_id = ?1";
                    tx.execute(sql, params![draft_id.to_string(), to])?;
                }
                Ok(is_same)
            })
            .await
    }

    /// Pauses a version for the given reason until it is published again: no run of it starts.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn pause(&self, endpoint_id: EndpointId, version: u32, why: String) -> Result<(), Error> {
        let sql = "UPDATE service_version SET paused = ?3 WHERE endpoint_id = ?1 AND version = ?2";
        self.store
            .durably(move |tx| {
                tx.execute(sql, params![endpoint_id.to_string(), version, why])?;
                Ok(())
            })
            .await
    }

    /// Stores the results of the checks; false if there is no such service.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_checks(&self, draft_id: DraftId, report: &CheckReport) -> Result<bool, Error> {
        self.update("UPDATE service SET checks = ?2 WHERE draft_id = ?1", vec![draft_id.to_string(), text(report)])
            .await
    }

    async fn update(&self, sql: &'static str, values: Vec<String>) -> Result<bool, Error> {
        self.store.durably(move |tx| Ok(tx.execute(sql, params_from_iter(values))? > 0)).await
    }

    /// One service.
    ///
    /// # Errors
    /// The database cannot be read, or the service is damaged.
    pub async fn get(&self, draft_id: DraftId) -> Result<Option<Service>, Error> {
        let rows = self.store.lazily(move |tx| services(tx, "s.draft_id = ?1", &draft_id.to_string())).await?;
        Ok(rows.into_iter().next())
    }

    /// Every service, oldest first.
    ///
    /// # Errors
    /// The database cannot be read, or a service is damaged.
    pub async fn list(&self) -> Result<Vec<Service>, Error> {
        self.store.lazily(|tx| services(tx, "?1 = ''", "")).await
    }

    /// The definition of a version that callers may have been promised, with its digest. `None` for a paused version:
    /// no run of it starts.
    ///
    /// # Errors
    /// The database cannot be read, or the definition is damaged.
    pub async fn published(
        &self,
        endpoint_id: EndpointId,
        version: u32,
    ) -> Result<Option<(Definition, Sha256Digest)>, Error> {
        self.store
            .lazily(move |tx| {
                let row: Option<String> = tx
                    .prepare_cached(
                        "SELECT definition FROM service_version
                         WHERE endpoint_id = ?1 AND version = ?2 AND paused IS NULL",
                    )?
                    .query_row(params![endpoint_id.to_string(), version], |row| row.get(0))
                    .optional()?;
                let Some(json) = row else { return Ok(None) };
                let definition: Definition = read(&json, "a service version")?;
                // Computed anew: the digest must be that of the definition that would be executed, not of a column.
                let digest = definition.digest();
                Ok(Some((definition, digest)))
            })
            .await
    }

    /// The versions of a service that were published, newest first, up to [`MAX_SHOWN_VERSIONS`].
    ///
    /// # Errors
    /// The database cannot be read, or a version is damaged.
    pub async fn versions(&self, endpoint_id: EndpointId) -> Result<Vec<Version>, Error> {
        let sql = "SELECT version, definition, checks, published_at, paused FROM service_version
             WHERE endpoint_id = ?1 AND published_at IS NOT NULL ORDER BY version DESC LIMIT ?2";
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(sql)?;
                let mut rows = statement.query(params![endpoint_id.to_string(), MAX_SHOWN_VERSIONS])?;
                let mut versions = Vec::new();
                while let Some(row) = rows.next()? {
                    versions.push(version(row, 0)?);
                }
                Ok(versions)
            })
            .await
    }

    /// The same, for a run that has not been taken: none of a service that was removed or moved, whatever a gateway offers.
    ///
    /// # Errors
    /// The database cannot be read, or the definition is damaged.
    pub async fn offered(
        &self,
        endpoint_id: EndpointId,
        version: u32,
    ) -> Result<Option<(Definition, Sha256Digest)>, Error> {
        let sql = "SELECT 1 FROM service WHERE endpoint_id = ?1 AND removed_at IS NULL";
        let id = endpoint_id.to_string();
        let is_there = self.store.lazily(move |tx| Ok(tx.prepare_cached(sql)?.exists([id])?)).await?;
        if is_there { self.published(endpoint_id, version).await } else { Ok(None) }
    }

    /// The folder that a version was published with; `None` for a version of before, and for one that is not there.
    ///
    /// # Errors
    /// The database cannot be read, or what is kept of the checks is damaged.
    pub async fn folder(&self, endpoint_id: EndpointId, version: u32) -> Result<Option<FolderIdentity>, Error> {
        self.store.lazily(move |tx| folder(tx, endpoint_id, version)).await
    }

    /// The same, and the folders of all other published services, by their newest versions.
    ///
    /// # Errors
    /// The database cannot be read, or what is kept of the checks is damaged.
    pub async fn folders(
        &self,
        endpoint_id: EndpointId,
        version: u32,
    ) -> Result<(Option<FolderIdentity>, Vec<PathBuf>), Error> {
        self.store
            .lazily(move |tx| {
                let mut newest = tx.prepare_cached(
                    "SELECT v.checks FROM service_version v JOIN (
                         SELECT endpoint_id, max(version) AS version FROM service_version
                         WHERE published_at IS NOT NULL AND endpoint_id <> ?1 GROUP BY endpoint_id) newest
                     USING (endpoint_id, version) JOIN service s USING (endpoint_id)
                     WHERE s.unpublished_at IS NULL AND s.removed_at IS NULL",
                )?;
                let mut rows = newest.query([endpoint_id.to_string()])?;
                let mut others = Vec::new();
                while let Some(row) = rows.next()? {
                    let checks: CheckReport = read(&row.get::<_, String>(0)?, "the checks of a service")?;
                    others.extend(checks.folder.map(|folder| folder.real_path));
                }
                Ok((folder(tx, endpoint_id, version)?, others))
            })
            .await
    }

    /// Notes the folder of a version that was published before folders were noted, or its device's new number.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn set_folder(
        &self,
        endpoint_id: EndpointId,
        version: u32,
        folder: &FolderIdentity,
    ) -> Result<(), Error> {
        let folder = text(folder);
        let sql = "UPDATE service_version SET checks = json_set(checks, '$.folder', json(?3))
                   WHERE endpoint_id = ?1 AND version = ?2";
        self.store
            .durably(move |tx| {
                tx.execute(sql, params![endpoint_id.to_string(), version, folder])?;
                Ok(())
            })
            .await
    }

    /// Freezes a draft under the next number, and chooses the endpoint if there is none yet.
    ///
    /// # Errors
    /// The database cannot be read or written, or the endpoint or the newest digest of the service is damaged.
    pub async fn freeze(
        &self,
        draft_id: DraftId,
        definition: &Definition,
        checks: &CheckReport,
    ) -> Result<FreezeOutcome, Error> {
        let (digest, definition, checks) = (definition.digest(), text(definition), text(checks));
        let frozen = self.store.durably(move |tx| freeze(tx, draft_id, digest, &definition, &checks)).await;
        self.store.publications.send_replace(());
        frozen
    }

    /// Changes with each frozen version.
    pub fn publications(&self) -> watch::Receiver<()> {
        self.store.publications.subscribe()
    }

    /// How many runs each service may execute at once, by its newest version. A damaged one is left out.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn concurrency(&self) -> Result<Vec<(EndpointId, u32)>, Error> {
        self.store
            .lazily(|tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT endpoint_id, max(version),
                         iif(json_valid(v.definition), v.definition ->> '$.limits.concurrency', NULL)
                     FROM service_version v JOIN service s USING (endpoint_id) WHERE s.removed_at IS NULL
                     GROUP BY endpoint_id",
                )?;
                let mut rows = statement.query([])?;
                let mut limits = Vec::new();
                while let Some(row) = rows.next()? {
                    if let Some(concurrency) = row.get(2)? {
                        limits.push((id(&row.get::<_, String>(0)?)?, concurrency));
                    }
                }
                Ok(limits)
            })
            .await
    }

    /// Records that the gateway published a frozen version.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn confirm(&self, frozen: &FrozenVersion, published_at: Timestamp) -> Result<(), Error> {
        let FrozenVersion { endpoint_id, version, .. } = *frozen;
        self.store
            .durably(move |tx| {
                let endpoint_id = endpoint_id.to_string();
                tx.execute(
                    "UPDATE service_version SET published_at = ?3 WHERE endpoint_id = ?1 AND version = ?2",
                    params![endpoint_id, version, published_at.to_string()],
                )?;
                tx.execute("UPDATE service SET unpublished_at = NULL WHERE endpoint_id = ?1", [endpoint_id])?;
                Ok(())
            })
            .await
    }

    /// Releases the number of a frozen version that the gateway did not publish.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn thaw(&self, frozen: &FrozenVersion) -> Result<(), Error> {
        let FrozenVersion { endpoint_id, version, .. } = *frozen;
        self.store
            .durably(move |tx| {
                tx.execute(
                    "DELETE FROM service_version WHERE endpoint_id = ?1 AND version = ?2 AND published_at IS NULL",
                    params![endpoint_id.to_string(), version],
                )?;
                Ok(())
            })
            .await
    }
}

fn freeze(
    tx: &Transaction<'_>,
    draft_id: DraftId,
    digest: Sha256Digest,
    definition: &str,
    checks: &str,
) -> Result<FreezeOutcome, Error> {
    let Some(endpoint_id) = choose_endpoint(tx, draft_id)? else { return Ok(FreezeOutcome::Gone) };
    let newest: Option<(u32, String, bool)> = tx
        .query_row(
            "SELECT version, digest, published_at IS NOT NULL FROM service_version
             WHERE endpoint_id = ?1 AND version > 0 ORDER BY version DESC LIMIT 1",
            [endpoint_id.to_string()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let version = match newest {
        Some((version, same, _)) if same == digest.to_string() => {
            // Publishing the same definition again ends the pause: its owner has looked at the reason, and the folder is
            // the one of the newest checks.
            tx.execute(
                "UPDATE service_version SET paused = NULL, checks = ?3 WHERE endpoint_id = ?1 AND version = ?2",
                params![endpoint_id.to_string(), version, checks],
            )?;
            return Ok(FreezeOutcome::Frozen(FrozenVersion { endpoint_id, version, digest }));
        }
        Some((version, other, false)) => {
            let digest = other.parse().map_err(|_| Error::damaged("a digest")(other))?;
            return Ok(FreezeOutcome::Unsettled(FrozenVersion { endpoint_id, version, digest }));
        }
        Some((version, _, true)) => version + 1,
        None => 1,
    };
    tx.execute(
        "INSERT INTO service_version (endpoint_id, version, digest, definition, checks) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![endpoint_id.to_string(), version, digest.to_string(), definition, checks],
    )?;
    Ok(FreezeOutcome::Frozen(FrozenVersion { endpoint_id, version, digest }))
}

/// The identifier of a service for callers, chosen now if it has none yet; `None` if there is no such service.
pub(super) fn choose_endpoint(tx: &Transaction<'_>, draft_id: DraftId) -> Result<Option<EndpointId>, Error> {
    let draft_id = draft_id.to_string();
    let sql = "SELECT endpoint_id FROM service WHERE draft_id = ?1 AND removed_at IS NULL";
    let chosen: Option<Option<String>> = tx.query_row(sql, [&draft_id], |row| row.get(0)).optional()?;
    match chosen {
        None => Ok(None),
        Some(Some(endpoint)) => id(&endpoint).map(Some),
        Some(None) => {
            let endpoint_id = EndpointId::new();
            let sql = "UPDATE service SET endpoint_id = ?2 WHERE draft_id = ?1";
            tx.execute(sql, params![draft_id, endpoint_id.to_string()])?;
            Ok(Some(endpoint_id))
        }
    }
}

fn services(tx: &Transaction<'_>, filter: &str, value: &str) -> Result<Vec<Service>, Error> {
    let sql = format!(
        "SELECT s.draft_id, s.app_id, s.endpoint_id, s.definition, s.checks, s.created_at, s.changed_at,
                v.version, v.definition, v.checks, v.published_at, v.paused
         FROM service s LEFT JOIN service_version v ON v.endpoint_id = s.endpoint_id AND s.unpublished_at IS NULL
             AND v.version =
             (SELECT max(version) FROM service_version
              WHERE endpoint_id = s.endpoint_id AND published_at IS NOT NULL)
         WHERE {filter} AND s.removed_at IS NULL ORDER BY s.draft_id"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([value])?;
    let mut services = Vec::new();
    while let Some(row) = rows.next()? {
        services.push(service(row)?);
    }
    Ok(services)
}

fn service(row: &Row<'_>) -> Result<Service, Error> {
    let column = |n| row.get::<_, String>(n);
    let maybe = |n| row.get::<_, Option<String>>(n);
    let published = row.get::<_, Option<u32>>(7)?.map(|_| version(row, 7)).transpose()?;
    Ok(Service {
        draft_id: id(&column(0)?)?,
        app_id: id(&column(1)?)?,
        endpoint_id: maybe(2)?.as_deref().map(id).transpose()?,
        draft: read(&column(3)?, "a draft")?,
        checks: maybe(4)?.as_deref().map(|json| read(json, "the checks of a service")).transpose()?,
        created_at: id(&column(5)?)?,
        changed_at: id(&column(6)?)?,
        published,
    })
}

/// A version whose columns begin at `first`.
fn version(row: &Row<'_>, first: usize) -> Result<Version, Error> {
    Ok(Version {
        version: row.get(first)?,
        definition: read(&row.get::<_, String>(first + 1)?, "a service version")?,
        checks: read(&row.get::<_, String>(first + 2)?, "the checks of a service")?,
        published_at: row.get::<_, Option<String>>(first + 3)?.as_deref().map(id).transpose()?,
        paused: row.get(first + 4)?,
    })
}

fn folder(tx: &Transaction<'_>, endpoint_id: EndpointId, version: u32) -> Result<Option<FolderIdentity>, Error> {
    let sql = "SELECT checks FROM service_version WHERE endpoint_id = ?1 AND version = ?2";
    let key = params![endpoint_id.to_string(), version];
    let row: Option<String> = tx.prepare_cached(sql)?.query_row(key, |row| row.get(0)).optional()?;
    let checks: Option<CheckReport> = row.map(|json| read(&json, "the checks of a service")).transpose()?;
    Ok(checks.and_then(|checks| checks.folder))
}

pub(super) fn id<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|error: T::Err| Error::damaged("a service")(error.to_string()))
}

pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .expect("definitions, reports and inputs are text, numbers and lists, which JSON can hold")
}

fn read<T: DeserializeOwned>(json: &str, what: &'static str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::damaged(what)(error.to_string()))
}
