//! The content of a caller's ended runs.

use deskgate_protocol::RunId;

use super::access::Caller;
use super::refusal::Refusal;
use super::runs::find;
use crate::store::Store;
use crate::store::run_content::ContentDeletion;

/// Deletes the input and the result of an ended run of this caller; again, it changes nothing.
///
/// # Errors
/// [`Refusal::RunNotEnded`]: the run has not ended. [`Refusal::NotFound`]: no such run, or another application's or
/// subject's, or of a service that the key may not use. [`Refusal::RunPurged`]: the run ended and was deleted.
/// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
pub async fn delete(store: &Store, caller: &Caller, run_id: RunId) -> Result<(), Refusal> {
    let endpoints = caller.shown(None).unwrap_or_default();
    match store.delete_run_content(caller.app_id(), caller.subject(), run_id, &endpoints).await? {
        ContentDeletion::Deleted => Ok(()),
        ContentDeletion::NotEnded => Err(Refusal::RunNotEnded),
        // It says why there is none.
        ContentDeletion::NoRun => find(store, caller, run_id).await.and(Err(Refusal::NotFound)),
    }
}
