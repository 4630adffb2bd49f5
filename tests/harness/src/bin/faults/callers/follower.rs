//! Follows a run by its stream, and continues behind the last event when the connection breaks.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{Caller, PassStage, SUBJECT};
use crate::history::{FollowRecord, HistoryRecord, StoredEvent, StreamConnection};
use crate::testbed::REPLICA_COUNT;
use crate::testbed::leak_scan::LeakSource;

/// A comment comes every 15 seconds, so a longer silence is a broken connection.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Follows a run to its end, as one operation.
pub(crate) async fn follow(caller: &mut Caller, desktop: usize, run_id: &str) {
    let operation = caller.next_operation();
    let begun = caller.business.testbed.clock.now();
    let mut followed =
        FollowRecord { caller: caller.name.clone(), run_id: run_id.to_owned(), ..FollowRecord::default() };
    let (mut after, mut tries, mut is_over) = (0, 0, false);
    while !followed.is_whole && !caller.business.is_closed() {
        tries += 1;
        let mut connection = StreamConnection { after, ..StreamConnection::default() };
        let mut stage = caller.business.stage.clone();
        let was_closed = tokio::select! {
            ended = once(caller, desktop, run_id, &mut connection) => ended.is_ok(),
            _ = stage.wait_for(|stage| *stage == PassStage::Closed) => false,
        };
        if let Some(last) = connection.events.last() {
            (after, is_over) = (last.sequence, last.is_final());
        }
        connection.ended = caller.business.testbed.clock.now();
        followed.is_whole = was_closed && is_over;
        followed.connections.push(connection);
        if !followed.is_whole {
            sleep(Duration::from_millis(caller.dice.within(30, 200))).await;
        }
    }
    caller.done("follow", operation, begun, tries, followed.is_whole, Some(run_id.to_owned()));
    caller.business.histories.note(&caller.name, HistoryRecord::Followed(followed));
}

/// One connection, until the gateway closes it; a break is an error. The caller leaves some connections itself.
async fn once(
    caller: &mut Caller,
    desktop: usize,
    run_id: &str,
    connection: &mut StreamConnection,
) -> anyhow::Result<()> {
    let leaves_behind = caller.dice.percent(20).then(|| caller.dice.below(3) + 1);
    let address = caller.business.testbed.address(caller.dice.below(REPLICA_COUNT));
    let url = format!("http://{address}/api/v1/runs/{run_id}/events");
    let request = caller.business.http.get(url).bearer_auth(&caller.service(desktop).key);
    let request = request.header("X-Gateway-Subject", SUBJECT).header("Accept", "text/event-stream");
    // A stream has no known end, so it gets no total timeout.
    let request = request.header("Last-Event-ID", connection.after.to_string()).timeout(SILENCE_TIMEOUT * 30);
    let mut response = timeout(SILENCE_TIMEOUT, request.send()).await??.error_for_status()?;
    let mut text = String::new();
    connection.was_open = true;
    while let Some(piece) = timeout(SILENCE_TIMEOUT, response.chunk()).await?? {
        text.push_str(std::str::from_utf8(&piece)?);
        while let Some((block, rest)) = text.split_once("\n\n") {
            caller.business.testbed.secrets.look(LeakSource::Answer, "a stream", block);
            connection.was_told |= block.contains("event: stream.closing");
            connection.events.extend(stored(block));
            text = rest.to_owned();
            connection.was_left = leaves_behind == Some(connection.events.len());
            anyhow::ensure!(!connection.was_left, "enough for this time");
        }
    }
    Ok(())
}

/// The stored event of a block, if it has one.
fn stored(block: &str) -> Option<StoredEvent> {
    let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let id: u64 = line("id")?.parse().ok()?;
    let event = StoredEvent::read(&serde_json::from_str::<Value>(line("data")?).ok()?)?;
    (event.sequence == id).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stored_event_has_a_number() {
        let event = stored("id: 2\nevent: run.started\ndata: {\"sequence\":2,\"type\":\"run.started\"}");
        assert_eq!(event.map(|event| (event.sequence, event.kind)), Some((2, "run.started".to_owned())));
        assert_eq!(stored("event: run.snapshot\ndata: {\"run_id\":\"x\"}"), None);
        assert_eq!(stored(": a sign of life"), None);
    }
}
