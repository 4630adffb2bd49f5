//! Drafts that their owner tries, as version 0 of their services.
//!
//! The gateway may offer a draft once, with exactly the input that the owner wrote: it cannot send text of its own to something
//! that was never published.

use deskgate_definition::{CheckReport, Definition};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Offer;
use deskgate_protocol::ids::{DraftId, EndpointId, RunId};
use deskgate_protocol::run::Input;
use deskgate_protocol::service::DRAFT_VERSION;
use rusqlite::{OptionalExtension, params};

use super::Error;
use super::services::{FrozenVersion, Services, choose_endpoint, id, text};

impl Services {
    /// Holds a draft ready for one run with this input, in place of the one that was tried before. `None`: there is no such
    /// service.
    ///
    /// # Errors
    /// The database cannot be read or written, or the service is damaged.
    pub async fn prepare_trial(
        &self,
        draft_id: DraftId,
        definition: &Definition,
        checks: &CheckReport,
        input: &Input,
    ) -> Result<Option<FrozenVersion>, Error> {
        let (digest, input) = (definition.digest(), digest_of(input));
        let (definition, checks) = (text(definition), text(checks));
        let prepared = self
            .store
            .durably(move |tx| {
                let Some(endpoint_id) = choose_endpoint(tx, draft_id)? else { return Ok(None) };
                tx.execute(
                    "INSERT OR REPLACE INTO service_version (endpoint_id, version, digest, definition, checks, trial_input)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![endpoint_id.to_string(), DRAFT_VERSION, digest.to_string(), definition, checks, input],
                )?;
                Ok(Some(FrozenVersion { endpoint_id, version: DRAFT_VERSION, digest }))
            })
            .await;
        self.store.publications.send_replace(());
        prepared
    }

    /// The run that a service's draft was last tried with.
    ///
    /// # Errors
    /// The database cannot be read, or the service is damaged.
    pub async fn last_trial(&self, endpoint_id: EndpointId) -> Result<Option<RunId>, Error> {
        let sql = "SELECT trial_run FROM service_version WHERE endpoint_id = ?1 AND version = ?2";
        let key = (endpoint_id.to_string(), DRAFT_VERSION);
        let found = self
            .store
            .lazily(move |tx| Ok(tx.query_row(sql, key, |row| row.get::<_, Option<String>>(0)).optional()?))
            .await?;
        found.flatten().as_deref().map(id).transpose()
    }

    /// Notes the run that a prepared draft is tried with. It then is this run's alone. False if it is another's, or if the input
    /// or the draft are others.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn claim_trial(&self, trial: &FrozenVersion, input: &Input, run_id: RunId) -> Result<bool, Error> {
        let (endpoint_id, digest, input) = (trial.endpoint_id.to_string(), trial.digest.to_string(), digest_of(input));
        let sql = "UPDATE service_version SET trial_run = ?5
             WHERE endpoint_id = ?1 AND version = ?2 AND digest = ?3 AND trial_input = ?4
                 AND (trial_run IS NULL OR trial_run = ?5)";
        self.store
            .durably(move |tx| {
                let claimed =
                    tx.execute(sql, params![endpoint_id, DRAFT_VERSION, digest, input, run_id.to_string()])?;
                Ok(claimed > 0)
            })
            .await
    }

    /// The same for a run that the gateway offers. A draft has no conversations.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn admits_trial(&self, offer: &Offer) -> Result<bool, Error> {
        let Offer { endpoint_id, endpoint_version: version, definition_sha256: digest, .. } = *offer;
        let trial = FrozenVersion { endpoint_id, version, digest };
        Ok(offer.conversation.is_none() && self.claim_trial(&trial, &offer.input, offer.run_id).await?)
    }
}

/// The digest of everything that is in an input.
fn digest_of(input: &Input) -> String {
    Sha256Digest::of(text(input).as_bytes()).to_string()
}
