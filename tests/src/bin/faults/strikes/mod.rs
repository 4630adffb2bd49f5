//! The faults: each strikes, says by what it can be seen that it struck, and heals what it broke.

mod access;
mod agent;
mod caller;
mod crash;
mod database;
mod disk;
mod line;
mod model;
pub(crate) mod points;
mod races;
mod receiver;
mod replica;
mod time;
mod together;
mod version;

pub(crate) use crash::POINTS;

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::callers::Caller;
use crate::plan::{Kind, Planned};

/// How long a fault that waits for a victim waits.
const VICTIM: Duration = Duration::from_secs(12);

/// A fault that was struck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Strike {
    pub(crate) planned: Planned,
    pub(crate) begun: u64,
    pub(crate) healed: u64,
    /// What exactly was done, and what shows it; or why it cannot be shown.
    pub(crate) proof: Result<String, String>,
    /// After how many milliseconds each side noticed, where somebody must; of F15, when syncing began to fail, and when it
    /// did not any more.
    pub(crate) noticed_ms: Vec<u64>,
}

/// What a fault that struck has to show.
struct Struck {
    proof: String,
    noticed_ms: Vec<u64>,
}

impl From<String> for Struck {
    fn from(proof: String) -> Self {
        Self { proof, noticed_ms: Vec::new() }
    }
}

impl Strike {
    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        self.planned.kind
    }
}

/// Strikes a fault, and returns when it is healed. `caller` is the one who is cut off where a caller is.
pub(crate) fn strike<'a>(caller: &'a mut Caller, planned: &'a Planned) -> LocalBoxFuture<'a, Strike> {
    // One of them strikes two others.
    Box::pin(strike_one(caller, planned))
}

async fn strike_one(caller: &mut Caller, planned: &Planned) -> Strike {
    let scene = caller.business.scene.clone();
    sleep(Duration::from_millis(planned.pause_ms)).await;
    let begun = scene.clock.now();
    let struck: anyhow::Result<Struck> = match planned.kind {
        Kind::F1 => replica::kill(&scene, planned).await.map(Struck::from),
        Kind::F2 => crash::gateway(&scene, planned).await.map(Struck::from),
        Kind::F3 => replica::kill_all(caller, planned).await,
        Kind::F4 => replica::roll(&scene, planned).await.map(Struck::from),
        Kind::F5 => agent::kill(&scene, planned).await.map(Struck::from),
        Kind::F6 => crash::agent(&scene, planned).await.map(Struck::from),
        Kind::F7 => replica::freeze(&scene, planned).await.map(Struck::from),
        Kind::F8 => agent::suspend(&scene, planned).await.map(Struck::from),
        Kind::F9 => database::terminate_sessions(&scene, planned).await.map(Struck::from),
        Kind::F10 => database::kill(&scene).await.map(Struck::from),
        Kind::F11 => database::freeze(&scene, planned).await,
        Kind::F12 => database::take(&scene, planned).await,
        Kind::F13 => races::lose(&scene, planned).await.map(Struck::from),
        Kind::F14 => disk::of_the_database(&scene, planned).await.map(Struck::from),
        Kind::F15 => disk::that_does_not_sync(&scene, planned).await,
        Kind::F16 => disk::of_a_device(&scene, planned).await.map(Struck::from),
        Kind::F17 => line::freeze(&scene, planned).await,
        Kind::F18 => line::freeze_one_way(&scene, planned).await,
        Kind::F19 => line::reset(&scene, planned).await.map(Struck::from),
        Kind::F20 => line::lose(&scene, planned).await.map(Struck::from),
        Kind::F21 => line::narrow(&scene, planned).await.map(Struck::from),
        Kind::F22 => time::of_a_gateway(&scene, planned).await.map(Struck::from),
        Kind::F23 => time::of_a_device(&scene, planned).await.map(Struck::from),
        Kind::F24 => model::disturb(&scene, planned).await.map(Struck::from),
        Kind::F25 => model::disturb_tools(&scene, planned).await.map(Struck::from),
        Kind::F26 => receiver::disturb(&scene, planned).await.map(Struck::from),
        Kind::F27 => caller::repeat(caller, planned).await.map(Struck::from),
        Kind::F28 => agent::twin(&scene, planned).await.map(Struck::from),
        Kind::F29 => version::mismatch(&scene, planned).await.map(Struck::from),
        Kind::F30 => caller::cut_off(caller, planned).await.map(Struck::from),
        Kind::F31 => access::revoke(caller, planned).await,
        Kind::F32 => replica::starve(&scene, planned).await.map(Struck::from),
        Kind::F33 => together::swizzle(&scene, planned).await.map(Struck::from),
        Kind::F34 => together::overlap(caller, planned).await.map(Struck::from),
    };
    let healed = scene.clock.now();
    let (proof, noticed_ms) = match struck {
        Ok(Struck { proof, noticed_ms }) => (Ok(proof), noticed_ms),
        Err(error) => (Err(format!("{error:#}")), Vec::new()),
    };
    Strike { planned: planned.clone(), begun, healed, proof, noticed_ms }
}

/// The remainder of a planned number.
pub(crate) fn one_of(number: u64, count: usize) -> usize {
    usize::try_from(number % count as u64).expect("below a usize")
}

/// Keeps something out of order for as long as planned, and then until it had a victim. Returns how many.
async fn until_it_hit(lasts_ms: u64, victims: impl Fn() -> usize) -> anyhow::Result<usize> {
    let (before, deadline) = (victims(), Instant::now() + VICTIM);
    sleep(Duration::from_millis(lasts_ms)).await;
    while victims() == before {
        anyhow::ensure!(Instant::now() < deadline, "nobody came while it was out of order");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(victims() - before)
}
