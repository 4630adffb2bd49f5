//! A caller whose bodies are refused before they are read, and whose good requests come behind them on the same connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Caller, SUBJECT};
use crate::history::{HistoryRecord, RefusedBodyRecord};
use crate::testbed::REPLICA_COUNT;

/// Refused bodies, each with a good request behind it.
const TURNS: usize = 12;
/// The longest body: more than a gateway throws away to keep the connection.
const MAX_BODY_BYTES: u64 = 600_000;
/// How long one request may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The head of an answer.
struct Answered {
    status: u16,
    closes: bool,
}

/// Sends refused bodies and good requests by turns, over as few connections as the gateway allows. Returns how many were kept.
pub(crate) async fn alternate(caller: &mut Caller, desktop: usize) -> anyhow::Result<String> {
    let clock = caller.business.testbed.clock;
    let replica = caller.dice.below(REPLICA_COUNT);
    let address = caller.business.testbed.address(replica);
    let head = |request: &str| {
        let key = &caller.service(desktop).key;
        format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nX-Gateway-Subject: {SUBJECT}\r\n"
        )
    };
    // Without an Idempotency-Key.
    let refused = head(&format!("POST /api/v1/agent-endpoints/{}/runs", caller.service(desktop).endpoint_id));
    let good = head("GET /api/v1/capabilities") + "\r\n";
    let (mut line, mut kept) = (None, 0);
    for _ in 0..TURNS {
        let mut stream = match line.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await?,
        };
        let bytes = caller.dice.within(1, MAX_BODY_BYTES);
        let mut record =
            RefusedBodyRecord { caller: caller.name.clone(), replica, bytes, begun: clock.now(), ..Default::default() };
        let body = "x".repeat(usize::try_from(bytes)?);
        let request = format!("{refused}Content-Type: application/json\r\nContent-Length: {bytes}\r\n\r\n{body}");
        let answer = ask(&mut stream, &request).await;
        record.refused = answer.as_ref().map(|answer| answer.status);
        record.is_kept = answer.is_some_and(|answer| !answer.closes);
        if record.is_kept {
            kept += 1;
            let behind = ask(&mut stream, &good).await;
            record.behind = behind.as_ref().map(|answer| answer.status);
            line = behind.filter(|answer| !answer.closes).map(|_| stream);
        }
        record.ended = clock.now();
        caller.business.histories.note(&caller.name, HistoryRecord::RefusedBody(record));
    }
    anyhow::ensure!(kept > 0, "no connection was kept, so nothing was tried");
    Ok(format!("{kept} of {TURNS} refused bodies kept their connection"))
}

/// Sends a request and reads its whole answer; `None` if there is none.
async fn ask(stream: &mut TcpStream, request: &str) -> Option<Answered> {
    timeout(ANSWER_TIMEOUT, async {
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut heard = Vec::new();
        loop {
            if let Some((answer, length)) = read(&heard)
                && heard.len() >= length
            {
                return Some(answer);
            }
            if stream.read_buf(&mut heard).await.ok()? == 0 {
                return None;
            }
        }
    })
    .await
    .ok()
    .flatten()
}

/// An answer whose head has arrived, and its length in bytes.
fn read(heard: &[u8]) -> Option<(Answered, usize)> {
    let end = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&heard[..end]).ok()?.to_ascii_lowercase();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length: usize = header("content-length")?.parse().ok()?;
    Some((Answered { status, closes: header("connection") == Some("close") }, end + 4 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_the_end_of_its_body() {
        let heard = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nconnection: close\r\n\r\n{}";
        let (answer, length) = read(heard).expect("a head");
        assert_eq!((answer.status, answer.closes, length), (400, true, heard.len()));
        assert!(read(b"HTTP/1.1 400 Bad Request\r\nContent-Le").is_none());
    }
}
