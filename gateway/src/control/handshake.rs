//! The handshake: challenge, hello, and then welcome or refused.

use std::time::Duration;

use deskgate_protocol::control::{
    Challenge, DeviceFrame, GatewayFrame, Hello, Policy, ProvenHostKey, RefusedCode, SessionRefusal, Welcome,
};
use deskgate_protocol::identity::{HostKeyProof, PublicKey};
use deskgate_protocol::{DeviceId, PROTOCOL_RANGE, VERSION};
use tokio::time::timeout;

use super::service::{ControlService, EntryMethod};
use super::wire::{FrameReader, FrameWriter};
use crate::domain::accounts::{self, Grant};
use crate::domain::devices::Settlement;
use crate::domain::devices::{IssuedChallenge, check_hello, refuse_for_now, refuse_key, settle};
use crate::store::leases::{HeldRun, SessionKey};
use deskgate_protocol::RunId;

/// Unacknowledged events that one run may have.
const MAX_UNACKNOWLEDGED_EVENTS: u32 = 256;

/// A device that was admitted.
pub(super) struct AdmittedDevice {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) session: SessionKey,
    /// The account and its end, if the device came with one.
    pub(super) grant: Option<Grant>,
    pub(super) held: Vec<HeldRun>,
    pub(super) settlements: Vec<(RunId, u32, Settlement)>,
    /// Whether its journal is the one that it had when the backup was made that was restored here.
    pub(super) may_recall: bool,
}

/// Admits a device, or sends it the reason why not.
pub(super) async fn enter(
    service: &ControlService,
    mut reader: FrameReader,
    mut writer: FrameWriter,
    way: EntryMethod,
    time: Duration,
) -> Option<AdmittedDevice> {
    let (challenged, greeted) = greet(service, &mut reader, &mut writer, &way, way.tunnel_key(), time).await;
    let outcome = match greeted {
        Greeted::Hello(hello) => match timeout(time, admit(service, &challenged, &way, *hello)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Box::new(refuse_for_now("The gateway's database did not answer in time."))),
        },
        Greeted::Gone => return None,
        Greeted::Refused(refused) => Err(refused),
    };
    let refused = match outcome {
        Ok(SessionStart { welcome, session, held, settlements, may_recall }) => {
            if let Ok(Ok(())) = timeout(time, writer.send(&GatewayFrame::Welcome(welcome))).await {
                note_host_key(service, &way, session.device_id).await;
                let grant = if let EntryMethod::Account(grant) = way { Some(grant) } else { None };
                return Some(AdmittedDevice { reader, writer, session, grant, held, settlements, may_recall });
            }
            if let Err(error) = service.store.end_session(session).await {
                tracing::debug!(%error, "the end of the session could not be written");
            }
            return None;
        }
        Err(refused) => refused,
    };
    tracing::info!(code = ?refused.code, reason = refused.message, "device refused");
    // The refusal gets a moment, not more.
    let _ = timeout(Duration::from_secs(2), writer.send(&GatewayFrame::Refused(*refused))).await;
    None
}

/// What came of a challenge.
pub(super) enum Greeted {
    /// The device's answer, which nobody has checked.
    Hello(Box<Hello>),
    /// It went away.
    Gone,
    /// It said something else, or nothing in time.
    Refused(Box<SessionRefusal>),
}

/// Sends a challenge and reads the hello. `tunnel_key`: the key that the hello has to have, if one is known.
pub(super) async fn greet(
    service: &ControlService,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    way: &EntryMethod,
    tunnel_key: Option<PublicKey>,
    time: Duration,
) -> (IssuedChallenge, Greeted) {
    let nonce = uuid::Uuid::now_v7().simple().to_string() + &random_nonce();
    let challenged = IssuedChallenge { gateway_id: service.gateway_id, nonce, tunnel_key, server: way.server(service) };
    let challenge = Challenge {
        nonce: challenged.nonce.clone(),
        gateway_id: service.gateway_id,
        gateway_version: VERSION.to_owned(),
        protocol: PROTOCOL_RANGE,
    };
    let greeted = timeout(time, async {
        if writer.send(&GatewayFrame::Challenge(challenge)).await.is_err() {
            return Greeted::Gone;
        }
        let first = tokio::select! {
            first = reader.next() => first,
            () = service.stop.cancelled() => {
                return Greeted::Refused(Box::new(refuse_for_now("The gateway is stopping.")));
            }
        };
        match first {
            Ok(DeviceFrame::Hello(hello)) => Greeted::Hello(Box::new(hello)),
            Ok(_) => Greeted::Refused(bad_hello("The first frame was no hello.")),
            Err(super::wire::WireError::Closed) => Greeted::Gone,
            Err(error) => Greeted::Refused(bad_hello(&format!("The first frame was no hello: {error}."))),
        }
    });
    let late = || Greeted::Refused(Box::new(refuse_for_now("No hello came in time.")));
    let greeted = greeted.await.unwrap_or_else(|_| late());
    (challenged, greeted)
}

struct SessionStart {
    welcome: Welcome,
    session: SessionKey,
    held: Vec<HeldRun>,
    settlements: Vec<(RunId, u32, Settlement)>,
    may_recall: bool,
}

async fn admit(
    service: &ControlService,
    challenged: &IssuedChallenge,
    way: &EntryMethod,
    hello: Hello,
) -> Result<SessionStart, Box<SessionRefusal>> {
    let for_now = |_| Box::new(refuse_for_now("The gateway cannot use its database at the moment."));
    let protocol = match check_hello(challenged, &hello) {
        Ok(protocol) => protocol,
        Err(refused) => {
            if refused.code == RefusedCode::VersionMismatch {
                let (device, gateway) = (&hello.device_version, VERSION);
                tracing::warn!(device_version = device, gateway_version = gateway, "a device has another version");
                service
                    .store
                    .note_refusal(&hello.public_key, &hello.device_version, &refused)
                    .await
                    .map_err(for_now)?;
            }
            if let (RefusedCode::OtherServer, Some(server)) = (refused.code, &hello.server) {
                let (device, own) = (hello.public_key.fingerprint(), &challenged.server);
                tracing::warn!(device, recognised = %server, this = %own,
                    "a device's hello was made for another server and came here: somebody may have passed it on");
            }
            return Err(refused);
        }
    };
    if service.stop.is_cancelled() {
        return Err(Box::new(refuse_for_now("The gateway is stopping.")));
    }
    let account = if let EntryMethod::Account(grant) = way { Some(&grant.account) } else { None };
    let begin = || service.store.begin_session(&hello.public_key, account, &hello.device_version, service.clocks.lease);
    let mut begun = begin().await.map_err(for_now)?;
    let most = service.verifier.as_ref().map_or(0, |verifier| verifier.hosted().devices_per_account);
    if begun.is_none()
        && let Some(account) = account
    {
        accounts::pair(&service.store, account, &hello, most).await.map_err(for_now)?;
        begun = begin().await.map_err(for_now)?;
    }
    let Some((session, held)) = begun else {
        let known = service.store.device_by_key(&hello.public_key).await.map_err(for_now)?;
        return Err(Box::new(match account {
            Some(_) => accounts::refuse_key(known.as_ref(), &hello, most),
            None => refuse_key(known.as_ref(), &hello),
        }));
    };
    let claimed: Vec<_> = hello.in_flight.iter().map(|entry| (entry.run_id, entry.attempt)).collect();
    if !claimed.is_empty() {
        service.store.pass_over_lost_claims(session, &claimed).await.map_err(for_now)?;
    }
    let settlements = settle(&held, &hello.in_flight);
    let may_recall = match hello.journal_id {
        Some(journal_id) => service.store.note_journal(session, journal_id).await.map_err(for_now)?,
        None => false,
    };
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let policy = Policy {
        heartbeat_ms: milliseconds(service.clocks.heartbeat),
        lease_ms: milliseconds(service.clocks.lease),
        offer_ms: milliseconds(service.clocks.offer),
        unacknowledged_events: MAX_UNACKNOWLEDGED_EVENTS,
        retention_s: service.told_retention.map(|time| time.as_secs()),
    };
    let host_keys = host_keys(service, challenged, &hello);
    let welcome = Welcome { device_id: session.device_id, epoch: session.epoch, protocol, policy, host_keys };
    Ok(SessionStart { welcome, session, held, settlements, may_recall })
}

/// The host keys that a device learns when it came through this gateway's own listener. To the others they mean
/// nothing.
fn host_keys(service: &ControlService, challenged: &IssuedChallenge, hello: &Hello) -> Vec<ProvenHostKey> {
    let (Some(keys), Some(device), Some(nonce)) = (&service.host_keys, &challenged.tunnel_key, &hello.nonce) else {
        return Vec::new();
    };
    keys.proven(&HostKeyProof { gateway_id: service.gateway_id, nonce, device })
}

/// Stored so that an administrator who replaces the host key sees which devices it would lock out.
async fn note_host_key(service: &ControlService, way: &EntryMethod, device_id: DeviceId) {
    let told = match (way, &service.host_keys) {
        (EntryMethod::Tunnel { .. }, Some(keys)) => Some(keys.next().unwrap_or_else(|| keys.current()).fingerprint()),
        (EntryMethod::Socket | EntryMethod::Pipe, Some(_)) => None,
        (EntryMethod::Account(_), _) | (_, None) => return,
    };
    if let Err(error) = service.store.note_host_key(device_id, told.as_deref()).await {
        tracing::debug!(%error, "of which host key a device was told could not be written");
    }
}

fn random_nonce() -> String {
    use rand::TryRng;
    let mut bytes = [0u8; 16];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).expect("the operating system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bad_hello(message: &str) -> Box<SessionRefusal> {
    Box::new(SessionRefusal {
        code: RefusedCode::BadHello,
        should_retry: false,
        retry_after_s: None,
        ..refuse_for_now(message)
    })
}
