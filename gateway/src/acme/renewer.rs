//! Manages the certificate: shows the newest one, and orders another in time.
//!
//! Every replica polls the database. One that finds the certificate due takes the turn, orders, and stores the new
//! certificate there; the others find it. After a failure the turn stays blocked for a while, and the old certificate
//! stays in use.

use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::RenewalError;
use super::challenge::ChallengeResponder;
use super::order::{self, FreshCertificate};
use crate::config::AcmeSettings;
use crate::encryption::DataCipher;
use crate::store::Store;
use crate::store::certificates::{CertificateScope, CertificateStatus, IssuedCertificate, NewCertificate};
use crate::tls::{self, ServerTls};

/// After so long beyond an order's time, in which the certificate is stored, the holder of the turn is gone.
const TURN_MARGIN: Duration = Duration::from_secs(60);
/// How often storing an issued certificate is tried, a poll apart: an authority accepts few orders.
const MAX_SAVE_ATTEMPTS: usize = 3;

/// Manages the certificate of one gateway.
pub struct CertificateRenewer {
    settings: AcmeSettings,
    subject: CertificateScope,
    store: Store,
    cipher: DataCipher,
    tls: ServerTls,
    /// The digest of the chain in use. Row numbers are no help: rows may be deleted, and the count then starts anew.
    shown: Option<Sha256Digest>,
    told: Option<String>,
    /// Whether this replica has the turn.
    ordering: bool,
}

impl CertificateRenewer {
    /// Shows the stored certificate, if there is one. A certificate that cannot be read or used is a line in the log.
    pub async fn new(settings: AcmeSettings, store: Store, cipher: DataCipher) -> Self {
        let tls = ServerTls::issued(Arc::new(ChallengeResponder::new(store.clone(), &settings.domains)));
        let subject =
            CertificateScope { directory_url: settings.directory_url.clone(), domains: settings.domains.join(",") };
        let mut renewer = Self { settings, subject, store, cipher, tls, shown: None, told: None, ordering: false };
        if let Err(error) = renewer.look().await {
            renewer.complain(&error.to_string());
        }
        renewer
    }

    /// The certificate in use.
    pub fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Renews it until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            match stop.run_until_cancelled(self.once()).await {
                Some(Ok(())) => {}
                Some(Err(error)) => self.complain(&error.to_string()),
                None => return self.leave().await,
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.settings.clocks.look) => {}
                () = self.tls.reload_requested() => {
                    if let Err(error) = self.store.end_pause(&self.subject, false).await {
                        self.complain(&error.to_string());
                    }
                }
            }
        }
    }

    /// Gives the turn back, so that the next replica need not wait until it has expired.
    async fn leave(&self) {
        if self.ordering
            && let Err(error) = self.store.end_pause(&self.subject, true).await
        {
            tracing::debug!(%error, "the turn to order a certificate runs out by itself");
        }
    }

    async fn once(&mut self) -> Result<(), RenewalError> {
        if !self.look().await?.due {
            return Ok(());
        }
        let Some(failures) = self.store.take_turn(&self.subject, order::ORDER_TIMEOUT + TURN_MARGIN).await? else {
            return Ok(());
        };
        tracing::info!(domains = self.subject.domains, "ordering a certificate");
        self.ordering = true;
        let noted = match self.order().await {
            Ok(()) => Ok(()),
            Err(problem) => self.failed(&problem, failures).await,
        };
        self.ordering = false;
        noted?;
        self.look().await.map(drop)
    }

    /// Orders a certificate and stores it, or returns the reason of the failure.
    async fn order(&self) -> Result<(), String> {
        let ordered = order::order(&self.settings, &self.store, &self.cipher).await;
        let fresh = ordered.map_err(|error| error.to_string())?;
        let mut tries = 1;
        loop {
            match self.keep(&fresh).await {
                Ok(()) => return Ok(()),
                Err(error) if tries < MAX_SAVE_ATTEMPTS => {
                    tracing::warn!(%error, "what was issued could not be kept yet")
                }
                Err(error) => return Err(format!("what was issued could not be kept: {error}")),
            }
            tries += 1;
            tokio::time::sleep(self.settings.clocks.look).await;
        }
    }

    /// Shows the newest certificate, and returns its status.
    async fn look(&mut self) -> Result<CertificateStatus, RenewalError> {
        let standing = self.store.certificate(&self.subject).await?;
        if let Some(newest) = &standing.newest {
            self.show(newest)?;
        }
        let until = standing.newest.as_ref().map(|newest| format!("valid until {}", newest.valid_until));
        let mut text = until.unwrap_or_else(|| "none was issued yet".to_owned());
        match &standing.problem {
            Some(problem) => text = format!("{text}; the last order failed: {problem}"),
            None => self.told = None,
        }
        self.tls.set_status(text);
        Ok(standing)
    }

    fn show(&mut self, issued: &IssuedCertificate) -> Result<(), RenewalError> {
        let digest = Some(Sha256Digest::of(issued.chain.as_bytes()));
        if self.shown == digest {
            return Ok(());
        }
        let key = self.cipher.decrypt(&issued.sealed_key, &self.place())?;
        let config = tls::serving(certificates(&issued.chain)?, PrivateKeyDer::from_pem_slice(&key)?)?;
        self.tls.show(config, Some(issued.valid_until.0));
        self.shown = digest;
        tracing::info!(domains = self.subject.domains, valid_until = %issued.valid_until, "a certificate is shown");
        Ok(())
    }

    async fn keep(&self, fresh: &FreshCertificate) -> Result<(), RenewalError> {
        let (valid_from, valid_until) = validity(&fresh.chain)?;
        let sealed_key = &self.cipher.encrypt(fresh.key.as_bytes(), &self.place());
        let new = NewCertificate { chain: &fresh.chain, sealed_key, valid_from, valid_until };
        Ok(self.store.keep_certificate(&self.subject, &new).await?)
    }

    async fn failed(&self, problem: &str, failures: u32) -> Result<(), RenewalError> {
        let pause = self.settings.clocks.pause(failures);
        tracing::error!(problem, again_in_s = pause.as_secs(), "no certificate was issued");
        Ok(self.store.note_failed_order(&self.subject, problem, pause).await?)
    }

    /// Logs a failure once, not in each round.
    fn complain(&mut self, problem: &str) {
        if self.told.as_deref() != Some(problem) {
            tracing::error!(problem, "the certificate cannot be looked after");
            self.tls.set_status(format!("cannot be looked after: {problem}"));
            self.told = Some(problem.to_owned());
        }
    }

    /// The encryption context of the private key.
    fn place(&self) -> String {
        format!("key {} {}", self.subject.directory_url, self.subject.domains)
    }
}

fn certificates(chain: &str) -> Result<Vec<CertificateDer<'static>>, RenewalError> {
    Ok(CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?)
}

/// The time from when until when a chain's first certificate is valid, in seconds since 1970.
fn validity(chain: &str) -> Result<(i64, i64), RenewalError> {
    let first = CertificateDer::from_pem_slice(chain.as_bytes())?;
    let validity = Certificate::from_der(&first)?.tbs_certificate.validity;
    let seconds = |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Ok((seconds(validity.not_before), seconds(validity.not_after)))
}
