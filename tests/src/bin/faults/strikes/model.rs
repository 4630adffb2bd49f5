//! F24: the model refuses, fails, babbles, breaks off or hangs.

use super::{one_of, until_it_hit};
use crate::plan::Planned;
use crate::scene::Scene;
use crate::scene::model::Manner;

/// Keeps it out of order for as long as planned.
pub(crate) async fn disturb(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let manner = Manner::FAULTS[one_of(planned.manner, Manner::FAULTS.len())];
    scene.model.behaves(manner);
    let hit = until_it_hit(planned.lasts_ms, || scene.model.disturbed()).await;
    scene.model.behaves(Manner::Answers);
    Ok(format!("{manner:?}: {} requests", hit?))
}
