//! After a restore: asks a device which of the runs that had not begun its journal never had.

use deskgate_protocol::control::GatewayFrame;
use tokio::sync::mpsc;

use super::service::ControlService;
use crate::store::leases::SessionKey;

/// Asks about all of them once. Those that are not answered for wait for the next session, or for their owner.
pub(super) async fn ask(service: ControlService, session: SessionKey, frames: mpsc::Sender<GatewayFrame>) {
    let mut last = None;
    loop {
        let runs = match service.store.runs_to_recall(session, last).await {
            Ok(runs) => runs,
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "which runs are in doubt could not be read; the \
                    device is asked in its next session");
                return;
            }
        };
        last = runs.last().copied();
        if last.is_none() || frames.send(GatewayFrame::Recall { runs }).await.is_err() {
            return;
        }
    }
}
