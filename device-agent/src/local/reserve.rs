//! Keeps the reserve of disk space while the agent works.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::handler::RequestHandler;
use super::keys::blocking;
use crate::health::reserve::Reserve;

/// The interval between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps it until the agent ends.
pub(crate) async fn follow(handler: RequestHandler) {
    let reserve = Reserve::of(&handler.own_folder);
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let kept = reserve.clone();
        if let Ok(Err(error)) = blocking(move || kept.keep()).await {
            tracing::warn!(%error, "this file system holds no room back for the journal");
            return std::future::pending().await;
        }
    }
}
