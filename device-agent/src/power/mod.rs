//! When this computer sleeps and wakes, and what keeps it awake while it works.
//!
//! | source | what it knows |
//! |---|---|
//! | `logind` | that sleep is about to begin, while it waits for us; that the computer woke; keeps it awake |
//! | `clocks` | how long it slept, once it is awake again; on every Linux, without asking anybody |

mod clocks;
#[cfg(all(target_os = "linux", feature = "logind"))]
mod logind;
#[cfg(not(all(target_os = "linux", feature = "logind")))]
#[path = "without_logind.rs"]
mod logind;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use clocks::Clocks;
use logind::{Logind, Signal};

/// Between two looks at the clocks. They stand still during sleep, so wake is noticed this late at most.
const LOOK: Duration = Duration::from_secs(2);
/// Until logind is looked for again after it was not there.
const LOOK_FOR_LOGIND: Duration = Duration::from_secs(60);

/// What happened.
#[derive(Debug)]
pub enum News {
    /// The computer goes to sleep when this is dropped, or a few seconds after it was said.
    Sleep(Delay),
    /// It is awake, or did not fall asleep after all.
    Wake {
        /// How long it slept; zero if that cannot be told.
        slept: Duration,
    },
}

/// Holds sleep off for the moment it takes to prepare for it.
#[derive(Debug)]
pub struct Delay {
    _held: Option<logind::Lock>,
}

/// Whether the computer is kept from falling asleep by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeptAwake {
    /// Nothing is at work.
    NotNeeded,
    /// It does not fall asleep while idle.
    Yes,
    /// It may fall asleep at work.
    No {
        /// Why, for a person.
        why: String,
    },
}

/// This computer's sleep.
#[derive(Debug)]
pub struct Power {
    logind: Result<Logind, String>,
    looked_at: Instant,
    awake: Option<logind::Lock>,
    busy: bool,
    clocks: Clocks,
    look: tokio::time::Interval,
    shown: watch::Sender<KeptAwake>,
}

impl Power {
    /// Looks for logind; without it only wake is noticed.
    pub async fn new() -> Self {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shown = watch::Sender::new(KeptAwake::NotNeeded);
        let (logind, looked_at) = (Err(String::new()), Instant::now());
        let mut power = Self { logind, looked_at, awake: None, busy: false, clocks: Clocks::now(), look, shown };
        power.connect().await;
        if let Err(why) = &power.logind {
            tracing::info!(why, "sleep is noticed only afterwards, and this computer is not kept awake");
        }
        power
    }

    async fn connect(&mut self) {
        self.looked_at = Instant::now();
        self.logind = Logind::connect().await;
        self.hold_off_next_sleep().await;
    }

    /// Whether the computer is kept awake, now and after each change.
    pub fn kept_awake(&self) -> watch::Receiver<KeptAwake> {
        self.shown.subscribe()
    }

    /// Keeps the computer from falling asleep by itself while something is at work. A person who sends it to sleep
    /// is not held up.
    pub async fn keep_awake(&mut self, busy: bool) {
        self.busy = busy;
        let state = match (busy, &self.logind, &self.awake) {
            (false, ..) => {
                self.awake = None;
                KeptAwake::NotNeeded
            }
            (true, _, Some(_)) => KeptAwake::Yes,
            (true, Err(why), None) => KeptAwake::No { why: why.clone() },
            (true, Ok(logind), None) => match logind.keep_awake().await {
                Ok(lock) => {
                    self.awake = Some(lock);
                    KeptAwake::Yes
                }
                Err(why) => KeptAwake::No { why },
            },
        };
        if let KeptAwake::No { why } = &state
            && *self.shown.borrow() != state
        {
            tracing::warn!(why, "this computer may fall asleep during a run");
        }
        self.shown.send_if_modified(|shown| std::mem::replace(shown, state.clone()) != state);
    }

    /// Waits for news. Cancel-safe.
    pub async fn next(&mut self) -> News {
        loop {
            tokio::select! {
                signal = signal(&mut self.logind) => match signal {
                    Some(Signal::Sleep) => return News::Sleep(self.delay()),
                    Some(Signal::Wake) => {
                        self.hold_off_next_sleep().await;
                        return News::Wake { slept: self.clocks.slept() };
                    }
                    // Nobody says any more that the computer woke, so nobody may wait for it.
                    None => {
                        self.lose("the system's login service went away".to_owned()).await;
                        return News::Wake { slept: self.clocks.slept() };
                    }
                },
                _ = self.look.tick() => {
                    let slept = self.clocks.slept();
                    if !slept.is_zero() {
                        return News::Wake { slept };
                    }
                    self.look_for_logind().await;
                }
            }
        }
    }

    fn delay(&mut self) -> Delay {
        Delay { _held: self.logind.as_mut().ok().and_then(Logind::take_delay) }
    }

    async fn hold_off_next_sleep(&mut self) {
        if let Ok(logind) = &mut self.logind
            && let Err(why) = logind.hold_off_sleep().await
        {
            tracing::warn!(why, "the next sleep will not wait for this device");
        }
    }

    async fn lose(&mut self, why: String) {
        tracing::warn!(why, "sleep is noticed only afterwards from now on");
        self.logind = Err(why);
        self.looked_at = Instant::now();
        self.awake = None;
        self.keep_awake(self.busy).await;
    }

    async fn look_for_logind(&mut self) {
        if self.logind.is_ok() || self.looked_at.elapsed() < LOOK_FOR_LOGIND {
            return;
        }
        self.connect().await;
        self.keep_awake(self.busy).await;
    }
}

async fn signal(logind: &mut Result<Logind, String>) -> Option<Signal> {
    match logind {
        Ok(logind) => logind.next().await,
        Err(_) => std::future::pending().await,
    }
}
