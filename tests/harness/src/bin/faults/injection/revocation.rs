//! F31: a key, an application or a device is revoked while it is in use.

use std::time::Duration;

use anyhow::{Context, ensure};
use deskgate_tests::{TestDevice, until};
use tokio::time::{Instant, sleep, timeout};

use super::{InjectionProof, one_of};
use crate::callers::key_holder::KeyHolder;
use crate::callers::{ApiReply, Caller, submission};
use crate::history::{HistoryRecord, RevocationRecord};
use crate::plan::PlannedFault;
use crate::testbed::REPLICA_COUNT;

/// How long it is tried after the revocation.
const RETRY_DURATION: Duration = Duration::from_secs(3);
/// How long to wait for the end of open streams and sessions.
const END_TIMEOUT: Duration = Duration::from_secs(12);
/// Microseconds in which a stream and a device's session have to end.
const STREAM_END_LIMIT_US: u64 = 5_000_000;
const SESSION_END_LIMIT_US: u64 = 2_000_000;

/// Revokes one of them, and records when that was confirmed and what was still possible then.
pub(crate) async fn revoke(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let name = format!("guest-{}", caller.business.fresh_job());
    match planned.manner % 3 {
        0 => key(caller, planned, name).await,
        1 => application(caller, planned, name).await,
        _ => device(caller, name).await,
    }
    .map(InjectionProof::from)
}

async fn key(caller: &mut Caller, planned: &PlannedFault, name: String) -> anyhow::Result<String> {
    let testbed = caller.business.testbed.clone();
    let number = one_of(planned.target, testbed.desktops.len());
    let desktop = &testbed.desktops[number];
    let device = desktop.device.read().await;
    device.wait_until_connected().await;
    let made = device.cli(&["key", "create", &name, "--app", desktop.name()]).await.ok();
    let text = |path: &str| made.pointer(path).and_then(|text| text.as_str()).map(str::to_owned).context("shown once");
    let (key_id, key) = (text("/key/key_id")?, text("/text")?);
    let guest = KeyHolder { name: name.clone(), key };
    accepted(caller, &guest).await?;
    // Work that goes on meanwhile.
    let job = caller.business.fresh_job();
    let request = submission(caller, number, &job, &format!("job={job} plan=say delay=9000"), false);
    let run_id = caller.retry(&request).await.as_ref().and_then(ApiReply::run_id).context("a run")?;
    let mut stream = guest.follow(caller, &run_id).await?;
    let ended = async {
        while let Ok(Some(_)) = stream.chunk().await {}
        testbed.clock.now()
    };
    let ended = timeout(END_TIMEOUT, ended);
    let revoked = async {
        let said = device.cli(&["key", "revoke", &key_id, "--yes"]).await;
        let acknowledged = testbed.clock.now();
        let since = Instant::now();
        while since.elapsed() < RETRY_DURATION {
            guest.ask_all(caller).await;
        }
        (said.exit, acknowledged)
    };
    let ((exit, acknowledged), ended) = tokio::join!(revoked, ended);
    let ended = ended.ok();
    ensure!(exit == 0, "the key could not be revoked");
    note(
        caller,
        RevocationRecord { name: name.clone(), acknowledged, ended, bound: STREAM_END_LIMIT_US, has_open: true },
    );
    let ended =
        ended.map_or_else(|| "never".to_owned(), |at| format!("{} ms later", at.saturating_sub(acknowledged) / 1000));
    Ok(format!("the key {name} was revoked; its stream ended {ended}"))
}

async fn application(caller: &mut Caller, planned: &PlannedFault, name: String) -> anyhow::Result<String> {
    let testbed = caller.business.testbed.clone();
    let device = testbed.desktops[one_of(planned.target, testbed.desktops.len())].device.read().await;
    device.wait_until_connected().await;
    let made = device.cli(&["app", "create", &name]).await.ok();
    let key = made["key"]["text"].as_str().context("shown once")?.to_owned();
    let guest = KeyHolder { name: name.clone(), key };
    accepted(caller, &guest).await?;
    let said = device.cli(&["app", "disable", &name, "--yes"]).await;
    let acknowledged = testbed.clock.now();
    ensure!(said.exit == 0, "the application could not be disabled: {}", said.stderr);
    let since = Instant::now();
    while since.elapsed() < RETRY_DURATION {
        guest.ask_all(caller).await;
    }
    note(caller, RevocationRecord { name: name.clone(), acknowledged, ended: None, bound: 0, has_open: false });
    Ok(format!("the application {name} was disabled"))
}

/// Waits until all gateways accept its key.
async fn accepted(caller: &mut Caller, guest: &KeyHolder) -> anyhow::Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    while guest.ask_all(caller).await < REPLICA_COUNT {
        ensure!(Instant::now() < deadline, "its key was not taken");
    }
    Ok(())
}

/// A device apart from the others.
async fn device(caller: &mut Caller, name: String) -> anyhow::Result<String> {
    let testbed = caller.business.testbed.clone();
    let gateway = testbed.replicas[0].read().await;
    let mut device = TestDevice::for_remote().await;
    let invitation = device.pair(&gateway, &[]).await;
    device.connect_to_one_of(testbed.ways(), &invitation, &gateway.control_token_file()).await.ok();
    let device_id = device.device_id().await;
    let said = gateway.admin(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await;
    let acknowledged = testbed.clock.now();
    ensure!(said.exit == 0, "the device could not be revoked: {}", said.stderr);
    let ended = until("the session to end", async || {
        let said = device.cli(&["status"]).await.value;
        if said["line"]["state"] == "connected" { Err(said["line"].to_string()) } else { Ok(testbed.clock.now()) }
    })
    .await;
    // It must not reconnect either.
    sleep(RETRY_DURATION).await;
    let state = device.status().await["line"]["state"].clone();
    let ended = (state != "connected").then_some(ended);
    note(
        caller,
        RevocationRecord { name: name.clone(), acknowledged, ended, bound: SESSION_END_LIMIT_US, has_open: true },
    );
    Ok(format!("the device {name} was revoked; its session ended, and its line is {state}"))
}

fn note(caller: &Caller, revoked: RevocationRecord) {
    caller.business.histories.note(&caller.name, HistoryRecord::Revoked(revoked));
}
