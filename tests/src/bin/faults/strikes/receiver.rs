//! F26: the receiver of callbacks fails, hangs, sends elsewhere, or dies before it confirms.

use super::{one_of, until_it_hit};
use crate::plan::Planned;
use crate::scene::Scene;
use crate::scene::office::Manner;

/// Keeps it out of order for as long as planned.
pub(crate) async fn disturb(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let manner = Manner::FAULTS[one_of(planned.manner, Manner::FAULTS.len())];
    scene.office.behaves(manner);
    let hit = until_it_hit(planned.lasts_ms, || scene.office.disturbed()).await;
    scene.office.behaves(Manner::Confirms);
    Ok(format!("{manner:?}: {} callbacks", hit?))
}
