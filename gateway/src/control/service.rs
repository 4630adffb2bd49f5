//! What every session needs, and how a device got to it.

use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::{DeviceId, GatewayId};
use tokio_util::sync::CancellationToken;

use crate::domain::CallerLimits;
use crate::domain::accounts::Grant;
use crate::domain::admission::AdmissionService;
use crate::domain::desktop::{CallbackContext, Desktop};
use crate::domain::devices::SessionTimings;
use crate::encryption::DataCipher;
use crate::hosted::TokenVerifier;
use crate::store::Store;
use crate::tunnel::HostKeys;

/// What every session needs.
#[derive(Clone)]
pub struct ControlService {
    /// The database.
    pub store: Store,
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
    /// Verifies the tokens of accounts; `None`: accounts are not accepted.
    pub verifier: Option<TokenVerifier>,
    /// The keys of its own SSH listener; `None`: there is none.
    pub host_keys: Option<HostKeys>,
    /// Cancelled when the gateway stops.
    pub stop: CancellationToken,
}

/// How a device reached the handshake.
#[derive(Clone, Debug)]
pub(super) enum EntryMethod {
    /// Over a private connection, with the control token; with the key that the tunnel authenticated, if it was one of
    /// ours.
    Private(Option<PublicKey>),
    /// Over the public address, with an account's token.
    Account(Grant),
}

impl ControlService {
    /// The management service of one device.
    pub fn desktop(&self, device_id: DeviceId) -> Desktop {
        let (store, url) = (self.store.clone(), self.public_url.clone());
        let (admission, cipher, retention) = (self.admission.clone(), self.cipher.clone(), self.limits.retention);
        Desktop::new(store, device_id, admission, cipher, url, retention, self.callbacks.clone())
    }
}
