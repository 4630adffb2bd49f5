//! Exports an application's history, reply by reply.

use std::collections::HashMap;

use deskgate_protocol::RunId;
use deskgate_protocol::management::{ExportRuns, RunDetail, RunExport};

use super::{Desktop, DesktopResult, shorten};
use crate::domain::runs::visible_run;
use crate::store::device_lists::DeviceRunQuery;

/// Runs that are read for one reply.
const MAX_RUNS_PER_REPLY: u32 = 25;
/// Events that are read of each. With all of its runs a reply reads as many as one that shows a run.
const MAX_EVENTS_PER_RUN: i64 = 40;
/// Bytes of runs in a reply, unless its first run alone has more.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

impl Desktop {
    /// Runs of an application, newest first, each with its input, its result and its first events.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn export(&self, request: ExportRuns) -> DesktopResult<RunExport> {
        let ExportRuns { app_id, before } = request;
        let sought = DeviceRunQuery { before, app_id: Some(app_id), ..DeviceRunQuery::default() };
        let page = self.store.runs_of_device(self.device_id, &sought, MAX_RUNS_PER_REPLY).await?;
        let ids: Vec<_> = page.entries.iter().map(|stored| stored.run.run_id).collect();
        let stored = self.store.whole_runs(self.device_id, &ids).await?;
        let first: Vec<_> = ids.iter().map(|run_id| (*run_id, 0)).collect();
        let progress = self.store.progress(&first, MAX_EVENTS_PER_RUN).await?.into_iter();
        let mut events: HashMap<RunId, _> = progress.map(|one| (one.run_id, one.events)).collect();

        let (mut runs, mut bytes) = (Vec::new(), 0);
        for (stored, subject) in stored {
            let run = visible_run(stored);
            let mut events = events.remove(&run.run_id).unwrap_or_default();
            shorten(&mut events);
            let detail = RunDetail { run, events, subject: Some(subject) };
            bytes += serde_json::to_string(&detail).map_or(MAX_REPLY_BYTES, |text| text.len());
            if bytes > MAX_REPLY_BYTES && !runs.is_empty() {
                let next = runs.last().map(|last: &RunDetail| last.run.run_id);
                return Ok(RunExport { runs, next });
            }
            runs.push(detail);
        }
        Ok(RunExport { runs, next: page.next.map(Into::into) })
    }
}
