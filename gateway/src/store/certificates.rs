//! Certificates from a certificate authority: the turn to order one, and the data that all replicas share.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use tokio_postgres::Row;

use super::{Error, Store};

/// The scope of a certificate: the authority's directory, and the domains, sorted, with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateScope {
    /// The address of the authority's directory.
    pub directory_url: String,
    /// The domains.
    pub domains: String,
}

/// The status of the certificate for some domains.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// The newest certificate, if there is one.
    pub newest: Option<IssuedCertificate>,
    /// Whether it is due for replacement, or missing.
    pub due: bool,
    /// Why the last order failed, unless one succeeded afterwards.
    pub problem: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug)]
pub struct IssuedCertificate {
    /// The certificate and those between it and its root, PEM.
    pub chain: String,
    /// Its private key, encrypted.
    pub sealed_key: Vec<u8>,
    /// When it ends.
    pub valid_until: Timestamp,
}

/// A certificate that was just issued.
#[derive(Clone, Copy, Debug)]
pub struct NewCertificate<'a> {
    /// The certificate and those between it and its root, PEM.
    pub chain: &'a str,
    /// Its private key, encrypted.
    pub sealed_key: &'a [u8],
    /// When it begins, in seconds since 1970.
    pub valid_from: i64,
    /// When it ends, in seconds since 1970.
    pub valid_until: i64,
}

/// A certificate is replaced when a third of its life is left, or when there is none.
const RENEWAL_DUE_CONDITION: &str = "(c.chain IS NULL OR now() > c.valid_until - (c.valid_until - c.valid_from) / 3)";

impl Store {
    /// The status of a certificate.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn certificate(&self, subject: &CertificateScope) -> Result<CertificateStatus, Error> {
        let sql = format!(
            "-- certificates::standing
            SELECT chain, sealed_key, valid_until, problem, {RENEWAL_DUE_CONDITION} AS due
            FROM acme_certificates c WHERE directory_url = $1 AND domains = $2"
        );
        match self.durable_opt(&sql, &[&subject.directory_url, &subject.domains]).await? {
            Some(row) => standing(&row),
            None => Ok(CertificateStatus { newest: None, due: true, problem: None }),
        }
    }

    /// Takes the turn to order a certificate that is due: other replicas do not get it for `lease`. Returns how many
    /// orders failed since the last success; `None` while another replica has the turn or after a failure.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn take_turn(&self, subject: &CertificateScope, lease: Duration) -> Result<Option<u32>, Error> {
        let sql = format!(
            "-- certificates::take_turn
            INSERT INTO acme_certificates AS c (directory_url, domains, next_turn)
            VALUES ($1, $2, now() + make_interval(secs => $3))
            ON CONFLICT (directory_url, domains) DO UPDATE SET next_turn = excluded.next_turn, ordering = true
            WHERE c.next_turn <= now() AND {RENEWAL_DUE_CONDITION}
            RETURNING failures"
        );
        let row = self.durable_opt(&sql, &[&subject.directory_url, &subject.domains, &lease.as_secs_f64()]).await?;
        let failures = row.map(|row| row.try_get::<_, i32>(0)).transpose()?;
        Ok(failures.map(|count| u32::try_from(count).unwrap_or(0)))
    }

    /// Stores a new certificate, for every replica. The next one is not ordered within the hour: one that is due on
    /// arrival, by a clock that is far ahead, would otherwise be ordered again for ever.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn keep_certificate(&self, subject: &CertificateScope, new: &NewCertificate<'_>) -> Result<(), Error> {
        let sql = "-- certificates::keep
            UPDATE acme_certificates SET chain = $3, sealed_key = $4, valid_from = to_timestamp($5::bigint),
                valid_until = to_timestamp($6::bigint), version = version + 1, ordering = false,
                next_turn = now() + interval '1 hour', failures = 0, problem = NULL
            WHERE directory_url = $1 AND domains = $2";
        let NewCertificate { chain, sealed_key, valid_from, valid_until } = new;
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&subject.directory_url, &subject.domains, chain, sealed_key, valid_from, valid_until];
        self.durable_rows(sql, &params).await.map(drop)
    }

    /// Records why an order failed; no replica tries again before `pause` is over.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_failed_order(
        &self,
        subject: &CertificateScope,
        problem: &str,
        pause: Duration,
    ) -> Result<(), Error> {
        let sql = "-- certificates::note_failure
            UPDATE acme_certificates SET failures = failures + 1, problem = $3, ordering = false,
                next_turn = now() + make_interval(secs => $4)
            WHERE directory_url = $1 AND domains = $2";
        self.durable_rows(sql, &[&subject.directory_url, &subject.domains, &problem, &pause.as_secs_f64()])
            .await
            .map(drop)
    }

    /// Ends the pause after an order, or a stopping replica's own turn; never another's turn.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn end_pause(&self, subject: &CertificateScope, own_turn: bool) -> Result<(), Error> {
        let sql = "-- certificates::end_pause
            UPDATE acme_certificates SET next_turn = now(), ordering = false
            WHERE directory_url = $1 AND domains = $2 AND (NOT ordering OR $3)";
        self.durable_rows(sql, &[&subject.directory_url, &subject.domains, &own_turn]).await.map(drop)
    }

    /// Stores the answer to an authority's challenge for a while, and deletes expired ones.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn keep_challenge(&self, domain: &str, digest: &[u8], patience: Duration) -> Result<(), Error> {
        let sql = "-- certificates::keep_challenge
            WITH gone AS (DELETE FROM acme_challenges WHERE expires_at < now() AND domain <> $1)
            INSERT INTO acme_challenges (domain, digest, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))
            ON CONFLICT (domain) DO UPDATE SET digest = excluded.digest, expires_at = excluded.expires_at";
        self.durable_rows(sql, &[&domain, &digest, &patience.as_secs_f64()]).await.map(drop)
    }

    /// The answer to an authority's challenge for a domain.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn challenge(&self, domain: &str) -> Result<Option<Vec<u8>>, Error> {
        let sql = "-- certificates::challenge
            SELECT digest FROM acme_challenges WHERE domain = $1 AND expires_at > now()";
        let row = self.durable_opt(sql, &[&domain]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// The account with an authority, encrypted.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn acme_account(&self, directory_url: &str, contact: &str) -> Result<Option<Vec<u8>>, Error> {
        let sql = "-- certificates::account
            SELECT sealed FROM acme_accounts WHERE directory_url = $1 AND contact = $2";
        let row = self.durable_opt(sql, &[&directory_url, &contact]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Stores a new account, or deletes one that the authority does not know any more (`None`).
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn set_acme_account(
        &self,
        directory_url: &str,
        contact: &str,
        sealed: Option<&[u8]>,
    ) -> Result<(), Error> {
        match sealed {
            Some(sealed) => {
                let sql = "-- certificates::keep_account
                    INSERT INTO acme_accounts (directory_url, contact, sealed) VALUES ($1, $2, $3)
                    ON CONFLICT (directory_url, contact) DO UPDATE SET sealed = excluded.sealed";
                self.durable_rows(sql, &[&directory_url, &contact, &sealed]).await.map(drop)
            }
            None => {
                let sql = "-- certificates::forget_account
                    DELETE FROM acme_accounts WHERE directory_url = $1 AND contact = $2";
                self.durable_rows(sql, &[&directory_url, &contact]).await.map(drop)
            }
        }
    }
}

fn standing(row: &Row) -> Result<CertificateStatus, Error> {
    let chain: Option<String> = row.try_get("chain")?;
    let newest = match chain {
        Some(chain) => Some(IssuedCertificate {
            chain,
            sealed_key: row.try_get("sealed_key")?,
            valid_until: row.try_get::<_, jiff::Timestamp>("valid_until")?.into(),
        }),
        None => None,
    };
    Ok(CertificateStatus { newest, due: row.try_get("due")?, problem: row.try_get("problem")? })
}
