//! A pipe that is cut after a given number of WebSocket messages, in either direction.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deskgate::link::{BoxedStream, BuiltInConnector, Connector};
use deskgate_gateway::Pipes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// Cuts the connection, and keeps it cut until it is mended.
#[derive(Clone)]
pub(crate) struct Cutter {
    left: Arc<AtomicU64>,
    cuts: watch::Sender<u32>,
    whole: watch::Sender<bool>,
}

impl Cutter {
    pub(crate) fn new() -> Self {
        Self { left: Arc::new(AtomicU64::new(u64::MAX)), cuts: watch::Sender::new(0), whole: watch::Sender::new(true) }
    }

    /// Cuts the connection once, after this many further messages.
    pub(crate) fn arm(&self, after: u64) {
        self.left.store(after, Ordering::SeqCst);
        self.cuts.send_replace(0);
        self.mend();
    }

    pub(crate) fn mend(&self) {
        self.whole.send_replace(true);
    }

    /// How often it was cut since it was armed.
    pub(crate) fn cuts(&self) -> watch::Receiver<u32> {
        self.cuts.subscribe()
    }

    pub(crate) fn cuts_now(&self) -> u32 {
        *self.cuts.borrow()
    }

    /// A connector to a gateway through this pipe.
    pub(crate) fn connector(&self, pipes: Pipes) -> Connector {
        let cutter = self.clone();
        Connector::BuiltIn(BuiltInConnector::new(move || {
            let (cutter, pipes) = (cutter.clone(), pipes.clone());
            async move {
                let mut whole = cutter.whole.subscribe();
                whole.wait_for(|whole| *whole).await.map_err(io::Error::other)?;
                let (near, far) = tokio::io::duplex(64 * 1024);
                // Ends with either end of the pipe.
                tokio::spawn(cutter.relay(far, pipes.open()));
                Ok(Box::new(near) as BoxedStream)
            }
        }))
    }

    async fn relay(self, device: tokio::io::DuplexStream, gateway: tokio::io::DuplexStream) {
        let (from_device, to_device) = tokio::io::split(device);
        let (from_gateway, to_gateway) = tokio::io::split(gateway);
        // The first to end drops the other, and with it both ends: what was passed on arrives.
        tokio::select! {
            _ = self.pass(from_device, to_gateway) => {}
            _ = self.pass(from_gateway, to_device) => {}
        }
    }

    async fn pass(&self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) -> io::Result<()> {
        let (mut waiting, mut upgraded) = (Vec::new(), false);
        loop {
            if from.read_buf(&mut waiting).await? == 0 {
                return Ok(());
            }
            if !upgraded {
                let Some(end) = waiting.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
                to.write_all(&waiting.drain(..end + 4).collect::<Vec<_>>()).await?;
                upgraded = true;
            }
            while let Some((length, is_text)) = message(&waiting) {
                to.write_all(&waiting.drain(..length).collect::<Vec<_>>()).await?;
                if is_text && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    self.left.store(u64::MAX, Ordering::SeqCst);
                    self.whole.send_replace(false);
                    self.cuts.send_modify(|cuts| *cuts += 1);
                    return Ok(());
                }
            }
        }
    }
}

/// The length of the WebSocket frame at the beginning of `bytes`, once it is complete, and whether it is a text.
/// Neither side splits its messages.
fn message(bytes: &[u8]) -> Option<(usize, bool)> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let number = |range: std::ops::Range<usize>| {
        bytes.get(range).map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let (header, body) = match second & 0x7f {
        126 => (4, number(2..4)?),
        127 => (10, number(2..10)?),
        short => (2, usize::from(short)),
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let length = header + mask + body;
    (bytes.len() >= length).then_some((length, first & 0x0f == 1))
}
