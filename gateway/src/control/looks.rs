//! One look a second for all devices of this gateway: hints can be lost, so what waits for a device is found here.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::store::Store;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Wakes the sessions for whose devices runs or control operations wait, until `stop`.
pub async fn look(store: Store, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        let devices = store.notifier().watched_devices();
        if devices.is_empty() {
            continue;
        }
        match store.waiting_work(&devices).await {
            Ok(waiting) => waiting.into_iter().for_each(|topic| store.notifier().notify_locally(topic)),
            // The next look finds it.
            Err(error) => tracing::warn!(devices = devices.len(), %error, "what waits for devices could not be read"),
        }
    }
}
