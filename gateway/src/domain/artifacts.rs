//! Artifacts of callers' runs: which are there, and their bytes.

use bytes::Bytes;
use deskgate_protocol::file::{Artifact, ArtifactState};
use deskgate_protocol::{ApplicationId, ArtifactId, RunId};
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use super::access::Caller;
use super::quota::Quota;
use super::refusal::Refusal;
use super::runs::find;
use crate::storage::{ObjectStorage, StorageError};
use crate::store::Store;

/// Downloads of one application that may be under way at once on one gateway: those of others and of devices have room beside them.
const MAX_DOWNLOADS_PER_APPLICATION: usize = 64;

/// Reads artifacts.
#[derive(Clone)]
pub struct ArtifactService {
    store: Store,
    storage: ObjectStorage,
    downloads: Quota<ApplicationId>,
}

impl ArtifactService {
    /// Reads bytes from `storage`.
    pub fn new(store: Store, storage: ObjectStorage) -> Self {
        Self { store, storage, downloads: Quota::new(MAX_DOWNLOADS_PER_APPLICATION) }
    }

    /// An artifact of a run of this caller.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such run or artifact, or another application's or subject's, or of a service that the key may
    /// not use. [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::ArtifactMissing`]: its bytes never came.
    /// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn find(&self, caller: &Caller, run_id: RunId, artifact_id: ArtifactId) -> Result<Artifact, Refusal> {
        let run = find(&self.store, caller, run_id).await?.run;
        let found = run.artifacts.into_iter().find(|artifact| artifact.artifact_id == artifact_id);
        let artifact = found.ok_or(Refusal::NotFound)?;
        match artifact.state {
            ArtifactState::Stored => Ok(artifact),
            ArtifactState::Missing => Err(Refusal::ArtifactMissing),
        }
    }

    /// Bytes of an artifact, `length` of them from `first` on. The first of them are read before this returns.
    ///
    /// # Errors
    /// [`Refusal::ArtifactMissing`]: its bytes are not there any more. [`Refusal::StorageUnavailable`]: they cannot be read now.
    /// [`Refusal::TooManyDownloads`]: as many of the application are under way as may be.
    pub async fn read(
        &self,
        caller: &Caller,
        artifact: &Artifact,
        first: u64,
        length: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, StorageError>>, Refusal> {
        let permit = self.downloads.acquire(caller.app_id());
        let permit = permit.ok_or(Refusal::TooManyDownloads { limit: self.downloads.limit() })?;
        let opened = self.storage.open(artifact.artifact_id.uuid(), artifact.size, first).await;
        let bytes = opened.map_err(|error| {
            let is_missing = matches!(error, StorageError::Missing(_));
            let refusal = Refusal::from(error);
            if is_missing { Refusal::ArtifactMissing } else { refusal }
        })?;
        let mut left = length;
        let part = bytes.try_filter_map(move |mut piece| {
            let _held = &permit;
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= piece.len() as u64;
            ready(Ok((!piece.is_empty()).then_some(piece)))
        });
        Ok(part.boxed())
    }
}
