//! A caller that reads server-sent events, as the HTML standard says (section 9.2.6).

use std::time::Duration;

use deskgate_protocol::RunId;
use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use super::call::{TestRequest, client};

/// One event as it was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SentEvent {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// An open stream.
pub(crate) struct EventStreamReader {
    pub(crate) response: Response,
    text: String,
    /// Comments so far.
    comments: usize,
    /// The last `retry`.
    pub(crate) retry: Option<String>,
}

impl EventStreamReader {
    /// Opens one, which must work.
    pub(crate) async fn open(call: TestRequest) -> Self {
        let client = client().no_proxy().build().expect("a client");
        let response = call.header("Accept", "text/event-stream").open(&client).await;
        assert_eq!(response.status().as_u16(), 200, "{response:?}");
        Self { response, text: String::new(), comments: 0, retry: None }
    }

    /// The next event; `None` when the stream has ended or broken.
    pub(crate) async fn next(&mut self) -> Option<SentEvent> {
        loop {
            let block = self.block().await?;
            if let Some(sent) = self.read(&block) {
                return Some(sent);
            }
        }
    }

    /// Waits for a comment, which must come next.
    pub(crate) async fn comment(&mut self) {
        let before = self.comments;
        let block = self.block().await.expect("the stream goes on");
        assert_eq!((self.read(&block), self.comments), (None, before + 1), "{block}");
    }

    /// What stands before the next empty line.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let piece = timeout(Duration::from_secs(60), self.response.chunk()).await.expect("something in time");
            self.text.push_str(std::str::from_utf8(&piece.ok().flatten()?).expect("pieces end between characters"));
        }
    }

    /// The next event, which must come and be this.
    pub(crate) async fn expect(&mut self, event: &str) -> SentEvent {
        let sent = self.next().await.unwrap_or_else(|| panic!("the stream ended before {event}"));
        assert_eq!(sent.event, event, "{sent:?}");
        sent
    }

    /// Everything until the end.
    pub(crate) async fn rest(&mut self) -> Vec<SentEvent> {
        let mut all = Vec::new();
        while let Some(sent) = self.next().await {
            all.push(sent);
        }
        all
    }

    fn read(&mut self, block: &str) -> Option<SentEvent> {
        let mut sent = SentEvent::default();
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("", _)) => self.comments += 1,
                Some(("id", id)) => sent.id = Some(id.parse().expect("a number")),
                Some(("event", event)) => sent.event = event.to_owned(),
                Some(("data", data)) => sent.data = serde_json::from_str(data).expect("JSON"),
                Some(("retry", retry)) => self.retry = Some(retry.to_owned()),
                _ => panic!("an unknown line: {line:?}"),
            }
        }
        (!sent.event.is_empty()).then_some(sent)
    }
}

/// The address of a run's events.
pub(crate) fn events(run_id: RunId) -> String {
    format!("/api/v1/runs/{run_id}/events")
}
