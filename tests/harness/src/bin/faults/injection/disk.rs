//! F14, F15 and F16: the disk under PostgreSQL or under a device's home is full, or fails to sync.

use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::disk::Disk;
use deskgate_tests::preload::PreloadShim;
use deskgate_tests::{TestDevice, until};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{InjectionProof, one_of};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Space that stays free before it is filled, for a start.
const SPARE_KIB: u64 = 96 * 1024;
/// What a device's has: less than the agent would take for the next entries of its journal, so that these fail.
const DEVICE_SPARE_KIB: u64 = 12 * 1024;
/// The pause before freed space is filled again.
const REFILL_INTERVAL: Duration = Duration::from_millis(100);
/// A write that needs space for a table, and in the write-ahead log.
const LARGE_WRITE_SQL: &str = "DROP TABLE IF EXISTS no_room; \
    CREATE TABLE no_room AS SELECT repeat('x', 1000) FROM generate_series(1, 30000); DROP TABLE no_room";
/// The error of a full disk (PostgreSQL, appendix A).
const DISK_FULL_SQLSTATE: &str = "53100";

/// Mounts a small disk under it, fills the disk, and frees it; the server may be down until then. Its supervisor starts
/// it again.
pub(crate) async fn of_the_database(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let postgres = &testbed.postgres;
    postgres.stop().await;
    let disk = Disk::over(&postgres.data_dir(), SPARE_KIB);
    postgres.start().await;
    // Work goes on.
    sleep(Duration::from_millis(1000)).await;
    let (ends, mut filled) = (Instant::now() + Duration::from_millis(planned.lasts_ms), 0);
    let (mut refused, mut down) = (0, 0);
    while Instant::now() < ends {
        filled += disk.fill();
        // When the write-ahead log has no space left, the server ends.
        let asked = if planned.manner.is_multiple_of(2) { LARGE_WRITE_SQL } else { "SELECT pg_switch_wal()" };
        match postgres.try_run(asked).await {
            Err(error) if error.code().is_some_and(|code| code.code() == DISK_FULL_SQLSTATE) => refused += 1,
            Err(_) => down += 1,
            Ok(()) => {}
        }
        sleep(REFILL_INTERVAL).await;
    }
    disk.free();
    until("PostgreSQL to have room again", async || {
        postgres.try_run(LARGE_WRITE_SQL).await.map_err(|error| error.to_string())
    })
    .await;
    postgres.stop().await;
    disk.end();
    postgres.start().await;
    ensure!(refused + down > 0, "there was room for everything");
    Ok(format!(
        "{} KiB were filled for {} ms: {refused} times there was no room, and {down} times nobody to ask",
        filled / 1024,
        planned.lasts_ms
    ))
}

/// Starts it with every sync failing during a span of time. Returns the span, in milliseconds.
pub(crate) async fn that_does_not_sync(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let (postgres, began) = (&testbed.postgres, testbed.clock.now());
    let told = PreloadShim::new();
    let programs = told.programs_beside(&postgres.program().await);
    postgres.stop().await;
    postgres.start_from(Some(programs)).await;
    sleep(Duration::from_millis(1000)).await;
    told.set_sync_failure(true);
    let from = testbed.clock.now() - began;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let to = testbed.clock.now() - began;
    told.set_sync_failure(false);
    until("PostgreSQL to answer again", async || postgres.try_run("SELECT 1").await.map_err(|error| error.to_string()))
        .await;
    postgres.stop().await;
    postgres.start().await;
    let times = told.override_count();
    ensure!(times > 0, "nobody wanted to make anything durable");
    let proof = format!("{times} times nothing could be made durable, for {} ms", planned.lasts_ms);
    Ok(InjectionProof { proof, noticed_ms: vec![from.div_ceil(1000), to / 1000] })
}

/// The agent works again by itself, while its owner makes the open decisions.
async fn works_again(device: &TestDevice) {
    let begun = || device.log().own().matches("execution began").count();
    let before = begun();
    let has_begun = async || if begun() > before { Ok(()) } else { Err(device.log().tail(3)) };
    until("the agent to work again", has_begun).await;
}

/// What an agent logs when its disk is full.
pub(super) const DISK_FULL_MESSAGE: &str = "database or disk is full";

/// Mounts a small disk under a device's home, fills it while the agent works, and frees it; or kills the agent first.
pub(crate) async fn of_a_device(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let is_killed = !planned.manner.is_multiple_of(2);
    let disk = {
        let mut device = testbed.desktops[number].device.write().await;
        device.stop(Signal::TERM).await;
        let disk = Disk::over(&device.home(), DEVICE_SPARE_KIB);
        device.start().await;
        device.wait_until_connected().await;
        disk
    };
    sleep(Duration::from_millis(planned.lasts_ms / 4)).await;
    let (ends, mut filled) = (Instant::now() + Duration::from_millis(planned.lasts_ms), 0);
    while Instant::now() < ends {
        filled += disk.fill();
        sleep(REFILL_INTERVAL).await;
    }
    let full = testbed.desktops[number].device.read().await.log().own().matches(DISK_FULL_MESSAGE).count();
    if is_killed {
        // A run that it began without a record would begin again.
        let mut device = testbed.desktops[number].device.write().await;
        device.kill_9();
        disk.free();
        device.start().await;
    } else {
        disk.free();
        works_again(&*testbed.desktops[number].device.read().await).await;
    }
    let mut device = testbed.desktops[number].device.write().await;
    device.stop(Signal::TERM).await;
    disk.end();
    device.start().await;
    ensure!(full > 0, "agent {number} wrote nothing that had no room");
    let then = if is_killed { "; it was killed" } else { "" };
    Ok(format!(
        "{} KiB under agent {number} were filled for {} ms: {full} times its store had no room{then}",
        filled / 1024,
        planned.lasts_ms
    ))
}
