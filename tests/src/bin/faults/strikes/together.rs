//! F33 and F34: several things are out of order at once.

use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::callers::Caller;
use crate::plan::Planned;
use crate::scene::Scene;
use crate::scene::office::Manner;
use crate::seed::Dice;

/// What can be stopped and go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Gateway(usize),
    Database,
    Line(usize),
    Receiver,
}

/// Stops one part after the other until all stand still, and lets them go on in another order.
pub(crate) async fn swizzle(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let mut dice = Dice::of(planned.manner, "swizzle");
    let mut parts: Vec<_> = (0..scene.replicas.len()).map(Part::Gateway).collect();
    parts.extend((0..scene.desks.len()).map(Part::Line));
    parts.extend([Part::Database, Part::Receiver]);
    let step = Duration::from_millis(planned.lasts_ms / (2 * parts.len() as u64));
    dice.shuffle(&mut parts);
    let stopped = format!("{parts:?}");
    for part in &parts {
        stand_still(scene, *part, true).await;
        sleep(step).await;
    }
    dice.shuffle(&mut parts);
    for part in &parts {
        stand_still(scene, *part, false).await;
        sleep(step).await;
    }
    Ok(format!("stopped: {stopped}; went on: {parts:?}"))
}

async fn stand_still(scene: &Scene, part: Part, stands: bool) {
    match part {
        Part::Gateway(number) => {
            let signal = if stands { Signal::STOP } else { Signal::CONT };
            scene.replicas[number].read().await.process().signal(signal);
        }
        Part::Database if stands => scene.postgres.freeze().await,
        Part::Database => scene.postgres.thaw().await,
        Part::Line(number) => {
            let device = scene.desks[number].device.read().await;
            if stands { device.line().freeze() } else { device.line().heal() }
        }
        Part::Receiver => scene.office.behaves(if stands { Manner::Hangs } else { Manner::Confirms }),
    }
}

/// Strikes two others at the same time.
pub(crate) async fn overlap(caller: &mut Caller, planned: &Planned) -> anyhow::Result<String> {
    let [one, other] = planned.two();
    let mut second = caller.beside("second");
    let (one, other) = tokio::join!(super::strike(caller, &one), super::strike(&mut second, &other));
    let mut said = Vec::new();
    for strike in [one, other] {
        match &strike.proof {
            Ok(proof) => said.push(format!("{}: {proof}", strike.kind())),
            Err(why) => bail!("{}: {why}", strike.kind()),
        }
    }
    Ok(said.join("; "))
}
