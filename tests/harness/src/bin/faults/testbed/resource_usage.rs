//! The resources of each program: memory, files, threads, and a gateway's tasks; and the content of a gateway's queues.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::Testbed;
use deskgate_tests::process;

/// How long a gateway may take to report its tasks.
const TASKS_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// The resources of a process at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UsageSample {
    pub(crate) at: u64,
    /// Its name, such as `gateway-1`.
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) resident_kib: u64,
    pub(crate) files: u64,
    pub(crate) threads: u64,
    /// For a gateway that reports them in time.
    pub(crate) tasks: Option<u64>,
}

/// Samples all running programs repeatedly, and searches the process list for secrets.
pub(crate) async fn watch(testbed: &Testbed, levels: &std::sync::Mutex<Vec<UsageSample>>) {
    let http = deskgate_tests::backend::client().timeout(TASKS_TIMEOUT).build().expect("a client without TLS");
    loop {
        let (mut pids, mut doors) = (Vec::new(), Vec::new());
        // A desktop that a fault holds is sampled the next time.
        for (number, replica) in testbed.replicas.iter().enumerate() {
            if let Ok(replica) = replica.try_read() {
                pids.push((format!("gateway-{number}"), replica.process().id()));
                doors.push(replica.ops());
            }
        }
        for (number, desktop) in testbed.desktops.iter().enumerate() {
            if let Ok(device) = desktop.device.try_read() {
                pids.push((format!("agent-{number}"), device.process().id()));
            }
        }
        let at = testbed.clock.now();
        let tasks = join_all(doors.iter().map(|door| tasks(&http, door.get()))).await;
        let tasks = tasks.into_iter().chain(std::iter::repeat(None));
        let now = pids.into_iter().zip(tasks).filter_map(|((name, pid), tasks)| level(at, name, pid, tasks));
        levels.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(now);
        testbed.secrets.look_at_processes();
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// A sample of one process; `None` if it has just ended.
fn level(at: u64, name: String, pid: u32, tasks: Option<u64>) -> Option<UsageSample> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |field: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
    };
    let files = u64::try_from(process::files(pid)).ok()?;
    Some(UsageSample { at, name, pid, resident_kib: number("VmRSS:")?, files, threads: number("Threads:")?, tasks })
}

/// A gateway's number of tasks, if it reports it.
async fn tasks(http: &reqwest::Client, ops: SocketAddr) -> Option<u64> {
    let text = http.get(format!("http://{ops}/metrics")).send().await.ok()?.text().await.ok()?;
    text.lines().find_map(|line| line.strip_prefix("deskgate_tasks ")?.parse().ok())
}

/// Gauges that are 0 when no work is left.
const QUEUE_GAUGES: [&str; 4] = [
    "deskgate_queue_depth",
    "deskgate_callback_pending",
    "deskgate_sse_streams",
    "deskgate_db_pool_connections{state=\"awaited\"}",
];
/// How often they are read before that fails.
const MAX_QUEUE_POLLS: u32 = 50;

/// The gauges of each gateway that do not reach 0.
pub(crate) async fn queued(testbed: &Testbed) -> Vec<String> {
    let mut left = Vec::new();
    for _ in 0..MAX_QUEUE_POLLS {
        left.clear();
        for (number, replica) in testbed.replicas.iter().enumerate() {
            let url = format!("http://{}/metrics", replica.read().await.ops().get());
            let text =
                match deskgate_tests::backend::client().build().expect("a client without TLS").get(url).send().await {
                    Ok(answer) => answer.text().await.unwrap_or_default(),
                    Err(error) => format!("{} {error}", QUEUE_GAUGES[0]),
                };
            let is_left = |line: &&str| QUEUE_GAUGES.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0");
            left.extend(text.lines().filter(is_left).map(|line| format!("gateway-{number}: {line}")));
            if !text.contains(QUEUE_GAUGES[0]) {
                left.push(format!("gateway-{number} shows no {}", QUEUE_GAUGES[0]));
            }
        }
        if left.is_empty() {
            break;
        }
        sleep(Duration::from_millis(200)).await;
    }
    left
}
