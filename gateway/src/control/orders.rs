//! Control operations on their way to the device: each once in every session, until the device confirms it.

use std::time::Duration;

use deskgate_protocol::control::GatewayFrame;
use tokio::sync::mpsc;

use super::service::ControlService;
use crate::notify::Topic;
use crate::store::leases::SessionKey;
use crate::store::operations::OrderSelection;

/// The pause before operations that could not be read are read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Sends open operations to the device until the session ends.
pub(super) async fn deliver(service: ControlService, session: SessionKey, frames: mpsc::Sender<GatewayFrame>) {
    let mut watcher = service.store.notifier().watch(Topic::Control(session.device_id));
    let mut which = OrderSelection::New;
    loop {
        match service.store.deliver(session, which).await {
            Ok(orders) => {
                which = OrderSelection::New;
                for (operation_id, order) in orders {
                    tracing::info!(%operation_id, ?order, device_id = %session.device_id, "operation delivered");
                    if frames.send(GatewayFrame::Control { operation_id, order }).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "operations could not be read");
                // They may be marked as delivered although the device has not read them.
                which = OrderSelection::All;
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        }
        watcher.changed().await;
    }
}
