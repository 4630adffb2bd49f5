//! What a run hands out: written down before the assistant hears of it, and then sent beside the run.

use std::path::PathBuf;

use deskgate_protocol::file::{Artifact, ArtifactState, MAX_RUN_ARTIFACT_BYTES, MAX_RUN_ARTIFACTS};
use deskgate_store::Artifacts;
use deskgate_store::artifacts::NoMoreArtifacts;
use deskgate_tools::deliver::{Outbox, TakenCopy};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::transfers::{HeldAttempt, Transfers};

/// The outbox of one attempt.
pub(super) struct RunOutbox {
    pub(super) transfers: Transfers,
    pub(super) artifacts: Artifacts,
    pub(super) held: HeldAttempt,
}

impl Outbox for RunOutbox {
    fn folder(&self) -> PathBuf {
        self.transfers.outbox_folder()
    }

    fn take(&self, copy: TakenCopy) -> BoxFuture<'static, Result<String, String>> {
        let (transfers, artifacts, held) = (self.transfers.clone(), self.artifacts.clone(), self.held);
        let TakenCopy { artifact_id, name, media_type, description, size, sha256 } = copy;
        let media_type = media_type.to_owned();
        let state = ArtifactState::Missing;
        let artifact = Artifact { artifact_id, name, media_type, description, size, sha256, state };
        async move {
            // Before it is written down, so that nobody can have sent it earlier.
            transfers.expect_one_more(held.run_id);
            let added = artifacts.add(held.run_id, held.attempt, artifact).await;
            match added {
                Ok(Ok(_)) => transfers.wake(),
                _ => transfers.one_less(held.run_id),
            }
            match added {
                Ok(Ok(name)) => Ok(name),
                Ok(Err(NoMoreArtifacts::Number)) => {
                    Err(format!("This run has handed out {MAX_RUN_ARTIFACTS} files, as many as it may."))
                }
                Ok(Err(NoMoreArtifacts::Bytes)) => {
                    Err(format!("The files that a run hands out have at most {MAX_RUN_ARTIFACT_BYTES} bytes together."))
                }
                Err(error) => {
                    tracing::error!(run_id = %held.run_id, %error, "what is handed out could not be written down");
                    Err("The file could not be handed out: the agent cannot write its journal.".to_owned())
                }
            }
        }
        .boxed()
    }
}
