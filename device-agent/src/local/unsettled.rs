//! Runs that wait for their owner's decision: those that this device holds, each with its evidence, and those that it knows
//! nothing of, such as after its gateway was restored from a backup, which can be ended all at once.

use deskgate_protocol::RunId;
use deskgate_protocol::management::{AskedBy, ListRuns, ListedRun, StopRun};
use deskgate_protocol::run::RunState;
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::services::GatewayClient;

/// The most runs in one answer. More are shown and ended by the next one.
const MAX_RUNS: usize = 1000;
/// Runs in one reply of the gateway.
const RUNS_PER_PAGE: u32 = 100;

/// The runs that wait for their owner's decision, newest first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListUnsettled {}

impl TypedRequest for ListUnsettled {
    type Response = UnsettledRuns;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<UnsettledRuns, ErrorReply> {
        handler.unsettled(asker.into()).await
    }
}

/// End all runs that this device knows nothing of: what they may have changed stays as it is, and stays unknown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndUnknownRuns {}

impl TypedRequest for EndUnknownRuns {
    type Response = EndedUnknownRuns;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<EndedUnknownRuns, ErrorReply> {
        let runs = handler.unsettled(asker.into()).await?;
        let gateway = handler.active()?.dispatcher.asked_by(asker.into());
        let mut ended = Vec::new();
        for run in runs.unknown {
            gateway.call(StopRun { run_id: run.run_id }).await?;
            ended.push(run.run_id);
        }
        Ok(EndedUnknownRuns { ended, has_more: runs.has_more })
    }
}

/// Runs that wait for their owner's decision.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UnsettledRuns {
    /// Those that this device holds: their calls are compared with the disk, and each is settled by itself.
    pub held: Vec<ListedRun>,
    /// Those that it knows nothing of. They can only be ended.
    pub unknown: Vec<ListedRun>,
    /// Whether there are more than these.
    pub has_more: bool,
}

/// The runs that were ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndedUnknownRuns {
    /// They end once this device has confirmed that it does not execute them.
    pub ended: Vec<RunId>,
    /// Whether there may be more of them.
    pub has_more: bool,
}

impl RequestHandler {
    async fn unsettled(&self, by: AskedBy) -> Result<UnsettledRuns, ErrorReply> {
        let active = self.active()?;
        let gateway = active.dispatcher.clone().asked_by(by);
        let (mut runs, mut before, mut has_more) = (UnsettledRuns::default(), None, true);
        let mut found = 0;
        while has_more && found < MAX_RUNS {
            let states = vec![RunState::AwaitingReconciliation];
            let page = gateway.call(ListRuns { limit: RUNS_PER_PAGE, before, states, ..ListRuns::default() }).await?;
            found += page.runs.len();
            (before, has_more) = (page.next, page.next.is_some());
            // Read behind the list: what the device takes up meanwhile is held.
            let held = active.dispatcher.status().runs;
            for run in page.runs {
                match held.iter().any(|active| active.run_id == run.run_id) {
                    true => runs.held.push(run),
                    false => runs.unknown.push(run),
                }
            }
        }
        Ok(UnsettledRuns { has_more, ..runs })
    }
}
