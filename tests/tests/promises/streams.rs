//! Following a run while connections break and gateways die.

use std::collections::BTreeMap;

use deskgate_tests::gateway::Address;
use deskgate_tests::stream::{RunStream, StreamEvent};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, Proxy, TestDevice, third_party, until};
use rustix::process::Signal;
use serde_json::json;

/// A script that reads a file `count` times, with a pause before each: three events per read.
fn looks(folder: &Folder, count: usize, pause_ms: u64) -> String {
    let look = [json!({ "delay_ms": pause_ms }), json!({ "tool": "Read", "arguments": { "file_path": "orders.txt" } })];
    let steps: Vec<_> = (0..count).flat_map(|_| look.clone()).chain([json!({ "text": "done" })]).collect();
    folder.script("looks", json!(steps))
}

#[tokio::test]
async fn a_stream_goes_on_at_the_other_replica_after_its_gateway_was_killed() {
    let postgres = Postgres::shared().await;
    let home = GatewayProcess::start(&postgres, &[]).await;
    let mut doomed = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&home).await;
    let folder = Folder::new();
    let model = looks(&folder, 20, 50);
    let backend = device.publish(&home, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("Look often.").await;

    let mut shown = Vec::new();
    let mut stream = RunStream::open(&backend.through(doomed.http()), &run_id, 0).await.expect("it is up");
    while shown.len() < 10 {
        shown.extend(stream.next().await.expect("the run goes on").id);
    }
    doomed.kill_9();
    while let Some(sent) = stream.next().await {
        shown.extend(sent.id);
    }
    assert!(!backend.run(&run_id).await["phase"].is_null());
    let last = *shown.last().expect("ten and more");
    let mut stream = RunStream::open(&backend, &run_id, last).await.expect("it is up");
    let mut names = Vec::new();
    while let Some(StreamEvent { id, event, .. }) = stream.next().await {
        shown.extend(id);
        names.push(event);
    }
    assert_eq!(names.last().map(String::as_str), Some("run.succeeded"));
    assert_eq!(shown, (1..=shown.len() as u64).collect::<Vec<_>>());
    let stored = device.events(&run_id).await;
    assert_eq!(shown.len(), stored.len());
}

#[tokio::test]
async fn what_the_assistant_writes_is_shown_while_it_writes_through_the_other_replica_too() {
    let postgres = Postgres::shared().await;
    let (home, other) = (GatewayProcess::start(&postgres, &[]).await, GatewayProcess::start(&postgres, &[]).await);
    let device = TestDevice::paired_with(&home).await;
    let folder = Folder::new();
    let words = ["Drei ", "grüne ", "Lampen ", "für ", "Frau Meier."];
    let steps: Vec<_> = words.iter().flat_map(|word| [json!({ "text": word }), json!({ "delay_ms": 300 })]).collect();
    let model = folder.script("slowly", json!(steps));
    let backend = device.publish(&home, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let through_other = backend.through(other.http());
    let streams = [&backend, &through_other].map(|backend| RunStream::open(backend, &run_id, 0));
    for stream in futures_util::future::join_all(streams).await {
        let (mut stream, mut written, mut pieces) = (stream.expect("it is up"), String::new(), 0);
        while let Some(sent) = stream.next().await {
            let text = sent.data["data"]["text"].as_str().unwrap_or_default();
            match sent.event.as_str() {
                "message.delta" => {
                    assert_eq!(sent.id, None);
                    assert_eq!(sent.data["data"]["offset"], written.chars().count());
                    written.push_str(text);
                    pieces += 1;
                }
                "message.completed" => assert_eq!(written, text),
                _ => {}
            }
        }
        assert_eq!(written, words.concat());
        assert!(pieces >= 3, "{pieces}");
    }
}

/// The resources of a process: resident kibibytes, and hundredths of a second of CPU time.
fn used(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says so");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("its name is in brackets").split_whitespace().collect();
    let time = |field: usize| fields[field].parse::<u64>().expect("a number");
    (resident.trim().trim_end_matches(" kB").parse().expect("a number"), time(11) + time(12))
}

#[tokio::test]
async fn streams_that_wait_hold_little_memory_and_use_no_processor() {
    const STREAM_COUNT: u64 = 400;
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &["limits.streams_per_application=2000"]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.stop(Signal::TERM).await;
    gateway.wait_for_device_state(&device_id, "offline").await;
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(backend.submit("Wait.").await);
    }
    let pid = gateway.process().id();
    // One-time set-up happens before the measurement.
    let mut open = vec![waiting(&backend, &runs[0]).await];
    let (before, _) = used(pid);
    for place in 1..STREAM_COUNT {
        open.push(waiting(&backend, &runs[place as usize % runs.len()]).await);
    }
    let (with, began) = used(pid);
    let kib = (with - before) / STREAM_COUNT;
    println!("{kib} KiB for each of {STREAM_COUNT} streams");
    assert!(kib <= 40, "{kib} KiB for each stream");
    // The only wait for a time here: the test measures that nothing happens in it.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let hundredths = used(pid).1 - began;
    println!("{hundredths} hundredths of a second of processor time in 5 seconds");
    assert!(hundredths < 100, "{hundredths} hundredths of a second in 5 seconds");

    // They are all alive: the device comes back, and each stream shows its run's end.
    device.start().await;
    for mut stream in open {
        let mut last = String::new();
        while let Some(sent) = stream.next().await {
            last = sent.event;
        }
        assert_eq!(last, "run.succeeded");
    }
}

/// A stream that has shown all events so far.
async fn waiting(backend: &Backend, run_id: &str) -> RunStream {
    let mut stream = RunStream::open(backend, run_id, 0).await.expect("it is up");
    for expected in ["run.snapshot", "run.accepted"] {
        assert_eq!(stream.next().await.expect("it is open").event, expected);
    }
    stream
}

#[tokio::test]
async fn the_event_source_from_npm_goes_on_after_a_killed_connection_and_a_killed_replica() {
    let Some(place) = third_party::install_dir().await else { return };
    let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/follow.mjs");
    let place = place.display().to_string();
    survives(|| ("node".to_owned(), vec![program.display().to_string()], vec![place.clone()])).await;
}

#[tokio::test]
async fn the_event_client_from_pypi_goes_on_after_a_killed_connection_and_a_killed_replica() {
    let Some(place) = third_party::install_dir().await else { return };
    let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/follow.py");
    let python = place.join("python/bin/python").display().to_string();
    survives(|| (python.clone(), vec![program.display().to_string()], Vec::new())).await;
}

#[tokio::test]
async fn the_event_source_from_npm_ends_by_itself_when_the_run_has_ended() {
    let Some(place) = third_party::install_dir().await else { return };
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    backend.wait_for_end(&run_id).await;

    let mut node = std::process::Command::new("node");
    node.arg(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/until_over.mjs"));
    node.arg(format!("http://{}/api/v1/runs/{run_id}/events", gateway.http().get()));
    node.args([backend.key(), "customer-1"]).arg(place);
    let log = folder.path().with_file_name("client.log");
    let client = deskgate_tests::process::Process::start(node, &log);
    let said = client.log.clone();
    assert!(client.ended().await.success(), "{}", said.all());
    let seen: serde_json::Value =
        serde_json::from_str(&said.all()).unwrap_or_else(|error| panic!("{error}: {}", said.all()));
    let events = device.events(&run_id).await.len();
    // One with the events, and one that says that there are no more.
    assert_eq!(seen, json!({ "connections": [200, 204], "events": events }));
}

/// Runs a client against a run, resets its connection, then kills the gateway it uses; it must see every event once and
/// in order, and the final one last.
async fn survives(client: impl Fn() -> (String, Vec<String>, Vec<String>)) {
    let postgres = Postgres::shared().await;
    let home = GatewayProcess::start(&postgres, &[]).await;
    let mut doomed = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&home).await;
    let folder = Folder::new();
    let model = looks(&folder, 30, 300);
    let backend = device.publish(&home, "shop", &folder, &["--model", &model]).await;
    // A load balancer in front of the gateways, like a proxy of the public address.
    let web = Proxy::to(Address::new(doomed.http().get())).await;
    let run_id = backend.submit("Look often.").await;

    let url = format!("http://{}/api/v1/runs/{run_id}/events", web.address());
    let (program, before, after) = client();
    let mut command = std::process::Command::new(program);
    command.args(before).args([&url, backend.key(), "customer-1"]).args(after);
    let log = folder.path().with_file_name("client.log");
    let client = deskgate_tests::process::Process::start(command, &log);
    shows(&client, 10).await;
    web.cut();
    web.heal();
    shows(&client, 30).await;
    web.lead_to(home.http().get());
    doomed.kill_9();
    until("the client to see the end", async || {
        if client.log.own().contains("run.succeeded") { Ok(()) } else { Err(client.log.tail(3)) }
    })
    .await;

    let lines = received(&client);
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["sequence"].as_u64()).collect();
    assert_eq!(numbers, (1..=device.events(&run_id).await.len() as u64).collect::<Vec<_>>());
    let begun = lines.iter().filter(|line| line["event"] == "run.snapshot").count();
    assert!(begun >= 3, "the client came again after both faults: {begun}");
    let mut names = BTreeMap::new();
    lines.iter().for_each(|line| *names.entry(line["event"].to_string()).or_insert(0) += 1);
    println!("{names:?}");
}

/// Waits until a client has seen this many stored events.
async fn shows(client: &deskgate_tests::process::Process, count: usize) {
    until(&format!("the client to see {count} events"), async || {
        let seen = received(client).iter().filter(|line| line["sequence"].is_u64()).count();
        if seen >= count { Ok(()) } else { Err(client.log.tail(3)) }
    })
    .await;
}

fn received(client: &deskgate_tests::process::Process) -> Vec<serde_json::Value> {
    client.log.own().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
