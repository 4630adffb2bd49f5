//! A keep-alive HTTP/1.1 client that costs next to nothing: it shares the cores with what it measures.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection, one exchange at a time.
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    body: usize,
}

impl Connection {
    /// Opens it.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::with_capacity(8 * 1024), body: 0 })
    }

    /// Sends a request and returns its answer's status. Understands answers with a Content-Length.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        let mut whole = None;
        while whole.is_none_or(|length| self.answer.len() < length) {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the connection was closed in the middle of an answer");
            }
            if whole.is_none()
                && let Some(head) = self.answer.windows(4).position(|four| four == b"\r\n\r\n")
            {
                self.body = head + 4;
                whole = Some(self.body + content_length(&self.answer[..self.body])?);
            }
        }
        let status = self.answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        status.context("an answer without a status")?.parse().context("a status that is no number")
    }

    /// The head of the newest answer.
    pub(crate) fn head(&self) -> &str {
        std::str::from_utf8(&self.answer[..self.body]).unwrap_or_default()
    }

    /// The body of the newest answer.
    pub(crate) fn body(&self) -> &[u8] {
        &self.answer[self.body..]
    }
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    const NAME: &[u8] = b"content-length: ";
    let at = head.windows(NAME.len()).position(|name| name.eq_ignore_ascii_case(NAME));
    let digits =
        head[at.context("an answer without a Content-Length")? + NAME.len()..].split(|byte| *byte == b'\r').next();
    Ok(std::str::from_utf8(digits.unwrap_or_default())?.parse()?)
}

/// Where and as whom to submit.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Target {
    /// The gateway.
    pub address: SocketAddr,
    /// The application's key.
    pub key: String,
    /// The service.
    pub endpoint_id: String,
}

/// What every submission says: an order of a usual size.
pub(crate) const BODY: &str = r#"{"input":{"text":"Please check order 2026-004711: two chairs arrived damaged, the customer asks for a replacement before Friday and wants to know who pays the return.","order_id":"2026-004711"},"metadata":{"shop":"de-1","channel":"mail"}}"#;

/// Characters of an Idempotency-Key.
const KEY: usize = 32;

/// A submission that is sent again and again with another Idempotency-Key.
pub(crate) struct Submission {
    bytes: Vec<u8>,
    key_at: usize,
}

impl Submission {
    /// The submission to a target.
    pub(crate) fn new(target: &Target) -> Self {
        let head = format!(
            "POST /api/v1/agent-endpoints/{}/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             X-Gateway-Subject: customer-10042\r\nContent-Type: application/json\r\nContent-Length: {}\r\nIdempotency-Key: ",
            target.endpoint_id,
            target.address,
            target.key,
            BODY.len()
        );
        let key_at = head.len();
        Self { bytes: format!("{head}{:KEY$}\r\n\r\n{BODY}", "").into_bytes(), key_at }
    }

    /// The bytes with this key: a session's number and a number within it.
    pub(crate) fn with_key(&mut self, session: u64, number: u64) -> &[u8] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = (u128::from(session) << 64) | u128::from(number);
        for byte in self.bytes[self.key_at..self.key_at + KEY].iter_mut().rev() {
            *byte = DIGITS[(key & 15) as usize];
            key >>= 4;
        }
        &self.bytes
    }
}

/// The request that reads a run, and waits so many seconds for a change.
pub(crate) fn read(target: &Target, run_id: &str, wait_s: u32) -> String {
    format!(
        "GET /api/v1/runs/{run_id}?wait={wait_s} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: customer-10042\r\n\r\n",
        target.address, target.key
    )
}
