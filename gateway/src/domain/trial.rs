//! A stream that shows whether something between a caller and this gateway holds events back.
//!
//! Only who has a ticket is sent one. The administrator's `doctor` gets it on the private socket, and any replica knows
//! it: it is sealed with the key that all have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::seal::Seal;

/// Makes tickets, and knows them. Clones know the same.
#[derive(Clone)]
pub struct Trials(Seal);

/// What a ticket is good for, so that nothing else that was sealed is one.
const PLACE: &str = "a trial stream";
/// Clocks of replicas may differ by a part of it.
const GOOD_FOR: Duration = Duration::from_secs(300);
/// The events of a trial.
pub const EVENTS: u32 = 5;
/// Between two of them.
pub const PAUSE: Duration = Duration::from_millis(500);

impl Trials {
    /// With the key that all replicas have.
    pub fn new(seal: Seal) -> Self {
        Self(seal)
    }

    /// A ticket for a moment.
    pub fn ticket(&self) -> String {
        let until = (now() + GOOD_FOR).as_secs();
        URL_SAFE_NO_PAD.encode(self.0.close(&until.to_be_bytes(), PLACE))
    }

    /// Whether this is one that is still good.
    pub fn accept(&self, ticket: &str) -> bool {
        let opened = URL_SAFE_NO_PAD.decode(ticket).ok().and_then(|sealed| self.0.open(&sealed, PLACE).ok());
        let until = opened.and_then(|until| <[u8; 8]>::try_from(until).ok()).map(u64::from_be_bytes);
        until.is_some_and(|until| now().as_secs() <= until)
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_known_to_who_has_the_key_and_nothing_else_is_one() {
        let folder = tempfile::tempdir().expect("new");
        let seal = |name| Seal::load_or_create(&folder.path().join(name)).expect("made");
        let trials = Trials::new(seal("one"));
        let ticket = trials.ticket();
        assert!(trials.accept(&ticket) && Trials::new(seal("one")).accept(&ticket));
        assert!(!Trials::new(seal("other")).accept(&ticket));
        assert!(!trials.accept("") && !trials.accept(&ticket[1..]));
        let old = URL_SAFE_NO_PAD.encode(seal("one").close(&1_u64.to_be_bytes(), PLACE));
        assert!(!trials.accept(&old), "its time is over");
        let foreign = URL_SAFE_NO_PAD.encode(seal("one").close(&u64::MAX.to_be_bytes(), "elsewhere"));
        assert!(!trials.accept(&foreign));
    }
}
