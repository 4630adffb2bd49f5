//! The faults: each takes effect, proves it, and heals what it broke.

mod agent;
mod caller;
mod combined;
mod crash;
pub(crate) mod crash_points;
mod database;
mod disk;
pub(crate) mod filler;
mod knock;
mod model;
mod network;
mod newcomer;
mod receiver;
mod replica;
mod restore;
mod revocation;
mod serialization;
mod version;
mod wrong_clock;

pub(crate) use crash::POINT_FILTER_ENV;

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::callers::Caller;
use crate::plan::{FaultKind, PlannedFault};

/// How long a fault waits for a victim.
const VICTIM_TIMEOUT: Duration = Duration::from_secs(12);

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InjectedFault {
    pub(crate) planned: PlannedFault,
    pub(crate) begun: u64,
    pub(crate) healed: u64,
    /// What exactly was done and its proof; or why it cannot be proven.
    pub(crate) proof: Result<String, String>,
    /// After how many milliseconds each side noticed, where one must; for F15, when syncing began to fail and when it
    /// worked again; for F35 to F37 and F40, what their injections say.
    pub(crate) noticed_ms: Vec<u64>,
}

/// The proof of a fault that took effect.
struct InjectionProof {
    proof: String,
    noticed_ms: Vec<u64>,
}

impl From<String> for InjectionProof {
    fn from(proof: String) -> Self {
        Self { proof, noticed_ms: Vec::new() }
    }
}

impl InjectedFault {
    /// Its kind.
    pub(crate) fn kind(&self) -> FaultKind {
        self.planned.kind
    }
}

/// Injects a fault, and returns when it is healed. `caller` is the caller that may be cut off.
pub(crate) fn inject<'a>(caller: &'a mut Caller, planned: &'a PlannedFault) -> LocalBoxFuture<'a, InjectedFault> {
    // One of the faults injects two others.
    Box::pin(strike_one(caller, planned))
}

async fn strike_one(caller: &mut Caller, planned: &PlannedFault) -> InjectedFault {
    let testbed = caller.business.testbed.clone();
    sleep(Duration::from_millis(planned.pause_ms)).await;
    let begun = testbed.clock.now();
    let struck: anyhow::Result<InjectionProof> = match planned.kind {
        FaultKind::KillGateway => replica::kill(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::CrashGateway => crash::gateway(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::KillAllGateways => replica::kill_all(caller, planned).await,
        FaultKind::RollingRestart => replica::roll(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::KillAgent => agent::kill(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::CrashAgent => crash::agent(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::FreezeGateway => replica::freeze(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::FreezeAgent => agent::suspend(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::TerminateDatabaseSessions => {
            database::terminate_sessions(&testbed, planned).await.map(InjectionProof::from)
        }
        FaultKind::KillDatabase => database::kill(&testbed).await.map(InjectionProof::from),
        FaultKind::FreezeDatabase => database::freeze(&testbed, planned).await,
        FaultKind::BlockDatabase => database::take(&testbed, planned).await,
        FaultKind::FailTransactions => serialization::lose(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::FillDatabaseDisk => disk::of_the_database(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::FailDatabaseSync => disk::that_does_not_sync(&testbed, planned).await,
        FaultKind::FillDeviceDisk => disk::of_a_device(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::BlackholeConnection => network::freeze(&testbed, planned).await,
        FaultKind::BlackholeOneWay => network::freeze_one_way(&testbed, planned).await,
        FaultKind::ResetConnection => network::reset(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::DropPackets => network::lose(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::ThrottleConnection => network::narrow(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::SkewGatewayClock => wrong_clock::of_a_gateway(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::SkewDeviceClock => wrong_clock::of_a_device(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::BreakModel => model::disturb(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::BreakToolServer => model::disturb_tools(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::BreakReceiver => receiver::disturb(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::DuplicateRequests => caller::repeat(caller, planned).await.map(InjectionProof::from),
        FaultKind::DuplicateAgent => agent::twin(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::MismatchVersion => version::mismatch(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::CutOffCaller => caller::cut_off(caller, planned).await.map(InjectionProof::from),
        FaultKind::RevokeAccess => revocation::revoke(caller, planned).await,
        FaultKind::ExhaustFiles => replica::starve(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::StopAndResumeAll => combined::swizzle(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::KnockIdle => knock::come_back(&testbed, planned).await,
        FaultKind::StallRequests => database::stall(&testbed, planned).await,
        FaultKind::RestoreBackup => restore::restore(&testbed, planned).await.map(InjectionProof::from),
        FaultKind::InterruptPairing => newcomer::pair(caller, planned).await,
        FaultKind::FillByCommand => filler::run(&testbed, planned).await,
        FaultKind::RefuseBodies => caller::refuse_bodies(caller, planned).await.map(InjectionProof::from),
        FaultKind::OverlapTwo => combined::overlap(caller, planned).await.map(InjectionProof::from),
    };
    let healed = testbed.clock.now();
    let (proof, noticed_ms) = match struck {
        Ok(InjectionProof { proof, noticed_ms }) => (Ok(proof), noticed_ms),
        Err(error) => (Err(format!("{error:#}")), Vec::new()),
    };
    InjectedFault { planned: planned.clone(), begun, healed, proof, noticed_ms }
}

/// The remainder of a planned number.
pub(crate) fn one_of(number: u64, count: usize) -> usize {
    usize::try_from(number % count as u64).expect("below a usize")
}

/// Keeps a fault active as long as planned, and then until it had a victim. Returns the number of victims.
async fn until_it_hit(lasts_ms: u64, victims: impl Fn() -> usize) -> anyhow::Result<usize> {
    let (before, deadline) = (victims(), Instant::now() + VICTIM_TIMEOUT);
    sleep(Duration::from_millis(lasts_ms)).await;
    while victims() == before {
        anyhow::ensure!(Instant::now() < deadline, "nobody came while it was out of order");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(victims() - before)
}
