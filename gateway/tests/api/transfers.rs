//! Tickets of transfers: each opens what it stands for, while that holds, and nothing else.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_gateway::domain::StorageQuotas;
use deskgate_gateway::domain::health::{HealthCode, HealthSnapshot, Severity};
use deskgate_gateway::domain::transfers::owner::OwnFile;
use deskgate_gateway::domain::transfers::{AnnouncedArtifact, TransferService};
use deskgate_gateway::storage::StoragePlace;
use deskgate_gateway::store::artifacts::HeldAttempt;
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Offer;
use deskgate_protocol::file::{Artifact, ArtifactState};
use deskgate_protocol::run::{Outcome, RunResult};
use deskgate_protocol::transfer::TransferRefusalCode::{self, Busy, Invalid, Stale, TicketInvalid};
use deskgate_protocol::transfer::TransferTicket;
use deskgate_protocol::{ApplicationId, ArtifactId, FileId, RunId};
use futures_util::TryStreamExt;

use crate::files::{id, submit_with, takes_files, uploaded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE, TestGateway, cipher};

const BYTES: &[u8] = b"Anton\nBerta\n";

fn transfers(gateway: &TestGateway) -> TransferService {
    let storage = StoragePlace::in_state_dir(gateway.dir()).open().expect("opened");
    TransferService::new(gateway.store().clone(), storage, cipher(), StorageQuotas::default())
}

fn artifact() -> Artifact {
    Artifact {
        artifact_id: ArtifactId::new(),
        name: "out.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        description: None,
        size: BYTES.len() as u64,
        sha256: Sha256Digest::of(BYTES),
        state: ArtifactState::Stored,
    }
}

fn own_file() -> OwnFile {
    let (name, media_type) = ("in.txt".to_owned(), "text/plain".to_owned());
    OwnFile { name, media_type, size: BYTES.len() as u64, sha256: Sha256Digest::of(BYTES) }
}

/// A ticket as a gateway with the same key would make it, of this kind and with this content.
fn sealed(context: &str, until: u64, held: &[&[u8]]) -> TransferTicket {
    let plain = [&until.to_be_bytes()[..], &held.concat()].concat();
    TransferTicket::new(&URL_SAFE_NO_PAD.encode(cipher().encrypt(&plain, context)))
}

async fn gotten(
    transfers: &TransferService,
    ticket: &TransferTicket,
    file: FileId,
) -> Result<Vec<u8>, TransferRefusalCode> {
    let found = transfers.get(ticket, file, 0).await.map_err(|refused| refused.code)?;
    Ok(found.bytes.try_collect::<Vec<_>>().await.expect("read").concat())
}

async fn put(transfers: &TransferService, ticket: &TransferTicket) -> Result<(), TransferRefusalCode> {
    let AnnouncedArtifact::Upload(mut upload) =
        transfers.put(ticket, artifact()).await.map_err(|refused| refused.code)?
    else {
        return Ok(());
    };
    upload.write(BYTES.into()).await.expect("taken");
    upload.finish().await.map_err(|refused| refused.code)
}

async fn given(
    transfers: &TransferService,
    ticket: &TransferTicket,
    app_id: ApplicationId,
) -> Result<(), TransferRefusalCode> {
    let mut upload = transfers.upload(ticket, app_id, own_file()).await.map_err(|refused| refused.code)?;
    upload.write(BYTES.into()).await.expect("taken");
    upload.finish().await.map(drop).map_err(|refused| refused.code)
}

async fn taken(
    transfers: &TransferService,
    ticket: &TransferTicket,
    run_id: RunId,
    artifact_id: ArtifactId,
) -> Result<Vec<u8>, TransferRefusalCode> {
    let found = transfers.get_artifact(ticket, run_id, artifact_id, 0).await.map_err(|refused| refused.code)?;
    Ok(found.bytes.try_collect::<Vec<_>>().await.expect("read").concat())
}

/// Two runs that the device executes, each with a file of its own.
async fn executing(gateway: &TestGateway) -> (Vec<(Offer, FileId)>, deskgate_gateway::store::leases::SessionKey) {
    takes_files(gateway).await;
    for name in ["one", "two"] {
        let file = uploaded(gateway, name, BYTES).await;
        submit_with(gateway, name, &[id(&file)]).await;
    }
    let (session, _) = gateway.device.connect().await;
    let mut runs = Vec::new();
    for offer in gateway.device.claim(session, 2).await {
        let record = AttemptRecord { run_id: offer.run_id, attempt: offer.attempt, what: AttemptUpdate::Start };
        gateway.store().record(session, &[record], LONG_LEASE).await.expect("recorded");
        let file_id = offer.input.files().expect("files")[0].file_id;
        runs.push((offer, file_id));
    }
    (runs, session)
}

#[tokio::test]
async fn a_ticket_of_an_attempt_opens_its_files_and_artifacts_while_it_is_executed() {
    let gateway = TestGateway::new().await;
    let transfers = transfers(&gateway);
    let (runs, session) = executing(&gateway).await;
    let [(one, file), (two, other_file)] = &runs[..] else { panic!("two runs") };
    let device_id = gateway.device.device_id;
    let held = HeldAttempt { device_id, run_id: one.run_id, attempt: one.attempt };
    let ticket = transfers.ticket(&held);
    assert_eq!(gotten(&transfers, &ticket, *file).await.as_deref(), Ok(BYTES));
    assert_eq!(put(&transfers, &ticket).await, Ok(()));

    // Another run's file, another run, another attempt, another device.
    assert_eq!(gotten(&transfers, &ticket, *other_file).await, Err(Stale));
    let stranger = DeviceFixture::pair(gateway.store()).await;
    for foreign in [
        HeldAttempt { run_id: two.run_id, ..held },
        HeldAttempt { run_id: RunId::new(), ..held },
        HeldAttempt { attempt: held.attempt + 1, ..held },
        HeldAttempt { device_id: stranger.device_id, ..held },
    ] {
        let ticket = transfers.ticket(&foreign);
        assert_eq!(gotten(&transfers, &ticket, *file).await, Err(Stale), "{foreign:?}");
        if foreign.run_id != two.run_id {
            assert_eq!(put(&transfers, &ticket).await, Err(Stale), "{foreign:?}");
        }
    }

    // One that is too old, of another kind, cut, changed, or none.
    let (device, run, attempt) = (device_id.uuid(), one.run_id.uuid(), one.attempt.to_be_bytes());
    let parts: [&[u8]; 3] = [device.as_bytes(), run.as_bytes(), &attempt];
    let good = sealed("a transfer", u64::MAX, &parts);
    assert_eq!(gotten(&transfers, &good, *file).await.as_deref(), Ok(BYTES), "so are tickets made");
    let text = ticket.reveal();
    for bad in [
        sealed("a transfer", 1, &parts),
        sealed("an owner's transfer", u64::MAX, &parts),
        sealed("a trial stream", u64::MAX, &parts),
        sealed("a transfer", u64::MAX, &parts[..2]),
        sealed("a transfer", u64::MAX, &[]),
        gateway.device.desktop.grant_transfer().ticket,
        TransferTicket::new(&text[1..]),
        TransferTicket::new(&format!("{text}AAAA")),
        TransferTicket::new("ü"),
        TransferTicket::new(""),
    ] {
        assert_eq!(gotten(&transfers, &bad, *file).await, Err(TicketInvalid), "{}", bad.reveal());
        assert_eq!(put(&transfers, &bad).await, Err(TicketInvalid));
    }

    // Nothing after the end.
    let outcome = Outcome::Succeeded { result: RunResult::completed("done"), usage: Default::default() };
    let what = AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None };
    let record = AttemptRecord { run_id: one.run_id, attempt: one.attempt, what };
    gateway.store().record(session, &[record], LONG_LEASE).await.expect("recorded");
    assert_eq!(gotten(&transfers, &ticket, *file).await, Err(Stale));
    assert_eq!(put(&transfers, &ticket).await, Err(Stale));
    let artifacts = gateway.read(one.run_id).await.json()["artifacts"].as_array().map_or(0, Vec::len);
    assert_eq!(artifacts, 1, "the one that came in time");
    gateway.stop().await;
}

#[tokio::test]
async fn a_ticket_of_an_owner_opens_what_is_the_owners_and_nothing_of_anybody_else() {
    let gateway = TestGateway::new().await;
    let transfers = transfers(&gateway);
    let (runs, _) = executing(&gateway).await;
    let (one, file) = &runs[0];
    let device = &gateway.device;
    let held = HeldAttempt { device_id: device.device_id, run_id: one.run_id, attempt: one.attempt };
    let of_attempt = transfers.ticket(&held);
    assert_eq!(put(&transfers, &of_attempt).await, Ok(()));
    let listed = gateway.read(one.run_id).await.json()["artifacts"][0]["artifact_id"].as_str().map(str::to_owned);
    let artifact_id: ArtifactId = listed.expect("listed").parse().expect("an identifier");

    let ticket = device.desktop.grant_transfer().ticket;
    assert_eq!(given(&transfers, &ticket, device.app.id).await, Ok(()));
    assert_eq!(taken(&transfers, &ticket, one.run_id, artifact_id).await.as_deref(), Ok(BYTES));
    assert_eq!(taken(&transfers, &ticket, one.run_id, ArtifactId::new()).await, Err(Invalid));
    let beyond = transfers.get_artifact(&ticket, one.run_id, artifact_id, BYTES.len() as u64 + 1).await;
    assert_eq!(beyond.err().map(|refused| refused.code), Some(Invalid));
    // The owner's file is the owner's: no caller sees it.
    let seen = gateway.ask("GET", "/api/v1/files").send().await.json()["data"].as_array().expect("a page").len();
    assert_eq!(seen, 2, "those that callers uploaded");

    let stranger = DeviceFixture::pair(gateway.store()).await;
    let foreign = stranger.desktop.grant_transfer().ticket;
    assert_eq!(given(&transfers, &foreign, device.app.id).await, Err(Stale));
    assert_eq!(taken(&transfers, &foreign, one.run_id, artifact_id).await, Err(Stale));
    let long_ago = sealed("an owner's transfer", 1, &[device.device_id.uuid().as_bytes()]);
    for bad in [of_attempt, long_ago, TransferTicket::new("x")] {
        assert_eq!(given(&transfers, &bad, device.app.id).await, Err(TicketInvalid));
        assert_eq!(taken(&transfers, &bad, one.run_id, artifact_id).await, Err(TicketInvalid));
    }
    assert_eq!(gotten(&transfers, &ticket, *file).await, Err(TicketInvalid));

    // A device that was removed has nothing any more, whatever it still holds.
    assert!(gateway.store().revoke_device(device.device_id, LONG_LEASE).await.expect("revoked"));
    assert_eq!(given(&transfers, &ticket, device.app.id).await, Err(Stale));
    assert_eq!(taken(&transfers, &ticket, one.run_id, artifact_id).await, Err(Stale));
    gateway.stop().await;
}

#[tokio::test]
async fn a_store_in_trouble_refuses_files_at_once_and_is_a_problem_until_it_is_well() {
    let gateway = TestGateway::new().await;
    let (device, store) = (&gateway.device, gateway.store());
    let storage = StoragePlace::in_state_dir(gateway.dir()).open().expect("opened");
    let transfers = TransferService::new(store.clone(), storage.clone(), cipher(), StorageQuotas::default());
    let until = u64::MAX / 2;
    let ticket = sealed("an owner's transfer", until, &[device.device_id.uuid().as_bytes()]);
    let problems = async || HealthSnapshot::now(store, &storage, Duration::ZERO).await.problems();
    storage.probe().await.expect("it is well");
    assert_eq!((storage.trouble(), problems().await), (None, vec![]));

    let objects = gateway.dir().join("objects");
    std::fs::remove_dir_all(&objects).expect("removed");
    std::fs::write(&objects, "in the way").expect("written");
    storage.probe().await.expect_err("nothing can be kept");
    assert_eq!(problems().await, [], "once may be a slow moment");
    storage.probe().await.expect_err("nothing can be kept");
    let problem = problems().await.pop().expect("one");
    assert_eq!((problem.code, problem.severity), (HealthCode::StorageUnavailable, Severity::Fail));
    assert!(problem.text.contains("objects"), "{}", problem.text);
    assert_eq!(given(&transfers, &ticket, device.app.id).await, Err(Busy));
    assert_eq!(gateway.database.value("SELECT count(*) FROM objects").await, "0", "nothing was announced");

    std::fs::remove_file(&objects).expect("removed");
    storage.probe().await.expect("it is made again");
    assert_eq!(given(&transfers, &ticket, device.app.id).await, Ok(()));
    assert_eq!(problems().await, []);
    gateway.stop().await;
}
