//! Bodies that are refused before they are read, sent by the clients and through the proxy that people have: nobody's next
//! request is lost.

use std::path::Path;
use std::process::Command;

use deskgate_tests::process::command;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, third_party};
use serde_json::{Value, json};

use crate::proxies::ReverseProxy;

/// A gateway with a published service.
struct Site {
    gateway: GatewayProcess,
    backend: Backend,
    _beside: (Postgres, TestDevice, Folder),
}

async fn site() -> Site {
    let postgres = Postgres::shared().await;
    let limits = ["limits.requests_per_second=100000", "limits.burst=100000", "server.trusted_proxies=127.0.0.1"];
    let failures = "limits.failed_authentications_per_minute=100000";
    let gateway = GatewayProcess::start(&postgres, &[&limits[..], &[failures]].concat()).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    Site { gateway, backend, _beside: (postgres, device, folder) }
}

/// What a client counted.
fn counted(mut client: Command) -> Value {
    let output = client.output().expect("the client is there");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn client(program: &Path, name: &str) -> Command {
    let mut client = command(program, &std::env::temp_dir());
    client.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name));
    client
}

#[tokio::test]
async fn a_keep_alive_agent_of_node_loses_no_request_behind_a_refused_body() {
    let Site { gateway, backend, _beside } = site().await;
    let mut node = client(Path::new("node"), "refused.mjs");
    node.arg(format!("http://{}/api/v1", gateway.http().get())).args([backend.key(), "customer-1", "320"]);
    let seen = counted(node);
    assert_eq!(seen["good"], json!({ "200": 320 }), "{seen}");
    assert_eq!(seen["refused"], json!({ "401": 107, "400": 107, "415": 106 }), "{seen}");
    assert_eq!(seen["sockets"], 1, "the connection is kept: {seen}");
}

#[tokio::test]
async fn requests_of_python_read_every_refusal_of_a_large_body_and_lose_no_good_request() {
    let Site { gateway, backend, _beside } = site().await;
    let mut python = client(&third_party::python_tool("python"), "refused.py");
    python.arg(format!("http://{}/api/v1", gateway.http().get()));
    python.args([backend.key(), "customer-1", backend.endpoint_id(), "480"]);
    all_is_well(&counted(python));
}

#[tokio::test]
async fn behind_nginx_with_our_snippet_refused_bodies_of_some_lose_no_request_of_others() {
    let Site { gateway, backend, _beside } = site().await;
    let proxy = ReverseProxy::nginx(&gateway).await;
    let mut python = client(&third_party::python_tool("python"), "refused.py");
    python.arg(format!("https://localhost:{}/api/v1", proxy.port()));
    python.args([backend.key(), "customer-1", backend.endpoint_id(), "480"]).arg(proxy.path("cert.pem"));
    all_is_well(&counted(python));
}

/// 480 good requests were answered so, and 480 others refused in the gateway's own words.
fn all_is_well(seen: &Value) {
    assert_eq!(seen["good"], json!({ "200": 240, "202": 240 }), "{seen}");
    let refused = seen["refused"].as_object().expect("an object");
    assert!(refused.keys().all(|status| ["400", "401", "404", "413"].contains(&status.as_str())), "{seen}");
    assert!(refused.contains_key("413"), "{seen}");
    assert_eq!(refused.values().filter_map(Value::as_u64).sum::<u64>(), 480, "{seen}");
}
