//! Control channels inside the gateway's own process, for the built-in mode.

use tokio::io::DuplexStream;

use crate::control::service::{ControlService, EntryMethod};
use deskgate_program::tasks::Tasks;

/// Bytes in an in-memory pipe.
const PIPE_BUFFER_BYTES: usize = 64 * 1024;

/// Opens control channels inside the gateway's process.
#[derive(Clone)]
pub struct Pipes {
    pub(super) doors: Tasks,
    pub(super) service: ControlService,
}

impl Pipes {
    /// The device's end of a fresh pipe. Once the gateway has stopped, it is closed at once.
    pub fn open(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BUFFER_BYTES);
        let service = self.service.clone();
        if !service.stop.is_cancelled() {
            self.doors.spawn("pipe", async move { service.serve(ours, EntryMethod::Pipe).await });
        }
        theirs
    }
}
