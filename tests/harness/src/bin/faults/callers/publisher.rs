//! The owner of a device, who publishes the service again and again, each time with instructions that name the release.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{CallerContext, PassStage};
use crate::history::{HistoryRecord, PublicationRecord};
use crate::seed::SeededRandom;

/// Publishes until no new operations may begin.
pub(crate) async fn work(business: Arc<CallerContext>, desktop: usize) {
    let name = format!("publisher-{desktop}");
    let mut dice = SeededRandom::of(business.seed, &name);
    let mut stage = business.stage.clone();
    for release in 1.. {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage != PassStage::Open) => return,
            () = sleep(Duration::from_millis(dice.within(5000, 12_000))) => {}
        }
        let desk_of = &business.testbed.desktops[desktop];
        let device = desk_of.device.read().await;
        let instructions = format!("Do what you are told. release={release}");
        let mut version = None;
        for command in [
            &["service", "edit", desk_of.name(), "--instructions", &instructions][..],
            &["service", "check", desk_of.name()],
            &["service", "publish", desk_of.name()],
        ] {
            let said = device.cli(command).await;
            if said.exit != 0 {
                version = None;
                break;
            }
            version = ["/version", "/published/version"].iter().find_map(|path| said.value.pointer(path)?.as_u64());
        }
        // A publication with an unknown result is not judged.
        if let Some(version) = version {
            business.histories.note(&name, HistoryRecord::Published(PublicationRecord { desktop, version, release }));
        }
    }
}
