//! Another system that sends signed events: some twice, some forged, some stale.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use deskgate_tests::signing::{bytes, signature};
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::{ApiReply, ApiRequest, Caller, CallerContext, submitter};
use crate::history::CallAction;
use crate::testbed::REPLICA_COUNT;

/// Sends one event after the other while the pass is open.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    while business.is_open() {
        let job = business.fresh_job();
        let text = submitter::text(&mut caller, desktop, &job);
        if caller.dice.percent(10) {
            let is_stale = caller.dice.percent(50);
            let forged = event(&caller, desktop, &job, &text, Some(is_stale));
            caller.retry(&forged).await;
            continue;
        }
        let request = event(&caller, desktop, &job, &text, None);
        if caller.dice.percent(20) {
            let operation = caller.next_operation();
            let (one, other) = (caller.dice.below(REPLICA_COUNT), caller.dice.below(REPLICA_COUNT));
            tokio::join!(caller.ask(operation, &request, one), caller.ask(operation, &request, other));
        }
        let Some(run_id) = caller.retry(&request).await.as_ref().and_then(ApiReply::run_id) else { continue };
        submitter::ends(&mut caller.fork("wait"), desktop, &run_id, false).await;
        if caller.dice.percent(20) {
            // A late repetition: the same event with a new signature.
            caller.retry(&event(&caller, desktop, &job, &text, None)).await;
        }
        sleep(Duration::from_millis(caller.dice.within(20, 300))).await;
    }
}

/// An event that becomes a job. With `stale`, it must not count: it was signed too long ago, or with another secret.
pub(crate) fn event(caller: &Caller, desktop: usize, job: &str, text: &str, stale: Option<bool>) -> ApiRequest {
    let service = caller.service(desktop);
    let body = json!({ "type": "order.placed", "text": text });
    let mut secret = bytes(&service.hook_secret);
    let mut at = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    match stale {
        None => {}
        Some(true) => at -= 3600,
        Some(false) => secret[0] ^= 1,
    }
    let at = at.to_string();
    let signed = signature(&secret, job, &at, body.to_string().as_bytes());
    ApiRequest {
        name: "event",
        asked: CallAction::Event { job: job.to_owned(), forged: stale.is_some() },
        desktop,
        method: Method::POST,
        path: format!("/webhooks/{}", service.hook_id),
        body: Some(body),
        signed: Some(vec![("webhook-id", job.to_owned()), ("webhook-timestamp", at), ("webhook-signature", signed)]),
        ..ApiRequest::default()
    }
}
