//! Files that callers upload, and which runs have them.

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::File;
use deskgate_protocol::{ApplicationId, FileId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::artifacts::HeldAttempt;
use super::columns::digest;
use super::objects::size_column;
use super::{Error, Page, PagePosition, Store};

/// A file whose bytes are stored.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Its identifier; the object's number.
    pub file_id: FileId,
    /// The application.
    pub app_id: ApplicationId,
    /// The subject.
    pub subject: String,
    /// Its name.
    pub name: String,
    /// What it is, as its caller says.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
    /// The digest of application, subject and Idempotency-Key, if it has one.
    pub identity: Option<Sha256Digest>,
    /// The digest of what was uploaded.
    pub fingerprint: Sha256Digest,
    /// How long it is kept unless a run has it.
    pub ttl: Duration,
}

/// What became of an upload.
#[derive(Clone, Debug)]
pub enum FileCreation {
    /// The file is there.
    Created(File),
    /// The same request made a file before. The new bytes are released.
    Known {
        /// That file.
        file: File,
        /// The digest of what was uploaded then.
        fingerprint: Sha256Digest,
    },
    /// It took so long that it counts as abandoned.
    Abandoned,
}

/// What came of the wish to delete a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDeletion {
    /// It is gone.
    Deleted,
    /// A run has it.
    InUse,
    /// There is no such file.
    NoFile,
}

/// The bytes of a run's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileObject {
    /// The object's number.
    pub object_id: Uuid,
    /// Bytes.
    pub size: u64,
}

const FILE_COLUMNS: &str = "f.file_id, f.name, f.media_type, f.created_at, o.size, o.sha256,
    CASE WHEN NOT EXISTS (SELECT FROM run_files h WHERE h.file_id = f.file_id)
        THEN f.expires_at END AS expires_at";

/// Files that are due in one statement.
const MAX_FILES_PER_PASS: i64 = 500;

impl Store {
    /// Makes a file of an object whose bytes are stored.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. Whether the file was made is then not known.
    pub async fn create_file(&self, file: &NewFile) -> Result<FileCreation, Error> {
        let sql = "-- files::create
            WITH made AS (
                INSERT INTO files (file_id, app_id, subject, name, media_type, expires_at, identity, fingerprint)
                SELECT $1, $2, $3, $4, $5, now() + make_interval(secs => $6), $7, $8 FROM objects
                WHERE object_id = $1 AND stored_at IS NULL AND released_at IS NULL FOR UPDATE
                ON CONFLICT (identity) DO NOTHING RETURNING created_at, expires_at
            ), stored AS (
                UPDATE objects SET size = $9, sha256 = $10, stored_at = now(),
                    released_at = CASE WHEN NOT EXISTS (SELECT FROM made) THEN now() END
                WHERE object_id = $1 AND stored_at IS NULL AND released_at IS NULL RETURNING object_id)
            SELECT (SELECT created_at FROM made), (SELECT expires_at FROM made), EXISTS (SELECT FROM stored)";
        let identity = file.identity.as_ref().map(|identity| identity.0.as_slice());
        let row = self
            .durable_one(
                sql,
                &[
                    &file.file_id.uuid(),
                    &file.app_id.uuid(),
                    &file.subject,
                    &file.name,
                    &file.media_type,
                    &file.ttl.as_secs_f64(),
                    &identity,
                    &file.fingerprint.0.as_slice(),
                    &size_column(file.size),
                    &file.sha256.0.as_slice(),
                ],
            )
            .await?;
        if let Some(created_at) = row.try_get::<_, Option<jiff::Timestamp>>(0)? {
            return Ok(FileCreation::Created(File {
                file_id: file.file_id,
                name: file.name.clone(),
                media_type: file.media_type.clone(),
                size: file.size,
                sha256: file.sha256,
                created_at: created_at.into(),
                expires_at: Some(row.try_get::<_, jiff::Timestamp>(1)?.into()),
            }));
        }
        let known = match (row.try_get(2)?, file.identity) {
            (true, Some(identity)) => self.file_of_request(identity).await?,
            _ => None,
        };
        Ok(known.map_or(FileCreation::Abandoned, |(file, fingerprint)| FileCreation::Known { file, fingerprint }))
    }

    /// The file that a request made before.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn file_of_request(&self, identity: Sha256Digest) -> Result<Option<(File, Sha256Digest)>, Error> {
        let sql = format!(
            "-- files::of_request
            SELECT {FILE_COLUMNS}, f.fingerprint FROM files f JOIN objects o ON o.object_id = f.file_id WHERE f.identity = $1"
        );
        let row = self.durable_opt(&sql, &[&identity.0.as_slice()]).await?;
        row.map(|row| Ok((file(&row)?, digest(row.try_get("fingerprint")?)?))).transpose()
    }

    /// These files of an application and subject, in no order; those that are not there are left out.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn files(&self, app_id: ApplicationId, subject: &str, files: &[FileId]) -> Result<Vec<File>, Error> {
        let sql = format!(
            "-- files::files
            SELECT {FILE_COLUMNS} FROM files f JOIN objects o ON o.object_id = f.file_id
            WHERE f.file_id = ANY($3) AND f.app_id = $1 AND f.subject = $2"
        );
        let ids: Vec<_> = files.iter().map(|id| id.uuid()).collect();
        self.durable_rows(&sql, &[&app_id.uuid(), &subject, &ids]).await?.iter().map(file).collect()
    }

    /// A page of the files of an application and subject, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn files_of_caller(
        &self,
        app_id: ApplicationId,
        subject: &str,
        before: Option<PagePosition>,
        limit: u32,
    ) -> Result<Page<File>, Error> {
        let sql = format!(
            "-- files::of_caller
            SELECT {FILE_COLUMNS} FROM files f JOIN objects o ON o.object_id = f.file_id
            WHERE f.app_id = $1 AND f.subject = $2 AND (f.created_at, f.file_id) < ($3, $4)
            ORDER BY f.created_at DESC, f.file_id DESC LIMIT $5"
        );
        let before = before.unwrap_or(PagePosition::LIST_START);
        let rows = self
            .durable_rows(&sql, &[&app_id.uuid(), &subject, &before.moment, &before.id, &i64::from(limit + 1)])
            .await?;
        let files = rows.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        Ok(Page::of(files, limit, |file| PagePosition { moment: file.created_at.0, id: file.file_id.uuid() }))
    }

    /// Deletes a file of an application and subject that no run has.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn delete_file(
        &self,
        app_id: ApplicationId,
        subject: &str,
        file_id: FileId,
    ) -> Result<FileDeletion, Error> {
        let sql = "-- files::delete
            WITH found AS (
                SELECT f.file_id, EXISTS (SELECT FROM run_files h WHERE h.file_id = f.file_id) AS held FROM files f
                WHERE f.file_id = $3 AND f.app_id = $1 AND f.subject = $2 FOR UPDATE
            ), gone AS (
                DELETE FROM files WHERE file_id IN (SELECT file_id FROM found WHERE NOT held) RETURNING file_id
            ), released AS (
                UPDATE objects SET released_at = now() WHERE object_id IN (SELECT file_id FROM gone))
            SELECT held FROM found";
        match self.durable_opt(sql, &[&app_id.uuid(), &subject, &file_id.uuid()]).await {
            // A run was given it after this statement had read the tables.
            Err(Error::StillReferenced(_)) => Ok(FileDeletion::InUse),
            Err(error) => Err(error),
            Ok(None) => Ok(FileDeletion::NoFile),
            Ok(Some(row)) if row.try_get(0)? => Ok(FileDeletion::InUse),
            Ok(Some(_)) => Ok(FileDeletion::Deleted),
        }
    }

    /// The bytes of a file of a run that this device executes in this attempt.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn file_of_run(&self, held: &HeldAttempt, file_id: FileId) -> Result<Option<FileObject>, Error> {
        let sql = "-- files::of_run
            SELECT o.object_id, o.size FROM runs r JOIN run_files h ON h.run_id = r.run_id AND h.file_id = $4
                JOIN objects o ON o.object_id = h.file_id
                JOIN devices d ON d.device_id = r.device_id AND d.revoked_at IS NULL
            WHERE r.run_id = $1 AND r.device_id = $2 AND r.attempt = $3 AND r.finished_at IS NULL";
        let (run_id, device_id) = (held.run_id.uuid(), held.device_id.uuid());
        let row = self.durable_opt(sql, &[&run_id, &device_id, &held.attempt_column(), &file_id.uuid()]).await?;
        row.map(|row| Ok(FileObject { object_id: row.try_get(0)?, size: row.try_get::<_, i64>(1)?.unsigned_abs() }))
            .transpose()
    }

    /// Deletes files that are due and that no run has; those that one has are looked at again in an hour. Returns how many were
    /// deleted.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn delete_due_files(&self) -> Result<usize, Error> {
        let sql = "-- files::delete_due
            WITH due AS (
                SELECT f.file_id, EXISTS (SELECT FROM run_files h WHERE h.file_id = f.file_id) AS held FROM files f
                WHERE f.expires_at <= now() ORDER BY f.expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
            ), kept AS (
                UPDATE files SET expires_at = now() + interval '1 hour' WHERE file_id IN (SELECT file_id FROM due WHERE held)
            ), gone AS (
                DELETE FROM files WHERE file_id IN (SELECT file_id FROM due WHERE NOT held) RETURNING file_id
            )
            UPDATE objects SET released_at = now() WHERE object_id IN (SELECT file_id FROM gone) RETURNING 1";
        match self.durable_rows(sql, &[&MAX_FILES_PER_PASS]).await {
            // A run was given one of them after this statement had read the tables: the next pass sees that.
            Err(Error::StillReferenced(_)) => Ok(0),
            done => Ok(done?.len()),
        }
    }
}

/// What an end of runs `gone` releases: their hold on files, which are deleted within the hour once no run has them, and their
/// artifacts' bytes.
pub(super) const RELEASE_SQL: &str = "let_go AS (
        DELETE FROM run_files WHERE run_id IN (SELECT run_id FROM gone)
    ), released AS (
        UPDATE objects SET released_at = now()
        WHERE run_id IN (SELECT run_id FROM gone) AND released_at IS NULL)";

fn file(row: &Row) -> Result<File, Error> {
    Ok(File {
        file_id: row.try_get::<_, Uuid>("file_id")?.into(),
        name: row.try_get("name")?,
        media_type: row.try_get("media_type")?,
        size: row.try_get::<_, i64>("size")?.unsigned_abs(),
        sha256: digest(row.try_get("sha256")?)?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        expires_at: row.try_get::<_, Option<jiff::Timestamp>>("expires_at")?.map(Into::into),
    })
}
