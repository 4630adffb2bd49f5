//! A caller with a key of its own that is revoked while it is used.

use std::time::Duration;

use reqwest::Method;
use tokio::time::sleep;

use super::{ApiRequest, Caller, SUBJECT};
use crate::history::CallAction;
use crate::testbed::REPLICA_COUNT;

/// The pause between two of its requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(40);

/// A caller with its key.
#[derive(Clone, Debug)]
pub(crate) struct KeyHolder {
    pub(crate) name: String,
    pub(crate) key: String,
}

impl KeyHolder {
    fn headers(&self) -> Vec<(&'static str, String)> {
        vec![("Authorization", format!("Bearer {}", self.key)), ("X-Gateway-Subject", SUBJECT.to_owned())]
    }

    /// Reads its newest run at every gateway. Returns how many answered successfully.
    pub(crate) async fn ask_all(&self, caller: &mut Caller) -> usize {
        let request = ApiRequest {
            name: "guest",
            asked: CallAction::Guest { name: self.name.clone() },
            desktop: 0,
            method: Method::GET,
            path: "/runs?limit=1".to_owned(),
            signed: Some(self.headers()),
            ..ApiRequest::default()
        };
        let (operation, mut good) = (caller.next_operation(), 0);
        for replica in 0..REPLICA_COUNT {
            good += usize::from(caller.ask(operation, &request, replica).await.is_some_and(|reply| reply.is_good()));
            sleep(REQUEST_INTERVAL).await;
        }
        good
    }

    /// Opens the stream of a run at some gateway.
    pub(crate) async fn follow(&self, caller: &mut Caller, run_id: &str) -> reqwest::Result<reqwest::Response> {
        let address = caller.business.testbed.address(caller.dice.below(REPLICA_COUNT));
        let mut request = caller.business.http.get(format!("http://{address}/api/v1/runs/{run_id}/events"));
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        let request = request.header("Accept", "text/event-stream").timeout(Duration::from_secs(600));
        request.send().await?.error_for_status()
    }
}
