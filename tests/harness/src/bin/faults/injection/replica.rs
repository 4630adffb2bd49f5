//! F1, F3, F4, F7 and F32: one gateway or all of them are killed, restarted one after the other, suspended, or out of
//! file descriptors.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::process;
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{InjectionProof, one_of};
use crate::callers::{ApiReply, Caller, submission};
use crate::plan::PlannedFault;
use crate::testbed::{REPLICA_COUNT, Testbed};

/// Kills it, leaves it dead for a while, and starts it on the same state.
pub(crate) async fn kill(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let mut gateway = testbed.replicas[number].write().await;
    let pid = gateway.process().id();
    let ended = gateway.kill_9();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    gateway.restart().await;
    ensure!(ended.signal() == Some(9), "gateway {number} ended with {ended}");
    Ok(format!("gateway {number}, process {pid}, ended by signal 9; process {} since", gateway.process().id()))
}

/// Kills all of them, and starts them together. Returns after how long the first submission was accepted.
pub(crate) async fn kill_all(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let testbed = caller.business.testbed.clone();
    let mut gateways = Vec::new();
    for replica in &testbed.replicas {
        gateways.push(replica.write().await);
    }
    let ended: Vec<_> = gateways.iter_mut().map(|gateway| gateway.kill_9()).collect();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let began = Instant::now();
    let starting = futures_util::future::join_all(gateways.iter_mut().map(|gateway| gateway.restart()));
    let (accepted, _) = tokio::join!(first_acceptance(caller, planned, began), starting);
    ensure!(ended.iter().all(|ended| ended.signal() == Some(9)), "they ended with {ended:?}");
    let proof =
        format!("{} gateways ended by signal 9; the first 202 came {accepted} ms after their start", ended.len());
    Ok(InjectionProof { proof, noticed_ms: vec![accepted] })
}

/// How long to wait for a first acceptance.
const ACCEPTANCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Submits one job at every gateway in turn until it is accepted.
async fn first_acceptance(caller: &mut Caller, planned: &PlannedFault, began: Instant) -> u64 {
    let desktop = one_of(planned.target, caller.business.testbed.desktops.len());
    let job = caller.business.fresh_job();
    let request = submission(caller, desktop, &job, &format!("job={job} plan=say delay=0"), false);
    let operation = caller.next_operation();
    for turn in 0.. {
        let reply = caller.ask(operation, &request, turn % REPLICA_COUNT).await;
        if reply.as_ref().is_some_and(ApiReply::is_good) || began.elapsed() > ACCEPTANCE_TIMEOUT {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The pause between two restarts.
const RESTART_INTERVAL: Duration = Duration::from_millis(1500);

/// Shuts each down and starts it again, one after the other.
pub(crate) async fn roll(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let first = one_of(planned.target, testbed.replicas.len());
    let mut codes = Vec::new();
    for turn in 0..testbed.replicas.len() {
        let mut gateway = testbed.replicas[(first + turn) % testbed.replicas.len()].write().await;
        let ended = gateway.stop(Signal::TERM).await;
        gateway.restart().await;
        codes.push(ended.code());
        sleep(RESTART_INTERVAL).await;
    }
    let good = |code: &Option<i32>| *code == Some(0) || *code == Some(130);
    ensure!(codes.iter().all(good), "they ended with {codes:?}");
    Ok(format!("replaced in the order from {first} on; they ended with {codes:?}"))
}

/// Suspends it, and resumes it.
pub(crate) async fn freeze(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let gateway = testbed.replicas[number].read().await;
    let pid = gateway.process().id();
    gateway.process().signal(Signal::STOP);
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let stood = is_stopped(pid);
    gateway.process().signal(Signal::CONT);
    ensure!(stood, "process {pid} did not stand still");
    Ok(format!("gateway {number}, process {pid}, stood still for {} ms", planned.lasts_ms))
}

/// Whether a process was stopped by a signal (proc(5)).
pub(super) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// The pause between two connections to a gateway without free descriptors.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// Leaves it almost no free descriptors for a while. Callers keep their connections, so new connections are made
/// meanwhile.
pub(crate) async fn starve(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let gateway = testbed.replicas[number].read().await;
    let pid = gateway.process().id();
    let complaints = || gateway.log().own().matches("Too many open files").count();
    let (open, before) = (process::files(pid), complaints());
    // A new descriptor's number must be below the limit; open ones stay open.
    let limit = planned.manner % 8;
    let usual = process::limit_files(pid, limit).unwrap_or(u64::MAX);
    let end = Instant::now() + Duration::from_millis(planned.lasts_ms);
    while Instant::now() < end {
        let _ = timeout(CONNECT_INTERVAL, TcpStream::connect(testbed.address(number))).await;
        sleep(CONNECT_INTERVAL).await;
    }
    process::limit_files(pid, usual);
    ensure!(complaints() > before, "nobody wanted to open a file");
    Ok(format!("gateway {number} had {open} files open, and might have {limit} for {} ms", planned.lasts_ms))
}
