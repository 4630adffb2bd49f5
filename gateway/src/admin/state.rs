//! What the administrator's service answers from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::DeviceId;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::management::Actor;

use crate::addresses::Addresses;
use crate::domain::desktop::Desktop;
use crate::domain::trial::TrialTickets;
use crate::heartbeat::Heartbeat;
use crate::storage::ObjectStorage;
use crate::store::{self, Store};
use crate::tls::{ServerTls, TlsError};
use crate::tunnel::HostKeys;

/// What the service needs for its answers.
#[derive(Clone)]
pub struct AdminService {
    /// The database.
    pub store: Store,
    /// Where bytes are kept.
    pub storage: ObjectStorage,
    /// The gateway's addresses.
    pub addresses: Addresses,
    /// The keys of its own SSH listener.
    pub host_keys: Option<HostKeys>,
    /// The host keys of the sshd before the control socket; empty: they are not known here.
    pub sshd_host_keys: Vec<PublicKey>,
    /// The private control socket.
    pub control_socket: Option<PathBuf>,
    /// The file of the gateway's own control token; `None` when the token was configured.
    pub token_file: Option<PathBuf>,
    /// The retention of ended runs.
    pub retention: Duration,
    /// The public listener's certificate.
    pub tls: Option<ServerTls>,
    /// Reloads what can change without a restart.
    pub reload: Arc<dyn Fn() -> Result<&'static str, TlsError> + Send + Sync>,
    /// Creates tickets for trial streams.
    pub trials: TrialTickets,
    /// The heartbeat of the queue's upkeep.
    pub queue: Heartbeat,
    /// The address of the private cluster, if the database is one.
    pub private_cluster: Option<String>,
    /// The management service of one device.
    pub desks: Arc<dyn Fn(DeviceId) -> Desktop + Send + Sync>,
}

impl AdminService {
    /// The management service of one device, used by the administrator.
    pub(super) fn desktop_of(&self, device_id: DeviceId) -> Desktop {
        (self.desks)(device_id).asked_by(Actor::Administrator)
    }

    pub(super) async fn device_names(&self) -> Result<BTreeMap<DeviceId, String>, store::Error> {
        Ok(self.store.devices().await?.into_iter().map(|device| (device.device_id, device.name)).collect())
    }
}
