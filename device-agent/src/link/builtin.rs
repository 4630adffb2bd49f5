//! The connector for the built-in gateway: a stream inside this process.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

pub use deskgate_gateway::tunnel::ByteStream;

/// Any two-way stream of bytes.
pub type BoxedStream = Box<dyn ByteStream>;

type OpenFuture = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send>>;

/// Opens streams to a gateway in the same process.
#[derive(Clone)]
pub struct BuiltInConnector(Arc<dyn Fn() -> OpenFuture + Send + Sync>);

impl BuiltInConnector {
    /// `open` returns a fresh stream for each connection, such as one end of a [`tokio::io::DuplexStream`] whose other
    /// end the gateway has.
    pub fn new<F, Fut>(open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<BoxedStream>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(open())))
    }

    pub(super) async fn open(&self) -> io::Result<BoxedStream> {
        (self.0)().await
    }
}

impl std::fmt::Debug for BuiltInConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BuiltIn")
    }
}
