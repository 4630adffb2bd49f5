//! One order at a certificate authority, from the account to the certificate.

use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, ChallengeType, ExternalAccountKey, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};

use super::challenge::LOOKUP_TTL;
use crate::config::AcmeSettings;
use crate::encryption::{DataCipher, EncryptionError};
use crate::store::{self, Store};

/// Time for the whole order.
pub(super) const ORDER_TIMEOUT: Duration = Duration::from_secs(180);
/// Time for one step of the authority.
const STEP_RETRY_POLICY: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(60));

/// A fresh certificate.
pub(super) struct FreshCertificate {
    /// The certificate and those between it and its root, PEM.
    pub(super) chain: String,
    /// Its private key, PEM.
    pub(super) key: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The authority refuses, or cannot be reached.
    #[error("{}", causes(.0))]
    Authority(#[from] instant_acme::Error),
    /// The authority found that this gateway does not control a domain.
    #[error("{domain}: {problem}. The authority must reach this gateway at port 443 of that name")]
    NotOurs { domain: String, problem: String },
    /// The authority does not offer the one challenge that is answered here.
    #[error("{domain}: the authority does not offer the challenge tls-alpn-01")]
    NoChallenge { domain: String },
    /// It took too long.
    #[error("the authority was not done within {} s", ORDER_TIMEOUT.as_secs())]
    Slow,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The account cannot be decrypted.
    #[error(transparent)]
    Seal(#[from] EncryptionError),
}

/// The text of a client error with its causes: alone it says "client error (Connect)".
fn causes(error: &instant_acme::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Orders a certificate, without retries.
pub(super) async fn order(
    settings: &AcmeSettings,
    store: &Store,
    cipher: &DataCipher,
) -> Result<FreshCertificate, OrderError> {
    tokio::time::timeout(ORDER_TIMEOUT, ordered(settings, store, cipher)).await.map_err(|_| OrderError::Slow)?
}

async fn ordered(settings: &AcmeSettings, store: &Store, cipher: &DataCipher) -> Result<FreshCertificate, OrderError> {
    let account = account(settings, store, cipher).await?;
    let names: Vec<_> = settings.domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = match account.new_order(&NewOrder::new(&names)).await {
        Ok(order) => order,
        Err(error) => {
            // An authority that lost its accounts gets a new one next time.
            if is_unknown_account(&error) {
                store.set_acme_account(&settings.directory_url, &settings.contact, None).await?;
            }
            return Err(error.into());
        }
    };
    keep_challenges(&mut order, store).await?;
    // A replica may have cached that there is no order, and an authority seldom asks twice.
    tokio::time::sleep(LOOKUP_TTL).await;
    have_it_look(&mut order).await?;
    match order.poll_ready(&STEP_RETRY_POLICY).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(instant_acme::Error::Api(_)) => return Err(why_not(&mut order).await?),
        Err(error) => return Err(error.into()),
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&STEP_RETRY_POLICY).await?;
    Ok(FreshCertificate { chain, key })
}

/// Stores the challenges, where every replica finds them.
async fn keep_challenges(order: &mut Order, store: &Store) -> Result<(), OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
        let challenge = challenge.ok_or_else(|| OrderError::NoChallenge { domain: domain.clone() })?;
        store.keep_challenge(&domain, challenge.key_authorization().digest().as_ref(), ORDER_TIMEOUT).await?;
    }
    Ok(())
}

/// Lets the authority look at every domain that it has not seen yet.
async fn have_it_look(order: &mut Order) -> Result<(), OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Valid
            && let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01)
        {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

/// The authority's reason stands with the domain that it could not see.
async fn why_not(order: &mut Order) -> Result<OrderError, OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let state = authorization.refresh().await?;
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            let problem = problem.detail.clone().unwrap_or_else(|| problem.to_string());
            return Ok(OrderError::NotOurs { domain: state.identifier().to_string(), problem });
        }
    }
    let problem = order.state().error.clone().map(instant_acme::Error::Api);
    Ok(problem.unwrap_or(instant_acme::Error::Str("the reason why the order is invalid")).into())
}

async fn account(settings: &AcmeSettings, store: &Store, cipher: &DataCipher) -> Result<Account, OrderError> {
    let AcmeSettings { directory_url, contact, external_account, .. } = settings;
    let place = format!("account {directory_url} {contact}");
    if let Some(sealed) = store.acme_account(directory_url, contact).await? {
        let credentials: AccountCredentials =
            serde_json::from_slice(&cipher.decrypt(&sealed, &place)?).map_err(instant_acme::Error::from)?;
        return Ok(client(settings)?.from_credentials(credentials).await?);
    }
    let contacts: &[&str] = if contact.is_empty() { &[] } else { &[contact] };
    // The configuration check has refused other settings.
    let wanted = NewAccount { contact: contacts, terms_of_service_agreed: true, only_return_existing: false };
    let external = external_account.as_ref().map(|of| ExternalAccountKey::new(of.key_id.clone(), &of.key));
    let (account, credentials) = client(settings)?.create(&wanted, directory_url.clone(), external.as_ref()).await?;
    let secret = serde_json::to_vec(&credentials).map_err(instant_acme::Error::from)?;
    store.set_acme_account(directory_url, contact, Some(&cipher.encrypt(&secret, &place))).await?;
    tracing::info!(account = account.id(), "an account was made at the certificate authority");
    Ok(account)
}

fn client(settings: &AcmeSettings) -> Result<AccountBuilder, OrderError> {
    Ok(match &settings.ca_file {
        Some(root) => Account::builder_with_root(root)?,
        None => Account::builder()?,
    })
}

fn is_unknown_account(error: &instant_acme::Error) -> bool {
    const ACCOUNT_UNKNOWN_ERROR: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
    matches!(error, instant_acme::Error::Api(problem) if problem.r#type.as_deref() == Some(ACCOUNT_UNKNOWN_ERROR))
}
