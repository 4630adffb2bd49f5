//! Incoming webhooks of a device's applications: create, change, test, and rotate secrets.

use deskgate_protocol::HookId;
use deskgate_protocol::management::{
    ChangeWebhook, CreateWebhook, EnableWebhook, ListWebhooks, ManagementError, RemoveWebhook, RollWebhookSecret,
    SecretText, ShowWebhook, TestWebhook, TrialOutcome, Webhook, WebhookDetail, WebhookSample, WebhookScheme,
    WebhookSettings, WebhookTrial, WebhookWithSecret,
};
use zeroize::Zeroizing;

use super::{Desktop, DesktopResult, MAX_OVERLAP_S, conflict, invalid, not_found, quota_reached};
use crate::domain::webhooks::cache::secret_context;
use crate::domain::webhooks::reception::MAX_EVENT_BYTES;
use crate::domain::webhooks::rules::Rules;
use crate::domain::webhooks::{self, Headers, WebhookEvent, secrets};
use crate::store::webhooks::{StoredWebhook, WebhookCreation};

impl Desktop {
    /// Creates a webhook.
    ///
    /// # Errors
    /// `Invalid`: the settings or the secret cannot be used. `NotFound`: the service is not a published one of an
    /// active application of the device. `QuotaReached`: the application has the most webhooks it may. `Unavailable`: the
    /// database does not answer, or refuses the statement.
    pub async fn create_webhook(&self, request: CreateWebhook) -> DesktopResult<WebhookWithSecret> {
        let CreateWebhook { app_id, settings, secret } = request;
        read(&settings)?;
        let hook_id = HookId::new();
        let (shown, sealed) = match (&settings.scheme, secret) {
            // Stripe makes the secret when it is given the address, which exists only now.
            (WebhookScheme::Stripe {}, None) => {
                (None, self.cipher.encrypt(&secrets::decoy_secret(), &secret_context(hook_id)))
            }
            (scheme, secret) => self.sealed(hook_id, scheme, secret)?,
        };
        match self.store.create_webhook(self.owner(), app_id, hook_id, &settings, &sealed).await? {
            WebhookCreation::Created(webhook) => {
                tracing::info!(%hook_id, %app_id, scheme = settings.scheme.as_str(), "webhook created");
                Ok(WebhookWithSecret { webhook: self.shown(*webhook), secret: shown })
            }
            WebhookCreation::NoSuchService => Err(not_found(format!(
                "{} is no published service of an active application {app_id}",
                settings.endpoint_id
            ))),
            WebhookCreation::QuotaReached(reached) => Err(quota_reached(reached)),
        }
    }

    /// The webhooks that were not removed, oldest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn webhooks(&self, request: ListWebhooks) -> DesktopResult<Vec<Webhook>> {
        let webhooks = self.store.webhooks(self.device_id, request.app_id).await?;
        Ok(webhooks.into_iter().map(|webhook| self.shown(webhook)).collect())
    }

    /// One webhook, with what it last received.
    ///
    /// # Errors
    /// `NotFound`: the device has no such webhook. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn webhook(&self, request: ShowWebhook) -> DesktopResult<WebhookDetail> {
        let webhook = self.found(request.hook_id).await?;
        let receipts = self.store.receipts(self.device_id, request.hook_id).await?;
        Ok(WebhookDetail { webhook: self.shown(webhook), receipts })
    }

    /// Changes a webhook's settings.
    ///
    /// # Errors
    /// `Invalid`: the settings cannot be used. `NotFound`: the device has no such webhook, or its application no such
    /// service. `Conflict`: the settings name another scheme of signatures. `Unavailable`: the database does not
    /// answer, or refuses the statement.
    pub async fn change_webhook(&self, request: ChangeWebhook) -> DesktopResult<Webhook> {
        let ChangeWebhook { hook_id, settings } = request;
        read(&settings)?;
        let before = self.found(hook_id).await?;
        if before.settings.scheme.as_str() != settings.scheme.as_str() {
            return Err(conflict(
                "how a webhook is signed stays as it is, as its secret belongs to that; create another one".to_owned(),
            ));
        }
        let changed = self.store.change_webhook(self.owner(), hook_id, &settings).await?;
        let service = settings.endpoint_id;
        let changed =
            changed.ok_or_else(|| not_found(format!("{service} is no published service of its application")))?;
        tracing::info!(%hook_id, "webhook changed");
        Ok(self.shown(changed))
    }

    /// Enables or disables a webhook.
    ///
    /// # Errors
    /// `NotFound`: the device has no such webhook. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn enable_webhook(&self, request: EnableWebhook) -> DesktopResult<Webhook> {
        let EnableWebhook { hook_id, enabled } = request;
        let webhook = self.store.enable_webhook(self.owner(), hook_id, enabled).await?;
        tracing::info!(%hook_id, enabled, "webhook enabled or disabled");
        webhook.map(|webhook| self.shown(webhook)).ok_or_else(|| unknown(hook_id))
    }

    /// Gives a webhook another secret.
    ///
    /// # Errors
    /// `Invalid`: the overlap is longer than 30 days, the secret cannot be used, or none is given where the sender
    /// chooses it. `NotFound`: the device has no such webhook. `Unavailable`: the database does not answer, or refuses
    /// the statement.
    pub async fn roll_webhook_secret(&self, request: RollWebhookSecret) -> DesktopResult<WebhookWithSecret> {
        let RollWebhookSecret { hook_id, overlap_s, secret } = request;
        if overlap_s > MAX_OVERLAP_S {
            return Err(invalid("a rolled secret lives on for 30 days at most".to_owned()));
        }
        let before = self.found(hook_id).await?;
        let (shown, sealed) = self.sealed(hook_id, &before.settings.scheme, secret)?;
        let rolled = self.store.roll_webhook(self.owner(), hook_id, overlap_s, &sealed).await?;
        let rolled = rolled.ok_or_else(|| unknown(hook_id))?;
        tracing::info!(%hook_id, overlap_s, "a webhook's secret was rolled");
        Ok(WebhookWithSecret { webhook: self.shown(rolled), secret: shown })
    }

    /// Removes a webhook.
    ///
    /// # Errors
    /// `NotFound`: the device has no such webhook. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn remove_webhook(&self, request: RemoveWebhook) -> DesktopResult<Webhook> {
        let removed = self.store.remove_webhook(self.owner(), request.hook_id).await?;
        let removed = removed.ok_or_else(|| unknown(request.hook_id))?;
        tracing::info!(hook_id = %request.hook_id, "webhook removed");
        Ok(self.shown(removed))
    }

    /// The run that an event would become.
    ///
    /// # Errors
    /// `Invalid`: neither a webhook nor settings are given, the settings cannot be used, the sample is not an event of
    /// the scheme, or a receipt is named without its webhook. `NotFound`: the device has no such webhook, or the
    /// webhook no such receipt. `Conflict`: the body of the receipt was not kept whole, or is not JSON. `Unavailable`:
    /// the database does not answer, or refuses the statement.
    pub async fn test_webhook(&self, request: TestWebhook) -> DesktopResult<WebhookTrial> {
        let TestWebhook { hook_id, settings, sample } = request;
        let settings = match (hook_id, settings) {
            (None, None) => return Err(invalid("say which webhook, or what it would be".to_owned())),
            (None, Some(settings)) => *settings,
            (Some(hook_id), settings) => {
                let saved = self.found(hook_id).await?.settings;
                settings.map_or(saved, |settings| *settings)
            }
        };
        let rules = read(&settings)?;
        let event = match sample {
            WebhookSample::Given { headers, body } => given(&settings.scheme, &headers, &body)?,
            WebhookSample::Receipt { receipt_id } => {
                let hook_id = hook_id.ok_or_else(|| invalid("say whose receipt it is".to_owned()))?;
                let receipts = self.store.receipts(self.device_id, hook_id).await?;
                let receipt = receipts.into_iter().find(|receipt| receipt.receipt_id == receipt_id);
                let receipt =
                    receipt.ok_or_else(|| not_found(format!("receipt: there is no {receipt_id} any more")))?;
                let body = receipt.body.ok_or_else(|| {
                    conflict("receipt: its body was not kept; switch that on and wait for the next event".to_owned())
                })?;
                let payload = serde_json::from_str(&body)
                    .map_err(|_| conflict("receipt: its body was cut because it is long, or is not JSON".to_owned()))?;
                WebhookEvent { id: receipt.event_id.unwrap_or_default(), kind: receipt.event_type, payload }
            }
        };
        let outcome: TrialOutcome = rules.judge(&event);
        let event_id = Some(event.id).filter(|id| !id.is_empty());
        Ok(WebhookTrial { event_id, event_type: event.kind, outcome })
    }

    async fn found(&self, hook_id: HookId) -> DesktopResult<StoredWebhook> {
        self.store.webhook(self.device_id, hook_id).await?.ok_or_else(|| unknown(hook_id))
    }

    /// A given secret, or a new one, which is to be shown; and the same, encrypted.
    fn sealed(
        &self,
        hook_id: HookId,
        scheme: &WebhookScheme,
        given: Option<SecretText>,
    ) -> DesktopResult<(Option<SecretText>, Vec<u8>)> {
        let wrong = |error: secrets::InvalidWebhookSecret| invalid(format!("secret: {error}"));
        let (shown, bytes): (_, Zeroizing<Vec<u8>>) = match given {
            Some(SecretText(text)) => (None, secrets::read(scheme, &text).map_err(wrong)?),
            None => {
                let (text, bytes) = secrets::generate(scheme).map_err(wrong)?;
                (Some(SecretText(text)), bytes)
            }
        };
        Ok((shown, self.cipher.encrypt(&bytes, &secret_context(hook_id))))
    }

    fn shown(&self, stored: StoredWebhook) -> Webhook {
        Webhook {
            hook_id: stored.hook_id,
            app_id: stored.app_id,
            settings: stored.settings,
            enabled: stored.enabled,
            address: format!("{}/api/v1/webhooks/{}", self.public_url, stored.hook_id),
            old_secret_until: stored.old_secret_until,
            last_received_at: stored.last_received_at,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

/// The event in a test request. Its signature is not checked.
fn given(
    scheme: &WebhookScheme,
    headers: &std::collections::BTreeMap<String, String>,
    body: &str,
) -> DesktopResult<WebhookEvent> {
    if body.len() > MAX_EVENT_BYTES {
        return Err(invalid(format!("body: an event has at most {MAX_EVENT_BYTES} bytes")));
    }
    let payload = serde_json::from_str(body).map_err(|error| invalid(format!("body: it is not JSON: {error}")))?;
    let headers: Headers<'_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let event = webhooks::unproven(scheme, &headers)
        .and_then(|proof| webhooks::event(scheme, proof, &headers, body.as_bytes(), payload));
    event.map_err(|error| invalid(format!("with-header: {error}")))
}

fn read(settings: &WebhookSettings) -> DesktopResult<Rules> {
    Rules::read(settings).map_err(|error| invalid(error.to_string()))
}

fn unknown(hook_id: HookId) -> ManagementError {
    not_found(format!("there is no webhook {hook_id}"))
}
