//! The sessions: browsers that presented a valid launch code.
//!
//! A session is a random value in a cookie; its digest outlives the agent, so that open pages keep working after a
//! restart. The token in forms is derived from the cookie and is not stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_store::{self, Settings};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::Mutex;

/// At most this many browsers are signed in at once; the oldest is dropped.
const MAX_SESSIONS: usize = 16;

/// The sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    settings: Settings,
    known: Mutex<Vec<Sha256Digest>>,
}

impl Sessions {
    /// Loads the saved sessions.
    pub(super) async fn load(settings: Settings) -> Result<Self, deskgate_store::Error> {
        let known = Mutex::new(settings.page_sessions().await?);
        Ok(Self { settings, known })
    }

    /// A new session's cookie value.
    pub(super) async fn begin(&self) -> Result<String, deskgate_store::Error> {
        let value = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let mut known = self.known.lock().await;
        if known.len() == MAX_SESSIONS {
            known.remove(0);
        }
        known.push(Sha256Digest::of(value.as_bytes()));
        self.settings.set_page_sessions(&known).await?;
        Ok(value)
    }

    /// Whether a cookie's value is that of a session.
    pub(super) async fn knows(&self, value: &str) -> bool {
        self.known.lock().await.contains(&Sha256Digest::of(value.as_bytes()))
    }

    /// Ends every session.
    pub(super) async fn end_all(&self) -> Result<(), deskgate_store::Error> {
        let mut known = self.known.lock().await;
        known.clear();
        self.settings.set_page_sessions(&known).await
    }
}

/// The token in the forms of a session.
pub(super) fn form_token(session: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(session.as_bytes()).expect("any length is a key");
    mac.update(b"form");
    URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

/// Whether a form's token is the session's. Compared in constant time.
pub(super) fn is_form_token(session: &str, token: &str) -> bool {
    let Ok(token) = URL_SAFE_NO_PAD.decode(token) else { return false };
    let mut mac = Hmac::<Sha256>::new_from_slice(session.as_bytes()).expect("any length is a key");
    mac.update(b"form");
    mac.verify_slice(&token).is_ok()
}
