//! A caller that is cut off after some bytes of its request or of the answer, and repeats with the same key.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ApiReply, Caller, SUBJECT, submission};
use crate::testbed::REPLICA_COUNT;

/// How long it waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Submits a job over a connection that is cut after `target` bytes, and again over a good one. Returns what was cut.
pub(crate) async fn submit(
    caller: &mut Caller,
    desktop: usize,
    in_answer: bool,
    target: u64,
) -> anyhow::Result<String> {
    let job = caller.business.fresh_job();
    let text = format!("job={job} plan=write delay=0");
    let request = submission(caller, desktop, &job, &text, false);
    let address = caller.business.testbed.address(caller.dice.below(REPLICA_COUNT));
    let body = serde_json::json!({ "input": { "text": text } }).to_string();
    let bytes = format!(
        "POST /api/v1{} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: {SUBJECT}\r\n\
         Idempotency-Key: {job}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        request.path,
        caller.service(desktop).key,
        body.len()
    );
    let mut line = TcpStream::connect(address).await?;
    let said = if in_answer {
        line.write_all(bytes.as_bytes()).await?;
        let wanted = usize::try_from(target % 400)?;
        let mut answer = vec![0; wanted];
        let read = timeout(ANSWER_TIMEOUT, line.read_exact(&mut answer)).await.map(|read| read.is_ok());
        anyhow::ensure!(read == Ok(true), "no {wanted} bytes of an answer came");
        format!("after byte {wanted} of the answer")
    } else {
        let sent = usize::try_from(target % bytes.len() as u64)?;
        line.write_all(&bytes.as_bytes()[..sent]).await?;
        format!("after byte {sent} of {} of the request", bytes.len())
    };
    // Closing without lingering resets the connection.
    rustix::net::sockopt::set_socket_linger(&line, Some(Duration::ZERO))?;
    drop(line);
    // The run's end is awaited with all others.
    let again = caller.retry(&request).await;
    anyhow::ensure!(again.as_ref().and_then(ApiReply::run_id).is_some(), "the same key was not accepted afterwards");
    Ok(said)
}
