//! F37: a command of a run fills the disk that the device's journal is on, as fast as it can.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use deskgate_tests::backend::fresh_key;
use deskgate_tests::disk::Disk;
use deskgate_tests::{Backend, TestDevice};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, interval, timeout};

use super::InjectionProof;
use super::disk::DISK_FULL_MESSAGE;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// The beginning of the names of its services. No caller of the pass knows their runs.
pub(crate) const SERVICE_PREFIX: &str = "filler-";
/// Room on the disk: what must stay free for a command, and some seconds of writing.
const SPARE_KIB: u64 = 704 * 1024;
/// Bytes that stay free for a command to begin at all; it must write more than what is above.
const LEAST_WRITTEN_BYTES: u64 = 64 << 20;
/// The folder of the files that the command writes.
const FILLED_FOLDER: &str = "big";
/// Writes as fast as the disk takes it.
const WRITING: &str = "mkdir -p big; dd if=/dev/zero of=big/file bs=4M; sleep 20";
/// Takes all room within a moment, from large pieces to small ones.
const RESERVING: &str = "mkdir -p big; for size in 128M 16M 2M 256K 32K 4K; do n=0; \
    while fallocate -l $size big/$size.$n; do n=$((n+1)); done; done; sleep 20";
/// How long a run may take before it counts as never ended.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs it on a device of its own, whose disk is small. Returns after how many milliseconds the run had ended, how often
/// the device's store had no room, and after how many milliseconds a second run had succeeded, once there was room.
pub(super) async fn run(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let name = format!("{SERVICE_PREFIX}{}", planned.number);
    let mut device = TestDevice::for_remote().await;
    {
        let first = testbed.replicas[0].read().await;
        let invitation = device.pair(&first, &[]).await;
        device.connect_to_one_of(testbed.ways(), &invitation, &first.control_token_file()).await.ok();
    }
    let device_id = device.device_id().await;
    device.stop(Signal::TERM).await;
    let disk = Disk::over(device.folder(), SPARE_KIB);
    device.start().await;
    device.wait_until_connected().await;
    let room = device.folder().join("room");
    std::fs::create_dir(&room)?;
    let created = device.cli(&["app", "create", &name]).await.ok();
    let fills = if planned.manner.is_multiple_of(2) { WRITING } else { RESERVING };
    let fills = json!([{ "tool": "Bash", "arguments": { "command": fills } }, { "text": "full" }]);
    let filling = service(&device, &name, &name, &room, &fills).await?;
    let works = service(&device, &name, &format!("{name}-next"), &room, &json!([{ "text": "works" }])).await?;
    device.cli(&["access", "enable"]).await.ok();
    let door = testbed.replicas[0].read().await.http();
    let key = text(&created, "/key/text")?;
    let [filling, works] = [filling, works].map(|endpoint_id| Backend::new(door.clone(), key, &endpoint_id));

    let (free_before, began) = (free(&room), Instant::now());
    let mut least = free_before;
    let ended = ends(&filling);
    let mut ended = std::pin::pin!(timeout(RUN_TIMEOUT, ended));
    let mut looks = interval(Duration::from_millis(5));
    let run = loop {
        tokio::select! {
            run = &mut ended => break run.ok().transpose()?,
            _ = looks.tick() => least = least.min(free(&room)),
        }
    };
    let ended_ms = if run.is_some() { millis(began) } else { u64::MAX };
    let failures = u64::try_from(device.log().own().matches(DISK_FULL_MESSAGE).count())?;

    let _ = std::fs::remove_dir_all(room.join(FILLED_FOLDER));
    let began = Instant::now();
    let next = timeout(RUN_TIMEOUT, ends(&works)).await.ok().transpose()?;
    let next_ms = if next.is_some_and(|run| run["state"] == "succeeded") { millis(began) } else { u64::MAX };
    device.stop(Signal::TERM).await;
    drop(disk);
    testbed.replicas[0].read().await.admin(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await;
    let written = free_before.saturating_sub(least);
    ensure!(written > LEAST_WRITTEN_BYTES, "the command wrote {written} bytes only");
    let proof = format!(
        "a command wrote {} MiB, {} KiB were free at the least; the run ended as {} after {ended_ms} ms, {failures} times the \
         store had no room, the next one ended after {next_ms} ms",
        written >> 20,
        least >> 10,
        run.map_or_else(|| "nothing".to_owned(), |run| run["state"].to_string()),
    );
    Ok(InjectionProof { proof, noticed_ms: vec![ended_ms, failures, next_ms] })
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The bytes that are free where a folder is.
fn free(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn text<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a str> {
    value.pointer(path).and_then(Value::as_str).with_context(|| format!("no {path} in {value}"))
}

/// Publishes a service in a folder that plays these steps. Returns its endpoint.
async fn service(device: &TestDevice, app: &str, name: &str, folder: &Path, steps: &Value) -> anyhow::Result<String> {
    let script = device.folder().join(format!("{name}.json"));
    std::fs::write(&script, json!({ "steps": steps }).to_string())?;
    let (model, folder) = (format!("script:{}", script.display()), folder.to_str().context("a plain name")?);
    let create = ["service", "create", name, "--app", app, "--dir", folder, "--model", &model];
    let draft = device.cli(&[&create[..], &["--tools", "Bash", "--allow", "Bash"]].concat()).await.ok();
    let draft_id = text(&draft, "/draft_id")?.to_owned();
    device.cli(&["service", "check", &draft_id]).await.ok();
    let published = device.cli(&["service", "publish", &draft_id]).await.ok();
    Ok(text(&published, "/endpoint_id")?.to_owned())
}

/// Submits a run and waits for its end.
async fn ends(caller: &Backend) -> anyhow::Result<Value> {
    let run_id = caller.submit_until_accepted(&fresh_key(), "fill").await;
    loop {
        if let Ok(answer) = caller.read(&run_id, 5).await
            && answer.body["phase"] == "final"
        {
            return Ok(answer.body);
        }
    }
}
