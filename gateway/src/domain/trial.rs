//! A stream that shows whether something between a caller and this gateway holds events back.
//!
//! Only who has a ticket is sent one. The administrator's `doctor` gets it on the private socket, and any replica knows
//! it: it is sealed with the key that all have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::encryption::DataCipher;

/// Makes tickets, and knows them. Clones know the same.
#[derive(Clone)]
pub struct TrialTickets(DataCipher);

/// What a ticket is good for, so that nothing else that was sealed is one.
const TICKET_CONTEXT: &str = "a trial stream";
/// Clocks of replicas may differ by a part of it.
const TICKET_TTL: Duration = Duration::from_secs(300);
/// The events of a trial.
pub const TRIAL_EVENTS: u32 = 5;
/// Between two of them.
pub const EVENT_INTERVAL: Duration = Duration::from_millis(500);

impl TrialTickets {
    /// With the key that all replicas have.
    pub fn new(seal: DataCipher) -> Self {
        Self(seal)
    }

    /// A ticket for a moment.
    pub fn ticket(&self) -> String {
        let until = (now() + TICKET_TTL).as_secs();
        URL_SAFE_NO_PAD.encode(self.0.encrypt(&until.to_be_bytes(), TICKET_CONTEXT))
    }

    /// Whether this is one that is still good.
    pub fn accept(&self, ticket: &str) -> bool {
        let opened =
            URL_SAFE_NO_PAD.decode(ticket).ok().and_then(|sealed| self.0.decrypt(&sealed, TICKET_CONTEXT).ok());
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
        let seal = |name| DataCipher::load_or_create(&folder.path().join(name)).expect("made");
        let trials = TrialTickets::new(seal("one"));
        let ticket = trials.ticket();
        assert!(trials.accept(&ticket) && TrialTickets::new(seal("one")).accept(&ticket));
        assert!(!TrialTickets::new(seal("other")).accept(&ticket));
        assert!(!trials.accept("") && !trials.accept(&ticket[1..]));
        let old = URL_SAFE_NO_PAD.encode(seal("one").encrypt(&1_u64.to_be_bytes(), TICKET_CONTEXT));
        assert!(!trials.accept(&old), "its time is over");
        let foreign = URL_SAFE_NO_PAD.encode(seal("one").encrypt(&u64::MAX.to_be_bytes(), "elsewhere"));
        assert!(!trials.accept(&foreign));
    }
}
