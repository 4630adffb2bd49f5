//! Identifies a caller: an application key, its scopes, and the subject it speaks for.
//!
//! Holding a [`Caller`] means that key, scope and subject were checked, in this order. Keys are cached for half a
//! second, so a revocation holds on every replica within one second and a busy key costs no look-ups.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::secret::{ApplicationKey, InvalidSecret, digests_equal};
use deskgate_protocol::{ApplicationId, EndpointId, KeyId};

use super::CallerLimits;
use super::auth_failures::{AuthFailures, PendingFailure};
use super::rates::{RateStatus, Rates};
use super::refusal::Refusal;
use crate::networks::Network;
use crate::store::Store;
use crate::store::applications::StoredKey;

/// A request whose key was checked; scope and subject are still to be checked.
#[derive(Clone, Debug)]
pub struct AuthenticatedRequest {
    key: Arc<StoredKey>,
    subject: Subject,
    standing: RateStatus,
}

/// The subject of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The request names no subject.
    Absent,
    /// A usable name.
    Named(String),
    /// An invalid name: sent twice, too long, not visible ASCII.
    Unusable,
}

impl AuthenticatedRequest {
    /// The rate limit's status after this request.
    pub fn rate_status(&self) -> RateStatus {
        self.standing
    }

    /// Checks the scope, then the subject, then the rate.
    ///
    /// # Errors
    /// [`Refusal::InsufficientScope`]: the key lacks the scope. [`Refusal::SubjectMissing`]: no subject is named, and
    /// the key is bound to none. [`Refusal::SubjectInvalid`]: the subject is not a usable name.
    /// [`Refusal::SubjectNotAllowed`]: the key is bound to another subject. [`Refusal::RateLimited`]: the key made too
    /// many requests.
    pub fn authorise(self, scope: Scope) -> Result<Caller, Refusal> {
        self.authorise_work(&[scope])?.within_rate()
    }

    /// Checks that the key has one of the scopes, then the subject, then the rate. The requested object decides which
    /// scope is needed; [`Caller::needs`] checks it.
    ///
    /// # Errors
    /// [`Refusal::InsufficientScope`]: the key has none of the scopes; names the first. [`Refusal::SubjectMissing`]: no
    /// subject is named, and the key is bound to none. [`Refusal::SubjectInvalid`]: the subject is not a usable name.
    /// [`Refusal::SubjectNotAllowed`]: the key is bound to another subject. [`Refusal::RateLimited`]: the key made too
    /// many requests.
    pub fn authorise_any(self, scopes: &[Scope]) -> Result<Caller, Refusal> {
        match scopes.first() {
            Some(first) if !scopes.iter().any(|scope| self.key.key.scopes.contains(scope)) => {
                Err(Refusal::InsufficientScope(*first))
            }
            _ => self.speak()?.within_rate(),
        }
    }

    /// Checks the subject, then the rate, for requests that every key may make.
    ///
    /// # Errors
    /// [`Refusal::SubjectMissing`]: no subject is named, and the key is bound to none. [`Refusal::SubjectInvalid`]: the
    /// subject is not a usable name. [`Refusal::SubjectNotAllowed`]: the key is bound to another subject.
    /// [`Refusal::RateLimited`]: the key made too many requests.
    pub fn authorise_every(self) -> Result<Caller, Refusal> {
        self.speak()?.within_rate()
    }

    /// Checks that the key has every one of the scopes, then the subject. The rate is checked by admission: a replay
    /// finds its run whatever the rate is.
    ///
    /// # Errors
    /// [`Refusal::InsufficientScope`]: the key lacks one of the scopes. [`Refusal::SubjectMissing`]: no subject is
    /// named, and the key is bound to none. [`Refusal::SubjectInvalid`]: the subject is not a usable name.
    /// [`Refusal::SubjectNotAllowed`]: the key is bound to another subject.
    pub fn authorise_work(self, scopes: &[Scope]) -> Result<Caller, Refusal> {
        match scopes.iter().find(|scope| !self.key.key.scopes.contains(scope)) {
            Some(missing) => Err(Refusal::InsufficientScope(*missing)),
            None => self.speak(),
        }
    }

    fn speak(self) -> Result<Caller, Refusal> {
        let subject = match (self.subject, &self.key.key.fixed_subject) {
            (Subject::Unusable, _) => return Err(Refusal::SubjectInvalid),
            (Subject::Named(named), Some(fixed)) if named != *fixed => return Err(Refusal::SubjectNotAllowed),
            (Subject::Named(named), _) => named,
            (Subject::Absent, Some(fixed)) => fixed.clone(),
            (Subject::Absent, None) => return Err(Refusal::SubjectMissing),
        };
        Ok(Caller { key: self.key, subject, within_rate: self.standing.within })
    }
}

/// A caller with a right: its key, the scope asked for and its subject were checked.
#[derive(Clone, Debug)]
pub struct Caller {
    key: Arc<StoredKey>,
    subject: String,
    within_rate: bool,
}

impl Caller {
    /// The application it calls for.
    pub fn app_id(&self) -> ApplicationId {
        self.key.key.app_id
    }

    /// The key it calls with.
    pub fn key_id(&self) -> KeyId {
        self.key.key.key_id
    }

    /// The business user it calls for.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Refuses a request beyond the rate.
    ///
    /// # Errors
    /// [`Refusal::RateLimited`]: the key made too many requests.
    pub fn within_rate(self) -> Result<Self, Refusal> {
        if self.within_rate { Ok(self) } else { Err(Refusal::RateLimited) }
    }

    /// Whether the request is within the rate.
    pub fn is_within_rate(&self) -> bool {
        self.within_rate
    }

    /// Checks a scope that depends on the requested object.
    ///
    /// # Errors
    /// [`Refusal::InsufficientScope`]: the key lacks the scope.
    pub fn needs(&self, scope: Scope) -> Result<(), Refusal> {
        if self.key.key.scopes.contains(&scope) { Ok(()) } else { Err(Refusal::InsufficientScope(scope)) }
    }

    /// The services that a list shows, given the `wanted` one; empty: all. `None`: there is nothing to show.
    pub fn shown(&self, wanted: Option<EndpointId>) -> Option<Vec<EndpointId>> {
        match wanted {
            Some(endpoint_id) => self.may_use(endpoint_id).then(|| vec![endpoint_id]),
            None => Some(self.key.key.endpoints.clone()),
        }
    }

    /// Whether the key may use this service. A key that may not is not shown that it exists.
    pub fn may_use(&self, endpoint_id: EndpointId) -> bool {
        self.key.key.endpoints.is_empty() || self.key.key.endpoints.contains(&endpoint_id)
    }
}

/// Whether a text can name a subject: 1 to 255 visible ASCII characters.
pub fn is_subject(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a key that is limited to these ranges may be used from this address.
fn is_allowed(cidrs: &[String], from: Option<IpAddr>) -> bool {
    let inside = |address| cidrs.iter().any(|range| range.parse().is_ok_and(|range: Network| range.contains(address)));
    cidrs.is_empty() || from.is_some_and(inside)
}

/// An attempt that counts as failed until it is forgiven.
pub struct AuthAttempt(Option<PendingFailure>);

impl AuthAttempt {
    /// Takes back the failure.
    pub fn forgive(self) {
        if let Some(attempt) = self.0 {
            attempt.forgive();
        }
    }
}

/// A presented key, and the address it came from.
struct PresentedKey {
    key_id: KeyId,
    digest: Sha256Digest,
    from: Option<IpAddr>,
}

impl PresentedKey {
    /// Whether it is this key, and the key may be used from its address.
    fn is(&self, known: &StoredKey) -> bool {
        digests_equal(&known.digest, &self.digest) && known.live && is_allowed(&known.key.allowed_cidrs, self.from)
    }
}

/// How long a key's record is cached.
const KEY_CACHE_TTL: Duration = Duration::from_millis(500);
/// How often the use of a key is recorded.
const KEY_USE_NOTE_INTERVAL: Duration = Duration::from_secs(60);
/// The same while it is used from more than one address.
const ADDRESS_CHANGE_NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// The most records in the cache.
const MAX_CACHED_KEYS: usize = 10_000;

/// One key's record, with the lock of the task that reads it again.
#[derive(Default)]
struct KeySlot {
    last: Mutex<Option<KeyReading>>,
    /// The key that the last successful reading found.
    known: Mutex<Option<Arc<StoredKey>>>,
    reading: tokio::sync::Mutex<()>,
    /// When and from where its use was last recorded.
    noted: Mutex<Option<(Instant, Option<IpAddr>)>>,
}

/// The result of reading a key's record.
#[derive(Clone)]
struct KeyReading {
    began: Instant,
    ended: Instant,
    found: Result<Option<Arc<StoredKey>>, Refusal>,
}

/// Checks keys.
#[derive(Clone)]
pub struct Access {
    store: Store,
    rates: Rates<KeyId>,
    failures: AuthFailures,
    slots: Arc<Mutex<HashMap<KeyId, Arc<KeySlot>>>>,
}

impl Access {
    /// Checks keys against this store, and counts their requests.
    pub fn new(store: Store, limits: &CallerLimits) -> Self {
        let failures = AuthFailures::new(limits.failed_authentications_per_minute);
        Self { store, rates: Rates::new(limits.rate), failures, slots: Arc::default() }
    }

    /// Checks the key's text and its source address. Unknown, revoked, expired and wrong address are refused alike, and
    /// each counts as a failure of the source. A text that cannot be a key needs no look-up and does not count.
    ///
    /// # Errors
    /// A [`Refusal`] without a good key, after too many failures, or while the database fails.
    pub async fn authenticate(
        &self,
        credential: &str,
        subject: Subject,
        from: Option<IpAddr>,
    ) -> Result<AuthenticatedRequest, Refusal> {
        let sent: ApplicationKey =
            credential.parse().map_err(|error| Refusal::CredentialInvalid { hint: hint(&error) })?;
        let sent = PresentedKey { key_id: sent.id(), digest: sent.digest(), from };
        let slot = lock(&self.slots).get(&sent.key_id).cloned();
        // After a failed reading the key is not unknown.
        let was_good = slot.as_ref().and_then(|slot| slot.known()).is_some_and(|known| sent.is(&known));
        let attempt = match from {
            // Many callers may share one address: a key that was good is not refused because of the others.
            Some(address) if !was_good => Some(self.failures.begin(address)?),
            _ => None,
        };
        let slot = slot.unwrap_or_else(|| self.slot(sent.key_id));
        let found = self.key(&slot, sent.key_id).await.map(|known| known.filter(|known| sent.is(known)));
        if let (Some(attempt), Ok(Some(_)) | Err(_)) = (attempt, &found) {
            attempt.forgive();
        }
        let key = found?.ok_or(Refusal::CredentialInvalid { hint: String::new() })?;
        if key.disabled {
            return Err(Refusal::ApplicationDisabled);
        }
        if slot.is_use_to_note(from)
            && let Err(error) = self.store.note_key_use(sent.key_id, from).await
        {
            tracing::debug!(%error, "a key's last use was not noted");
        }
        let standing = self.rates.count(key.key.key_id);
        Ok(AuthenticatedRequest { key, subject, standing })
    }

    /// An attempt with another credential than a key; it counts as failed until it is forgiven.
    ///
    /// # Errors
    /// [`Refusal::TooManyFailures`]: too many attempts from this address failed. Without an address it never fails.
    pub fn begin_attempt(&self, from: Option<IpAddr>) -> Result<AuthAttempt, Refusal> {
        from.map(|address| self.failures.begin(address)).transpose().map(AuthAttempt)
    }

    async fn key(&self, slot: &KeySlot, key_id: KeyId) -> Result<Option<Arc<StoredKey>>, Refusal> {
        let came = Instant::now();
        if let Some(found) = slot.good_for(came) {
            return found;
        }
        // One caller reads, the others wait for its result, also when that is a failure.
        let _reading = slot.reading.lock().await;
        if let Some(found) = slot.good_for(came) {
            return found;
        }
        let began = Instant::now();
        let found = self.store.key(key_id).await.map(|key| key.map(Arc::new)).map_err(Refusal::from);
        slot.note(KeyReading { began, ended: Instant::now(), found: found.clone() });
        found
    }

    fn slot(&self, key_id: KeyId) -> Arc<KeySlot> {
        let mut slots = lock(&self.slots);
        if slots.len() >= MAX_CACHED_KEYS {
            let now = Instant::now();
            // Unused records are removed first.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.known().is_some());
            if slots.len() >= MAX_CACHED_KEYS {
                slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.good_for(now).is_some());
            }
        }
        slots.entry(key_id).or_default().clone()
    }
}

impl KeySlot {
    /// Whether this use of the key is to be recorded. Asked once for each use.
    fn is_use_to_note(&self, from: Option<IpAddr>) -> bool {
        let mut noted = lock(&self.noted);
        let due = noted.is_none_or(|(at, last)| {
            at.elapsed() >= if last == from { KEY_USE_NOTE_INTERVAL } else { ADDRESS_CHANGE_NOTE_INTERVAL }
        });
        if due {
            *noted = Some((Instant::now(), from));
        }
        due
    }

    fn note(&self, reading: KeyReading) {
        if let Ok(found) = &reading.found {
            lock(&self.known).clone_from(found);
        }
        *lock(&self.last) = Some(reading);
    }

    fn known(&self) -> Option<Arc<StoredKey>> {
        lock(&self.known).clone()
    }

    /// The last reading, if a caller that came at this moment may rely on it.
    fn good_for(&self, came: Instant) -> Option<Result<Option<Arc<StoredKey>>, Refusal>> {
        let last = lock(&self.last);
        let usable = |reading: &&KeyReading| match reading.found {
            Ok(_) => came.saturating_duration_since(reading.began) < KEY_CACHE_TTL,
            Err(_) => reading.ended >= came,
        };
        last.as_ref().filter(usable).map(|reading| reading.found.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the kind of credential that was sent instead of a key; a damaged or unknown key gets no hint.
fn hint(error: &InvalidSecret) -> String {
    match error {
        InvalidSecret::OtherKind { found, expected } => {
            format!(" This is {found}; {expected} starts with \"{}\".", expected.prefix())
        }
        _ => String::new(),
    }
}
