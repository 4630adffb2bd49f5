//! "Something changed": fed by the store, awaited by the doors.
//!
//! A hint, never the truth. Whoever waits registers first, then looks at the tables, then waits,
//! and looks again now and then even when nothing was said. What an assistant is writing passes
//! through here too: it is shown to whoever listens at that moment, and kept nowhere.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::{DeviceId, RunId};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc, watch};

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Work for a device, or whether it may have any.
    Queue(DeviceId),
    /// Which session of a device is the newest, or whether it may have one.
    Session(DeviceId),
    /// Control operations for a device.
    Control(DeviceId),
    /// The record or the events of a run.
    Run(RunId),
}

impl std::fmt::Display for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Queue(id) => write!(f, "queue:{id}"),
            Self::Session(id) => write!(f, "session:{id}"),
            Self::Control(id) => write!(f, "control:{id}"),
            Self::Run(id) => write!(f, "run:{id}"),
        }
    }
}

/// A text that names no topic; a newer replica may know more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTopic;

impl std::str::FromStr for Topic {
    type Err = UnknownTopic;

    fn from_str(text: &str) -> Result<Self, UnknownTopic> {
        let (kind, id) = text.split_once(':').ok_or(UnknownTopic)?;
        match kind {
            "queue" => id.parse().map(Self::Queue).map_err(|_| UnknownTopic),
            "session" => id.parse().map(Self::Session).map_err(|_| UnknownTopic),
            "control" => id.parse().map(Self::Control).map_err(|_| UnknownTopic),
            "run" => id.parse().map(Self::Run).map_err(|_| UnknownTopic),
            _ => Err(UnknownTopic),
        }
    }
}

/// A piece of a message, with the device that said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePiece {
    /// The device whose session it came through.
    pub device_id: DeviceId,
    /// Which run, as the device says.
    pub run_id: RunId,
    /// Which attempt, as the device says.
    pub attempt: u32,
    /// How many of the attempt's events the device had reported before.
    #[serde(default)]
    pub after: u64,
    /// What was written.
    #[serde(flatten)]
    pub delta: MessageDelta,
}

/// What is told to other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaNotification {
    /// Something changed.
    Changed(Topic),
    /// A message goes on.
    Said(Arc<MessagePiece>),
}

/// The switchboard of one gateway process.
#[derive(Clone)]
pub struct ChangeNotifier {
    watchers: Arc<Mutex<HashMap<Topic, watch::Sender<()>>>>,
    said: broadcast::Sender<Arc<MessagePiece>>,
    /// Whatever it was.
    anything: watch::Sender<()>,
    /// To the other replicas; dropped when full, since it is only a hint.
    outgoing: mpsc::Sender<ReplicaNotification>,
}

/// How much may wait to be told to other replicas.
const OUTGOING_CAPACITY: usize = 4096;
/// Room that messages leave for hints, which matter more.
const RESERVED_FOR_HINTS: usize = 3072;
/// Pieces of messages that may wait in this process.
const PIECE_CAPACITY: usize = 256;

impl ChangeNotifier {
    /// A switchboard, and the changes that are to be told to other replicas.
    pub fn new() -> (Self, mpsc::Receiver<ReplicaNotification>) {
        let (outgoing, receiver) = mpsc::channel(OUTGOING_CAPACITY);
        (
            Self {
                watchers: Arc::default(),
                said: broadcast::Sender::new(PIECE_CAPACITY),
                anything: watch::Sender::new(()),
                outgoing,
            },
            receiver,
        )
    }

    /// Tells everybody, here and on other replicas.
    pub fn notify(&self, topic: Topic) {
        self.notify_locally(topic);
        // A full queue means the others look for themselves within a second.
        let _ = self.outgoing.try_send(ReplicaNotification::Changed(topic));
        self.notify_any();
    }

    /// Tells those in this process who wait for anything at all.
    pub fn notify_any(&self) {
        self.anything.send_replace(());
    }

    /// Changes of whatever it may be, in this process, from now on: what is queued with events shows by them.
    pub fn subscribe_any(&self) -> watch::Receiver<()> {
        self.anything.subscribe()
    }

    /// Passes on a piece of a message, here and to other replicas.
    pub fn publish_piece(&self, said: MessagePiece) {
        let said = Arc::new(said);
        self.publish_piece_locally(said.clone());
        if self.outgoing.capacity() > RESERVED_FOR_HINTS {
            let _ = self.outgoing.try_send(ReplicaNotification::Said(said));
        }
    }

    /// Passes on a piece of a message in this process. Nobody has to listen.
    pub fn publish_piece_locally(&self, said: Arc<MessagePiece>) {
        let _ = self.said.send(said);
    }

    /// Everything that is said from now on.
    pub fn subscribe_pieces(&self) -> broadcast::Receiver<Arc<MessagePiece>> {
        self.said.subscribe()
    }

    /// Tells those who wait in this process.
    pub fn notify_locally(&self, topic: Topic) {
        if let Some(sender) = self.lock().get(&topic) {
            sender.send_replace(());
        }
    }

    /// Tells everybody in this process about everything: changes may have been missed.
    pub fn notify_all_locally(&self) {
        for sender in self.lock().values() {
            sender.send_replace(());
        }
    }

    /// Registers interest. Changes from now on are not missed.
    pub fn watch(&self, topic: Topic) -> Watcher {
        let receiver = self.lock().entry(topic).or_insert_with(|| watch::Sender::new(())).subscribe();
        Watcher { wake: self.clone(), topic, receiver }
    }

    /// How many in this process are registered.
    pub fn watchers(&self, topic: Topic) -> usize {
        self.lock().get(&topic).map_or(0, watch::Sender::receiver_count)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, watch::Sender<()>>> {
        // Nothing in here panics while it holds the lock, and the map is right at every moment.
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registered interest in one topic.
pub struct Watcher {
    wake: ChangeNotifier,
    topic: Topic,
    receiver: watch::Receiver<()>,
}

impl Watcher {
    /// Waits for the next change since this was last called.
    pub async fn changed(&mut self) {
        // The sender lives as long as a watcher is registered.
        let _ = self.receiver.changed().await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watchers = self.wake.lock();
        // Our own receiver still counts.
        if watchers.get(&self.topic).is_some_and(|sender| sender.receiver_count() == 1) {
            watchers.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_between_registering_and_waiting_is_not_missed() {
        let (wake, mut outgoing) = ChangeNotifier::new();
        let topic = Topic::Run(RunId::new());
        let mut watcher = wake.watch(topic);
        wake.notify(topic);
        watcher.changed().await;
        assert_eq!(outgoing.recv().await, Some(ReplicaNotification::Changed(topic)));
    }

    #[test]
    fn nothing_is_kept_for_topics_nobody_watches() {
        let (wake, _outgoing) = ChangeNotifier::new();
        let topic = Topic::Queue(DeviceId::new());
        let (one, other) = (wake.watch(topic), wake.watch(topic));
        drop(one);
        assert_eq!(wake.lock().len(), 1);
        drop(other);
        assert_eq!(wake.lock().len(), 0);
    }

    #[test]
    fn a_topic_reads_back_from_its_text() {
        for topic in [Topic::Run(RunId::new()), Topic::Queue(DeviceId::new()), Topic::Session(DeviceId::new())] {
            assert_eq!(topic.to_string().parse(), Ok(topic));
        }
    }
}
