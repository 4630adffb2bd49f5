//! An application's history is exported whole, once, and in replies that fit a frame, for all contents.

use deskgate_gateway::store::attempts::RecordOutcome;
use deskgate_protocol::RunId;
use deskgate_protocol::management::{ExportRuns, RunDetail};
use deskgate_protocol::run::RunState;

use crate::store::{TestStore, events, succeeded};
use crate::support::gateway::DeviceFixture;

/// Every reply, and how many bytes the largest one has.
async fn all(device: &DeviceFixture, of: &DeviceFixture) -> (Vec<RunDetail>, usize) {
    let (mut runs, mut largest, mut before) = (Vec::new(), 0, None);
    loop {
        let reply = device.desktop.export(ExportRuns { app_id: of.app.id, before }).await.expect("read");
        largest = serde_json::to_string(&reply).expect("JSON").len().max(largest);
        before = reply.next;
        runs.extend(reply.runs);
        if before.is_none() {
            return (runs, largest);
        }
    }
}

/// Copies of a run, all older than it by their identifiers.
pub(crate) async fn copies(test_store: &TestStore, of: RunId, from: u32, to: u32) {
    let copy = format!(
        "INSERT INTO runs SELECT r.* FROM runs d, generate_series({from}, {to}) n, jsonb_populate_record(d, jsonb_build_object(
            'run_id', ('0' || lpad(to_hex(n), 31, '0'))::uuid, 'identity', '\\x' || encode(sha256(n::text::bytea), 'hex')))
            r WHERE d.run_id = '{}'",
        of.uuid()
    );
    test_store.database.execute(&copy).await;
}

#[tokio::test]
async fn every_run_of_an_application_is_exported_once_with_what_it_was_given_and_what_came_of_it() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let other = device.application("other").await;
    let (session, _) = device.connect().await;
    let talkative = test_store.started(session).await;
    test_store.queue_for(device.service(&other, "theirs").await).await;
    assert_eq!(test_store.one(session, talkative, 1, events(1, 60)).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, talkative, 1, succeeded(61)).await, RecordOutcome::Done);
    let large = "UPDATE runs SET result = json_build_object('text', repeat('x', 300000), 'finish_reason', 'completed')";
    test_store.database.execute(&format!("{large} WHERE run_id = '{}'", talkative.uuid())).await;
    copies(&test_store, talkative, 1, 70).await;
    let queued = test_store.queue().await;

    let (runs, largest) = all(device, device).await;
    assert_eq!(runs.len(), 72);
    assert!(
        runs.windows(2).all(|pair| pair[0].run.run_id.uuid() > pair[1].run.run_id.uuid()),
        "newest first, each once"
    );
    assert!(largest < 1536 * 1024, "a reply fits a frame: {largest}");
    assert_eq!((runs[0].run.run_id, runs[0].run.state), (queued, RunState::Queued));
    assert!(runs.iter().all(|one| one.run.input.is_some()));
    let one = runs.iter().find(|one| one.run.run_id == talkative).expect("exported");
    assert_eq!(one.run.result.as_ref().map(|result| result.text.len()), Some(300_000));
    let sequences: Vec<u64> = one.events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=40).collect::<Vec<_>>(), "the first ones");
    assert!(!one.is_complete(0), "and it can be told that there are more");

    let stranger = DeviceFixture::pair(&test_store.store).await;
    assert_eq!(all(&stranger, device).await.0, [], "another device reads nothing of it");
}
