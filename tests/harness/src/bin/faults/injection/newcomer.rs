//! F40: a device pairs by an invitation, while it is killed, its line is cut or a gateway is killed; or it is refused.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use deskgate_tests::TestDevice;
use deskgate_tests::proxy::Proxy;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{InjectionProof, one_of, replica};
use crate::callers::Caller;
use crate::plan::PlannedFault;
use crate::testbed::{REPLICA_COUNT, Testbed};

/// How long each step of a pairing may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a device that was refused is watched.
const REFUSED_DURATION: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What ends while the device waits for the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interruption {
    /// Its agent, which comes again with the same line.
    Agent,
    /// Its line, until it was confirmed.
    Line,
    /// A gateway.
    Gateway,
    /// The invitation: the administrator refuses.
    Refusal,
}

/// Pairs a device of its own. Says how often something was paired that should not be, or not what should.
pub(crate) async fn pair(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let kinds = [Interruption::Agent, Interruption::Line, Interruption::Gateway, Interruption::Refusal];
    let (interruption, name) =
        (kinds[one_of(planned.manner, kinds.len())], format!("newcomer-{}", caller.business.fresh_job()));
    let testbed = caller.business.testbed.clone();
    let administrator = Administrator { testbed: &testbed, replica: one_of(planned.target, REPLICA_COUNT) };
    let proxy = Proxy::to_one_of(testbed.ways()).await;
    let line = administrator.invite(&name, &proxy.address().to_string()).await?;
    let mut device = TestDevice::for_remote().await;
    let come = ["pair", line.as_str(), "--yes", "--no-wait"];
    device.cli(&come).await.ok();
    administrator.wait_for(&name, "waiting").await?;
    match interruption {
        Interruption::Agent => {
            device.kill_9();
            device.start().await;
            device.cli(&come).await.ok();
            administrator.wait_for(&name, "waiting").await?;
        }
        Interruption::Line => proxy.cut(),
        Interruption::Gateway => drop(replica::kill(&testbed, planned).await?),
        Interruption::Refusal => {}
    }
    let code = device.cli(&["identity", "show"]).await.ok();
    let code = code["short_code"].as_str().context("a short code")?.to_owned();
    let act = if interruption == Interruption::Refusal { "refuse" } else { "confirm" };
    administrator.ask(&["device", act, &code]).await?;
    proxy.heal();

    let mut wrong = 0;
    if interruption == Interruption::Refusal {
        sleep(REFUSED_DURATION).await;
        wrong += u64::from(device.status().await["line"]["state"] == "connected");
    } else {
        device.wait_until_connected().await;
        // The token is its own: it lasts beyond the process that was given it.
        device.kill_9();
        device.start().await;
        device.wait_until_connected().await;
    }
    // The line is of no use to anybody else.
    let stranger = TestDevice::for_remote().await;
    let tried = stranger.cli(&["pair", &line, "--yes"]).await;
    wrong += u64::from(tried.exit != 4 || stranger.status().await["line"]["state"] == "connected");
    let listed = administrator.ask(&["device", "list"]).await?;
    let of_code = |device: &&Value| device["short_code"] == code.as_str();
    let known = listed["devices"].as_array().into_iter().flatten().filter(of_code).count();
    let expected = usize::from(interruption != Interruption::Refusal);
    wrong += u64::from(known != expected);
    if expected == 1 {
        let device_id = device.device_id().await;
        administrator.ask(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await?;
    }
    let proof = format!(
        "{name} was interrupted by {interruption:?} and then known {known} times; a stranger left with {}",
        tried.exit
    );
    Ok(InjectionProof { proof, noticed_ms: vec![wrong] })
}

/// The administrator at one of the gateways.
struct Administrator<'a> {
    testbed: &'a Testbed,
    replica: usize,
}

impl Administrator<'_> {
    async fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        let said = self.testbed.replicas[self.replica].read().await.admin(command).await;
        ensure!(said.exit == 0, "{command:?}: {}", said.stderr);
        Ok(said.value)
    }

    async fn invite(&self, name: &str, address: &str) -> anyhow::Result<String> {
        let invited = self.ask(&["device", "invite", "--note", name, "--ssh-address", address]).await?;
        Ok(invited["line"].as_str().context("a line")?.to_owned())
    }

    async fn wait_for(&self, name: &str, state: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let listed = self.ask(&["device", "invitations"]).await?;
            let mut all = listed["invitations"].as_array().into_iter().flatten();
            if all.any(|invitation| invitation["note"] == name && invitation["state"] == state) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the invitation of {name} is not {state}: {listed}");
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
