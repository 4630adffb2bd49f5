//! Runs the raw device, which reports the end of a run twice: first in an attempt or session that is over, and then in
//! the present one.

use std::sync::Arc;

use deskgate_protocol::RunId;
use deskgate_protocol::control::{DeviceFrame, GatewayFrame, InFlightRun, InFlightStatus};
use deskgate_protocol::run::{Outcome, RunResult, Usage};
use deskgate_tests::raw::RawConnection;
use serde_json::{Value, json};

use super::{CallerContext, SUBJECT};
use crate::history::{HistoryRecord, StaleFinishRecord};
use crate::testbed::REPLICA_COUNT;
use crate::testbed::raw_device::awaited;

/// The name of its history.
const HISTORY_NAME: &str = "stray";
/// The results it reports: in the outdated scope, and in the present one.
const STALE_TEXT: &str = "said too late";
const CURRENT_TEXT: &str = "said in time";

/// The scope that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StaleScope {
    Attempt,
    Session,
}

/// Does this once at each pair of gateways, for an attempt and for a session. It runs only while no fault is active,
/// and reports anything that it cannot do.
pub(crate) async fn work(business: &Arc<CallerContext>) {
    for replica in 0..REPLICA_COUNT {
        for over in [StaleScope::Attempt, StaleScope::Session] {
            match once(business, replica, over).await {
                Some(stale) => business.histories.note(HISTORY_NAME, HistoryRecord::Stale(stale)),
                None => println!("faults: {over:?}: the device made by hand was not answered as it should"),
            }
        }
    }
}

async fn once(business: &Arc<CallerContext>, replica: usize, over: StaleScope) -> Option<StaleFinishRecord> {
    let testbed = &business.testbed;
    let [one, other] = [replica, (replica + 1) % REPLICA_COUNT].map(|number| &testbed.replicas[number]);
    let persona = &testbed.stray.persona;
    let (mut older, _) = persona.connect(&*one.read().await, Vec::new()).await;
    let text = submit(business, replica).await?;
    let run_id: RunId = text.parse().ok()?;
    let mut attempt = begin(&mut older, run_id).await?;
    let status = match over {
        StaleScope::Attempt => InFlightStatus::Interrupted,
        StaleScope::Session => InFlightStatus::Running,
    };
    let in_flight = vec![InFlightRun { run_id, attempt, status }];
    let (mut newer, _) = persona.connect(&*other.read().await, in_flight).await;
    let late = finish(run_id, attempt, STALE_TEXT);
    match over {
        StaleScope::Session => older.send(&late).await,
        StaleScope::Attempt => {
            newer.send(&DeviceFrame::ready(1)).await;
            let again = offered(&mut newer, run_id).await?;
            newer.send(&late).await;
            answered(&mut newer, run_id, attempt).await;
            attempt = again;
            newer.send(&DeviceFrame::Accept { run_id, attempt }).await;
        }
    }
    newer.send(&finish(run_id, attempt, CURRENT_TEXT)).await;
    answered(&mut newer, run_id, attempt).await;
    let run = read(business, replica, &text).await?;
    let over = match over {
        StaleScope::Attempt => "an attempt",
        StaleScope::Session => "a session",
    };
    Some(StaleFinishRecord {
        run_id: text,
        at: testbed.clock.now(),
        over: over.to_owned(),
        wanted: CURRENT_TEXT.to_owned(),
        ended: run["result"]["text"].as_str().unwrap_or("nothing").to_owned(),
    })
}

/// Takes the only run. Returns its attempt.
async fn begin(line: &mut RawConnection, run_id: RunId) -> Option<u32> {
    line.send(&DeviceFrame::ready(1)).await;
    let attempt = offered(line, run_id).await?;
    line.send(&DeviceFrame::Accept { run_id, attempt }).await;
    let starts = |frame| matches!(frame, GatewayFrame::Start { run_id: of, .. } if of == run_id).then_some(());
    awaited(line, starts).await?;
    Some(attempt)
}

async fn offered(line: &mut RawConnection, run_id: RunId) -> Option<u32> {
    let offers = |frame| match frame {
        GatewayFrame::Offer(offer) if offer.run_id == run_id => Some(offer.attempt),
        _ => None,
    };
    awaited(line, offers).await
}

fn finish(run_id: RunId, attempt: u32, text: &str) -> DeviceFrame {
    let result = RunResult::completed(text);
    let outcome = Outcome::Succeeded { result, usage: Usage::default() };
    DeviceFrame::Finish { run_id, attempt, seq: 1, outcome, receipt: None }
}

/// Waits until it is acknowledged, or revoked.
async fn answered(line: &mut RawConnection, run_id: RunId, attempt: u32) {
    let answers = |frame| match frame {
        // The event from which a session resumes is acknowledged too.
        GatewayFrame::Ack { through: 0, .. } => None,
        GatewayFrame::Ack { run_id: of, attempt: at, .. } | GatewayFrame::Revoke { run_id: of, attempt: at, .. } => {
            (of == run_id && at == attempt).then_some(())
        }
        _ => None,
    };
    awaited(line, answers).await;
}

async fn submit(business: &CallerContext, replica: usize) -> Option<String> {
    let stray = &business.testbed.stray;
    let path = format!("agent-endpoints/{}/runs", stray.endpoint_id);
    let url = format!("http://{}/api/v1/{path}", business.testbed.address(replica));
    let request = business.http.post(url).bearer_auth(&stray.key).header("X-Gateway-Subject", SUBJECT);
    let request = request.header("Idempotency-Key", business.fresh_job());
    let reply = request.json(&json!({ "input": { "text": "anything" } })).send().await.ok()?;
    reply.json::<Value>().await.ok()?["run_id"].as_str().map(str::to_owned)
}

async fn read(business: &CallerContext, replica: usize, run_id: &str) -> Option<Value> {
    let url = format!("http://{}/api/v1/runs/{run_id}", business.testbed.address(replica));
    let request = business.http.get(url).bearer_auth(&business.testbed.stray.key).header("X-Gateway-Subject", SUBJECT);
    request.send().await.ok()?.json().await.ok()
}
