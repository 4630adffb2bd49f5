//! The composition root's own files: a gateway's settings, its start, and its stop.

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

/// The time for finishing what is under way.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// A running gateway.
pub struct Gateway {
    /// Cancelled first: no more work is admitted, and waiting callers are answered.
    draining: CancellationToken,
    /// The pause before the services close.
    drain: Duration,
    /// The services for callers and devices. They finish what is under way.
    doors: Tasks,
    /// The tasks that the services need until they are closed.
    works: Tasks,
    broken: CancellationToken,
    addresses: Addresses,
    service: ControlService,
    token: ControlToken,
    reload: Reloader,
    cluster: Option<Cluster>,
}

impl Gateway {
    /// The addresses at which it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The token for its control channel.
    pub fn control_token(&self) -> &ControlToken {
        &self.token
    }

    /// Its database.
    pub fn store(&self) -> &Store {
        &self.service.store
    }

    /// Control channels inside this process.
    pub fn pipes(&self) -> Pipes {
        Pipes { doors: self.doors.clone(), service: self.service.clone() }
    }

    /// Reloads what can change without a restart: the certificate. After an error, which is in the log, the old state
    /// stays.
    ///
    /// # Errors
    /// The certificate or its key cannot be read.
    pub fn reload(&self) -> Result<&'static str, tls::TlsError> {
        self.reload.now()
    }

    /// Cancelled when a part of it broke; the owner should stop it then.
    pub fn broken(&self) -> CancellationToken {
        self.broken.clone()
    }

    /// Admits no more work, reports that for a while, finishes what is under way, stops everything.
    pub async fn stop(self) {
        let Self { draining, drain, doors, works, service, cluster, reload, .. } = self;
        if let Some(manager) = &reload.manager {
            manager.stopping();
        }
        drop(service);
        draining.cancel();
        // The load balancer polls readiness, and chooses another replica.
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
