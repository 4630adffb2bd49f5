//! Conversations: messages see earlier ones, run one at a time, and a generation never goes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use deskgate_tests::backend::ApiResponse;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::text;

const QUOTING_TEMPLATE: &str = "{{earlier}}now: {{input}}";

#[tokio::test]
async fn a_message_sees_what_was_said_in_its_generation_also_after_the_device_was_killed() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.script("quotes", json!([{ "text": QUOTING_TEMPLATE }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let talk = backend.conversation("case 4711").await;
    let other = backend.conversation("case 4712").await;
    assert_eq!(backend.say_and_wait(&talk, 1, "one").await, "now: one");
    device.kill_9();
    device.start().await;
    assert_eq!(backend.say_and_wait(&talk, 1, "two").await, "user: one\nassistant: now: one\nnow: two");
    assert_eq!(backend.say_and_wait(&other, 1, "one").await, "now: one", "another conversation");

    // The reset waits for the device, and is carried out once.
    let device_id = device.device_id().await;
    device.proxy().cut();
    gateway.wait_for_device_state(&device_id, "offline").await;
    let operation = backend.reset(&talk, 1).await.expect("answered").body;
    assert_eq!(text(&operation, "/state"), "pending", "{operation}");
    assert_eq!(backend.get(&format!("/conversations/{talk}")).await["state"], "resetting");
    device.proxy().heal();
    assert_eq!(backend.outcome(&operation).await, json!({ "code": "reset", "new_generation": 2 }));
    let stale = backend.say(&talk, 1, "late").await.expect("answered");
    assert_eq!((stale.code(), &stale.body["current_generation"]), ("generation_mismatch", &json!(2)));
    assert_eq!(backend.say_and_wait(&talk, 2, "anew").await, "now: anew");
    assert_eq!(backend.say_and_wait(&other, 1, "two").await, "user: one\nassistant: now: one\nnow: two");
}

/// One observation of a caller, with the times of request and answer.
#[derive(Clone, Debug)]
struct Observation {
    asked: Instant,
    answered: Instant,
    kind: ObservationKind,
}

#[derive(Clone, Debug, PartialEq)]
enum ObservationKind {
    /// The generation was read, or named in a refusal.
    Generation(u64),
    /// A message was accepted in this generation.
    Accepted { run_id: String, generation: u64 },
    /// A reset was accepted, for this generation.
    Resetting { operation: serde_json::Value, generation: u64 },
}

#[derive(Clone, Default)]
struct ObservationLog(Arc<Mutex<Vec<Observation>>>);

impl ObservationLog {
    fn note(&self, asked: Instant, what: ObservationKind) {
        self.0.lock().expect("no panic").push(Observation { asked, answered: Instant::now(), kind: what });
    }

    fn is_enough(&self) -> bool {
        let seen = self.0.lock().expect("no panic");
        let messages = seen.iter().filter(|seen| matches!(seen.kind, ObservationKind::Accepted { .. })).count();
        // A reset that is already requested is answered with the open one.
        let resets: BTreeSet<_> = seen
            .iter()
            .filter_map(|seen| match &seen.kind {
                ObservationKind::Resetting { operation, .. } => Some(text(operation, "/operation_id")),
                _ => None,
            })
            .collect();
        messages >= 16 && resets.len() >= 4
    }

    fn all(&self) -> Vec<Observation> {
        self.0.lock().expect("no panic").clone()
    }
}

/// One caller: reads the generation, then sends a message, resets or stops, until it has enough observations.
async fn caller(backend: Backend, talk: String, history: ObservationLog, number: usize) {
    let mut generation = 1;
    for turn in 0..4000 {
        if history.is_enough() {
            return;
        }
        let asked = Instant::now();
        match (number + turn) % 4 {
            0 => {
                generation =
                    backend.get(&format!("/conversations/{talk}")).await["generation"].as_u64().expect("a number");
                history.note(asked, ObservationKind::Generation(generation));
                continue;
            }
            1 => {
                let answer = backend.reset(&talk, generation).await.expect("answered");
                if answer.status.as_u16() == 202 {
                    history.note(asked, ObservationKind::Resetting { operation: answer.body, generation });
                    continue;
                }
                refused(&backend, &answer, &history, asked, &mut generation).await;
            }
            _ => {
                let answer = backend.say(&talk, generation, &format!("{number}.{turn}")).await.expect("answered");
                if answer.status.as_u16() != 202 {
                    refused(&backend, &answer, &history, asked, &mut generation).await;
                    continue;
                }
                let run_id = answer.body["run_id"].as_str().expect("a run").to_owned();
                history.note(asked, ObservationKind::Accepted { run_id: run_id.clone(), generation });
                if turn % 3 == 0 {
                    backend.stop(&run_id).await;
                }
            }
        }
    }
}

async fn refused(
    backend: &Backend,
    answer: &ApiResponse,
    history: &ObservationLog,
    asked: Instant,
    generation: &mut u64,
) {
    match answer.code() {
        "conversation_busy" => {
            if let Some(run_id) = answer.body["active_run_id"].as_str() {
                backend.read(run_id, 1).await.expect("answered");
            }
        }
        "generation_mismatch" => {
            *generation = answer.body["current_generation"].as_u64().expect("the current one");
            history.note(asked, ObservationKind::Generation(*generation));
        }
        other => panic!("{other}: {}", answer.body),
    }
}

#[tokio::test]
async fn under_messages_resets_and_stops_on_two_replicas_the_generation_never_goes_back() {
    let postgres = Postgres::shared().await;
    let (one, other) = (GatewayProcess::start(&postgres, &[]).await, GatewayProcess::start(&postgres, &[]).await);
    let device = TestDevice::paired_with(&one).await;
    let folder = Folder::new();
    let model = folder.script("quotes", json!([{ "text": QUOTING_TEMPLATE }]));
    let through_one = device.publish(&one, "shop", &folder, &["--model", &model, "--concurrency", "4"]).await;
    let backends = [through_one.clone(), through_one.through(other.http())];
    let talk = through_one.conversation("case 4711").await;
    let history = ObservationLog::default();
    let mut callers = JoinSet::new();
    for number in 0..8 {
        callers.spawn(caller(backends[number % 2].clone(), talk.clone(), history.clone(), number));
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller was answered as promised");
    }
    let seen = history.all();
    let last = check(&seen, &through_one).await;
    let record = through_one.get(&format!("/conversations/{talk}")).await;
    assert_eq!((record["state"].as_str(), record["generation"].as_u64()), (Some("idle"), Some(last)), "{record}");
    let rows = postgres.rows("SELECT count(*) AS n FROM conversations WHERE active_run_id IS NOT NULL").await;
    assert_eq!(rows[0]["n"], 0);
}

/// Checks the callers' observations, and returns the generation that must be the last.
async fn check(seen: &[Observation], backend: &Backend) -> u64 {
    let mut accepted = BTreeMap::new();
    let mut resets = BTreeMap::new();
    for Observation { kind: what, .. } in seen {
        match what {
            ObservationKind::Generation(_) => {}
            ObservationKind::Accepted { run_id, generation } => {
                accepted.insert(run_id.clone(), *generation);
            }
            ObservationKind::Resetting { operation, generation } => {
                resets.insert(text(operation, "/operation_id").to_owned(), (operation.clone(), *generation));
            }
        }
    }
    assert!(accepted.len() >= 10 && resets.len() >= 3, "{} messages, {} resets", accepted.len(), resets.len());
    // Each completed reset raised the generation by one, and no two closed the same.
    let mut closed = Vec::new();
    for (operation, generation) in resets.values() {
        let outcome = backend.outcome(operation).await;
        assert_eq!(outcome["new_generation"].as_u64(), Some(generation + 1), "{outcome}");
        closed.push(*generation);
    }
    closed.sort_unstable();
    assert_eq!(closed, (1..=closed.len() as u64).collect::<Vec<_>>(), "each generation was closed once");
    // A request after an answer sees no older generation (I6).
    let value = |seen: &Observation| match &seen.kind {
        ObservationKind::Generation(generation)
        | ObservationKind::Accepted { generation, .. }
        | ObservationKind::Resetting { generation, .. } => *generation,
    };
    for earlier in seen {
        for later in seen.iter().filter(|later| later.asked > earlier.answered) {
            assert!(value(later) >= value(earlier), "{later:?} after {earlier:?}");
        }
    }
    // A message runs alone in the generation it named (I7), and sees no other generation.
    let mut spans = Vec::new();
    for (run_id, generation) in &accepted {
        let run = backend.wait_for_end(run_id).await;
        assert_eq!(run["generation"].as_u64(), Some(*generation), "{run}");
        let moment = |name: &str| text(&run, name).parse::<deskgate_protocol::Timestamp>().expect("RFC 3339").0;
        spans.push((moment("/created_at"), moment("/finished_at"), run_id.clone()));
    }
    spans.sort();
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two runs of one conversation at once: {pair:?}");
    }
    closed.len() as u64 + 1
}
