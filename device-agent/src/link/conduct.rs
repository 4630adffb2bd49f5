//! How the server behaves towards this device: it is asked for one channel, and has none of its own to open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_util::sync::CancellationToken;

use super::error::{DisconnectReason, LinkError};

/// Channels of the server's own that are refused before this device hangs up.
pub const MAX_REFUSED_CHANNELS: u32 = 16;

/// The conduct of one connection's server. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerConduct {
    refused: Arc<AtomicU32>,
    /// Cancelled to hang up.
    cut: CancellationToken,
}

impl ServerConduct {
    pub(super) fn new(cut: &CancellationToken) -> Self {
        Self { refused: Arc::default(), cut: cut.clone() }
    }

    /// Counts a channel that the server opens, and hangs up if it has opened too many.
    pub(super) fn count_channel(&self) {
        if self.refused.fetch_add(1, Ordering::SeqCst) >= MAX_REFUSED_CHANNELS {
            self.cut.cancel();
        }
    }

    fn is_hostile(&self) -> bool {
        self.refused.load(Ordering::SeqCst) > MAX_REFUSED_CHANNELS
    }

    /// Why an attempt failed: after this device hung up, any other error is only a consequence.
    pub(super) fn error(&self, error: LinkError, address: &str) -> LinkError {
        if self.is_hostile() { LinkError::Hostile { address: address.to_owned() } } else { error }
    }

    /// Why a session ended.
    pub(super) fn reason(&self, why: DisconnectReason) -> DisconnectReason {
        if self.is_hostile() { DisconnectReason::Hostile } else { why }
    }
}
