//! Changes between replicas: LISTEN and NOTIFY, as hints.
//!
//! NOTIFY inside a working transaction would make commits queue behind one lock, so it is sent
//! afterwards, gathered, from a connection of its own that does not wait for the disk. Whoever is
//! told looks at the tables; whoever is not told looks within a second anyway.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::Database;
use crate::wake::{Topic, Wake};

const CHANNEL: &str = "deskgate";
/// The pause between two tellings while changes keep coming.
const GATHER: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_millis(500);
/// Topics in one NOTIFY, whose payload PostgreSQL limits to 8,000 bytes.
const TOPICS_PER_MESSAGE: usize = 120;

/// Tells other replicas and listens to them until `stop`.
pub async fn run(database: Database, wake: Wake, mut outgoing: mpsc::Receiver<Topic>, stop: CancellationToken) {
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
    outgoing: &mut mpsc::Receiver<Topic>,
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
        wake.all_changed();
        let mut topics = Vec::new();
        while outgoing.recv_many(&mut topics, TOPICS_PER_MESSAGE).await > 0 {
            let payload = say(own, &mut topics);
            client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &payload]).await?;
            tokio::time::sleep(GATHER).await;
        }
        Ok(())
    };
    tokio::select! {
        ended = hear => ended,
        ended = tell => ended,
    }
}

fn say(own: &str, topics: &mut Vec<Topic>) -> String {
    let different: HashSet<Topic> = topics.drain(..).collect();
    different.iter().fold(own.to_owned(), |text, topic| format!("{text} {topic}"))
}

fn hear(wake: &Wake, own: &str, payload: &str) {
    let mut words = payload.split(' ');
    if words.next() == Some(own) {
        return;
    }
    for topic in words.filter_map(|word| word.parse().ok()) {
        wake.changed_elsewhere(topic);
    }
}
