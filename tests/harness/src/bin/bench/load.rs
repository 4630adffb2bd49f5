//! The load: many connections that send requests at full speed or at a fixed rate.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::{HttpConnection, TlsTrust};
use crate::requests::{LoadTarget, RequestKind, RequestTemplate};
use deskgate_harness::schedule::Schedule;
use deskgate_harness::statistics::percentile;
use deskgate_harness::usage::cpu_seconds;

/// The plan of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadPlan {
    /// The target of the requests.
    pub target: LoadTarget,
    /// The number of connections.
    pub connections: usize,
    /// The warm-up time, which does not count.
    pub warm_up: Duration,
    /// The time that counts.
    pub time: Duration,
    /// Requests per second; if absent, the load runs at full speed.
    pub rate: Option<f64>,
    /// The number of requests after which it ends early.
    pub at_most: Option<u64>,
    /// The kind of the requests.
    pub asks: RequestKind,
    /// The transport.
    pub over: LoadTransport,
}

impl LoadPlan {
    /// Submits this many runs at full speed.
    pub(crate) fn fill(target: LoadTarget, runs: usize) -> Self {
        let (warm_up, time, at_most) = (Duration::ZERO, Duration::from_secs(600), Some(runs as u64));
        Self {
            target,
            connections: 64,
            warm_up,
            time,
            rate: None,
            at_most,
            asks: RequestKind::Submit,
            over: LoadTransport::Tcp,
        }
    }
}

/// The transport of the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LoadTransport {
    /// TCP, with one connection for all requests of a client.
    Tcp,
    /// TLS to the server with this name and a certificate of this file's authority.
    Tls { name: String, ca_file: PathBuf },
    /// The same, with a new connection for each request.
    TlsEach { name: String, ca_file: PathBuf },
}

impl LoadTransport {
    fn trust(&self) -> anyhow::Result<Option<TlsTrust>> {
        match self {
            Self::Tcp => Ok(None),
            Self::Tls { name, ca_file } | Self::TlsEach { name, ca_file } => TlsTrust::new(name, ca_file).map(Some),
        }
    }
}

/// The result of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadResult {
    /// Successful answers in the time that counts.
    pub accepted: u64,
    /// Other answers, at any time.
    pub refused: u64,
    /// One of the other answers.
    pub refusal: Option<String>,
    /// The time that counted, in seconds.
    pub seconds: f64,
    /// The median in milliseconds, from the scheduled time to the complete answer.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The maximum.
    pub max_ms: f64,
    /// Seconds of CPU time that the load itself used.
    pub cpu_seconds: f64,
}

impl LoadResult {
    /// Accepted requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.accepted as f64 / self.seconds
    }
}

/// Sends a plan's load from a separate process. A refusal is an error, because the numbers are then meaningless.
pub(crate) async fn send(plan: &LoadPlan) -> anyhow::Result<LoadResult> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .arg("load")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()?;
    // The plan has a key, so it is not passed as an argument.
    let mut input = child.stdin.take().context("the load has a standard input")?;
    input.write_all(&serde_json::to_vec(plan)?).await?;
    drop(input);
    let patience = plan.warm_up + plan.time + Duration::from_secs(60);
    let output = timeout(patience, child.wait_with_output()).await.context("the load does not end")??;
    anyhow::ensure!(output.status.success(), "the load failed");
    let outcome: LoadResult = serde_json::from_slice(&output.stdout)?;
    if let Some(refusal) = &outcome.refusal {
        anyhow::bail!("{} requests were not accepted, such as: {refusal}", outcome.refused);
    }
    Ok(outcome)
}

/// The load's process.
pub(crate) async fn child() -> anyhow::Result<()> {
    let plan: LoadPlan = serde_json::from_reader(std::io::stdin())?;
    let trust = plan.over.trust()?;
    let mut connections = Vec::new();
    for number in 0..plan.connections {
        let connection = HttpConnection::over(plan.target.address, trust.as_ref()).await?;
        connections.push((connection, RequestTemplate::new(&plan.asks, &plan.target, number)?));
    }
    let begin = Instant::now();
    let tally = Rc::new(Tally {
        begin,
        plan,
        trust,
        sent: Cell::new(0),
        latencies: RefCell::default(),
        refused: RefCell::default(),
    });
    let local = LocalSet::new();
    for (connection, requests) in connections {
        local.spawn_local(ask(connection, requests, tally.clone()));
    }
    local.await;
    println!("{}", serde_json::to_string(&tally.outcome())?);
    Ok(())
}

struct Tally {
    begin: Instant,
    plan: LoadPlan,
    trust: Option<TlsTrust>,
    sent: Cell<u64>,
    /// The milliseconds that count.
    latencies: RefCell<Vec<f64>>,
    refused: RefCell<Vec<String>>,
}

impl Tally {
    /// The number of the next submission and its time; `None` when the time is over.
    fn next(&self) -> Option<(u64, Instant)> {
        let number = self.sent.get();
        let moment = match self.plan.rate {
            Some(rate) => self.begin + Schedule::per_second(rate).due(number),
            None => Instant::now(),
        };
        let is_over = moment >= self.begin + self.plan.warm_up + self.plan.time
            || self.plan.at_most.is_some_and(|most| number >= most);
        self.sent.set(number + 1);
        (!is_over).then_some((number, moment))
    }

    fn count(&self, scheduled: Instant) {
        let (now, counts_from) = (Instant::now(), self.begin + self.plan.warm_up);
        // At full speed an answer counts by its arrival, at a fixed rate by its scheduled time.
        let moment = if self.plan.rate.is_some() { scheduled } else { now };
        if moment >= counts_from && moment < counts_from + self.plan.time {
            self.latencies.borrow_mut().push((now - scheduled).as_secs_f64() * 1e3);
        }
    }

    fn outcome(&self) -> LoadResult {
        let mut latencies = self.latencies.borrow_mut();
        latencies.sort_by(f64::total_cmp);
        let elapsed = self.begin.elapsed().saturating_sub(self.plan.warm_up);
        let refused = self.refused.borrow();
        LoadResult {
            accepted: latencies.len() as u64,
            refused: refused.len() as u64,
            refusal: refused.first().cloned(),
            seconds: elapsed.min(self.plan.time).as_secs_f64(),
            p50_ms: percentile(&latencies, 0.5),
            p99_ms: percentile(&latencies, 0.99),
            max_ms: percentile(&latencies, 1.0),
            cpu_seconds: cpu_seconds(std::process::id()),
        }
    }
}

async fn ask(mut connection: HttpConnection, mut requests: RequestTemplate, tally: Rc<Tally>) {
    // Another load on the same gateway must use other keys.
    let session = uuid::Uuid::now_v7().as_u64_pair().0;
    let wanted = requests.wanted();
    let anew = matches!(tally.plan.over, LoadTransport::TlsEach { .. });
    while let Some((number, moment)) = tally.next() {
        if tally.plan.rate.is_some() {
            sleep_until(moment).await;
        }
        let answered = async {
            if anew {
                connection = HttpConnection::over(tally.plan.target.address, tally.trust.as_ref()).await?;
            }
            connection.exchange(requests.next(session, number)).await
        };
        match answered.await {
            Ok(status) if status == wanted => tally.count(moment),
            Ok(status) => {
                let body = String::from_utf8_lossy(connection.body()).into_owned();
                tally.refused.borrow_mut().push(format!("{status} {body}"));
            }
            Err(error) => {
                tally.refused.borrow_mut().push(error.to_string());
                return;
            }
        }
    }
}
