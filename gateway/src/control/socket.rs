//! The private Unix socket, the target of the forward of an existing OpenSSH server.

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::service::{ControlService, EntryMethod};

/// Connections beyond the limit that are being refused at once; further ones wait until one of them knows.
const MAX_REFUSALS: usize = 64;

/// Serves until the gateway stops. `most`: devices, and connections before their handshake, that it takes at once.
pub async fn serve(listener: UnixListener, most: usize, service: ControlService) {
    let (mut streams, mut refusals) = (JoinSet::new(), JoinSet::new());
    loop {
        tokio::select! {
            () = service.stop.cancelled() => break,
            Some(_) = streams.join_next() => {}
            Some(_) = refusals.join_next() => {}
            accepted = listener.accept(), if refusals.len() < MAX_REFUSALS => match accepted {
                Ok((stream, _)) if streams.len() < most => {
                    let (service, place) = (service.clone(), service.store.metrics().control_connection_opened());
                    streams.spawn(async move {
                        service.serve(stream, EntryMethod::Socket).await;
                        drop(place);
                    });
                }
                Ok((stream, _)) => {
                    refusals.spawn(refuse(service.clone(), stream, most));
                }
                Err(error) => {
                    tracing::warn!(%error, "a stream on the control socket could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Sessions say goodbye by themselves when the gateway stops.
    while streams.join_next().await.is_some() {}
}

/// Tells a device that there is no room for it.
async fn refuse(service: ControlService, stream: UnixStream, most: usize) {
    service.store.metrics().control_connection_refused();
    tracing::warn!(limit = most, "a device was refused: control.connections are open");
    let message = format!(
        "The gateway has as many devices connected as it takes ({most}). Its administrator can raise control.connections; \
         this device tries again by itself."
    );
    service.turn_away(stream, &message).await;
}
