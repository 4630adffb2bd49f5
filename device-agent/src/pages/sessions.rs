//! The sessions: browsers that presented a valid launch code.
//!
//! A session is a random value in a cookie below the pages' path; its digest outlives the agent, so that open pages keep
//! working after a restart. The token in forms is derived from the cookie and is not stored.
//!
//! A session ends twelve hours after its person last opened a page or sent a form, and after seven days at the latest.
//! What an open page asks by itself does not count. Ages are told by the computer's clock, which goes on while the agent
//! does not run; but a clock that is set back takes nothing off an age: the time of the sessions never goes back, and
//! while the agent runs it goes on at least as fast as the time that passes. Only a clock that is set back while the agent
//! does not run hides the time of that pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_store::{self, Setting, Settings};
use hmac::{Hmac, KeyInit, Mac};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::sync::{Mutex, watch};

use super::mount::Mount;

/// At most this many browsers are signed in at once; the oldest is dropped.
const MAX_SESSIONS: usize = 16;
/// The longest time without a request of a person.
const MAX_IDLE: SignedDuration = SignedDuration::from_hours(12);
/// The longest time from the sign-in.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A session's last use is saved at most this often.
const SAVE_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
/// How often a session that something waits for is judged again: the clock may be set, or the computer sleep.
const JUDGE_INTERVAL: Duration = Duration::from_secs(30);

/// Tells the time of the computer's clock.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What outlives the agent.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSessions {
    mount: Mount,
    /// Oldest first. One that ended of age stays until its place is needed, so that its browser can be told.
    sessions: Vec<Session>,
}

impl Default for SavedSessions {
    fn default() -> Self {
        Self { mount: Mount::random(), sessions: Vec::new() }
    }
}

impl Setting for SavedSessions {
    const NAME: &'static str = "page_sign_ins";
}

/// The name under which an earlier version kept sessions without an age, in a cookie of the whole host.
const EARLIER_SESSIONS: &str = "page_sessions";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Session {
    digest: Sha256Digest,
    began_at: Timestamp,
    used_at: Timestamp,
}

impl Session {
    /// How long it has left if nobody uses it; `None` if it has ended.
    fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let [age, idle] = [self.began_at, self.used_at].map(|then| now.0.duration_since(then.0));
        Some((MAX_AGE - age).min(MAX_IDLE - idle)).filter(SignedDuration::is_positive)
    }
}

/// What is known of a cookie's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// It is a session's, whose digest this is.
    Active(Sha256Digest),
    /// It was a session's, which ended of age.
    Ended,
    /// It is none.
    Unknown,
}

/// The sessions.
pub(super) struct Sessions {
    settings: Settings,
    saved: Mutex<SavedSessions>,
    time: SessionTime,
    /// Told when sessions were ended.
    ended: watch::Sender<()>,
}

impl Sessions {
    /// Loads the saved sessions. Those of an earlier version are forgotten: everybody signs in once.
    pub(super) async fn load(settings: Settings, wall: WallClock) -> Result<Self, deskgate_store::Error> {
        settings.forget(EARLIER_SESSIONS).await?;
        let saved: SavedSessions = settings.get().await?;
        // The path has to be the same after the next start.
        settings.set(&saved).await?;
        let newest = saved.sessions.iter().map(|session| session.used_at).max();
        let told = newest.map_or_else(&*wall, |newest| newest.max(wall()));
        let time = SessionTime { wall, latest: Mutex::new((told, Instant::now())) };
        Ok(Self { settings, saved: Mutex::new(saved), time, ended: watch::Sender::new(()) })
    }

    /// The path below which the pages lie.
    pub(super) async fn mount(&self) -> Mount {
        self.saved.lock().await.mount.clone()
    }

    /// A new session's cookie value, and the path that it is for.
    pub(super) async fn begin(&self) -> Result<(String, Mount), deskgate_store::Error> {
        let value = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let now = self.time.now().await;
        let mut saved = self.saved.lock().await;
        if saved.sessions.len() == MAX_SESSIONS {
            let place = saved.sessions.iter().position(|session| session.left(now).is_none()).unwrap_or(0);
            saved.sessions.remove(place);
            self.ended.send_replace(());
        }
        let digest = Sha256Digest::of(value.as_bytes());
        saved.sessions.push(Session { digest, began_at: now, used_at: now });
        self.settings.set(&*saved).await?;
        Ok((value, saved.mount.clone()))
    }

    /// What is known of a cookie's value. A request of a person keeps its session from ending.
    pub(super) async fn judge(&self, value: &str, is_persons: bool) -> SessionState {
        let digest = Sha256Digest::of(value.as_bytes());
        let now = self.time.now().await;
        let mut saved = self.saved.lock().await;
        let Some(session) = saved.sessions.iter_mut().find(|session| session.digest == digest) else {
            return SessionState::Unknown;
        };
        if session.left(now).is_none() {
            return SessionState::Ended;
        }
        if is_persons && now.0.duration_since(session.used_at.0) >= SAVE_INTERVAL {
            session.used_at = now;
            if let Err(error) = self.settings.set(&*saved).await {
                tracing::warn!(%error, "the use of a session could not be saved");
            }
        }
        SessionState::Active(digest)
    }

    /// Returns when a session has ended.
    pub(super) async fn until_ended(&self, digest: Sha256Digest) {
        let mut ended = self.ended.subscribe();
        loop {
            let now = self.time.now().await;
            let left = {
                let saved = self.saved.lock().await;
                saved.sessions.iter().find(|session| session.digest == digest).and_then(|session| session.left(now))
            };
            let Some(left) = left.and_then(|left| Duration::try_from(left).ok()) else { return };
            tokio::select! {
                _ = ended.changed() => {}
                () = tokio::time::sleep(left.min(JUDGE_INTERVAL)) => {}
            }
        }
    }

    /// Ends every session. The pages get another path, so that nobody is led to the old one.
    pub(super) async fn end_all(&self) -> Result<(), deskgate_store::Error> {
        let mut saved = self.saved.lock().await;
        *saved = SavedSessions::default();
        self.ended.send_replace(());
        self.settings.set(&*saved).await
    }
}

/// A time that never goes back.
struct SessionTime {
    wall: WallClock,
    /// The time that was told last, and when that was.
    latest: Mutex<(Timestamp, Instant)>,
}

impl SessionTime {
    async fn now(&self) -> Timestamp {
        let mut latest = self.latest.lock().await;
        let (told, at) = *latest;
        let now = later(told, at.elapsed(), (self.wall)());
        *latest = (now, Instant::now());
        now
    }
}

/// The time when the clock shows `wall`, and `passed` has passed since the time `told`.
fn later(told: Timestamp, passed: Duration, wall: Timestamp) -> Timestamp {
    told.0.checked_add(passed).map_or(wall, |least| wall.max(Timestamp(least)))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use deskgate_store::Store;
    use tempfile::TempDir;

    use super::*;

    /// A clock that is set by hand, in seconds since 1970.
    fn clock() -> (Arc<AtomicI64>, WallClock) {
        let seconds = Arc::new(AtomicI64::new(1_800_000_000));
        let read = Arc::clone(&seconds);
        (seconds, Arc::new(move || at(read.load(Ordering::SeqCst))))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(jiff::Timestamp::from_second(seconds).expect("a time"))
    }

    #[tokio::test]
    async fn sessions_and_their_ages_outlive_the_agent_and_those_without_an_age_do_not() {
        let folder = TempDir::new().expect("a folder");
        let settings = Store::open(folder.path().join("deskgate.db")).await.expect("opens").settings();
        let (seconds, wall) = clock();
        let load = async || Sessions::load(settings.clone(), Arc::clone(&wall)).await.expect("loaded");
        let (value, mount) = load().await.begin().await.expect("begun");

        seconds.fetch_add(11 * 3600, Ordering::SeqCst);
        let again = load().await;
        assert!(matches!(again.judge(&value, true).await, SessionState::Active(_)));
        assert!(again.mount().await == mount, "bookmarks go on");
        assert_eq!(again.judge("something else", true).await, SessionState::Unknown);
        seconds.fetch_add(11 * 3600, Ordering::SeqCst);
        assert!(matches!(load().await.judge(&value, false).await, SessionState::Active(_)), "its last use was saved");
        // While no agent runs, a clock that is set back hides nothing of what was before.
        seconds.fetch_sub(365 * 86400, Ordering::SeqCst);
        let back = load().await;
        assert!(matches!(back.judge(&value, false).await, SessionState::Active(_)));
        seconds.fetch_add(365 * 86400 + 3600, Ordering::SeqCst);
        assert_eq!(back.judge(&value, true).await, SessionState::Ended);
        assert_eq!(load().await.judge(&value, true).await, SessionState::Ended);

        back.end_all().await.expect("ended");
        let after = load().await;
        assert_eq!(after.judge(&value, true).await, SessionState::Unknown);
        assert!(after.mount().await != mount && after.mount().await == back.mount().await, "a path for what follows");
    }

    #[tokio::test]
    async fn of_many_browsers_those_whose_sessions_ended_go_first() {
        let folder = TempDir::new().expect("a folder");
        let settings = Store::open(folder.path().join("deskgate.db")).await.expect("opens").settings();
        let (seconds, wall) = clock();
        let sessions = Sessions::load(settings, wall).await.expect("loaded");
        let (first, _) = sessions.begin().await.expect("begun");
        let (idle, _) = sessions.begin().await.expect("begun");
        seconds.fetch_add(11 * 3600, Ordering::SeqCst);
        sessions.judge(&first, true).await;
        seconds.fetch_add(2 * 3600, Ordering::SeqCst);
        for _ in 2..=MAX_SESSIONS {
            sessions.begin().await.expect("begun");
        }
        assert_eq!(sessions.judge(&idle, true).await, SessionState::Unknown);
        assert!(matches!(sessions.judge(&first, true).await, SessionState::Active(_)), "it is in use");
        sessions.begin().await.expect("begun");
        assert_eq!(sessions.judge(&first, true).await, SessionState::Unknown, "then the oldest");
    }

    #[tokio::test]
    async fn what_waits_for_a_session_learns_that_it_ended() {
        let folder = TempDir::new().expect("a folder");
        let settings = Store::open(folder.path().join("deskgate.db")).await.expect("opens").settings();
        let (seconds, wall) = clock();
        let sessions = Sessions::load(settings, wall).await.expect("loaded");
        let digest = |value: &str| Sha256Digest::of(value.as_bytes());
        let (aged, _) = sessions.begin().await.expect("begun");
        // A second before its end, so that this test takes no longer.
        seconds.fetch_add(12 * 3600 - 1, Ordering::SeqCst);
        let (signed_out, _) = sessions.begin().await.expect("begun");
        sessions.until_ended(digest(&aged)).await;
        assert_eq!(sessions.judge(&aged, true).await, SessionState::Ended);
        assert!(matches!(sessions.judge(&signed_out, true).await, SessionState::Active(_)));
        let (_, ended) = tokio::join!(sessions.until_ended(digest(&signed_out)), sessions.end_all());
        ended.expect("saved");
    }

    #[test]
    fn the_time_of_sessions_never_goes_back_and_stands_still_for_nobody() {
        let second = Duration::from_secs(1);
        assert_eq!(later(at(100), second, at(101)), at(101), "as the clock shows");
        assert_eq!(later(at(100), second, at(50)), at(101), "a clock that was set back");
        assert_eq!(later(at(100), second, at(5000)), at(5000), "the computer slept");
    }
}
