//! A cache of webhooks, for half a second: a changed, rotated or removed webhook holds on every replica within one
//! second, and a busy webhook costs no look-ups.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::management::{WebhookFilter, WebhookMapping, WebhookScheme, WebhookSettings};
use deskgate_protocol::{ApplicationId, EndpointId, HookId};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::rules::Rules;
use super::secrets::generate;
use crate::domain::refusal::Refusal;
use crate::encryption::DataCipher;
use crate::store::Store;
use crate::store::webhooks::WebhookReceiver;

/// How long a webhook's record is cached.
const WEBHOOK_CACHE_TTL: Duration = Duration::from_millis(500);
/// The most webhooks in the cache, including unknown identifiers.
const MAX_CACHED_WEBHOOKS: usize = 10_000;

/// The encryption context of a webhook's secret.
pub(in crate::domain) fn secret_context(hook_id: HookId) -> String {
    format!("webhook {hook_id}")
}

/// A webhook, ready for events.
pub(super) struct CachedWebhook {
    pub(super) hook_id: HookId,
    pub(super) app_id: ApplicationId,
    pub(super) settings: WebhookSettings,
    pub(super) enabled: bool,
    pub(super) rules: Rules,
    pub(super) secrets: Vec<Zeroizing<Vec<u8>>>,
    /// Whether the webhook exists. An unknown one is checked like a real one.
    pub(super) is_real: bool,
    read: Instant,
    now_s: i64,
}

impl CachedWebhook {
    /// The present moment by the database's clock, as far as it is known, in seconds since 1970.
    pub(super) fn now_s(&self) -> i64 {
        self.now_s.saturating_add(i64::try_from(self.read.elapsed().as_secs()).unwrap_or(0))
    }
}

/// Reads and caches webhooks.
#[derive(Clone)]
pub(super) struct WebhookCache {
    store: Store,
    cipher: DataCipher,
    known: Arc<Mutex<HashMap<HookId, Arc<CachedWebhook>>>>,
    decoy: Arc<(WebhookSettings, Rules, Zeroizing<Vec<u8>>)>,
}

impl WebhookCache {
    pub(super) fn new(store: Store, cipher: DataCipher) -> Self {
        Self { store, cipher, known: Arc::default(), decoy: Arc::new(decoy()) }
    }

    /// The webhook of this identifier, or a decoy whose signatures are never valid.
    pub(super) async fn find(&self, hook_id: HookId) -> Result<Arc<CachedWebhook>, Refusal> {
        if let Some(hook) = self.lock().get(&hook_id).filter(|hook| hook.read.elapsed() < WEBHOOK_CACHE_TTL) {
            return Ok(hook.clone());
        }
        let read = Instant::now();
        let hook = Arc::new(match self.store.receiving_webhook(hook_id).await? {
            Some(found) => self.opened(found, read)?,
            None => self.none(hook_id, read),
        });
        let mut known = self.lock();
        if known.len() >= MAX_CACHED_WEBHOOKS {
            known.retain(|_, hook| hook.read.elapsed() < WEBHOOK_CACHE_TTL);
            if known.len() >= MAX_CACHED_WEBHOOKS {
                known.clear();
            }
        }
        known.insert(hook_id, hook.clone());
        Ok(hook)
    }

    fn opened(&self, found: WebhookReceiver, read: Instant) -> Result<CachedWebhook, Refusal> {
        let WebhookReceiver { webhook, secrets, now_s } = found;
        let open = |sealed: &Vec<u8>| self.cipher.decrypt(sealed, &secret_context(webhook.hook_id)).map(Zeroizing::new);
        let secrets = secrets.iter().map(open).collect::<Result<_, _>>().map_err(|error| {
            tracing::error!(hook_id = %webhook.hook_id, %error, "a webhook's secret cannot be opened");
            Refusal::Internal
        })?;
        let rules = Rules::read(&webhook.settings).map_err(|error| {
            tracing::error!(hook_id = %webhook.hook_id, %error, "a webhook's settings cannot be used");
            Refusal::Internal
        })?;
        let (hook_id, app_id, enabled) = (webhook.hook_id, webhook.app_id, webhook.enabled);
        Ok(CachedWebhook {
            hook_id,
            app_id,
            settings: webhook.settings,
            enabled,
            rules,
            secrets,
            is_real: true,
            read,
            now_s,
        })
    }

    fn none(&self, hook_id: HookId, read: Instant) -> CachedWebhook {
        let (settings, rules, secret) = self.decoy.as_ref();
        CachedWebhook {
            hook_id,
            app_id: ApplicationId::from(Uuid::nil()),
            settings: settings.clone(),
            enabled: false,
            rules: rules.clone(),
            secrets: vec![secret.clone()],
            is_real: false,
            read,
            now_s: jiff::Timestamp::now().as_second(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HookId, Arc<CachedWebhook>>> {
        // No code panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A decoy for a webhook that does not exist, with an unknown random secret.
fn decoy() -> (WebhookSettings, Rules, Zeroizing<Vec<u8>>) {
    let settings = WebhookSettings {
        name: "none".to_owned(),
        endpoint_id: EndpointId::from(Uuid::nil()),
        scheme: WebhookScheme::Github {},
        filter: WebhookFilter::default(),
        mapping: WebhookMapping {
            text: "none".to_owned(),
            subject: Some("none".to_owned()),
            subject_path: None,
            conversation_key: None,
            on_busy: Default::default(),
            metadata: Default::default(),
            data: Default::default(),
        },
        requests_per_second: 1,
        keep_bodies: false,
    };
    let rules = Rules::read(&settings).expect("a test reads these very settings");
    let (_, secret) = generate(&settings.scheme).expect("a secret of this scheme is chosen here");
    (settings, rules, secret)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_stands_for_a_missing_webhook_can_be_read() {
        let (settings, _, secret) = super::decoy();
        assert_eq!((settings.name.as_str(), secret.is_empty()), ("none", false));
    }
}
