//! The private Unix socket, the target of the forward of an existing OpenSSH server.

use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::service::{ControlService, EntryMethod};

/// Streams that may be open at once: devices, and connections before their handshake.
const MAX_STREAMS: usize = 512;

/// Serves until the gateway stops.
pub async fn serve(listener: UnixListener, service: ControlService) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            () = service.stop.cancelled() => break,
            Some(_) = streams.join_next() => {}
            accepted = listener.accept(), if streams.len() < MAX_STREAMS => match accepted {
                Ok((stream, _)) => {
                    let service = service.clone();
                    streams.spawn(async move { service.serve(stream, EntryMethod::Socket).await });
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
