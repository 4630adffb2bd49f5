//! The desktop's lists find the matching entries, however many others there are.

use std::time::{Duration, Instant};

use deskgate_gateway::domain::lookup::by_end;
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::device_lists::DeviceRunQuery;
use deskgate_protocol::RunId;
use deskgate_protocol::conversation::ConversationState;
use deskgate_protocol::management::{
    FindByEnd, LISTED_TEXT_CHARS, ListConversations, ListRuns, MAX_FOUND_BY_END, MESSAGE_TEXT_CHARS,
    ManagementErrorCode, RecordKind, ShowConversation, StopRun,
};
use deskgate_protocol::run::{Outcome, RunState};
use serde_json::json;

use crate::conversations::TestConversation;
use crate::export::copies;
use crate::store::{TestStore, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE, TestGateway};
use crate::support::until;

/// The entries of all pages of a list.
async fn all(device: &DeviceFixture, request: ListRuns) -> Vec<RunId> {
    let (mut shown, mut before) = (Vec::new(), None);
    loop {
        let page = device.desktop.runs(ListRuns { limit: 2, before, ..request.clone() }).await.expect("listed");
        assert_eq!(page.has_more, page.next.is_some());
        assert!(page.runs.len() <= 2);
        shown.extend(page.runs.iter().map(|run| run.run_id));
        before = page.next;
        if before.is_none() {
            return shown;
        }
    }
}

#[tokio::test]
async fn runs_are_found_by_what_callers_see_of_their_state_by_application_and_by_service() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let other = device.application("other").await;
    let elsewhere = device.service(&other, "theirs").await;
    let (session, _) = device.connect().await;
    let (running, done) = (test_store.started(session).await, test_store.started(session).await);
    assert_eq!(test_store.one(session, done, 1, succeeded(1)).await, RecordOutcome::Done);
    let offered = test_store.queue().await;
    device.claim(session, 1).await;
    let (queued, theirs) = (test_store.queue().await, test_store.queue_for(elsewhere).await);

    let of = async |states: &[RunState]| all(device, ListRuns { states: states.to_vec(), ..ListRuns::default() }).await;
    assert_eq!(of(&[]).await, [theirs, queued, offered, done, running]);
    assert_eq!(of(&[RunState::Queued]).await, [theirs, queued, offered], "the device is connected");
    assert_eq!(of(&[RunState::WaitingForDevice]).await, []);
    assert_eq!(of(&[RunState::Running, RunState::Queued]).await, [theirs, queued, offered, running]);
    assert_eq!(of(&[RunState::Succeeded, RunState::Running]).await, [done, running]);
    test_store.store.end_session(session).await.expect("ended");
    assert_eq!(of(&[RunState::Queued]).await, []);
    assert_eq!(of(&[RunState::WaitingForDevice]).await, [theirs, queued, offered]);

    let app = |app_id| ListRuns { app_id: Some(app_id), ..ListRuns::default() };
    assert_eq!(all(device, app(other.id)).await, [theirs]);
    assert_eq!(all(device, ListRuns { states: vec![RunState::Running], ..app(device.app.id) }).await, [running]);
    assert_eq!(all(device, ListRuns { states: vec![RunState::Running], ..app(other.id) }).await, []);
    let service = ListRuns { endpoint_id: Some(device.endpoint), ..ListRuns::default() };
    assert_eq!(all(device, service).await, [queued, offered, done, running]);
    let stranger = DeviceFixture::pair(&test_store.store).await;
    assert_eq!(all(&stranger, app(device.app.id)).await, [], "another device sees nothing of it");
    assert_eq!(all(&stranger, ListRuns { find: Some(queued.to_string()), ..ListRuns::default() }).await, []);
}

#[tokio::test]
async fn runs_are_found_by_themselves_by_their_conversation_and_by_their_stop() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let message = talk.message("one", 1).send().await.run_id();
    let single = gateway.submit("two").await;
    let stop = gateway.device.desktop.stop_run(StopRun { run_id: single }).await.expect("stopped");
    let find = async |text: String| all(&gateway.device, ListRuns { find: Some(text), ..ListRuns::default() }).await;
    assert_eq!(find(single.to_string()).await, [single]);
    assert_eq!(find(format!(" {} ", talk.id)).await, [message]);
    assert_eq!(find(stop.operation_id.to_string()).await, [single]);
    assert_eq!(find(RunId::new().to_string()).await, []);
    let no = gateway.device.desktop.runs(ListRuns { find: Some("dgk_x".to_owned()), ..ListRuns::default() }).await;
    let no = no.expect_err("no identifier");
    assert_eq!(no.code, ManagementErrorCode::Invalid);
    assert!(!no.message.contains("dgk_x"), "a pasted key is not repeated: {no}");
    gateway.stop().await;
}

/// The last eight characters of an identifier, which no other one here has.
fn end_of(id: impl ToString) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

#[tokio::test]
async fn records_of_every_kind_are_found_by_their_ends_and_only_by_their_own_device() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let message = talk.message("one", 1).send().await.run_id();
    let stop = gateway.device.desktop.stop_run(StopRun { run_id: message }).await.expect("stopped").operation_id;
    let store = gateway.store();
    let stranger = DeviceFixture::pair(store).await;
    let app_id = gateway.device.app.id;
    for (kind, id) in [
        (RecordKind::Application, app_id.to_string()),
        (RecordKind::Run, message.to_string()),
        (RecordKind::Conversation, talk.id.to_string()),
        (RecordKind::Operation, stop.to_string()),
    ] {
        let sought = FindByEnd { kind, end: end_of(&id) };
        assert_eq!(gateway.device.desktop.find_by_end(sought.clone()).await.expect("asked").ids, [id.as_str()]);
        assert_eq!(stranger.desktop.find_by_end(sought.clone()).await.expect("asked").ids, Vec::<String>::new());
        // The administrator's reaches all devices.
        assert_eq!(by_end(store, None, &sought).await.expect("asked").expect("an end").ids, [id]);
    }
    // Ends that many have are answered with some of them.
    let single = gateway.submit("two").await;
    let copies = format!(
        "INSERT INTO runs SELECT r.* FROM runs d, generate_series(1, 300) n, jsonb_populate_record(d, jsonb_build_object(
            'run_id', ('f' || lpad(to_hex(n), 27, '0') || 'beef')::uuid, 'identity', '\\x' || encode(sha256(n::text::bytea), 'hex'))) r WHERE d.run_id = '{}'",
        single.uuid()
    );
    gateway.database.execute(&copies).await;
    let many = FindByEnd { kind: RecordKind::Run, end: "beef".to_owned() };
    let found = gateway.device.desktop.find_by_end(many).await.expect("asked").ids;
    assert!(found.len() == MAX_FOUND_BY_END && found[0] > found[1], "{found:?}");
    for wrong in ["", "bee", "BEEF", "be%f", "_eef", &"a".repeat(32)] {
        let no = gateway.device.desktop.find_by_end(FindByEnd { kind: RecordKind::Run, end: wrong.to_owned() }).await;
        assert_eq!(no.expect_err("no end").code, ManagementErrorCode::Invalid, "{wrong}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_owners_lists_show_how_a_run_was_asked_and_answered_and_the_administrators_do_not() {
    let gateway = TestGateway::new().await;
    let (long, answer) = ("Größe ".repeat(300), "yes ".repeat(500));
    let talk = TestConversation::open(&gateway, "case").await;
    let body = json!({ "expected_generation": 1, "input": { "text": long } });
    let path = format!("/api/v1/conversations/{}/messages", talk.id);
    let message = gateway.ask("POST", &path).header("Idempotency-Key", "one").json(&body).send().await.run_id();
    let (session, _) = gateway.device.connect().await;
    assert_eq!(gateway.device.claim(session, 1).await[0].run_id, message);
    let mut end = succeeded(1);
    if let AttemptUpdate::End { outcome: Outcome::Succeeded { result, .. }, .. } = &mut end {
        result.text.clone_from(&answer);
    }
    for what in [AttemptUpdate::Start, end] {
        let record = AttemptRecord { run_id: message, attempt: 1, what };
        let stored = gateway.store().record(session, &[record], LONG_LEASE).await.expect("written");
        assert_eq!(stored, [RecordOutcome::Done]);
    }
    let short = gateway.submit("two").await;

    let chars = |text: &str, count| text.chars().take(count).collect::<String>();
    let page = gateway.device.desktop.runs(ListRuns { limit: 9, ..ListRuns::default() }).await.expect("listed");
    let texts: Vec<_> = page.runs.iter().map(|run| (run.run_id, run.asked.clone(), run.answered.clone())).collect();
    let asked = Some(chars(&long, LISTED_TEXT_CHARS));
    assert_eq!(texts, [(short, Some("hello".to_owned()), None), (message, asked, None)]);
    assert!(page.runs.iter().all(|run| run.input.is_none() && run.result.is_none()));
    let shown = async || {
        let request = ShowConversation { conversation_id: talk.id };
        gateway.device.desktop.conversation(request).await.expect("shown").messages.remove(0)
    };
    let said = shown().await;
    assert_eq!(said.asked, Some(chars(&long, MESSAGE_TEXT_CHARS)));
    assert_eq!(said.answered, Some(chars(&answer, MESSAGE_TEXT_CHARS)));

    let everywhere = gateway.store().placed_runs(None, &DeviceRunQuery::default(), 9).await.expect("listed").entries;
    assert_eq!(everywhere.len(), 2);
    assert!(!format!("{everywhere:?}").contains("hello"), "the administrator does not read what was asked");

    let path = format!("/api/v1/runs/{message}/content");
    assert_eq!(gateway.ask("DELETE", &path).send().await.status, 204);
    let said = shown().await;
    assert_eq!((said.asked, said.answered), (None, None));
    gateway.stop().await;
}

#[tokio::test]
async fn conversations_are_found_by_application_and_state() {
    let gateway = TestGateway::new().await;
    let (idle, busy) = (TestConversation::open(&gateway, "idle").await, TestConversation::open(&gateway, "busy").await);
    let resetting = TestConversation::open(&gateway, "resetting").await;
    busy.message("one", 1).send().await.run_id();
    resetting.reset("two", 1).send().await;
    let of = async |request: ListConversations| {
        let page =
            gateway.device.desktop.conversations(ListConversations { limit: 9, ..request }).await.expect("listed");
        page.conversations.into_iter().map(|own| own.conversation.conversation_id).collect::<Vec<_>>()
    };
    let state = |state| ListConversations { state: Some(state), ..ListConversations::default() };
    assert_eq!(of(state(ConversationState::Idle)).await, [idle.id]);
    assert_eq!(of(state(ConversationState::Busy)).await, [busy.id]);
    assert_eq!(of(state(ConversationState::Resetting)).await, [resetting.id]);
    let app = |app_id| ListConversations { app_id: Some(app_id), ..ListConversations::default() };
    assert_eq!(of(app(gateway.device.app.id)).await, [resetting.id, busy.id, idle.id]);
    assert_eq!(of(app(deskgate_protocol::ApplicationId::new())).await, []);
    gateway.stop().await;
}

/// A filter that few runs match: each page examines 5,000 at most, and together they find everything.
#[tokio::test]
async fn a_page_of_few_among_a_hundred_thousand_runs_is_short_and_the_next_one_goes_on_behind_it() {
    let test_store = TestStore::new().await;
    let device = &test_store.device;
    let (session, _) = device.connect().await;
    let oldest = test_store.started(session).await;
    assert_eq!(test_store.one(session, oldest, 1, succeeded(1)).await, RecordOutcome::Done);
    let cancelled = test_store.queue().await;
    device.desktop.stop_run(StopRun { run_id: cancelled }).await.expect("stopped");
    // Newer by their identifiers than the two, and all alike.
    test_store
        .database
        .execute(&format!(
            "INSERT INTO runs SELECT r.* FROM runs d, generate_series(1, 100000) n, jsonb_populate_record(d, jsonb_build_object(
                'run_id', ('f' || lpad(to_hex(n), 31, '0'))::uuid, 'identity', '\\x' || encode(sha256(n::text::bytea), 'hex')))
                r WHERE d.run_id = '{}'",
            oldest.uuid()
        ))
        .await;
    test_store.database.execute("ANALYZE runs").await;
    let running = test_store.started(session).await;
    assert_eq!(test_store.one(session, running, 1, AttemptUpdate::Lose).await, RecordOutcome::Done);

    let began = Instant::now();
    let by_end = device.desktop.find_by_end(FindByEnd { kind: RecordKind::Run, end: end_of(oldest) }).await;
    println!("one of a hundred thousand by its end: {:?}", began.elapsed());
    assert_eq!(by_end.expect("found").ids, [oldest.to_string()]);

    let request = ListRuns { limit: 20, states: vec![RunState::Cancelled], ..ListRuns::default() };
    let (mut pages, mut found, mut before) = (0, Vec::new(), None);
    loop {
        let began = Instant::now();
        let page = device.desktop.runs(ListRuns { before, ..request.clone() }).await.expect("listed");
        println!("a page without a fitting run: {:?}", began.elapsed());
        pages += 1;
        found.extend(page.runs.iter().map(|run| run.run_id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!((pages, found), (21, vec![cancelled]));
    for states in [vec![], vec![RunState::AwaitingReconciliation], vec![RunState::Succeeded]] {
        let began = Instant::now();
        let page = device.desktop.runs(ListRuns { limit: 20, states: states.clone(), ..ListRuns::default() }).await;
        println!("{states:?}: {:?}", began.elapsed());
        assert_eq!(page.expect("listed").runs.len(), if states == [RunState::AwaitingReconciliation] { 1 } else { 20 });
    }
}

/// The newest page of a long list is read from its newest end; the first one that is opened is so even while the server
/// has no statistics of the table.
#[tokio::test]
async fn a_page_of_a_queue_of_a_hundred_thousand_runs_is_read_without_sorting_it() {
    let test_store = TestStore::new().await;
    let queued = test_store.queue().await;
    test_store.database.execute("ALTER TABLE runs SET (autovacuum_enabled = false)").await;
    copies(&test_store, queued, 1, 100_000).await;
    let states = [RunState::WaitingForDevice, RunState::Queued, RunState::Running];
    for (has_statistics, most) in [(false, 0), (true, states.len())] {
        if has_statistics {
            test_store.database.execute("ANALYZE runs").await;
        }
        for count in 0..=most {
            let request = ListRuns { limit: 50, states: states[..count].to_vec(), ..ListRuns::default() };
            let mut best = Duration::MAX;
            for _ in 0..5 {
                let began = Instant::now();
                let page = test_store.device.desktop.runs(request.clone()).await.expect("listed");
                best = best.min(began.elapsed());
                assert_eq!((page.runs.len(), page.runs[0].run_id), (50, queued));
            }
            println!("statistics: {has_statistics}, {:?}: {best:?}", request.states);
        }
    }
    // Closed connections have reported everything to the server.
    let TestStore { database, store, device } = test_store;
    drop((store, device));
    let read = async || {
        let sql = "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'runs')
            + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'runs')";
        database.value(sql).await.parse::<u64>().expect("a number")
    };
    until("the reads to be told", async || read().await >= 25 * 50).await;
    assert!(read().await < 100_000, "25 pages read {} entries", read().await);
}
