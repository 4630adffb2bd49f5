//! Changes between replicas: LISTEN and NOTIFY, as hints.
//!
//! NOTIFY inside a working transaction would make commits queue behind one lock, so it is sent
//! afterwards, gathered, from a connection of its own that does not wait for the disk. Whoever is
//! told looks at the tables; whoever is not told looks within a second anyway. What assistants are
//! writing goes the same way, and is lost where nobody listens.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::Database;
use crate::wake::{Said, Telling, Topic, Wake};

const CHANNEL: &str = "deskgate";
/// The pause between two tellings while changes keep coming.
const GATHER: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_millis(500);
/// Things that are told together.
const TOGETHER: usize = 120;
/// PostgreSQL takes less than 8,000 bytes in one NOTIFY.
const PAYLOAD: usize = 7999;

/// Tells other replicas and listens to them until `stop`.
pub async fn run(database: Database, wake: Wake, mut outgoing: mpsc::Receiver<Telling>, stop: CancellationToken) {
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
        wake.all_changed();
        stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
    }
}

async fn converse(
    database: &Database,
    wake: &Wake,
    outgoing: &mut mpsc::Receiver<Telling>,
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
        client.batch_execute(&format!("SET synchronous_commit = off; LISTEN {CHANNEL}")).await?;
        let notify = client.prepare("SELECT pg_notify($1, payload) FROM unnest($2::text[]) payload").await?;
        wake.all_changed();
        let mut tellings = Vec::new();
        while outgoing.recv_many(&mut tellings, TOGETHER).await > 0 {
            let payloads = say(own, tellings.drain(..));
            client.execute(&notify, &[&CHANNEL, &payloads]).await?;
            tokio::time::sleep(GATHER).await;
        }
        Ok(())
    };
    tokio::select! {
        ended = hear => ended,
        ended = tell => ended,
    }
}

/// Payloads of one line for each thing, after the name of this replica. JSON has no line ends.
fn say(own: &str, tellings: impl Iterator<Item = Telling>) -> Vec<String> {
    let mut topics = HashSet::new();
    let mut payloads = vec![own.to_owned()];
    for telling in tellings {
        let line = match telling {
            Telling::Changed(topic) if !topics.insert(topic) => continue,
            Telling::Changed(topic) => topic.to_string(),
            // Plain data: this cannot fail, and nothing but a piece of a message would be lost.
            Telling::Said(said) => serde_json::to_string(&*said).unwrap_or_default(),
        };
        match payloads.last_mut() {
            Some(payload) if payload.len() + 1 + line.len() <= PAYLOAD => {
                payload.push('\n');
                payload.push_str(&line);
            }
            _ => payloads.push(format!("{own}\n{line}")),
        }
    }
    payloads
}

fn hear(wake: &Wake, own: &str, payload: &str) {
    let mut lines = payload.lines();
    if lines.next() == Some(own) {
        return;
    }
    for line in lines {
        if let Ok(topic) = line.parse::<Topic>() {
            wake.changed_elsewhere(topic);
        } else if let Ok(said) = serde_json::from_str::<Said>(line) {
            wake.said_elsewhere(Arc::new(said));
        }
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::control::{DELTA_LIMIT, MessageDelta};
    use deskgate_protocol::{DeviceId, RunId};

    use super::*;

    #[tokio::test]
    async fn everything_that_is_told_is_heard_in_payloads_that_fit() {
        let run_id = RunId::new();
        let text = "\u{1}".repeat(DELTA_LIMIT);
        let delta = MessageDelta { message_id: "m".repeat(64), offset: u64::MAX, text };
        let said = Arc::new(Said { device_id: DeviceId::new(), run_id, attempt: u32::MAX, after: u64::MAX, delta });
        let mut tellings = vec![Telling::Said(said.clone()); 3];
        tellings.extend(vec![Telling::Changed(Topic::Run(run_id)); 3]);
        let payloads = say("me", tellings.into_iter());
        assert!(payloads.iter().all(|payload| payload.len() <= PAYLOAD));

        let (wake, _outgoing) = Wake::new();
        let (mut watcher, mut listener) = (wake.watch(Topic::Run(run_id)), wake.listen());
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
