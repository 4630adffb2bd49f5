//! The objects that hold the bytes of files and artifacts: announced before their bytes come, released when nothing needs them.

use std::time::Duration;

use deskgate_protocol::{ApplicationId, DeviceId, RunId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Error, Store, commit, with_timeout};

/// An object that is about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Its number.
    pub object_id: Uuid,
    /// Whose it is.
    pub app_id: ApplicationId,
    /// The device and the run that hand it out; `None`: a caller uploads it.
    pub from: Option<(DeviceId, RunId)>,
    /// Bytes, at most.
    pub size: u64,
}

/// How many bytes may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageQuotas {
    /// Files and artifacts of one application, in bytes.
    pub bytes_per_application: u64,
    /// Artifacts of one device, in bytes.
    pub bytes_per_device: u64,
}

impl Default for StorageQuotas {
    fn default() -> Self {
        const GIB: u64 = 1024 * 1024 * 1024;
        Self { bytes_per_application: 5 * GIB, bytes_per_device: 20 * GIB }
    }
}

/// A quota of stored bytes that leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageFull {
    /// Bytes that are stored or on their way.
    pub used: u64,
    /// The most.
    pub limit: u64,
}

/// An object whose bytes are to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueObject {
    /// Its number.
    pub object_id: Uuid,
    /// Bytes, at most.
    pub size: u64,
}

/// An object that the database knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownObject {
    /// Its number.
    pub object_id: Uuid,
    /// Bytes; while it is on its way, at most.
    pub size: u64,
    /// Whether a file or an artifact needs all of its bytes.
    pub is_needed: bool,
}

/// How many bytes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Objects that are stored, and their bytes.
    pub stored: (u64, u64),
    /// Objects that are on their way, and their bytes at most.
    pub arriving: (u64, u64),
    /// Objects whose bytes are to be deleted, and how many.
    pub released: (u64, u64),
}

/// How long storing an object may take. Upkeep takes it for abandoned after twice as long.
pub const MAX_UPLOAD_DURATION: Duration = Duration::from_secs(3600);

/// What an object counts as at least: so many small ones are bounded too.
pub const MIN_COUNTED_BYTES: u64 = 64 * 1024;

/// Objects in one pass: few enough that each pass ends soon.
const MAX_OBJECTS_PER_PASS: i64 = 100;

pub(super) fn size_column(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

impl Store {
    /// Announces an object if the quotas leave room for it.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn begin_object(
        &self,
        object: &NewObject,
        quotas: &StorageQuotas,
    ) -> Result<Result<(), StorageFull>, Error> {
        self.note(with_timeout(self.announce_object(object, quotas)).await)
    }

    async fn announce_object(
        &self,
        object: &NewObject,
        quotas: &StorageQuotas,
    ) -> Result<Result<(), StorageFull>, Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await?;
        // One at a time, so that what others announce meanwhile is counted.
        let owners = [Some(object.app_id.uuid()), object.from.map(|(device_id, _)| device_id.uuid())];
        let lock = "-- objects::one_at_a_time
            SELECT pg_advisory_xact_lock(hashtextextended('deskgate objects' || chr(10) || $1::text, 0))";
        for owner in owners.into_iter().flatten() {
            transaction.query(lock, &[&owner.to_string()]).await?;
        }
        let used = "-- objects::used
            SELECT coalesce(sum(greatest(size, $3)) FILTER (WHERE app_id = $1), 0)::bigint,
                coalesce(sum(greatest(size, $3)) FILTER (WHERE device_id = $2), 0)::bigint
            FROM objects WHERE released_at IS NULL AND (app_id = $1 OR device_id = $2)";
        let least = size_column(MIN_COUNTED_BYTES);
        let row = transaction.query_one(used, &[&owners[0], &owners[1], &least]).await?;
        let used = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
        for (used, limit) in [(used(0)?, quotas.bytes_per_application), (used(1)?, quotas.bytes_per_device)] {
            if used.saturating_add(object.size.max(MIN_COUNTED_BYTES)) > limit {
                transaction.rollback().await?;
                client.give_back();
                return Ok(Err(StorageFull { used, limit }));
            }
        }
        let sql = "-- objects::begin
            INSERT INTO objects (object_id, app_id, device_id, run_id, size) VALUES ($1, $2, $3, $4, $5)";
        let run_id = object.from.map(|(_, run_id)| run_id.uuid());
        transaction
            .execute(sql, &[&object.object_id, &owners[0], &owners[1], &run_id, &size_column(object.size)])
            .await?;
        commit(transaction, "objects::begin").await?;
        client.give_back();
        Ok(Ok(()))
    }

    /// Lets go of an object that was not stored, of this run or of none; again, it changes nothing. One that is stored stays.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn release_object(&self, object_id: Uuid, run_id: Option<RunId>) -> Result<(), Error> {
        let sql = "-- objects::release
            UPDATE objects SET released_at = now()
            WHERE object_id = $1 AND run_id IS NOT DISTINCT FROM $2 AND stored_at IS NULL AND released_at IS NULL RETURNING 1";
        self.durable_rows(sql, &[&object_id, &run_id.map(|run_id| run_id.uuid())]).await.map(drop)
    }

    /// Lets go of objects that have been on their way for so long. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn release_abandoned_objects(&self, after: Duration) -> Result<usize, Error> {
        let sql = "-- objects::release_abandoned
            UPDATE objects SET released_at = now() WHERE object_id IN (
                SELECT object_id FROM objects
                WHERE stored_at IS NULL AND released_at IS NULL AND created_at <= now() - make_interval(secs => $1)
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            RETURNING 1";
        Ok(self.durable_rows(sql, &[&after.as_secs_f64(), &MAX_OBJECTS_PER_PASS]).await?.len())
    }

    /// Objects whose bytes are to be deleted, oldest first. Those that were never stored are due only `after` they were let go of: a
    /// chunk may still be on its way.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn due_objects(&self, after: Duration) -> Result<Vec<DueObject>, Error> {
        let sql = "-- objects::due
            SELECT object_id, size FROM objects o
            WHERE released_at IS NOT NULL AND (stored_at IS NOT NULL OR released_at <= now() - make_interval(secs => $2))
                AND NOT EXISTS (SELECT FROM files f WHERE f.file_id = o.object_id)
            ORDER BY released_at LIMIT $1";
        let due =
            |row: &Row| Ok(DueObject { object_id: row.try_get(0)?, size: row.try_get::<_, i64>(1)?.unsigned_abs() });
        self.durable_rows(sql, &[&MAX_OBJECTS_PER_PASS, &after.as_secs_f64()]).await?.iter().map(due).collect()
    }

    /// Forgets objects whose bytes are deleted. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_objects(&self, objects: &[Uuid]) -> Result<usize, Error> {
        let sql = "-- objects::forget
            DELETE FROM objects o WHERE object_id = ANY($1) AND released_at IS NOT NULL
                AND NOT EXISTS (SELECT FROM files f WHERE f.file_id = o.object_id) RETURNING 1";
        Ok(self.durable_rows(sql, &[&objects]).await?.len())
    }

    /// Objects in the order of their numbers, at most 1,000 behind `after`; those whose bytes are to be deleted are among them.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn known_objects(&self, after: Uuid) -> Result<Vec<KnownObject>, Error> {
        let sql = "-- objects::known
            SELECT object_id, size, stored_at IS NOT NULL AND released_at IS NULL AS needed FROM objects
            WHERE object_id > $1 ORDER BY object_id LIMIT 1000";
        let known = |row: &Row| {
            let (object_id, size) = (row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs());
            Ok(KnownObject { object_id, size, is_needed: row.try_get(2)? })
        };
        self.durable_rows(sql, &[&after]).await?.iter().map(known).collect()
    }

    /// How many bytes are stored, of all applications.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn stored_bytes(&self) -> Result<StoredBytes, Error> {
        let sql = "-- objects::stored_bytes
            SELECT CASE WHEN released_at IS NOT NULL THEN 'released' WHEN stored_at IS NULL THEN 'arriving' ELSE 'stored' END,
                count(*), sum(size)::bigint FROM objects GROUP BY 1";
        let mut bytes = StoredBytes::default();
        for row in self.durable_rows(sql, &[]).await? {
            let number = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
            let counted = (number(1)?, number(2)?);
            match row.try_get::<_, &str>(0)? {
                "released" => bytes.released = counted,
                "arriving" => bytes.arriving = counted,
                _ => bytes.stored = counted,
            }
        }
        Ok(bytes)
    }
}
