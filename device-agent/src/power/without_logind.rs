//! Where logind is not, or was left out of this build: nothing is known before sleep, and nothing holds it off.

/// There is none to have.
#[derive(Debug)]
pub(super) enum InhibitorLock {}

/// What would be said.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the words of the real one")]
pub(super) enum SleepSignal {
    Sleep,
    Wake,
}

/// Never made.
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
