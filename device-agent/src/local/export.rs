//! Exports an application's runs as JSON Lines in pieces: only one reply of the gateway is in memory at a time.

use std::collections::VecDeque;

use deskgate_protocol::management::{ExportRuns, ManagementCall, RunDetail, ShowRun};
use deskgate_protocol::run::RunEvent;
use deskgate_protocol::{ApplicationId, RunId};
use serde::Serialize;

/// A client for the gateway's own requests.
pub trait ManagementClient {
    /// Why a call failed.
    type Error;

    /// Sends a request to the gateway.
    fn call_gateway<C: ManagementCall + Send>(
        &self,
        call: C,
    ) -> impl Future<Output = Result<C::Reply, Self::Error>> + Send;
}

/// An export in progress. A line is `{"run":…,"subject":…,"events":[…]}`, as in `runs show --json`.
#[derive(Debug)]
pub struct Export<P> {
    gateway: P,
    app_id: ApplicationId,
    /// Where the next reply begins; `None` after the last one.
    next: Option<Option<RunId>>,
    /// Runs that were read and are not written yet.
    read: VecDeque<RunDetail>,
    /// The run whose line is incomplete, and its last event so far.
    unfinished: Option<(RunId, u64)>,
    runs: u64,
}

impl<P: ManagementClient> Export<P> {
    /// Every run of an application, newest first.
    pub fn new(gateway: P, app_id: ApplicationId) -> Self {
        Self { gateway, app_id, next: Some(None), read: VecDeque::new(), unfinished: None, runs: 0 }
    }

    /// How many runs were begun so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The next piece of text; each piece ends at the end of a line or of an event. `None` at the end.
    ///
    /// # Errors
    /// A request to the gateway failed: the client's error.
    pub async fn more(&mut self) -> Result<Option<String>, P::Error> {
        loop {
            if let Some((run_id, after)) = self.unfinished {
                let detail = self.gateway.call_gateway(ShowRun { run_id, after, wait_s: 0 }).await?;
                let text: String = detail.events.iter().map(|event| format!(",{}", json(event))).collect();
                return Ok(Some(text + self.end(&detail, after)));
            }
            if let Some(detail) = self.read.pop_front() {
                self.runs += 1;
                let events: Vec<_> = detail.events.iter().map(json::<RunEvent>).collect();
                let subject = detail.subject.as_ref().map(|subject| format!(r#","subject":{}"#, json(subject)));
                let (run, subject) = (json(&detail.run), subject.unwrap_or_default());
                let text = format!(r#"{{"run":{run}{subject},"events":[{}"#, events.join(","));
                return Ok(Some(text + self.end(&detail, 0)));
            }
            let Some(before) = self.next else { return Ok(None) };
            let reply = self.gateway.call_gateway(ExportRuns { app_id: self.app_id, before }).await?;
            self.next = reply.next.map(Some);
            self.read = reply.runs.into();
        }
    }

    /// The end of a line, unless the run has more events than were read.
    fn end(&mut self, detail: &RunDetail, after: u64) -> &'static str {
        if detail.is_complete(after) {
            self.unfinished = None;
            "]}\n"
        } else {
            self.unfinished = Some((detail.run.run_id, detail.events.last().map_or(after, |last| last.sequence)));
            ""
        }
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("runs and events came as JSON")
}
