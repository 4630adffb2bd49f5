//! F24 and F25: the model refuses, fails, babbles, breaks off or hangs; a tool's server fails, forgets its sessions, or does what
//! it is asked for and does not say so.

use super::{one_of, until_it_hit};
use crate::plan::Planned;
use crate::scene::Scene;
use crate::scene::book;
use crate::scene::model::Manner;

/// Keeps it out of order for as long as planned.
pub(crate) async fn disturb(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let manner = Manner::FAULTS[one_of(planned.manner, Manner::FAULTS.len())];
    scene.model.behaves(manner);
    let hit = until_it_hit(planned.lasts_ms, || scene.model.disturbed()).await;
    scene.model.behaves(Manner::Answers);
    Ok(format!("{manner:?}: {} requests", hit?))
}

/// The same with the book.
pub(crate) async fn disturb_tools(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let manner = book::Manner::FAULTS[one_of(planned.manner, book::Manner::FAULTS.len())];
    scene.book.behaves(manner);
    let hit = until_it_hit(planned.lasts_ms, || scene.book.disturbed()).await;
    scene.book.behaves(book::Manner::Answers);
    Ok(format!("{manner:?}: {} requests", hit?))
}
