//! Artifacts: files that a device's runs hand out. A run's record lists them; their bytes are objects of the same numbers.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{Artifact, ArtifactState, MAX_RUN_ARTIFACTS};
use deskgate_protocol::run::EventType;
use deskgate_protocol::{ApplicationId, ArtifactId, DeviceId, EventId, RunId};
use tokio_postgres::Row;

use super::columns::json;
use super::objects::size_column;
use super::{Error, Store};
use crate::notify::Topic;

/// An attempt of a run, as a device that executes it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAttempt {
    /// The device.
    pub device_id: DeviceId,
    /// The run.
    pub run_id: RunId,
    /// The attempt.
    pub attempt: u32,
}

impl HeldAttempt {
    pub(super) fn attempt_column(&self) -> i32 {
        i32::try_from(self.attempt).unwrap_or(i32::MAX)
    }
}

/// What is there of an artifact's run.
#[derive(Clone, Debug)]
pub struct ArtifactPlace {
    /// The run's application.
    pub app_id: ApplicationId,
    /// The run's artifacts.
    pub artifacts: Vec<Artifact>,
    /// Bytes of those of its artifacts that are on their way, except this one.
    pub arriving_bytes: u64,
    /// The bytes that were announced of this one, if it is on its way.
    pub begun: Option<u64>,
}

impl Store {
    /// The place for an artifact; `None`: the device does not execute this attempt any more.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn artifact_place(
        &self,
        held: &HeldAttempt,
        artifact_id: ArtifactId,
    ) -> Result<Option<ArtifactPlace>, Error> {
        let sql = "-- artifacts::place
            SELECT r.app_id, r.artifacts, (SELECT coalesce(sum(o.size), 0)::bigint FROM objects o
                    WHERE o.run_id = r.run_id AND o.stored_at IS NULL AND o.released_at IS NULL AND o.object_id <> $4) AS arriving,
                (SELECT o.size FROM objects o WHERE o.object_id = $4 AND o.run_id = r.run_id AND o.stored_at IS NULL
                    AND o.released_at IS NULL) AS begun
            FROM runs r JOIN devices d ON d.device_id = r.device_id AND d.revoked_at IS NULL
            WHERE r.run_id = $1 AND r.device_id = $2 AND r.attempt = $3 AND r.started_at IS NOT NULL AND r.finished_at IS NULL";
        let (run_id, device_id) = (held.run_id.uuid(), held.device_id.uuid());
        let row = self.durable_opt(sql, &[&run_id, &device_id, &held.attempt_column(), &artifact_id.uuid()]).await?;
        let place = |row: Row| {
            Ok(ArtifactPlace {
                app_id: row.try_get::<_, uuid::Uuid>("app_id")?.into(),
                artifacts: json(&row, "artifacts")?.unwrap_or_default(),
                arriving_bytes: row.try_get::<_, i64>("arriving")?.unsigned_abs(),
                begun: row.try_get::<_, Option<i64>>("begun")?.map(i64::unsigned_abs),
            })
        };
        row.map(place).transpose()
    }

    /// Lists an artifact in its run's record, with its event; one whose bytes are stored takes its object. False: the device does
    /// not execute this attempt any more, its bytes count as abandoned, or the run lists it already or as many as it may.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. Whether it is listed is then not known.
    pub async fn add_artifact(&self, held: &HeldAttempt, artifact: &Artifact) -> Result<bool, Error> {
        let sql = "-- artifacts::add
            WITH stored AS (
                UPDATE objects SET size = $5, sha256 = $6, stored_at = now()
                WHERE object_id = $4 AND run_id = $1 AND stored_at IS NULL AND released_at IS NULL AND $7
                    AND EXISTS (SELECT FROM runs r WHERE r.run_id = $1 AND r.device_id = $2 AND r.attempt = $3
                        AND r.finished_at IS NULL FOR UPDATE)
                RETURNING object_id
            ), listed AS (
                UPDATE runs r SET last_sequence = last_sequence + 1, artifacts = (
                    SELECT json_agg(a) FROM (
                        SELECT json_array_elements(coalesce(r.artifacts, '[]')) AS a UNION ALL SELECT $8::text::json) every)
                WHERE r.run_id = $1 AND r.device_id = $2 AND r.attempt = $3 AND r.finished_at IS NULL
                    AND (NOT $7 OR EXISTS (SELECT FROM stored))
                    AND json_array_length(coalesce(r.artifacts, '[]')) < $12
                    AND NOT EXISTS (SELECT FROM json_array_elements(coalesce(r.artifacts, '[]')) a
                        WHERE a->>'artifact_id' = $9)
                RETURNING run_id, last_sequence)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, $10, $11, $8::text::json FROM listed RETURNING run_id";
        let text = serde_json::to_string(artifact)?;
        let sha256: Sha256Digest = artifact.sha256;
        let row = self
            .durable_opt(
                sql,
                &[
                    &held.run_id.uuid(),
                    &held.device_id.uuid(),
                    &held.attempt_column(),
                    &artifact.artifact_id.uuid(),
                    &size_column(artifact.size),
                    &sha256.0.as_slice(),
                    &(artifact.state == ArtifactState::Stored),
                    &text,
                    &artifact.artifact_id.to_string(),
                    &EventId::new().uuid(),
                    &EventType::ArtifactCreated.as_str(),
                    &i32::try_from(MAX_RUN_ARTIFACTS).unwrap_or(i32::MAX),
                ],
            )
            .await?;
        if row.is_some() {
            self.notifier().notify(Topic::Run(held.run_id));
        }
        Ok(row.is_some())
    }
}
