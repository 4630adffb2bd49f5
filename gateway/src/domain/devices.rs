//! Which devices may open a session, and what happens to the runs they hold.

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::control::{Hello, InFlightRun, InFlightStatus, RefusedCode, RevokeCode, SessionRefusal};
use deskgate_protocol::identity::{HelloProof, IdentityFile, PublicKey, RecognisedServer};
use deskgate_protocol::run::RunState;
use deskgate_protocol::service::check_name;
use deskgate_protocol::{GatewayId, Half, PROTOCOL_RANGE, RunId, VERSION, versions_match};

use super::accounts::Account;
use crate::store::devices::Device;
use crate::store::leases::HeldRun;
use crate::store::{self, Store};

/// The times of the control channel.
#[derive(Clone, Copy, Debug)]
pub struct SessionTimings {
    /// Between two pings.
    pub heartbeat: Duration,
    /// From the last sign of life until started runs await reconciliation.
    pub lease: Duration,
    /// For accepting an offer.
    pub offer: Duration,
}

impl Default for SessionTimings {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(15), lease: Duration::from_secs(45), offer: Duration::from_secs(15) }
    }
}

/// Why a device was not paired.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The name in the file cannot be used.
    #[error("the device's name in the file cannot be used: {0}")]
    Name(String),
    /// The key was revoked here.
    #[error(
        "this device was revoked on this gateway and its key stays refused; make a new identity on the desktop and export that"
    )]
    Revoked,
    /// The device belongs to an account.
    #[error(
        "this device belongs to {0}; it comes in when its user signs in. For SSH make a new identity on the desktop and \
         export that"
    )]
    Account(Account),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Pairs the device of an identity file, whose proof was checked when it was read. Pairing again
/// changes nothing.
///
/// # Errors
/// [`PairError::Name`]: the device's name is not usable. [`PairError::Revoked`]: the key was revoked here.
/// [`PairError::Account`]: the device belongs to an account. [`PairError::Store`]: the database does not answer, or
/// refuses the statement.
pub async fn pair(store: &Store, file: &IdentityFile) -> Result<Device, PairError> {
    check_name(&file.device_name).map_err(PairError::Name)?;
    let device = store.pair_device(&file.device_name, &file.public_key).await?;
    match device {
        Device { revoked_at: Some(_), .. } => Err(PairError::Revoked),
        Device { account: Some(account), .. } => Err(PairError::Account(account)),
        device => Ok(device),
    }
}

/// By what a device may have recognised this gateway, given the way it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedServer {
    /// By one of these SSH host keys; if there are none, nobody here knows them.
    HostKeys(Vec<PublicKey>),
    /// By the certificate for this address.
    Origin(String),
    /// By being in the same process.
    BuiltIn,
}

impl ExpectedServer {
    fn is(&self, server: &RecognisedServer) -> bool {
        match (self, server) {
            (Self::HostKeys(own), RecognisedServer::HostKey(key)) => own.is_empty() || own.contains(key),
            (Self::Origin(own), RecognisedServer::Origin(origin)) => own == origin,
            (Self::BuiltIn, RecognisedServer::BuiltIn) => true,
            _ => false,
        }
    }
}

impl std::fmt::Display for ExpectedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostKeys(own) if own.is_empty() => f.write_str("reached over SSH"),
            Self::HostKeys(own) => {
                f.write_str(&own.iter().map(PublicKey::fingerprint).collect::<Vec<_>>().join(" or "))
            }
            Self::Origin(origin) => f.write_str(origin),
            Self::BuiltIn => f.write_str("in the device's own process"),
        }
    }
}

/// The challenge that a gateway sent to a device.
#[derive(Clone, Debug)]
pub struct IssuedChallenge {
    /// The gateway.
    pub gateway_id: GatewayId,
    /// The nonce of this session.
    pub nonce: String,
    /// The key that the tunnel authenticated, if it was our tunnel.
    pub tunnel_key: Option<PublicKey>,
    /// By what the device may have recognised the server.
    pub server: ExpectedServer,
}

/// Checks everything in a hello that needs no database. Returns the protocol to speak.
///
/// # Errors
/// [`RefusedCode::BadHello`]: the version is not one. [`RefusedCode::BadProof`]: the tunnel authenticated another key,
/// or the signature does not match the challenge. [`RefusedCode::OtherServer`]: the device recognised another server,
/// so somebody passed its hello on. [`RefusedCode::VersionMismatch`]: the versions do not match, or the
/// two sides have no protocol in common.
pub fn check_hello(challenged: &IssuedChallenge, hello: &Hello) -> Result<u32, Box<SessionRefusal>> {
    let refused = |code, message: &str, upgrade| {
        Box::new(SessionRefusal {
            code,
            message: message.to_owned(),
            should_retry: false,
            retry_after_s: None,
            gateway_version: VERSION.to_owned(),
            device_version: Some(printable(&hello.device_version)),
            upgrade,
        })
    };
    let usable = |c: char| c.is_ascii_alphanumeric() || ".+-".contains(c);
    if hello.device_version.len() > 40 || !hello.device_version.chars().all(usable) {
        return Err(refused(RefusedCode::BadHello, "The device's version is no version.", None));
    }
    if challenged.tunnel_key.is_some_and(|key| key != hello.public_key) {
        let message = "The SSH key and the key in the hello differ; a device signs in with one key.";
        return Err(refused(RefusedCode::BadProof, message, None));
    }
    let mismatch = |half| {
        let (subject, command) = match half {
            Half::Gateway => ("gateway", "upgrade the package deskgate-gateway on the server"),
            Half::Device => ("desktop", "upgrade the package deskgate on this computer"),
        };
        let message = format!(
            "The gateway is version {VERSION}, this device is version {}. The {subject} is the older one: {command}.",
            hello.device_version
        );
        // An upgrade of the other side resolves it without a change to this one, and another gateway of the same queue
        // may not be upgraded yet: the device retries at its own pace.
        let refused = *refused(RefusedCode::VersionMismatch, &message, Some(half));
        Box::new(SessionRefusal { should_retry: true, ..refused })
    };
    let Some(server) = &hello.server else { return Err(mismatch(Half::Device)) };
    let proof = HelloProof {
        gateway_id: challenged.gateway_id,
        nonce: &challenged.nonce,
        gateway_version: VERSION,
        device_version: &hello.device_version,
        server,
    };
    if !proof.verify(&hello.public_key, &hello.signature) {
        return Err(refused(RefusedCode::BadProof, "The signature of the hello does not hold.", None));
    }
    if !challenged.server.is(server) {
        let message = format!(
            "This device recognised the server as {server}, and this gateway is {}. Somebody in between may have passed \
             the device's greeting on; a gateway that was moved must be set to what its devices connect to.",
            challenged.server
        );
        return Err(refused(RefusedCode::OtherServer, &message, None));
    }
    versions_match(VERSION, &hello.device_version).map_err(mismatch)?;
    PROTOCOL_RANGE
        .agree(hello.protocol)
        .ok_or_else(|| mismatch(if hello.protocol.max < PROTOCOL_RANGE.min { Half::Device } else { Half::Gateway }))
}

/// Text from a device before its admission, without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(40).collect()
}

/// Refuses a key that is unpaired or revoked.
pub fn refuse_key(known: Option<&Device>, hello: &Hello) -> SessionRefusal {
    let fingerprint = hello.public_key.fingerprint();
    let (code, message) = match known {
        Some(Device { account: Some(_), revoked_at: None, .. }) => (
            RefusedCode::OtherAccount,
            format!("This device ({fingerprint}) belongs to an account. It comes in when its user signs in with that."),
        ),
        Some(_) => (
            RefusedCode::RevokedDevice,
            format!(
                "This device ({fingerprint}) was removed from the gateway. To pair it again, make a new identity on it: deskgate \
                 identity renew --accept-risk=lose-pairing"
            ),
        ),
        None => (
            RefusedCode::UnknownDevice,
            format!(
                "This device ({fingerprint}) is not paired with this gateway. On the server `deskgate-gateway admin device invite` \
                 makes an invitation, which `deskgate pair` takes on the device."
            ),
        ),
    };
    SessionRefusal {
        code,
        message,
        should_retry: known.is_none(),
        retry_after_s: known.is_none().then_some(30),
        gateway_version: VERSION.to_owned(),
        device_version: Some(hello.device_version.clone()),
        upgrade: None,
    }
}

/// Refuses because the gateway itself cannot work now.
pub fn refuse_for_now(message: &str) -> SessionRefusal {
    SessionRefusal {
        code: RefusedCode::Unavailable,
        message: message.to_owned(),
        should_retry: true,
        retry_after_s: Some(2),
        gateway_version: VERSION.to_owned(),
        device_version: None,
        upgrade: None,
    }
}

/// The action for one run when its device is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The offer was accepted and nothing executed: store the start, and let the device begin.
    Start {
        /// Whether the start was stored before, and the run awaits reconciliation since.
        in_doubt: bool,
    },
    /// The offer was lost: queue the run again.
    Return,
    /// The device still executes it: store that if it was in doubt, and report the stored state.
    Resume {
        /// Whether the run awaits reconciliation.
        in_doubt: bool,
    },
    /// The device was interrupted before its first write: it starts again, with the next attempt.
    Restart,
    /// The device does not know what it changed: store that, and report the stored state. Its user settles it.
    Unknown,
    /// The restart was stored and its offer never arrived: offer the same attempt again.
    OfferAgain {
        /// Whether the run awaits reconciliation since.
        in_doubt: bool,
    },
    /// A stop is open and nothing was executed that could have changed anything: cancelled, without the device.
    Cancel {
        /// The attempt that the device still has in its journal.
        held: u32,
    },
    /// The device executed it and has no record of it any more.
    Lose,
    /// The device finished; its report follows. Report the stored state.
    ExpectFinish,
    /// The device holds an attempt that is not the run's.
    Revoke(RevokeCode),
}

/// Compares the runs that the tables assign to a device with those it reports.
pub fn settle(held: &[HeldRun], in_flight: &[InFlightRun]) -> Vec<(RunId, u32, Settlement)> {
    let held_by_id: HashMap<RunId, &HeldRun> = held.iter().map(|run| (run.run_id, run)).collect();
    let claimed = in_flight.iter().map(|entry| {
        let settlement = match held_by_id.get(&entry.run_id) {
            None => Settlement::Revoke(RevokeCode::UnknownRun),
            Some(run) if run.stopping && offer_was_lost(run, entry) => Settlement::Cancel { held: entry.attempt },
            Some(run) if offer_was_lost(run, entry) => {
                Settlement::OfferAgain { in_doubt: run.state == RunState::AwaitingReconciliation }
            }
            Some(run) if run.attempt != entry.attempt => Settlement::Revoke(RevokeCode::StaleAttempt),
            Some(run) if run.stopping && nothing_happened(entry) => Settlement::Cancel { held: entry.attempt },
            Some(run) => settle_one(run.state, entry.status),
        };
        let attempt = match (settlement, held_by_id.get(&entry.run_id)) {
            (Settlement::OfferAgain { .. } | Settlement::Cancel { .. }, Some(run)) => run.attempt,
            _ => entry.attempt,
        };
        (entry.run_id, attempt, settlement)
    });
    let claims = |run: &HeldRun| {
        let same = |entry: &&InFlightRun| entry.run_id == run.run_id;
        in_flight.iter().filter(same).any(|entry| entry.attempt == run.attempt || offer_was_lost(run, entry))
    };
    let unclaimed = held.iter().filter(|run| !claims(run)).map(|run| {
        let settlement = if run.state == RunState::Queued { Settlement::Return } else { Settlement::Lose };
        (run.run_id, run.attempt, settlement)
    });
    claimed.chain(unclaimed).collect()
}

/// Whether the offer of a restart never arrived: had the device accepted it, its journal would hold the newer attempt
/// in place of this one. So nothing was executed since, which also holds for a run with an unknown outcome that is to
/// run again. Had any device accepted it, this journal is an old one or a copy, which cannot know the outcome.
fn offer_was_lost(run: &HeldRun, entry: &InFlightRun) -> bool {
    let waits = nothing_happened(entry) || entry.status == InFlightStatus::Unknown;
    // A larger distance is fenced off: the gateway was restored, and does not know the attempts in between.
    run.is_reoffered && entry.attempt + 1 == run.attempt && waits
}

/// Whether the device reports that this attempt executed nothing that could have changed anything.
fn nothing_happened(entry: &InFlightRun) -> bool {
    matches!(entry.status, InFlightStatus::Interrupted | InFlightStatus::Taken)
}

fn settle_one(state: RunState, status: InFlightStatus) -> Settlement {
    use InFlightStatus::*;
    match (state, status) {
        (RunState::Queued, Taken) => Settlement::Start { in_doubt: false },
        // A device executes only after a durable start; this one did not, so it must not go on.
        (RunState::Queued, _) => Settlement::Revoke(RevokeCode::StaleAttempt),
        // The start was stored and never arrived.
        (_, Taken) => Settlement::Start { in_doubt: state == RunState::AwaitingReconciliation },
        (_, Running) => Settlement::Resume { in_doubt: state == RunState::AwaitingReconciliation },
        (_, Interrupted) => Settlement::Restart,
        (_, Unknown) => Settlement::Unknown,
        (_, Finished) => Settlement::ExpectFinish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(state: RunState, attempt: u32) -> HeldRun {
        HeldRun {
            run_id: RunId::from(uuid::Uuid::nil()),
            attempt,
            state,
            device_seq: 0,
            stopping: false,
            is_reoffered: attempt > 1 && state != RunState::Queued,
        }
    }

    fn says(status: InFlightStatus, attempt: u32) -> InFlightRun {
        InFlightRun { run_id: RunId::from(uuid::Uuid::nil()), attempt, status }
    }

    fn settled(state: RunState, status: InFlightStatus) -> Settlement {
        settle(&[held(state, 1)], &[says(status, 1)])[0].2
    }

    #[test]
    fn an_offer_that_arrived_is_started_and_one_that_did_not_is_queued_again() {
        assert_eq!(settled(RunState::Queued, InFlightStatus::Taken), Settlement::Start { in_doubt: false });
        assert_eq!(settle(&[held(RunState::Queued, 1)], &[])[0].2, Settlement::Return);
    }

    #[test]
    fn a_run_the_device_forgot_awaits_reconciliation_and_is_never_offered_again() {
        assert_eq!(settle(&[held(RunState::Running, 1)], &[])[0].2, Settlement::Lose);
    }

    #[test]
    fn an_attempt_that_is_not_the_runs_is_revoked_and_the_run_settled_without_it() {
        let settlements = settle(&[held(RunState::Running, 2)], &[says(InFlightStatus::Running, 1)]);
        let what: Vec<_> = settlements.iter().map(|(_, attempt, settlement)| (*attempt, *settlement)).collect();
        assert_eq!(what, [(1, Settlement::Revoke(RevokeCode::StaleAttempt)), (2, Settlement::Lose)]);
        assert_eq!(settle(&[], &[says(InFlightStatus::Finished, 1)])[0].2, Settlement::Revoke(RevokeCode::UnknownRun));
    }

    #[test]
    fn a_restart_whose_offer_was_lost_is_offered_again_and_the_run_never_given_up() {
        for status in [InFlightStatus::Interrupted, InFlightStatus::Taken, InFlightStatus::Unknown] {
            let settlements = settle(&[held(RunState::Running, 3)], &[says(status, 2)]);
            let what: Vec<_> = settlements.iter().map(|(_, attempt, what)| (*attempt, *what)).collect();
            assert_eq!(what, [(3, Settlement::OfferAgain { in_doubt: false })]);
        }
        let queued = settle(&[held(RunState::Queued, 3)], &[says(InFlightStatus::Interrupted, 2)]);
        assert_eq!(queued[0].2, Settlement::Revoke(RevokeCode::StaleAttempt));
    }

    #[test]
    fn a_start_that_never_arrived_is_said_again_also_after_the_run_was_given_up() {
        assert_eq!(settled(RunState::Running, InFlightStatus::Taken), Settlement::Start { in_doubt: false });
        let given_up = settled(RunState::AwaitingReconciliation, InFlightStatus::Taken);
        assert_eq!(given_up, Settlement::Start { in_doubt: true });
    }

    /// As after its home was restored from a backup, or with a copy of it.
    #[test]
    fn an_attempt_that_was_accepted_is_not_offered_to_a_journal_that_does_not_know_it() {
        use InFlightStatus::*;
        let accepted = HeldRun { is_reoffered: false, ..held(RunState::Running, 2) };
        for status in [Taken, Interrupted, Unknown] {
            let settled: Vec<_> = settle(&[accepted], &[says(status, 1)]).into_iter().map(|it| (it.1, it.2)).collect();
            let revoked = (1, Settlement::Revoke(RevokeCode::StaleAttempt));
            assert_eq!(settled, [revoked, (2, Settlement::Lose)], "{status:?}");
        }
    }

    #[test]
    fn a_device_that_executed_without_a_start_must_not_go_on() {
        use InFlightStatus::*;
        for status in [Running, Interrupted, Unknown, Finished] {
            assert_eq!(settled(RunState::Queued, status), Settlement::Revoke(RevokeCode::StaleAttempt));
        }
    }

    #[test]
    fn what_is_to_be_stopped_is_not_executed_once_more() {
        for state in [RunState::Cancelling, RunState::AwaitingReconciliation] {
            use InFlightStatus::*;
            let stopping = HeldRun { stopping: true, ..held(state, 2) };
            for (status, attempt) in [(Taken, 2), (Interrupted, 2), (Interrupted, 1), (Unknown, 1)] {
                let settled = settle(&[stopping], &[says(status, attempt)]);
                assert_eq!((settled.len(), settled[0].1), (1, 2));
                assert_eq!(settled[0].2, Settlement::Cancel { held: attempt });
            }
            assert_eq!(settle(&[stopping], &[says(InFlightStatus::Finished, 2)])[0].2, Settlement::ExpectFinish);
            assert!(matches!(settle(&[stopping], &[says(InFlightStatus::Running, 2)])[0].2, Settlement::Resume { .. }));
            assert_eq!(settle(&[stopping], &[])[0].2, Settlement::Lose);
            // Its device soon learns of the stop, and ends it.
            assert_eq!(settle(&[stopping], &[says(Unknown, 2)])[0].2, Settlement::Unknown);
        }
    }

    #[test]
    fn what_the_device_does_not_know_is_neither_given_up_nor_begun_again() {
        for state in [RunState::Running, RunState::AwaitingApproval, RunState::AwaitingReconciliation] {
            assert_eq!(settled(state, InFlightStatus::Unknown), Settlement::Unknown);
        }
    }

    #[test]
    fn a_started_run_goes_on_from_where_the_device_is() {
        for state in [RunState::Running, RunState::AwaitingApproval] {
            assert_eq!(settled(state, InFlightStatus::Running), Settlement::Resume { in_doubt: false });
            assert_eq!(settled(state, InFlightStatus::Interrupted), Settlement::Restart);
        }
        let doubtful = RunState::AwaitingReconciliation;
        assert_eq!(settled(doubtful, InFlightStatus::Running), Settlement::Resume { in_doubt: true });
        assert_eq!(settled(doubtful, InFlightStatus::Interrupted), Settlement::Restart);
        assert_eq!(settled(doubtful, InFlightStatus::Finished), Settlement::ExpectFinish);
    }
}
