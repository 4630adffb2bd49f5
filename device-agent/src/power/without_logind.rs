//! Stands in for logind where it is missing, or was left out of the build: sleep is neither announced nor delayed.

/// Has no values.
#[derive(Debug)]
pub(super) enum InhibitorLock {}

/// The signals that logind would send.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the words of the real one")]
pub(super) enum SleepSignal {
    Sleep,
    Wake,
}

/// Has no values.
#[derive(Debug)]
pub(super) enum Logind {}

impl Logind {
    pub(super) async fn connect() -> Result<Self, String> {
        Err("this build cannot keep the computer awake".to_owned())
    }

    pub(super) async fn hold_off_sleep(&mut self) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn take_delay(&mut self) -> Option<InhibitorLock> {
        match *self {}
    }

    pub(super) async fn keep_awake(&self) -> Result<InhibitorLock, String> {
        match *self {}
    }

    pub(super) async fn is_on_mains(&self) -> Result<bool, String> {
        match *self {}
    }

    pub(super) async fn next(&mut self) -> Option<SleepSignal> {
        match *self {}
    }
}
