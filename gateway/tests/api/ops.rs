//! The operations listener: ready or not, and the metrics under their names.

use std::time::Duration;

use deskgate_gateway::ops::health_check::send_request;
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate};
use deskgate_protocol::run::{Outcome, RunResult};

use crate::support::gateway::TestGateway;
use crate::support::stream::EventStreamReader;
use crate::support::until;

async fn get(gateway: &TestGateway, path: &str) -> Result<String, String> {
    send_request(gateway.gateway.addresses().ops.expect("a listener"), path).await
}

async fn metrics(gateway: &TestGateway) -> String {
    get(gateway, "/metrics").await.expect("they are always there")
}

/// The value of one sample.
fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in\n{metrics}")).parse().expect("a number")
}

#[tokio::test]
async fn a_gateway_that_can_accept_is_ready_whether_a_device_is_there_or_not() {
    let gateway = TestGateway::new().await;
    assert_eq!(get(&gateway, "/livez").await.as_deref(), Ok("ok"));
    assert_eq!(get(&gateway, "/readyz").await.as_deref(), Ok("ready"));
    let verbose = "[+] admission\n[+] database\n[+] disk\n[+] migrations\n[+] queue\nready";
    assert_eq!(get(&gateway, "/readyz?verbose").await.as_deref(), Ok(verbose));
    assert!(get(&gateway, "/api/v1/agent-endpoints").await.is_err(), "the public API is elsewhere");
    assert_eq!(gateway.call("GET", "/readyz").send().await.status, 404, "and this is not on the public address");
    gateway.stop().await;
}

#[tokio::test]
async fn a_schema_behind_the_program_is_not_ready_and_the_reason_is_told() {
    let gateway = TestGateway::new().await;
    gateway.database.execute("DELETE FROM deskgate_migrations").await;
    gateway.database.execute("INSERT INTO deskgate_migrations (version, name, sha256) VALUES (0, 'none', '')").await;
    let said = get(&gateway, "/readyz?verbose").await.expect_err("not ready");
    assert!(said.contains("[-] migrations: the database is at migration 0") && said.ends_with("not ready"), "{said}");
    assert_eq!(get(&gateway, "/livez").await.as_deref(), Ok("ok"));
    gateway.stop().await;
}

/// What the database answers once its disk is full.
const NO_SPACE_SQL: &str = "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
    CREATE TRIGGER no_space BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION no_space()";

#[tokio::test]
async fn a_full_disk_of_the_database_is_not_ready_and_a_problem_until_there_is_room_again() {
    let gateway = TestGateway::new().await;
    gateway.database.execute(NO_SPACE_SQL).await;
    let refused = gateway.submission("one").send().await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let said = get(&gateway, "/readyz?verbose").await.expect_err("not ready");
    assert!(said.contains("[-] disk: the database's disk is full: could not extend file"), "{said}");
    assert_eq!(value(&metrics(&gateway).await, "deskgate_health_problem{code=\"disk_full\",severity=\"fail\"}"), 1.0);
    gateway.stop().await;
}

#[tokio::test]
async fn every_number_that_an_alert_reads_is_a_metric() {
    let gateway = TestGateway::new().await;
    let metrics = metrics(&gateway).await;
    let rules = include_str!("../../../deploy/monitoring/alerts.yml");
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let words = expressions.flat_map(|expr| expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let names: std::collections::BTreeSet<_> = words.filter(|word| word.starts_with("deskgate_")).collect();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        // This one needs a certificate, and a test of TLS looks at it.
        let is_there = metrics.contains(&format!("# TYPE {name} "));
        assert!(is_there || name == "deskgate_certificate_expiry_timestamp_seconds", "no {name} in\n{metrics}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_metrics_tell_what_waits_what_ended_and_what_was_answered() {
    let gateway = TestGateway::new().await;
    let before = metrics(&gateway).await;
    assert_eq!(value(&before, "deskgate_queue_oldest_seconds"), 0.0);
    assert!(value(&before, "deskgate_migration_version") >= 1.0);
    assert!(before.contains("deskgate_build_info{version=\""), "{before}");
    let file = gateway.ask("POST", "/api/v1/files?name=a.txt").bytes("Anton").send().await;
    assert_eq!(file.status, 201);
    let run_id = gateway.submit("one").await;
    for number in 2..5 {
        gateway.submit(&format!("waits-{number}")).await;
    }
    let route = "route=\"/api/v1/agent-endpoints/{endpoint_id}/runs\"";
    let submitted = metrics(&gateway).await;
    assert_eq!(
        value(&submitted, &format!("deskgate_http_requests_total{{{route},method=\"POST\",status=\"202\"}}")),
        4.0
    );
    assert_eq!(value(&submitted, &format!("deskgate_http_request_duration_seconds_count{{{route}}}")), 4.0);
    assert_eq!(value(&submitted, "deskgate_queue_depth{state=\"waiting_for_device\"}"), 4.0);
    assert_eq!(value(&submitted, "deskgate_devices_connected"), 0.0);
    for (metric, state, expected) in
        [("objects", "stored", 1.0), ("object_bytes", "stored", 5.0), ("objects", "released", 0.0)]
    {
        assert_eq!(value(&submitted, &format!("deskgate_{metric}{{state=\"{state}\"}}")), expected, "{metric} {state}");
    }

    let (session, _) = gateway.device.connect().await;
    let offers = gateway.device.claim(session, 1).await;
    assert_eq!(offers[0].run_id, run_id, "the oldest");
    let result = RunResult::completed("done");
    let outcome = Outcome::Succeeded { result, usage: Default::default() };
    for what in [
        AttemptUpdate::Start,
        AttemptUpdate::End { seq: 1, outcome: outcome.clone(), is_checked: false, receipt: None },
        AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None },
    ] {
        let record = AttemptRecord { run_id, attempt: 1, what };
        gateway.store().record(session, &[record], Duration::from_secs(60)).await.expect("recorded");
    }
    let ended = metrics(&gateway).await;
    for (sample, expected) in [
        ("deskgate_runs_total{outcome=\"succeeded\"}", 1.0),
        ("deskgate_run_wait_seconds_count", 1.0),
        ("deskgate_run_duration_seconds_count", 1.0),
        ("deskgate_queue_depth{state=\"queued\"}", 3.0),
        ("deskgate_queue_depth{state=\"waiting_for_device\"}", 0.0),
        ("deskgate_queue_depth{state=\"running\"}", 0.0),
        ("deskgate_devices_connected", 1.0),
        ("deskgate_device_reconnects_total", 0.0),
        ("deskgate_runs_awaiting_approval", 0.0),
        ("deskgate_sse_streams", 0.0),
    ] {
        assert_eq!(value(&ended, sample), expected, "{sample}");
    }
    assert!(value(&ended, "deskgate_queue_oldest_seconds") > 0.0);
    assert!(
        value(&ended, &format!("deskgate_device_last_seen_seconds{{device=\"{}\"}}", gateway.device.device_id)) < 60.0
    );
    assert!(value(&ended, "deskgate_db_pool_connections{state=\"idle\"}") >= 1.0);
    for secret in [&gateway.device.app.key, "anna", &gateway.device.app.id.to_string()] {
        assert!(!ended.contains(secret), "nothing is counted by caller");
    }

    gateway.database.execute("UPDATE runs SET queue_expires_at = now() WHERE state = 'queued'").await;
    let expired = "deskgate_runs_total{outcome=\"expired\"} 3\n";
    until("the others to have expired", async || metrics(&gateway).await.contains(expired)).await;
    gateway.stop().await;
}

#[tokio::test]
async fn addresses_that_nobody_serves_are_counted_as_one_route() {
    let gateway = TestGateway::new().await;
    for path in ["/a", "/b", "/c"] {
        assert_eq!(gateway.call("GET", path).send().await.status, 404);
    }
    let metrics = metrics(&gateway).await;
    assert_eq!(value(&metrics, "deskgate_http_requests_total{route=\"none\",method=\"GET\",status=\"404\"}"), 3.0);
    gateway.stop().await;
}

#[tokio::test]
async fn an_open_stream_is_counted_for_as_long_as_somebody_reads_it() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let mut stream = EventStreamReader::open(gateway.ask("GET", &format!("/api/v1/runs/{run_id}/events"))).await;
    stream.expect("run.snapshot").await;
    assert_eq!(value(&metrics(&gateway).await, "deskgate_sse_streams"), 1.0);
    drop(stream);
    until("the stream to be gone", async || metrics(&gateway).await.contains("deskgate_sse_streams 0\n")).await;
    gateway.stop().await;
}
