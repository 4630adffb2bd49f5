//! Asks the operations listener of a running gateway, as a container's health check does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest wait for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024;

/// Whether `path` is answered with 200. The texts are the answer's body, or the reason of a failure.
///
/// # Errors
/// The answer has another status code, or none arrives within 5 seconds, or the connection fails.
pub async fn send_request(listener: SocketAddr, path: &str) -> Result<String, String> {
    let address = reachable(listener);
    match tokio::time::timeout(REQUEST_TIMEOUT, exchange(address, path)).await {
        Ok(Ok(answer)) => {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            let body = body.trim_end().to_owned();
            if head.starts_with("HTTP/1.1 200 ") { Ok(body) } else { Err(body) }
        }
        Ok(Err(error)) => Err(format!("nothing answers on {address}: {error}")),
        Err(_) => Err(format!("no answer on {address} within {} s", REQUEST_TIMEOUT.as_secs())),
    }
}

async fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A listener on every address is reached on loopback.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let address = match listener.ip() {
        IpAddr::V4(own) if own.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(own) if own.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        own => own,
    };
    SocketAddr::new(address, listener.port())
}
