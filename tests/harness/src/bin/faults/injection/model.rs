//! F24 and F25: the model refuses, fails, sends nonsense, breaks off or hangs; a tool server fails, loses its sessions,
//! or acts without an answer.

use super::{one_of, until_it_hit};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;
use crate::testbed::fake_model::ModelBehaviour;
use crate::testbed::fake_tool_server;

/// Keeps the model faulty for as long as planned.
pub(crate) async fn disturb(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let manner = ModelBehaviour::FAULTS[one_of(planned.manner, ModelBehaviour::FAULTS.len())];
    testbed.model.set_behaviour(manner);
    let hit = until_it_hit(planned.lasts_ms, || testbed.model.disturbed()).await;
    testbed.model.set_behaviour(ModelBehaviour::Answers);
    Ok(format!("{manner:?}: {} requests", hit?))
}

/// The same for the tool server.
pub(crate) async fn disturb_tools(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let manner = fake_tool_server::ToolServerBehaviour::FAULTS
        [one_of(planned.manner, fake_tool_server::ToolServerBehaviour::FAULTS.len())];
    testbed.book.set_behaviour(manner);
    let hit = until_it_hit(planned.lasts_ms, || testbed.book.disturbed()).await;
    testbed.book.set_behaviour(fake_tool_server::ToolServerBehaviour::Answers);
    Ok(format!("{manner:?}: {} requests", hit?))
}
