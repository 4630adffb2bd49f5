//! Client for systemd-logind (or elogind) on the system bus: sleep signals and inhibitors.
//!
//! The `delay` inhibitor is released before each sleep and taken again after it, as
//! <https://systemd.io/INHIBITOR_LOCKS/> describes.

use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;
use zbus::zvariant::OwnedFd;

/// The timeout for the local service, which answers at once unless it is broken.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const INHIBITOR_NAME: &str = "Deskgate";

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1",
    gen_blocking = false
)]
trait Manager {
    /// Read anew each time: logind sends no change signal for it.
    #[zbus(property(emits_changed_signal = "false"))]
    fn on_external_power(&self) -> zbus::Result<bool>;

    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;

    #[zbus(signal)]
    fn prepare_for_sleep(&self, start: bool) -> zbus::Result<()>;
}

/// An inhibitor; dropping it releases it.
#[derive(Debug)]
pub(super) struct InhibitorLock {
    _descriptor: OwnedFd,
}

/// A signal of logind.
#[derive(Clone, Copy, Debug)]
pub(super) enum SleepSignal {
    Sleep,
    Wake,
}

/// The connection to logind.
#[derive(Debug)]
pub(super) struct Logind {
    manager: ManagerProxy<'static>,
    signals: PrepareForSleepStream,
    delay: Option<InhibitorLock>,
}

impl Logind {
    /// Connects. The error is for a person.
    pub(super) async fn connect() -> Result<Self, String> {
        let connected = async {
            let bus = zbus::Connection::system().await?;
            let manager = ManagerProxy::new(&bus).await?;
            // In this order no sleep signal is missed.
            let signals = manager.receive_prepare_for_sleep().await?;
            Ok(Self { manager, signals, delay: None })
        };
        in_time(connected).await
    }

    /// Delays the next sleep for the agent, for as long as logind's `InhibitDelayMaxSec` allows.
    pub(super) async fn hold_off_sleep(&mut self) -> Result<(), String> {
        if self.delay.is_none() {
            self.delay = Some(self.inhibit("sleep", "To tell the gateway that this computer sleeps", "delay").await?);
        }
        Ok(())
    }

    /// The inhibitor that delays the sleep which is about to begin.
    pub(super) fn take_delay(&mut self) -> Option<InhibitorLock> {
        self.delay.take()
    }

    /// Prevents automatic sleep of an idle computer.
    pub(super) async fn keep_awake(&self) -> Result<InhibitorLock, String> {
        self.inhibit("idle", "A run is being executed", "block").await
    }

    /// Whether the computer is on mains, as far as logind knows: a computer without a battery is.
    pub(super) async fn is_on_mains(&self) -> Result<bool, String> {
        in_time(self.manager.on_external_power()).await
    }

    async fn inhibit(&self, what: &str, why: &str, mode: &str) -> Result<InhibitorLock, String> {
        let descriptor = in_time(self.manager.inhibit(what, INHIBITOR_NAME, why, mode)).await?;
        Ok(InhibitorLock { _descriptor: descriptor })
    }

    /// The next signal; `None` when the bus is gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<SleepSignal> {
        loop {
            let signal = self.signals.next().await?;
            match signal.args() {
                Ok(arguments) if arguments.start => return Some(SleepSignal::Sleep),
                Ok(_) => return Some(SleepSignal::Wake),
                Err(error) => tracing::debug!(%error, "a signal of logind that is not understood"),
            }
        }
    }
}

async fn in_time<T>(work: impl Future<Output = zbus::Result<T>>) -> Result<T, String> {
    match timeout(REPLY_TIMEOUT, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("the system's login service (logind): {error}")),
        Err(_) => Err("the system's login service (logind) does not answer".to_owned()),
    }
}
