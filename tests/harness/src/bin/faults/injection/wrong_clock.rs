//! F22 and F23: the computer of a gateway or of a device has a wrong time of day, from the program's start on or
//! suddenly. Monotonic time stays right.

use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::preload::PreloadShim;
use rustix::process::Signal;
use tokio::time::sleep;

use super::one_of;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// An hour ahead, an hour and a day behind, ten years ahead; in seconds.
const CLOCK_OFFSETS: [(i64, &str); 4] = [
    (HOUR_SECONDS, "+1 h"),
    (-HOUR_SECONDS, "-1 h"),
    (-24 * HOUR_SECONDS, "-1 day"),
    (3653 * 24 * HOUR_SECONDS, "+10 years"),
];
const HOUR_SECONDS: i64 = 3600;

/// Starts a gateway with a changeable clock, makes it wrong, then right again; and restarts it as before.
pub(crate) async fn of_a_gateway(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let told = PreloadShim::new();
    let wrong = ClockFault::of(planned, &told);
    let begin = async |environment| {
        let mut gateway = testbed.replicas[number].write().await;
        gateway.stop(Signal::TERM).await;
        gateway.set_environment(environment);
        gateway.restart().await;
    };
    wrong.begins();
    begin(told.environment()).await;
    wrong.lasts().await;
    let proof = wrong.ends(&format!("gateway {number}"));
    begin(Vec::new()).await;
    proof
}

/// The same for a device's agent.
pub(crate) async fn of_a_device(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let told = PreloadShim::new();
    let wrong = ClockFault::of(planned, &told);
    let begin = async |environment| {
        let mut device = testbed.desktops[number].device.write().await;
        device.stop(Signal::TERM).await;
        device.set_environment(environment);
        device.start().await;
    };
    wrong.begins();
    begin(told.environment()).await;
    wrong.lasts().await;
    let proof = wrong.ends(&format!("agent {number}"));
    begin(Vec::new()).await;
    proof
}

/// A clock that is wrong from some moment on.
struct ClockFault<'a> {
    told: &'a PreloadShim,
    seconds: i64,
    words: &'static str,
    /// It becomes wrong while the program works.
    is_sudden: bool,
    lasts_ms: u64,
}

impl<'a> ClockFault<'a> {
    fn of(planned: &PlannedFault, told: &'a PreloadShim) -> Self {
        let (seconds, words) = CLOCK_OFFSETS[one_of(planned.manner, CLOCK_OFFSETS.len())];
        let is_sudden = (planned.manner / CLOCK_OFFSETS.len() as u64).is_multiple_of(2);
        Self { told, seconds, words, is_sudden, lasts_ms: planned.lasts_ms }
    }

    fn begins(&self) {
        if !self.is_sudden {
            self.told.set_clock_offset(self.seconds);
        }
    }

    async fn lasts(&self) {
        if self.is_sudden {
            // It has begun to work.
            sleep(Duration::from_millis(self.lasts_ms / 4)).await;
            self.told.set_clock_offset(self.seconds);
        }
        sleep(Duration::from_millis(self.lasts_ms)).await;
    }

    /// Makes the clock right again, while the program works.
    fn ends(&self, whose: &str) -> anyhow::Result<String> {
        self.told.set_clock_offset(0);
        let times = self.told.override_count();
        ensure!(times > 0, "nobody asked what time it is");
        let how = if self.is_sudden { "of a sudden" } else { "from its start on" };
        Ok(format!(
            "the clock of {whose} was wrong by {} for {} ms, {how}: told {times} times",
            self.words, self.lasts_ms
        ))
    }
}
