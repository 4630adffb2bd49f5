//! What connected devices with nothing to do cost the database.

use futures_util::future::try_join_all;

use crate::Bench;
use crate::drain::transactions;
use crate::environment::{self, BenchGateway};
use crate::raw_device::RawDevice;
use crate::report::BenchReport;

const IDLE_METRIC: &str = "statements_per_s_500_idle_devices";

/// Connected devices.
const IDLE_DEVICES: usize = 500;
/// Longer than two heartbeats, so that each device's lease is renewed.
const IDLE_TIME_S: f64 = 40.0;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[IDLE_METRIC]) {
        return Ok(());
    }
    println!("Idle devices");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut devices = Vec::new();
    for number in 0..bench.count(IDLE_DEVICES) {
        let mut device = RawDevice::pair_as(&server, number.try_into()?).await?;
        device.declare_slots(8).await;
        devices.push(device);
    }
    let time = bench.time(IDLE_TIME_S);
    let (database, _driver) = server.database().await?;
    let before = transactions(&database).await?;
    try_join_all(devices.iter_mut().map(|device| device.answer_pings(time))).await?;
    let statements = transactions(&database).await? - before;
    report.part("idle_devices", bench.count(IDLE_DEVICES));
    report.value(IDLE_METRIC, statements / time.as_secs_f64());
    Ok(())
}
