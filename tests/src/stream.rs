//! A backend that follows a run by its event stream.

use serde_json::Value;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::wait::WAIT_TIMEOUT;

/// One event as it was sent.
#[derive(Clone, Debug, Default)]
pub struct StreamEvent {
    /// Its number; absent for events that are not stored.
    pub id: Option<u64>,
    /// Its name.
    pub event: String,
    /// Its data.
    pub data: Value,
}

/// An open stream.
#[derive(Debug)]
pub struct RunStream {
    response: reqwest::Response,
    text: String,
}

impl RunStream {
    /// Opens a stream behind the event `after`.
    ///
    /// # Errors
    /// The gateway cannot be reached.
    pub async fn open(backend: &Backend, run_id: &str, after: u64) -> Result<Self, reqwest::Error> {
        let request = backend.request(reqwest::Method::GET, &format!("/runs/{run_id}/events"));
        // A stream has no known end, so it gets no total timeout.
        let request = request
            .header("Accept", "text/event-stream")
            .header("Last-Event-ID", after.to_string())
            .timeout(WAIT_TIMEOUT * 10);
        let response = request.send().await?;
        assert_eq!(response.status().as_u16(), 200, "{response:?}");
        Ok(Self { response, text: String::new() })
    }

    /// The next event; `None` when the stream has ended or broken.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let sent = read(block);
                self.text = rest.to_owned();
                match sent {
                    Some(sent) => return Some(sent),
                    None => continue,
                }
            }
            let piece = timeout(WAIT_TIMEOUT, self.response.chunk()).await.expect("something comes in time");
            self.text.push_str(std::str::from_utf8(&piece.ok().flatten()?).expect("pieces end between characters"));
        }
    }
}

/// Reads a block; `None` for a comment.
fn read(block: &str) -> Option<StreamEvent> {
    let mut sent = StreamEvent::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => sent.id = Some(id.parse().expect("a number")),
            Some(("event", event)) => sent.event = event.to_owned(),
            Some(("data", data)) => sent.data = serde_json::from_str(data).expect("JSON"),
            _ => {}
        }
    }
    (!sent.event.is_empty()).then_some(sent)
}
