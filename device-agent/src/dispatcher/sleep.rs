//! The computer's sleep: its announcement to the gateway, and the connection after it.

use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use super::handle::{ActiveRunState, DispatcherHandle, DispatcherStatus};
use crate::link::LinkHandle;
use crate::power::{AwakeStatus, KeepAwake, Power, PowerEvent};

/// After a longer sleep the connection counts as dead. The gateway closes it after two unanswered pings, and this side
/// would notice only after three missed heartbeats.
const MAX_SLEEP_WITH_LINE: Duration = Duration::from_secs(5);
/// The timeout for the announcement: logind waits five seconds by default.
const SLEEP_ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps the computer awake while runs are active if its owner chose that, announces its sleep, and reconnects at once
/// when it wakes up. Ends with the dispatcher. `shown` holds whether the computer is kept awake.
pub async fn follow(
    shown: watch::Sender<AwakeStatus>,
    preference: watch::Receiver<KeepAwake>,
    dispatcher: DispatcherHandle,
    link: LinkHandle,
) {
    let mut status = dispatcher.watch();
    let mut power = Power::new(shown, preference).await;
    loop {
        let at_work = is_at_work(&status.borrow_and_update());
        power.keep_awake(at_work).await;
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            news = power.next() => match news {
                PowerEvent::Sleep(delay) => {
                    info!("this computer is about to sleep");
                    // A late or lost announcement is harmless: the device is then disconnected without notice.
                    let _ = tokio::time::timeout(SLEEP_ANNOUNCEMENT_TIMEOUT, dispatcher.suspend()).await;
                    drop(delay);
                }
                PowerEvent::Wake { slept } => {
                    info!(slept_s = slept.as_secs(), "this computer is awake");
                    dispatcher.resume().await;
                    if slept > MAX_SLEEP_WITH_LINE {
                        link.redial();
                    }
                }
            },
        }
    }
}

fn is_at_work(status: &DispatcherStatus) -> bool {
    status.runs.iter().any(|run| matches!(run.standing, ActiveRunState::Taken | ActiveRunState::Running))
}
