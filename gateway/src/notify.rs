//! Change notifications: sent by the store, awaited by sessions, readers and request handlers.
//!
//! A hint, never the truth. A waiting task registers first, then reads the tables, then waits. Who waits for a run also reads
//! again at intervals without a notification; sessions of devices are woken by their gateway's look each second
//! (`control/looks.rs`). Pieces of an assistant's message pass through here too: they go to the current
//! listeners and are never stored.

use std::collections::{HashMap, HashSet};
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
    /// The newest session of a device, or whether it may have one.
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

/// A text that names no known topic; a newer replica may know more of them.
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

/// A piece of a message, with the device that sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePiece {
    /// The device whose session it came through.
    pub device_id: DeviceId,
    /// The run that the device names.
    pub run_id: RunId,
    /// The attempt that the device names.
    pub attempt: u32,
    /// How many of the attempt's events the device had reported before.
    #[serde(default)]
    pub after: u64,
    /// The new text.
    #[serde(flatten)]
    pub delta: MessageDelta,
}

/// A notification for other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaNotification {
    /// Something changed.
    Changed(Topic),
    /// A piece of a message.
    Said(Arc<MessagePiece>),
}

/// The notification hub of one gateway process.
#[derive(Clone)]
pub struct ChangeNotifier {
    watchers: Arc<Mutex<HashMap<Topic, watch::Sender<()>>>>,
    said: broadcast::Sender<Arc<MessagePiece>>,
    /// Notified by every change.
    anything: watch::Sender<()>,
    /// To the other replicas; dropped when full, since it is only a hint.
    outgoing: mpsc::Sender<ReplicaNotification>,
}

/// The most notifications that may wait to be sent to other replicas.
const OUTGOING_CAPACITY: usize = 4096;
/// Queue slots that message pieces leave free for hints, which matter more.
const RESERVED_FOR_HINTS: usize = 3072;
/// Pieces of messages that may wait in this process.
const PIECE_CAPACITY: usize = 256;

impl ChangeNotifier {
    /// A hub, and the notifications that are to be sent to other replicas.
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

    /// Notifies the watchers here and on other replicas.
    pub fn notify(&self, topic: Topic) {
        self.notify_locally(topic);
        // When the queue is full, the other replicas find the change by polling within a second.
        let _ = self.outgoing.try_send(ReplicaNotification::Changed(topic));
        self.notify_any();
    }

    /// Notifies the tasks in this process that wait for any change.
    pub fn notify_any(&self) {
        self.anything.send_replace(());
    }

    /// Subscribes to all changes in this process from now on: deliveries that are queued with events show by them.
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

    /// Passes on a piece of a message in this process; without a listener it is dropped.
    pub fn publish_piece_locally(&self, said: Arc<MessagePiece>) {
        let _ = self.said.send(said);
    }

    /// Subscribes to all pieces from now on.
    pub fn subscribe_pieces(&self) -> broadcast::Receiver<Arc<MessagePiece>> {
        self.said.subscribe()
    }

    /// Notifies the watchers of a topic in this process.
    pub fn notify_locally(&self, topic: Topic) {
        if let Some(sender) = self.lock().get(&topic) {
            sender.send_replace(());
        }
    }

    /// Notifies all watchers in this process: changes may have been missed.
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

    /// The devices for whose work somebody in this process waits.
    pub fn watched_devices(&self) -> Vec<DeviceId> {
        let of = |topic: &Topic| match topic {
            Topic::Queue(device_id) | Topic::Control(device_id) => Some(*device_id),
            Topic::Session(_) | Topic::Run(_) => None,
        };
        let devices: HashSet<_> = self.lock().keys().filter_map(of).collect();
        devices.into_iter().collect()
    }

    /// The number of registered watchers in this process.
    pub fn watchers(&self, topic: Topic) -> usize {
        self.lock().get(&topic).map_or(0, watch::Sender::receiver_count)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, watch::Sender<()>>> {
        // No code in here panics while it holds the lock, and the map is consistent at every moment.
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
