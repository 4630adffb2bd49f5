//! F33 and F34: several faults at once.

use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::callers::Caller;
use crate::plan::PlannedFault;
use crate::seed::SeededRandom;
use crate::testbed::Testbed;
use crate::testbed::fake_receiver::ReceiverBehaviour;

/// A part that can be suspended and resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoppablePart {
    Gateway(usize),
    Database,
    Line(usize),
    Receiver,
}

/// Suspends one part after the other until all are suspended, and resumes them in another order.
pub(crate) async fn swizzle(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let mut dice = SeededRandom::of(planned.manner, "swizzle");
    let mut parts: Vec<_> = (0..testbed.replicas.len()).map(StoppablePart::Gateway).collect();
    parts.extend((0..testbed.desktops.len()).map(StoppablePart::Line));
    parts.extend([StoppablePart::Database, StoppablePart::Receiver]);
    let step = Duration::from_millis(planned.lasts_ms / (2 * parts.len() as u64));
    dice.shuffle(&mut parts);
    let stopped = format!("{parts:?}");
    for part in &parts {
        stand_still(testbed, *part, true).await;
        sleep(step).await;
    }
    dice.shuffle(&mut parts);
    for part in &parts {
        stand_still(testbed, *part, false).await;
        sleep(step).await;
    }
    Ok(format!("stopped: {stopped}; went on: {parts:?}"))
}

async fn stand_still(testbed: &Testbed, part: StoppablePart, stands: bool) {
    match part {
        StoppablePart::Gateway(number) => {
            let signal = if stands { Signal::STOP } else { Signal::CONT };
            testbed.replicas[number].read().await.process().signal(signal);
        }
        StoppablePart::Database if stands => testbed.postgres.freeze().await,
        StoppablePart::Database => testbed.postgres.thaw().await,
        StoppablePart::Line(number) => {
            let device = testbed.desktops[number].device.read().await;
            if stands { device.proxy().freeze() } else { device.proxy().heal() }
        }
        StoppablePart::Receiver => {
            testbed.receiver.set_behaviour(if stands { ReceiverBehaviour::Hangs } else { ReceiverBehaviour::Confirms })
        }
    }
}

/// Injects two other faults at the same time.
pub(crate) async fn overlap(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<String> {
    let [one, other] = planned.split_in_two();
    let mut second = caller.fork("second");
    let (one, other) = tokio::join!(super::inject(caller, &one), super::inject(&mut second, &other));
    let mut said = Vec::new();
    for strike in [one, other] {
        match &strike.proof {
            Ok(proof) => said.push(format!("{}: {proof}", strike.kind())),
            Err(why) => bail!("{}: {why}", strike.kind()),
        }
    }
    Ok(said.join("; "))
}
