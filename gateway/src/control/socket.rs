//! The private Unix socket, where the forward of an existing OpenSSH server lands.

use std::io;
use std::path::Path;

use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::door::Door;

/// Streams that may be open at once: devices, and those that are still to say who they are.
const STREAMS: usize = 512;

/// Binds the socket with mode 0660. A socket that a killed predecessor left is replaced; one that
/// somebody answers on is not.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    crate::socket::bind(path, 0o660)
}

/// Serves until `stop`.
pub async fn serve(listener: UnixListener, door: Door, stop: CancellationToken) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = streams.join_next() => {}
            accepted = listener.accept(), if streams.len() < STREAMS => match accepted {
                Ok((stream, _)) => {
                    let door = door.clone();
                    streams.spawn(async move { door.serve(Box::new(stream), None).await });
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
