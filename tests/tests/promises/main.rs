//! The product's promises, with the real programs: one file for each group of promises.

mod administration;
mod applications;
mod approvals;
mod artifacts;
mod backups;
mod bad_networks;
mod buckets;
mod busy_agent;
mod callbacks;
mod command_line;
mod commands;
mod content;
mod conversations;
mod crash;
mod database;
mod demo;
mod descriptors;
mod desktop;
mod destination_guard;
mod doctor;
mod draining;
mod editor;
mod execution;
mod fetching;
mod file_clients;
mod files;
mod files_long;
mod folders;
mod frames;
mod full_disk;
mod gateway_identity;
mod health;
mod host_keys;
mod hostile_backups;
mod keyring;
mod log;
mod mcp;
mod mcp_clients;
mod models;
mod notifications;
mod observability;
mod openai_clients;
mod owner_files;
mod packages;
mod pairing;
mod pending_approvals;
mod printing;
mod project;
mod proxies;
mod questions;
mod queueing;
mod quickstart;
mod receipts;
mod reconciliation;
mod reconnection;
mod refusals;
mod refused_bodies;
mod replicas;
mod retention;
mod sdk;
mod search;
mod secrets;
mod service_life;
mod service_manager;
mod settlements;
mod shutdown;
mod sign_ins;
mod sleep;
mod stops;
mod streams;
mod tls;
mod tool_call_crashes;
mod typed_results;
mod vendors;
mod versions;
mod webhooks;
mod wire_formats;

use deskgate_tests::{Backend, TestDevice};
use serde_json::Value;

/// Every accepted run has reached one final state with its result, and was executed once, plus once for each recorded
/// restart (I1, I2, I3).
async fn everything_accepted_ended_once(backend: &Backend, device: &TestDevice) {
    device.wait_until_connected().await;
    for run_id in backend.accepted() {
        let run = backend.wait_for_end(&run_id).await;
        assert_eq!(run["state"], "succeeded", "{run}");
        let events = device.events(&run_id).await;
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        assert_eq!(count("run.succeeded"), 1, "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some("run.succeeded"), "{events:?}");
        assert_eq!(count("run.started"), 1, "{events:?}");
        assert!(count("run.restarted") <= 1, "{events:?}");
        let executions = device.executions(&run_id);
        assert!(
            (1..=1 + count("run.restarted")).contains(&executions),
            "executed {executions} times, and only this is recorded: {events:?}"
        );
        assert_eq!(backend.run(&run_id).await, run, "a run that has ended does not change");
    }
}

/// A text member of a JSON document.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {pointer} in {value}"))
}
