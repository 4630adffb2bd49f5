//! A stream that shows whether a proxy between a caller and this gateway holds events back.
//!
//! It needs a ticket. The administrator's `doctor` gets one on the private socket, and any replica accepts it: it is
//! encrypted with the key that all have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::encryption::DataCipher;

/// Creates and checks tickets. Clones have the same key.
#[derive(Clone)]
pub struct TrialTickets(DataCipher);

/// The encryption context of tickets, so that no other encrypted value is accepted as one.
const TICKET_CONTEXT: &str = "a trial stream";
/// How long a ticket is valid; the clocks of replicas may differ by a part of it.
const TICKET_TTL: Duration = Duration::from_secs(300);
/// The events of a trial.
pub const TRIAL_EVENTS: u32 = 5;
/// The pause between two events.
pub const EVENT_INTERVAL: Duration = Duration::from_millis(500);

impl TrialTickets {
    /// Uses the key that all replicas have.
    pub fn new(cipher: DataCipher) -> Self {
        Self(cipher)
    }

    /// A ticket that is valid for a few minutes.
    pub fn ticket(&self) -> String {
        let until = (now() + TICKET_TTL).as_secs();
        URL_SAFE_NO_PAD.encode(self.0.encrypt(&until.to_be_bytes(), TICKET_CONTEXT))
    }

    /// Whether this ticket is valid.
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
        let cipher = |name| DataCipher::load_or_create(&folder.path().join(name)).expect("made");
        let trials = TrialTickets::new(cipher("one"));
        let ticket = trials.ticket();
        assert!(trials.accept(&ticket) && TrialTickets::new(cipher("one")).accept(&ticket));
        assert!(!TrialTickets::new(cipher("other")).accept(&ticket));
        assert!(!trials.accept("") && !trials.accept(&ticket[1..]));
        let old = URL_SAFE_NO_PAD.encode(cipher("one").encrypt(&1_u64.to_be_bytes(), TICKET_CONTEXT));
        assert!(!trials.accept(&old), "its time is over");
        let foreign = URL_SAFE_NO_PAD.encode(cipher("one").encrypt(&u64::MAX.to_be_bytes(), "elsewhere"));
        assert!(!trials.accept(&foreign));
    }
}
