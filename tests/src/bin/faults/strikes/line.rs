//! F17 and F19: the line between a device and its gateways falls silent, or is reset.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use super::one_of;
use crate::plan::Planned;
use crate::scene::Scene;

/// Lets nothing pass for as long as planned, in either direction, and says nothing of it.
pub(crate) async fn freeze(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.desks.len());
    let desk = &scene.desks[number];
    let device = desk.device.read().await;
    // What is not there cannot be cut.
    device.connected().await;
    let before = device.line().held_back();
    device.line().freeze();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let held = device.line().held_back() - before;
    device.line().heal();
    ensure!(held > 0, "nothing came that could have been held back");
    Ok(format!("line {number}: {held} bytes were held back for {} ms", planned.lasts_ms))
}

/// Resets every connection of a line, once.
pub(crate) async fn reset(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.desks.len());
    let desk = &scene.desks[number];
    let device = desk.device.read().await;
    device.connected().await;
    let before = device.line().resets();
    device.line().cut();
    device.line().heal();
    deskgate_tests::until("the connection to be reset", async || {
        if device.line().resets() > before { Ok(()) } else { Err("no connection was reset".to_owned()) }
    })
    .await;
    Ok(format!("line {number}: {} connections were reset", device.line().resets() - before))
}
