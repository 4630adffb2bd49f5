//! What the computer's sleep means for the runs and for the line.

use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use super::handle::{ActiveRunState, DispatcherHandle, DispatcherStatus};
use crate::link::LinkHandle;
use crate::power::{AwakeStatus, KeepAwake, Power, PowerEvent};

/// After a longer sleep the line is taken for dead. The gateway hangs up on a device that leaves two pings unanswered,
/// and this side would find that out only after three silent heartbeats.
const MAX_SLEEP_WITH_LINE: Duration = Duration::from_secs(5);
/// For the announcement to arrive: logind waits five seconds by default.
const SLEEP_ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps the computer awake while runs are active and its owner wishes it, announces its sleep, and is back at once when it wakes. Ends with
/// the dispatcher. `shown` tells whether the computer is kept awake.
pub async fn follow(
    shown: watch::Sender<AwakeStatus>,
    wish: watch::Receiver<KeepAwake>,
    dispatcher: DispatcherHandle,
    link: LinkHandle,
) {
    let mut status = dispatcher.watch();
    let mut power = Power::new(shown, wish).await;
    loop {
        let at_work = is_at_work(&status.borrow_and_update());
        power.keep_awake(at_work).await;
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            news = power.next() => match news {
                PowerEvent::Sleep(delay) => {
                    info!("this computer is about to sleep");
                    // Late or lost, it is no harm: then the device is away without a word.
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
