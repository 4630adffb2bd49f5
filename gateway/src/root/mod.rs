//! The composition root's own files: what a gateway is started with, how it starts, and how it stops.

mod error;
mod hosted;
mod listeners;
mod pipes;
mod reload;
mod settings;
mod start;
mod status_reporter;
mod tunnel;

use std::time::Duration;

use deskgate_protocol::secret::ControlToken;
pub use error::StartError;
pub use pipes::Pipes;
use reload::Reloader;
pub use settings::{DatabaseSettings, Settings};
use tokio_util::sync::CancellationToken;

use crate::addresses::Addresses;
use crate::control::service::ControlService;
use crate::store::Store;
use crate::store::cluster::Cluster;
use crate::tls;
use deskgate_program::tasks::Tasks;

/// What is under way has so long to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// A running gateway.
pub struct Gateway {
    /// Cancelled first: nothing more is admitted, and whoever waits is told.
    draining: CancellationToken,
    /// How long that lasts before the doors close.
    drain: Duration,
    /// What lets callers and devices in. Finishes what is under way.
    doors: Tasks,
    /// What the doors need until they are closed.
    works: Tasks,
    broken: CancellationToken,
    addresses: Addresses,
    door: ControlService,
    token: ControlToken,
    reload: Reloader,
    cluster: Option<Cluster>,
}

impl Gateway {
    /// Where it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The token that opens its control channel.
    pub fn control_token(&self) -> &ControlToken {
        &self.token
    }

    /// Its database.
    pub fn store(&self) -> &Store {
        &self.door.store
    }

    /// Control channels inside this process.
    pub fn pipes(&self) -> Pipes {
        Pipes { doors: self.doors.clone(), door: self.door.clone() }
    }

    /// Reads again what can change without a restart: the certificate. After an error, which the
    /// log tells, everything is as it was.
    pub fn reload(&self) -> Result<&'static str, tls::TlsError> {
        self.reload.now()
    }

    /// Cancelled when a part of it broke; whoever owns it should stop it then.
    pub fn broken(&self) -> CancellationToken {
        self.broken.clone()
    }

    /// Admits nothing more, says so for a while, finishes what is under way, stops everything.
    pub async fn stop(self) {
        let Self { draining, drain, doors, works, door, cluster, reload, .. } = self;
        if let Some(manager) = &reload.manager {
            manager.stopping();
        }
        drop(door);
        draining.cancel();
        // Whoever distributes the calls asks for readiness now and then, and goes elsewhere.
        tokio::time::sleep(drain).await;
        let closed = doors.stop(DRAIN_TIMEOUT).await;
        if !(works.stop(Duration::from_secs(5)).await && closed) {
            tracing::warn!("some tasks did not end in time");
        }
        if let Some(cluster) = cluster {
            cluster.stop().await;
        }
    }
}
