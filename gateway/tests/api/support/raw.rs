//! A caller that writes any bytes into the socket.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A connection with full control over its bytes.
pub(crate) struct RawConnection(Box<dyn RawStream>);

pub(crate) trait RawStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> RawStream for S {}

impl RawConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.expect("connected"))
    }

    pub(crate) fn over(stream: impl RawStream + 'static) -> Self {
        Self(Box::new(stream))
    }

    /// Sends bytes. False when the other side is gone.
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).await.is_ok() && self.0.flush().await.is_ok()
    }

    /// Ends the sending direction.
    pub(crate) async fn end(&mut self) {
        let _ = self.0.shutdown().await;
    }

    /// Everything the other side sends until it closes. A reset counts as closing.
    pub(crate) async fn hear(&mut self) -> String {
        String::from_utf8_lossy(&self.hear_bytes().await).into_owned()
    }

    /// As [`Self::hear`], as bytes.
    pub(crate) async fn hear_bytes(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            while let Ok(length @ 1..) = self.0.read(&mut buffer).await {
                heard.extend_from_slice(&buffer[..length]);
            }
        };
        timeout(Duration::from_secs(60), reading).await.expect("the connection is closed");
        heard
    }

    /// What the other side sends, until `enough`.
    pub(crate) async fn hear_until(&mut self, enough: impl Fn(&str) -> bool) -> String {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            while !enough(&String::from_utf8_lossy(&heard)) {
                let length = self.0.read(&mut buffer).await.expect("readable");
                assert_ne!(length, 0, "closed after {:?}", String::from_utf8_lossy(&heard));
                heard.extend_from_slice(&buffer[..length]);
            }
        };
        timeout(Duration::from_secs(60), reading).await.expect("heard in time");
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// Sends `bytes` one by one with a pause, until the other side closes; returns its answer.
    pub(crate) async fn drip(self, bytes: &[u8], pause: Duration) -> String {
        let (mut reader, mut writer) = split(self.0);
        let dripping = async {
            for byte in bytes.iter().cycle() {
                if writer.write_all(&[*byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(pause).await;
            }
            std::future::pending().await
        };
        let listening = async {
            let mut heard = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                heard.extend_from_slice(&buffer[..length]);
            }
            String::from_utf8_lossy(&heard).into_owned()
        };
        tokio::select! {
            () = dripping => unreachable!("it never ends"),
            heard = timeout(Duration::from_secs(60), listening) => heard.expect("the connection is closed"),
        }
    }
}
