//! The leases of all sessions of this gateway, renewed together: what comes within a moment is one statement.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::domain::devices::SessionTimings;
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};
use deskgate_program::tasks::Tasks;

/// Renewals that may wait; beyond that their sessions wait.
const RENEWAL_CAPACITY: usize = 1024;
/// How long renewals are gathered after a statement.
const MAX_GATHERING_TIME: Duration = Duration::from_millis(500);
/// It is at most this part of a heartbeat.
const HEARTBEAT_PART: u32 = 8;

type Renewal = (SessionKey, oneshot::Sender<Result<bool, Error>>);

/// The entrance to the shared renewals.
#[derive(Clone)]
pub struct Renewals {
    queue: mpsc::Sender<Renewal>,
}

impl Renewals {
    /// Starts the task that renews, which ends with its group.
    pub fn start(store: &Store, tasks: &Tasks, timings: SessionTimings) -> Self {
        let (queue, receiver) = mpsc::channel(RENEWAL_CAPACITY);
        tasks.spawn("renewals", renew_for_ever(store.clone(), receiver, timings, tasks.stopping()));
        Self { queue }
    }

    /// Extends a session's lease, see [`Store::renew_sessions`].
    ///
    /// # Errors
    /// The database does not answer or refuses the statement, or the gateway stops.
    pub(super) async fn renew(&self, session: SessionKey) -> Result<bool, Error> {
        let stopped = || Error::Unavailable("the gateway stops".to_owned());
        let (reply, answer) = oneshot::channel();
        self.queue.send((session, reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn renew_for_ever(
    store: Store,
    mut receiver: mpsc::Receiver<Renewal>,
    timings: SessionTimings,
    stop: CancellationToken,
) {
    let gathering_time = MAX_GATHERING_TIME.min(timings.heartbeat / HEARTBEAT_PART);
    let mut batch = Vec::new();
    while stop.run_until_cancelled(receiver.recv_many(&mut batch, RENEWAL_CAPACITY)).await.unwrap_or(0) > 0 {
        let (sessions, replies): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let renewed = store.renew_sessions(&sessions, timings.lease).await;
        let answers = sessions.into_iter().zip(replies).map(async |(session, reply)| {
            let answer = match &renewed {
                Ok(renewed) => Ok(renewed.contains(&session)),
                // One device whose row is held fails nobody else.
                Err(_) => store.renew_sessions(&[session], timings.lease).await.map(|renewed| !renewed.is_empty()),
            };
            // A session that is over needs no answer.
            let _ = reply.send(answer);
        });
        join_all(answers).await;
        stop.run_until_cancelled(tokio::time::sleep(gathering_time)).await;
    }
}
