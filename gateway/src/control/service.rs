//! What every session needs, and how a device got to it.

use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::{DeviceId, GatewayId};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::renewals::Renewals;
use crate::domain::CallerLimits;
use crate::domain::accounts::Grant;
use crate::domain::admission::AdmissionService;
use crate::domain::desktop::{CallbackContext, Desktop};
use crate::domain::devices::{ExpectedServer, SessionTimings};
use crate::domain::transfers::TransferService;
use crate::encryption::DataCipher;
use crate::hosted::TokenVerifier;
use crate::store::Store;
use crate::store::attempts::{Claims, Reports};
use crate::tunnel::HostKeys;

/// What every session needs.
#[derive(Clone)]
pub struct ControlService {
    /// The database.
    pub store: Store,
    /// The entrance for devices that have room for runs.
    pub claims: Claims,
    /// The entrance for what devices report.
    pub reports: Reports,
    /// The entrance for the renewals of leases.
    pub renewals: Renewals,
    /// This gateway's identifier.
    pub gateway_id: GatewayId,
    /// The times of a session.
    pub clocks: SessionTimings,
    /// Admits the owner's own runs.
    pub admission: AdmissionService,
    /// Callers' limits, among them the retention of ended runs.
    pub limits: CallerLimits,
    /// The gateway's part in callbacks.
    pub callbacks: CallbackContext,
    /// Encrypts the secrets of webhooks.
    pub cipher: DataCipher,
    /// The address that backends use, without `/api/v1`.
    pub public_url: String,
    /// The public address as devices with accounts recognise it, `https://host` and perhaps a port.
    pub origin: String,
    /// The host keys of the sshd before the control socket; empty: they are not known here.
    pub sshd_host_keys: Vec<PublicKey>,
    /// Verifies the tokens of accounts; `None`: accounts are not accepted.
    pub verifier: Option<TokenVerifier>,
    /// How long ended runs are kept, for devices to heed it; `None`: the device's owner decides for both.
    pub told_retention: Option<Duration>,
    /// The keys of its own SSH listener; `None`: there is none.
    pub host_keys: Option<HostKeys>,
    /// Places for devices that wait with an invitation.
    pub invited: Arc<Semaphore>,
    /// Gives and takes the bytes of runs.
    pub transfers: TransferService,
    /// Cancelled when the gateway stops.
    pub stop: CancellationToken,
}

/// How a device reached the handshake.
#[derive(Clone, Debug)]
pub enum EntryMethod {
    /// Through this gateway's own SSH listener, with the control token.
    Tunnel {
        /// The key that the tunnel authenticated.
        device: PublicKey,
        /// The host key that was shown to it.
        host_key: PublicKey,
    },
    /// Through the server's own sshd and the control socket, with the control token.
    Socket,
    /// Through a pipe inside the process, with the control token.
    Pipe,
    /// Over the public address, with an account's token.
    Account(Grant),
}

impl EntryMethod {
    /// The key that the tunnel authenticated, if it was our tunnel.
    pub(super) fn tunnel_key(&self) -> Option<PublicKey> {
        if let Self::Tunnel { device, .. } = self { Some(*device) } else { None }
    }

    /// By what a device that came this way has recognised the server.
    pub(super) fn server(&self, service: &ControlService) -> ExpectedServer {
        match self {
            Self::Tunnel { host_key, .. } => ExpectedServer::HostKeys(vec![*host_key]),
            Self::Socket => ExpectedServer::HostKeys(service.sshd_host_keys.clone()),
            Self::Pipe => ExpectedServer::BuiltIn,
            Self::Account(_) => ExpectedServer::Origin(service.origin.clone()),
        }
    }
}

impl ControlService {
    /// The management service of one device.
    pub fn desktop(&self, device_id: DeviceId) -> Desktop {
        let (store, url) = (self.store.clone(), self.public_url.clone());
        let (admission, cipher, retention) = (self.admission.clone(), self.cipher.clone(), self.limits.retention);
        Desktop::new(store, device_id, admission, cipher, url, retention, self.callbacks.clone())
    }
}
