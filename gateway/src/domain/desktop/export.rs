//! An application's history, reply by reply.

use std::collections::HashMap;

use deskgate_protocol::RunId;
use deskgate_protocol::management::{ExportRuns, RunDetail, RunExport};

use super::{Answer, Desktop, shorten};
use crate::domain::runs::seen;
use crate::store::own_lists::SoughtRuns;

/// Runs that are read for one reply.
const RUNS: u32 = 25;
/// Events that are read of each. With all of its runs a reply reads as many as one that shows a run.
const EVENTS: i64 = 40;
/// Bytes of runs in a reply, unless its first run alone has more.
const BYTES: usize = 1024 * 1024;

impl Desktop {
    /// Runs of an application, newest first, each with its input, its result and its first events.
    pub async fn export(&self, request: ExportRuns) -> Answer<RunExport> {
        let ExportRuns { app_id, before } = request;
        let sought = SoughtRuns { before, app_id: Some(app_id), ..SoughtRuns::default() };
        let page = self.store.runs_of_device(self.device_id, &sought, RUNS).await?;
        let ids: Vec<_> = page.entries.iter().map(|stored| stored.run.run_id).collect();
        let stored = self.store.whole_runs(self.device_id, &ids).await?;
        let first: Vec<_> = ids.iter().map(|run_id| (*run_id, 0)).collect();
        let progress = self.store.progress(&first, EVENTS).await?.into_iter();
        let mut events: HashMap<RunId, _> = progress.map(|one| (one.run_id, one.events)).collect();

        let (mut runs, mut bytes) = (Vec::new(), 0);
        for run in stored.into_iter().map(seen) {
            let mut events = events.remove(&run.run_id).unwrap_or_default();
            shorten(&mut events);
            let detail = RunDetail { run, events };
            bytes += serde_json::to_string(&detail).map_or(BYTES, |text| text.len());
            if bytes > BYTES && !runs.is_empty() {
                let next = runs.last().map(|last: &RunDetail| last.run.run_id);
                return Ok(RunExport { runs, next });
            }
            runs.push(detail);
        }
        Ok(RunExport { runs, next: page.next.map(Into::into) })
    }
}
