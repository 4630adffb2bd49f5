//! This computer's sleep and wake-up, and keeping it awake during work.
//!
//! | source | what it provides |
//! |---|---|
//! | `logind` | the start of sleep, delayed for the agent; the wake-up; an inhibitor; mains or battery |
//! | `keep_awake` | the owner's setting |
//! | `clocks` | how long it slept, after the wake-up; on every Linux, without a service |

mod clocks;
#[cfg(all(target_os = "linux", feature = "logind"))]
mod logind;
#[cfg(not(all(target_os = "linux", feature = "logind")))]
#[path = "without_logind.rs"]
mod logind;

mod keep_awake;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use clocks::SleepClocks;
pub use keep_awake::KeepAwake;
use logind::{Logind, SleepSignal};

/// The interval between two readings of the clocks. They stand still during sleep, so a wake-up is noticed this late at
/// most.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The interval between two attempts to reach logind.
const LOGIND_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// A power event.
#[derive(Debug)]
pub enum PowerEvent {
    /// The computer goes to sleep when this is dropped, or a few seconds after the signal.
    Sleep(SleepDelay),
    /// It is awake, or did not fall asleep after all.
    Wake {
        /// How long it slept; zero if unknown.
        slept: Duration,
    },
}

/// Delays sleep for the moment it takes to prepare for it.
#[derive(Debug)]
pub struct SleepDelay {
    _held: Option<logind::InhibitorLock>,
}

/// Whether the computer is kept from automatic sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum AwakeStatus {
    /// No run is active.
    NotNeeded,
    /// Its owner does not want it.
    NotWanted,
    /// Automatic sleep is prevented.
    Yes,
    /// It may fall asleep during work.
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
    awake: Option<logind::InhibitorLock>,
    busy: bool,
    /// Between logind's two signals: sleep is not delayed any more, and must not be.
    asleep: bool,
    /// A failure to delay sleep was logged, and is not resolved yet.
    complained: bool,
    /// The logged reason why it may fall asleep during work, until it is kept awake again.
    warned: Option<String>,
    clocks: SleepClocks,
    look: tokio::time::Interval,
    shown: watch::Sender<AwakeStatus>,
    preference: watch::Receiver<KeepAwake>,
}

impl Power {
    /// Connects to logind; without it only the wake-up is noticed. `shown` holds whether the computer is kept awake,
    /// now and after each change; `wish` is the owner's setting.
    pub async fn new(shown: watch::Sender<AwakeStatus>, preference: watch::Receiver<KeepAwake>) -> Self {
        let mut look = interval(CLOCK_POLL_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let clocks = SleepClocks::now();
        let logind = Logind::connect().await;
        if let Err(why) = &logind {
            tracing::info!(why, "sleep is noticed only afterwards, and this computer is not kept awake");
        }
        let looked_at = Instant::now();
        let (awake, busy, asleep, complained, warned) = (None, false, false, false, None);
        Self { logind, looked_at, awake, busy, asleep, complained, warned, clocks, look, shown, preference }
    }

    /// Prevents automatic sleep during work. A person can still send the computer to sleep.
    pub async fn keep_awake(&mut self, busy: bool) {
        self.busy = busy;
        let preference = *self.preference.borrow_and_update();
        let state = match (busy, preference) {
            (false, _) => AwakeStatus::NotNeeded,
            (true, KeepAwake::Never) => AwakeStatus::NotWanted,
            (true, preference) => match self.stay_awake(preference).await {
                Ok(()) => AwakeStatus::Yes,
                Err(why) => AwakeStatus::No { why },
            },
        };
        if state != AwakeStatus::Yes {
            self.awake = None;
        }
        match &state {
            AwakeStatus::Yes => self.warned = None,
            // Runs come and go; the reason is the same for all of them.
            AwakeStatus::No { why } if self.warned.as_ref() != Some(why) => {
                tracing::warn!(why, "this computer may fall asleep during a run");
                self.warned = Some(why.clone());
            }
            AwakeStatus::No { .. } | AwakeStatus::NotNeeded | AwakeStatus::NotWanted => {}
        }
        self.shown.send_if_modified(|shown| std::mem::replace(shown, state.clone()) != state);
    }

    /// Takes the inhibitor if it is not held. The error is for a person.
    async fn stay_awake(&mut self, preference: KeepAwake) -> Result<(), String> {
        let logind = self.logind.as_ref().map_err(Clone::clone)?;
        if preference == KeepAwake::OnAc {
            let unknown =
                |why| format!("it is to be kept awake on mains only, and whether it is on mains is not known ({why})");
            if !logind.is_on_mains().await.map_err(unknown)? {
                return Err("it runs on battery, and is to be kept awake on mains only".to_owned());
            }
        }
        if self.awake.is_none() {
            self.awake = Some(logind.keep_awake().await?);
        }
        Ok(())
    }

    /// Waits for the next event. Cancel-safe: it does not await between an event and its return, and an unfinished
    /// reading is repeated by the next call.
    pub async fn next(&mut self) -> PowerEvent {
        loop {
            tokio::select! {
                signal = signal(&mut self.logind) => return match signal {
                    Some(SleepSignal::Sleep) => self.falls_asleep(),
                    Some(SleepSignal::Wake) => self.woke(),
                    None => {
                        self.lose("the system's login service went away".to_owned());
                        // Without logind no wake-up signal comes, so the sleep counts as over.
                        self.woke()
                    }
                },
                _ = self.look.tick() => {
                    let slept = self.clocks.slept();
                    if !slept.is_zero() {
                        self.asleep = false;
                        return PowerEvent::Wake { slept };
                    }
                    self.look_for_logind().await;
                    self.hold_off_next_sleep().await;
                    if self.busy && *self.preference.borrow() == KeepAwake::OnAc {
                        // The cable may have been pulled, or put in.
                        self.keep_awake(self.busy).await;
                    }
                }
                Ok(()) = self.preference.changed() => self.keep_awake(self.busy).await,
            }
        }
    }

    fn falls_asleep(&mut self) -> PowerEvent {
        self.asleep = true;
        PowerEvent::Sleep(SleepDelay { _held: self.logind.as_mut().ok().and_then(Logind::take_delay) })
    }

    fn woke(&mut self) -> PowerEvent {
        self.asleep = false;
        // The next sleep is delayed at once.
        self.look.reset_immediately();
        PowerEvent::Wake { slept: self.clocks.slept() }
    }

    async fn hold_off_next_sleep(&mut self) {
        let Ok(logind) = &mut self.logind else { return };
        if self.asleep {
            return;
        }
        match logind.hold_off_sleep().await {
            Ok(()) => self.complained = false,
            Err(why) if !self.complained => {
                self.complained = true;
                tracing::warn!(why, "the next sleep will not wait for this device; trying again");
            }
            Err(_) => {}
        }
    }

    /// The caller requests to be kept awake again after each event, and then sees that it failed.
    fn lose(&mut self, why: String) {
        tracing::warn!(why, "sleep is noticed only afterwards from now on");
        self.logind = Err(why);
        self.looked_at = Instant::now();
        self.awake = None;
    }

    async fn look_for_logind(&mut self) {
        if self.logind.is_ok() || self.looked_at.elapsed() < LOGIND_RETRY_INTERVAL {
            return;
        }
        self.logind = Logind::connect().await;
        self.looked_at = Instant::now();
        self.keep_awake(self.busy).await;
    }
}

async fn signal(logind: &mut Result<Logind, String>) -> Option<SleepSignal> {
    match logind {
        Ok(logind) => logind.next().await,
        Err(_) => std::future::pending().await,
    }
}
