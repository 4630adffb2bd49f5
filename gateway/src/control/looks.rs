//! One look a second for all devices of this gateway: hints can be lost, so what waits for a device is found here.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::store::Store;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Wakes the sessions for whose devices runs or control operations wait, until `stop`.
pub async fn look(store: Store, stop: CancellationToken) {
    let mut fails = false;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_some() {
        let devices = store.notifier().watched_devices();
        if devices.is_empty() {
            continue;
        }
        let waiting = store.waiting_work(&devices).await;
        if let Err(error) = &waiting
            && !fails
        {
            tracing::warn!(devices = devices.len(), %error, "what waits for devices cannot be read; looking again each second");
        }
        fails = waiting.is_err();
        waiting.into_iter().flatten().for_each(|topic| store.notifier().notify_locally(topic));
    }
}
