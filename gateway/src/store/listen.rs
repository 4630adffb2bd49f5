//! Changes between replicas: LISTEN and NOTIFY, as hints.
//!
//! NOTIFY inside a working transaction would make commits queue behind one lock, so it is sent afterwards, in batches,
//! from a connection of its own that does not wait for the disk. A replica that gets one reads the tables; without one
//! it polls within a second anyway. Pieces of assistants' messages go the same way, and are lost where there is no
//! listener.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::Database;
use crate::notify::{ChangeNotifier, MessagePiece, ReplicaNotification, Topic};

const NOTIFY_CHANNEL: &str = "deskgate";
/// The pause between two notifications while changes keep coming.
const NOTIFY_DEBOUNCE_INTERVAL: Duration = Duration::from_millis(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Notifications that are sent together.
const MAX_BATCH_NOTIFICATIONS: usize = 120;
/// PostgreSQL takes less than 8,000 bytes in one NOTIFY.
const MAX_PAYLOAD_BYTES: usize = 7999;

/// Notifies other replicas and listens to them until `stop`.
pub async fn run(
    database: Database,
    wake: ChangeNotifier,
    mut outgoing: mpsc::Receiver<ReplicaNotification>,
    stop: CancellationToken,
) {
    let own = uuid::Uuid::now_v7().simple().to_string();
    while !stop.is_cancelled() {
        let session = converse(&database, &wake, &mut outgoing, &own);
        match stop.run_until_cancelled(session).await {
            None => return,
            Some(Ok(())) => tracing::warn!("the listening connection was closed; connecting again"),
            Some(Err(error)) => {
                tracing::warn!(error = super::error::describe(&error), "cannot listen for changes; trying again");
            }
        }
        // Changes were missed meanwhile.
        wake.notify_all_locally();
        stop.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
    }
}

async fn converse(
    database: &Database,
    wake: &ChangeNotifier,
    outgoing: &mut mpsc::Receiver<ReplicaNotification>,
    own: &str,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = database.connect_to_listen().await?;
    let mut messages = poll_fn(move |context| connection.poll_message(context));
    let hear = async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message? {
                hear(wake, own, notification.payload());
            }
        }
        Ok(())
    };
    let tell = async {
        client.batch_execute(&format!("SET synchronous_commit = off; LISTEN {NOTIFY_CHANNEL}")).await?;
        let notify = client.prepare("SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload").await?;
        wake.notify_all_locally();
        let mut tellings = Vec::new();
        while outgoing.recv_many(&mut tellings, MAX_BATCH_NOTIFICATIONS).await > 0 {
            let payloads = say(own, tellings.drain(..));
            client.execute(&notify, &[&NOTIFY_CHANNEL, &payloads]).await?;
            tokio::time::sleep(NOTIFY_DEBOUNCE_INTERVAL).await;
        }
        Ok(())
    };
    tokio::select! {
        ended = hear => ended,
        ended = tell => ended,
    }
}

/// Payloads with a line for each notification, after the name of this replica. JSON has no line ends.
fn say(own: &str, tellings: impl Iterator<Item = ReplicaNotification>) -> Vec<String> {
    let mut topics = HashSet::new();
    let mut payloads = vec![own.to_owned()];
    for telling in tellings {
        let line = match telling {
            ReplicaNotification::Changed(topic) if !topics.insert(topic) => continue,
            ReplicaNotification::Changed(topic) => topic.to_string(),
            // Plain data: this cannot fail, and only a piece of a message would be lost.
            ReplicaNotification::Said(said) => serde_json::to_string(&*said).unwrap_or_default(),
        };
        match payloads.last_mut() {
            Some(payload) if payload.len() + 1 + line.len() <= MAX_PAYLOAD_BYTES => {
                payload.push('\n');
                payload.push_str(&line);
            }
            _ => payloads.push(format!("{own}\n{line}")),
        }
    }
    payloads
}

fn hear(wake: &ChangeNotifier, own: &str, payload: &str) {
    let mut lines = payload.lines();
    if lines.next() == Some(own) {
        return;
    }
    for line in lines {
        if let Ok(topic) = line.parse::<Topic>() {
            wake.notify_locally(topic);
        } else if let Ok(said) = serde_json::from_str::<MessagePiece>(line) {
            wake.publish_piece_locally(Arc::new(said));
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::control::{MAX_DELTA_BYTES, MessageDelta};
    use deskgate_protocol::{DeviceId, RunId};

    use super::*;

    #[tokio::test]
    async fn everything_that_is_told_is_heard_in_payloads_that_fit() {
        let run_id = RunId::new();
        let text = "\u{1}".repeat(MAX_DELTA_BYTES);
        let delta = MessageDelta { message_id: "m".repeat(64), offset: u64::MAX, text };
        let said =
            Arc::new(MessagePiece { device_id: DeviceId::new(), run_id, attempt: u32::MAX, after: u64::MAX, delta });
        let mut tellings = vec![ReplicaNotification::Said(said.clone()); 3];
        tellings.extend(vec![ReplicaNotification::Changed(Topic::Run(run_id)); 3]);
        let payloads = say("me", tellings.into_iter());
        assert!(payloads.iter().all(|payload| payload.len() <= MAX_PAYLOAD_BYTES));

        let (wake, _outgoing) = ChangeNotifier::new();
        let (mut watcher, mut listener) = (wake.watch(Topic::Run(run_id)), wake.subscribe_pieces());
        payloads.iter().for_each(|payload| hear(&wake, "me", payload));
        assert!(listener.is_empty(), "a replica does not listen to itself");
        payloads.iter().for_each(|payload| hear(&wake, "you", payload));
        watcher.changed().await;
        for _ in 0..3 {
            assert_eq!(listener.recv().await.as_deref(), Ok(&*said));
        }
        assert!(listener.is_empty());
    }
}
