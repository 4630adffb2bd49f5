//! F24 and F25: the model refuses, is busy, fails, sends nonsense, breaks off, hangs or is away; a tool server fails, loses its sessions,
//! or acts without an answer.

use std::time::Duration;

use anyhow::ensure;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{one_of, until_it_hit};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;
use crate::testbed::fake_tool_server;
use crate::testbed::model_behaviour::ModelBehaviour;

/// Keeps the model faulty for as long as planned.
pub(crate) async fn disturb(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let manner = ModelBehaviour::FAULTS[one_of(planned.manner, ModelBehaviour::FAULTS.len())];
    let before = testbed.model.disturbed();
    testbed.model.set_behaviour(manner);
    if manner == ModelBehaviour::IsAway {
        sleep(Duration::from_millis(planned.lasts_ms)).await;
        let refused = TcpStream::connect(testbed.model.socket()).await.map(|_| ());
        testbed.model.set_behaviour(ModelBehaviour::Answers);
        // Who is refused leaves no trace at the model; the runs' own events are judged.
        ensure!(refused.is_err(), "its port still took connections");
        let cut = testbed.model.disturbed() - before;
        return Ok(format!("{manner:?}: connections refused for {} ms, {cut} requests cut off", planned.lasts_ms));
    }
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
