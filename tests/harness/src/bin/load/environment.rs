//! The system under load: three gateways on one PostgreSQL, devices with a service and a callback each, and a receiver.
//! One more device sleeps until a level wakes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use deskgate_harness::site::UNLIMITED_SETTINGS;
use deskgate_tests::gateway::RELATIVE_SOCKET_SETTING;
use deskgate_tests::netns::DnsServer;
use deskgate_tests::process::Log;
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use futures_util::StreamExt;
use rustix::process::Signal;
use serde_json::{Value, json};

/// The number of gateways.
pub(crate) const REPLICA_COUNT: usize = 3;
/// The receiver's name, and an address that is public everywhere but on an island.
const RECEIVER_HOST: &str = "hooks.example.com";
const RECEIVER_ADDRESS: &str = "93.184.216.34";
/// Devices that are set up at the same time.
const MAX_CONCURRENT_SETUPS: usize = 4;

/// A device with its service.
pub(crate) struct LoadDesktop {
    pub(crate) device: TestDevice,
    pub(crate) backend: Backend,
    pub(crate) folder: Folder,
}

/// When the end of each run was delivered, by run.
type RunEndTimes = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// The system under load: gateways, devices and receiver.
pub(crate) struct LoadEnvironment {
    pub(crate) postgres: Postgres,
    pub(crate) replicas: Vec<GatewayProcess>,
    pub(crate) desktops: Vec<LoadDesktop>,
    /// The sleeping device, whose agent does not run.
    pub(crate) sleeper: LoadDesktop,
    told: RunEndTimes,
    _receiver: Receiver,
    _names: DnsServer,
}

impl LoadEnvironment {
    /// Starts it with this many devices awake.
    pub(crate) async fn open(devices: usize) -> Self {
        let began = Instant::now();
        let names = DnsServer::start().await;
        names.set_addresses(RECEIVER_HOST, &[RECEIVER_ADDRESS]);
        let told = RunEndTimes::default();
        let noted = told.clone();
        let receiver = Receiver::start(&[RECEIVER_HOST], move |got| note(noted.clone(), got)).await;
        let postgres = Postgres::start_exclusive().await;
        let roots = format!("callbacks.ca_file={}", receiver.ca_file().display());
        let settings = [&UNLIMITED_SETTINGS[..], &[RELATIVE_SOCKET_SETTING, &roots]].concat();
        let mut replicas = vec![GatewayProcess::start(&postgres, &settings).await];
        while replicas.len() < REPLICA_COUNT {
            replicas.push(replicas[0].replica().await);
        }
        replicas[0].admin(&["allowlist", "add", RECEIVER_HOST]).await.ok();
        let opened = (0..=devices).map(|number| LoadDesktop::open(number, &replicas, number < devices));
        let mut desktops: Vec<_> = futures_util::stream::iter(opened).buffered(MAX_CONCURRENT_SETUPS).collect().await;
        let mut sleeper = desktops.pop().expect("one more than devices");
        sleeper.device.stop(Signal::TERM).await;
        println!("load: {devices} devices stand after {:.0} s", began.elapsed().as_secs_f64());
        Self { postgres, replicas, desktops, sleeper, told, _receiver: receiver, _names: names }
    }

    /// A caller of a service, at the replica whose turn it is.
    pub(crate) fn caller(&self, backend: &Backend, turn: usize) -> Backend {
        backend.through(self.replicas[turn % REPLICA_COUNT].http())
    }

    /// The measured processes: the gateways, one awake device, and the sleeper while it runs.
    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        let gateways = self.replicas.iter().enumerate();
        let mut all: Vec<_> = gateways.map(|(n, replica)| (format!("gateway {n}"), replica.process().id())).collect();
        all.extend(self.desktops.first().map(|desktop| ("a device".to_owned(), desktop.device.process().id())));
        all
    }

    /// When the end of each run was delivered.
    pub(crate) fn told(&self) -> HashMap<String, Vec<Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of unfinished runs in the table.
    pub(crate) async fn unfinished(&self) -> u64 {
        let rows = self.postgres.rows("SELECT count(*) AS open FROM runs WHERE finished_at IS NULL").await;
        rows[0]["open"].as_u64().expect("a number")
    }

    /// Waits until no work is left, and returns how long that took; `None` if it took longer than `limit`.
    pub(crate) async fn settled(&self, limit: Duration) -> Option<Duration> {
        let began = Instant::now();
        while self.unfinished().await > 0 {
            if began.elapsed() > limit {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Some(began.elapsed())
    }

    /// How often the devices began to execute each run, by their logs.
    pub(crate) fn executions(&self) -> BTreeMap<String, usize> {
        let mut executions = BTreeMap::new();
        for desktop in self.desktops.iter().chain([&self.sleeper]) {
            let log = Log::of(&desktop.device.folder().join("agent.log")).all();
            for line in log.lines().filter(|line| line.contains("execution began")) {
                let run = line.split("run_id=").nth(1).and_then(|rest| rest.split_whitespace().next());
                *executions.entry(run.expect("it names the run").to_owned()).or_default() += 1;
            }
        }
        executions
    }
}

impl LoadDesktop {
    /// Pairs a device with one of the replicas and publishes its service. An awake one gets a callback for the ends of
    /// its runs.
    async fn open(number: usize, replicas: &[GatewayProcess], is_awake: bool) -> Self {
        let gateway = &replicas[number % REPLICA_COUNT];
        let device = TestDevice::for_remote().await;
        let invitation = device.pair(&replicas[0], &[]).await;
        let token = replicas[0].control_token_file();
        device.connect_straight(gateway.ssh().get(), &invitation, &token).await.ok();
        device.wait_until_connected().await;
        let (folder, app) = (Folder::new(), format!("app-{number}"));
        let model = folder.script("answer", json!([{ "text": "All three are open." }]));
        let backend = device.publish(gateway, &app, &folder, &["--model", &model, "--concurrency", "8"]).await;
        if is_awake {
            let url = format!("https://{RECEIVER_HOST}/{app}");
            device.cli(&["callback", "set", &app, "--url", &url, "--event", "run.succeeded"]).await.ok();
        }
        Self { device, backend, folder }
    }
}

async fn note(told: RunEndTimes, got: ReceivedRequest) -> axum::response::Response {
    let body: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let run_id = body["data"]["run"]["run_id"].as_str().unwrap_or_default().to_owned();
    told.lock().unwrap_or_else(PoisonError::into_inner).entry(run_id).or_default().push(Instant::now());
    StatusCode::NO_CONTENT.into_response()
}
