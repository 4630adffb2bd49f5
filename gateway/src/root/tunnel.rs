//! Joins the tunnel to the rest: which keys it accepts, and where its channels lead.

use std::pin::Pin;

use deskgate_protocol::identity::PublicKey;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::control::service::{ControlService, EntryMethod};
use crate::store::Store;
use crate::tunnel::{Arrival, KeyAdmission, KeyStatus};

/// Serves the devices that connected through the tunnel, until the services close.
pub(super) async fn receive(mut arrivals: mpsc::Receiver<Arrival>, service: ControlService) {
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            () = service.stop.cancelled() => break,
            Some(_) = sessions.join_next() => {}
            arrival = arrivals.recv() => match arrival {
                Some(Arrival { public_key, host_key, stream, .. }) => {
                    let service = service.clone();
                    let way = EntryMethod::Tunnel { device: public_key, host_key };
                    sessions.spawn(async move { service.serve(stream, way).await });
                }
                None => break,
            },
        }
    }
    // Sessions say goodbye by themselves when the gateway stops.
    while sessions.join_next().await.is_some() {}
}

/// Accepts the keys of paired devices in the tunnel, and those of invitations.
pub(super) struct PairedDevices(pub(super) Store);

impl KeyAdmission for PairedDevices {
    fn admit<'a>(&'a self, key: &'a PublicKey) -> Pin<Box<dyn Future<Output = KeyStatus> + Send + 'a>> {
        Box::pin(async move {
            match self.0.device_by_key(key).await {
                Ok(Some(device)) if device.revoked_at.is_some() => KeyStatus::Revoked,
                // It connects with its account, and no other way.
                Ok(Some(device)) if device.account.is_some() => KeyStatus::Unknown,
                Ok(Some(_)) => KeyStatus::Admit,
                Ok(None) => match self.0.is_invited(key).await {
                    Ok(true) => KeyStatus::Admit,
                    Ok(false) => KeyStatus::Unknown,
                    Err(_) => KeyStatus::Unavailable,
                },
                Err(_) => KeyStatus::Unavailable,
            }
        })
    }
}
