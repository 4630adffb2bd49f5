//! The faults: each takes effect, proves it, and heals what it broke.

mod agent;
mod caller;
mod combined;
mod crash;
pub(crate) mod crash_points;
mod database;
mod disk;
mod model;
mod network;
mod receiver;
mod replica;
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
    /// worked again.
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
    let scene = caller.business.scene.clone();
    sleep(Duration::from_millis(planned.pause_ms)).await;
    let begun = scene.clock.now();
    let struck: anyhow::Result<InjectionProof> = match planned.kind {
        FaultKind::F1 => replica::kill(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F2 => crash::gateway(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F3 => replica::kill_all(caller, planned).await,
        FaultKind::F4 => replica::roll(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F5 => agent::kill(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F6 => crash::agent(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F7 => replica::freeze(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F8 => agent::suspend(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F9 => database::terminate_sessions(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F10 => database::kill(&scene).await.map(InjectionProof::from),
        FaultKind::F11 => database::freeze(&scene, planned).await,
        FaultKind::F12 => database::take(&scene, planned).await,
        FaultKind::F13 => serialization::lose(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F14 => disk::of_the_database(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F15 => disk::that_does_not_sync(&scene, planned).await,
        FaultKind::F16 => disk::of_a_device(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F17 => network::freeze(&scene, planned).await,
        FaultKind::F18 => network::freeze_one_way(&scene, planned).await,
        FaultKind::F19 => network::reset(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F20 => network::lose(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F21 => network::narrow(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F22 => wrong_clock::of_a_gateway(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F23 => wrong_clock::of_a_device(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F24 => model::disturb(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F25 => model::disturb_tools(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F26 => receiver::disturb(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F27 => caller::repeat(caller, planned).await.map(InjectionProof::from),
        FaultKind::F28 => agent::twin(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F29 => version::mismatch(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F30 => caller::cut_off(caller, planned).await.map(InjectionProof::from),
        FaultKind::F31 => revocation::revoke(caller, planned).await,
        FaultKind::F32 => replica::starve(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F33 => combined::swizzle(&scene, planned).await.map(InjectionProof::from),
        FaultKind::F34 => combined::overlap(caller, planned).await.map(InjectionProof::from),
    };
    let healed = scene.clock.now();
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
