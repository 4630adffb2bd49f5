//! How many bodies of each key are read and worked on at once, and how many bytes they may have.
//!
//! The rate is checked last, so that a replay finds its run whatever the rate is. What a key beyond its rate can cost
//! is bounded here, before any of a body is read.

use deskgate_protocol::KeyId;

use super::Limits;
use super::places::{Place, Places};
use super::refusal::Refusal;

/// The largest body, in bytes.
pub const MAX_BODY: usize = 1024 * 1024;

/// The most bytes of an input's text.
pub const MAX_TEXT: usize = 256 * 1024;

/// The room for bodies on this replica.
#[derive(Clone, Debug)]
pub struct Bodies {
    requests: Places<KeyId>,
    bytes: Places<KeyId>,
}

/// Room for one body, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _request: Place<KeyId>,
    _bytes: Place<KeyId>,
}

impl Bodies {
    /// The same room for every key.
    pub fn new(limits: &Limits) -> Self {
        let (requests, bytes) = (limits.bodies_per_key, limits.body_bytes_per_key);
        Self { requests: Places::new(requests), bytes: Places::new(bytes) }
    }

    /// Room for a body of at most so many bytes.
    ///
    /// # Errors
    /// [`Refusal::TooManyBodies`] while the key's other bodies take too much of it.
    pub fn room(&self, key_id: KeyId, bytes: usize) -> Result<Room, Refusal> {
        let room = || Some(Room { _request: self.requests.enter(key_id)?, _bytes: self.bytes.take(key_id, bytes)? });
        room().ok_or(Refusal::TooManyBodies)
    }
}
