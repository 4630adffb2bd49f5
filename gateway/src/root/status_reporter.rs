//! Reports to the service manager: the gateway's state, and that it is alive.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::health::HealthSnapshot;
use crate::heartbeat::Heartbeat;
use crate::sd_notify::ServiceNotifier;
use crate::storage::ObjectStorage;
use crate::store::Store;

/// The pause between two status reports.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// Reports until `stop`. `turning` is renewed whenever the upkeep loop takes a step, whether or not the database
/// answers: a gateway whose loop hangs is to be killed, and one without a database is not.
pub(super) async fn run(
    manager: ServiceNotifier,
    (store, storage): (Store, ObjectStorage),
    turning: Heartbeat,
    stop: CancellationToken,
) {
    // Half of the watchdog's interval: one report may come late.
    let every = manager.watchdog().map_or(STATUS_INTERVAL, |watchdog| (watchdog / 2).min(STATUS_INTERVAL));
    let mut said = String::new();
    loop {
        if manager.watchdog().is_none_or(|watchdog| turning.age() < watchdog) {
            manager.alive();
        }
        // A query to a hanging database must not delay the next report.
        if let Ok(status) = tokio::time::timeout(every / 2, status(&store, &storage)).await
            && status != said
        {
            manager.status(&status);
            said = status;
        }
        if stop.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
            return;
        }
    }
}

async fn status(store: &Store, storage: &ObjectStorage) -> String {
    let seen = HealthSnapshot::now(store, storage, Duration::ZERO).await;
    if seen.migration.is_none() {
        return "the database does not answer".to_owned();
    }
    let (connected, plural) = (seen.connected(), if seen.connected() == 1 { "" } else { "s" });
    let mut status = format!("{connected} device{plural} connected, {} queued", seen.waiting());
    if let Some(worst) = seen.problems().first() {
        status += &format!("; {}", worst.title);
    }
    status
}
