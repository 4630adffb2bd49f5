//! L6: very many callers at the same moment for the same single thing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use deskgate_tests::Backend;
use deskgate_tests::backend::{ApiResponse, client, fresh_key};
use deskgate_tests::signing::{bytes, signature};
use deskgate_tests::wait::until;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::environment::{LoadDesktop, LoadEnvironment};
use crate::report::LoadReport;

/// Desktop commands that are started at the same time; each is a process.
const MAX_CONCURRENT_COMMANDS: usize = 32;

/// All races, each with this many racers.
pub(crate) async fn race(site: &mut LoadEnvironment, racers: usize, report: &mut LoadReport) {
    one_key(site, racers, report).await;
    one_key_for_other_bodies(site, racers, report).await;
    one_event(site, racers, report).await;
    one_reset(site, racers, report).await;
    one_stop(site, racers, report).await;
    one_decision(site, report).await;
    one_sign_in(site, racers, report).await;
}

/// Sends all requests at the same moment.
async fn at_once(requests: Vec<(Backend, RequestBuilder)>) -> Vec<ApiResponse> {
    let (barrier, mut racing) = (Arc::new(Barrier::new(requests.len())), JoinSet::new());
    for (caller, request) in requests {
        let barrier = barrier.clone();
        racing.spawn(async move {
            barrier.wait().await;
            caller.send(request).await
        });
    }
    racing.join_all().await.into_iter().map(|answer| answer.expect("the gateway answers")).collect()
}

/// How many answers had each status.
fn statuses(answers: &[ApiResponse]) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    for answer in answers {
        *statuses.entry(answer.status.as_u16()).or_default() += 1;
    }
    statuses
}

/// How many answers ask to retry later, with a time.
fn count_waits(answers: &[ApiResponse]) -> usize {
    let waits = |answer: &&ApiResponse| {
        [429, 503].contains(&answer.status.as_u16()) && answer.headers.contains_key("retry-after")
    };
    answers.iter().filter(waits).count()
}

/// How often each value of a member occurs.
fn values(answers: &[ApiResponse], member: &str) -> BTreeMap<String, usize> {
    let mut values = BTreeMap::new();
    for value in answers.iter().filter_map(|answer| answer.body[member].as_str()) {
        *values.entry(value.to_owned()).or_default() += 1;
    }
    values
}

fn submission(caller: Backend, key: &str, text: &str) -> (Backend, RequestBuilder) {
    let request = caller.request(Method::POST, &format!("/agent-endpoints/{}/runs", caller.endpoint_id()));
    let request = request.header("Idempotency-Key", key).json(&json!({ "input": { "text": text } }));
    (caller, request)
}

async fn one_key(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let (desktop, key) = (&site.desktops[0], fresh_key());
    let answers =
        at_once((0..racers).map(|n| submission(site.caller(&desktop.backend, n), &key, "once")).collect()).await;
    let (statuses, runs) = (statuses(&answers), values(&answers, "run_id"));
    let is_right = statuses.keys().all(|status| *status == 202) && runs.len() == 1;
    report.must(is_right, || format!("one key: {statuses:?}, {} runs", runs.len()));
    for run_id in runs.keys() {
        desktop.backend.wait_for_end(run_id).await;
        let executions = desktop.device.executions(run_id);
        report.must(executions == 1, || format!("one key: executed {executions} times"));
    }
    report.figure("racers for one key: runs", runs.len() as f64);
}

async fn one_key_for_other_bodies(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let (desktop, key) = (&site.desktops[0], fresh_key());
    let one = |n: usize| submission(site.caller(&desktop.backend, n), &key, &format!("body {n}"));
    let answers = at_once((0..racers).map(one).collect()).await;
    let (statuses, runs) = (statuses(&answers), values(&answers, "run_id"));
    let expected = BTreeMap::from([(202, 1), (409, racers - 1)]);
    report.must(statuses == expected && runs.len() == 1, || format!("one key for other bodies: {statuses:?} {runs:?}"));
    report.figure("racers with other bodies: runs", runs.len() as f64);
}

async fn one_event(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let desktop = &site.desktops[0];
    let create = ["hook", "create", "race", "--app", "app-0", "--service", desktop.backend.endpoint_id()];
    let mapping = ["--scheme", "standard", "--text", "{{ $.text }}", "--subject", "customer-1", "--rate", "1000"];
    let hook: Value = desktop.device.cli(&[&create[..], &mapping].concat()).await.ok();
    let hook_id = hook["webhook"]["hook_id"].as_str().expect("made");
    let secret = bytes(hook["secret"].as_str().expect("it is shown once"));
    let at = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs().to_string();
    let (id, body) = (fresh_key(), json!({ "type": "order.placed", "text": "once" }).to_string());
    let signed = signature(&secret, &id, &at, body.as_bytes());
    let event = |n: usize| {
        let caller = site.caller(&desktop.backend, n);
        let address = site.replicas[n % site.replicas.len()].http().get();
        let request = client().build().expect("a client").post(format!("http://{address}/api/v1/webhooks/{hook_id}"));
        let request = request
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", &at);
        (caller, request.header("webhook-signature", &signed).body(body.clone()))
    };
    let answers = at_once((0..racers).map(event).collect()).await;
    let (statuses, runs) = (statuses(&answers), values(&answers, "run_id"));
    // A webhook accepts a thousand events a second, and asks to retry the others later.
    let is_right = statuses.keys().all(|status| (200..300).contains(status) || *status == 429) && runs.len() == 1;
    report.must(is_right, || format!("one event: {statuses:?} {runs:?}"));
    report.figure("racers with one event: runs", runs.len() as f64);
}

async fn one_reset(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let desktop = &site.desktops[0];
    let conversation = desktop.backend.conversation("race").await;
    let reset = |n: usize| {
        let caller = site.caller(&desktop.backend, n);
        let request = caller.request(Method::POST, &format!("/conversations/{conversation}/reset"));
        let request = request.header("Idempotency-Key", fresh_key()).json(&json!({ "expected_generation": 1 }));
        (caller, request)
    };
    let answers = at_once((0..racers).map(reset).collect()).await;
    let (statuses, operations) = (statuses(&answers), values(&answers, "operation_id"));
    // While it is in progress, the same request gets the same operation.
    let right = statuses.get(&202).unwrap_or(&0) + statuses.get(&409).unwrap_or(&0) + count_waits(&answers);
    report.must(right == racers && operations.len() == 1, || format!("one reset: {statuses:?} {operations:?}"));
    for operation in operations.keys() {
        desktop.backend.outcome(&json!({ "operation_id": operation })).await;
    }
    let now = desktop.backend.get(&format!("/conversations/{conversation}")).await["generation"].clone();
    report.must(now == 2, || format!("one reset: the generation is {now}"));
    report.figure("racers for one reset: generation", now.as_f64().unwrap_or(f64::NAN));
}

async fn one_stop(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let desktop = &site.desktops[0];
    let model = desktop.folder.slow_answer(600_000, "never");
    let endpoint = desktop.device.add_service("app-0", "slow", &desktop.folder, &["--model", &model]).await;
    let backend = Backend::new(site.replicas[0].http(), desktop.backend.key(), &endpoint);
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    let stop = |n: usize| {
        let caller = site.caller(&backend, n);
        let request = caller.request(Method::POST, &format!("/runs/{run_id}/stop"));
        (caller, request.header("Idempotency-Key", fresh_key()).json(&json!({})))
    };
    let answers = at_once((0..racers).map(stop).collect()).await;
    let statuses = statuses(&answers);
    let right = answers.iter().filter(|answer| answer.status.is_success()).count() + count_waits(&answers);
    report.must(right == racers, || format!("one stop: {statuses:?} {:?}", values(&answers, "code")));
    report.figure("racers for one stop: asked to come again", count_waits(&answers) as f64);
    let mut stopped = 0;
    let mut outcomes = BTreeMap::<String, usize>::new();
    for (operation, _) in values(&answers, "operation_id") {
        let outcome = backend.outcome(&json!({ "operation_id": operation })).await;
        let code = outcome["code"].as_str().unwrap_or_default().to_owned();
        stopped += usize::from(code == "stopped");
        *outcomes.entry(code).or_default() += 1;
    }
    let run = backend.wait_for_end(&run_id).await;
    report.must(run["state"] == "cancelled" && stopped <= 1, || format!("one stop: {outcomes:?} {run}"));
    report.figure("racers for one stop: operations that stopped it", stopped as f64);
}

/// Approval and denial at the same moment, by desktop commands.
async fn one_decision(site: &LoadEnvironment, report: &mut LoadReport) {
    let desktop = &site.desktops[0];
    let write = json!({ "tool": "Write", "arguments": { "file_path": "decided.txt", "content": "yes\n" } });
    let model = desktop.folder.script("asks", json!([write, { "text": "done" }]));
    let arguments = ["--model", model.as_str(), "--tools", "Read,Write"];
    let endpoint = desktop.device.add_service("app-0", "asks", &desktop.folder, &arguments).await;
    let backend = Backend::new(site.replicas[0].http(), desktop.backend.key(), &endpoint);
    let run_id = backend.submit("Ask first.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    let listed = until("the question", async || {
        let listed = desktop.device.cli(&["approval", "list"]).await.ok();
        let waits = listed["approvals"].as_array().is_some_and(|all| all.len() == 1);
        if waits { Ok(listed) } else { Err(listed.to_string()) }
    })
    .await;
    let approval = listed["approvals"][0]["approval_id"].as_str().expect("it has one").to_owned();
    let decide = |n: usize| {
        let words = ["approvals", if n.is_multiple_of(2) { "approve" } else { "deny" }, approval.as_str()];
        async move { desktop.device.cli(&words).await.exit }
    };
    let exits = futures_util::future::join_all((0..MAX_CONCURRENT_COMMANDS).map(decide)).await;
    let taken = exits.iter().filter(|exit| **exit == 0).count();
    report.must(taken == 1, || format!("one decision: {taken} of {MAX_CONCURRENT_COMMANDS} were taken: {exits:?}"));
    backend.wait_for_end(&run_id).await;
    report.figure("commands for one decision: taken", taken as f64);
}

async fn one_sign_in(site: &LoadEnvironment, racers: usize, report: &mut LoadReport) {
    let LoadDesktop { device, .. } = &site.desktops[0];
    let link = device.page_link().await;
    let (page, code) = link.split_once("?code=").expect("the link holds a code");
    let origin = page.trim_end_matches("/sign-in");
    let http = client().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let enter = |_| {
        let form = http.post(page).header("origin", origin);
        let form = form.header("content-type", "application/x-www-form-urlencoded").body(format!("code={code}"));
        (site.desktops[0].backend.clone(), form)
    };
    let answers = at_once((0..racers).map(enter).collect()).await;
    let entered = answers.iter().filter(|answer| answer.headers.contains_key("set-cookie")).count();
    report.must(entered == 1, || format!("one sign-in: {entered} entered, {:?}", statuses(&answers)));
    report.figure("racers with one link: signed in", entered as f64);
}
