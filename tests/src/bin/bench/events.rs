//! From a device's frame to the sockets of those who follow the run, and what an open stream holds.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use deskgate_protocol::EndpointId;
use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceEvent, DeviceFrame, GatewayFrame, ManagementResult};
use deskgate_protocol::management::{CreateApplication, ManagementRequest, PublishEndpoint, SetAccess};
use deskgate_tests::raw::{Persona, RawLine};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Bench;
use crate::http::{Connection, Submission, Target};
use crate::process::memory_mib;
use crate::report::{Report, percentile};
use crate::site::{self, Server};

const ONE: [&str; 2] = ["event_latency_ms_p50", "event_latency_ms_p99"];
const THOUSAND: [&str; 2] = ["event_latency_ms_p50_1000", "event_latency_ms_p99_1000"];
const MEMORY: &str = "kib_per_stream";
/// Streams of the second measurement.
const STREAMS: usize = 1000;
/// Events that are timed with one stream, and with many.
const EVENTS: usize = 1000;
const EVENTS_TO_MANY: usize = 100;
/// Events before that, until statements are prepared.
const WARM_UP: u64 = 20;
/// The pause between two events: what is measured is one event, not a queue of them.
const PAUSE: Duration = Duration::from_millis(5);

/// Measures what is asked for.
pub(crate) async fn measure(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    if !bench.wants(&[&ONE[..], &THOUSAND[..], &[MEMORY]].concat()) {
        return Ok(());
    }
    println!("Events");
    let folder = site::folder()?;
    let server = Server::start(&bench.programs, folder.path()).await?;
    let mut device = ByHand::pair(&server).await?;
    let target = device.publish(&server).await?;
    let run_id = device.start_run(&target).await?;
    let mut audience = Audience::default();

    audience.grow_to(1, &target, run_id).await?;
    device.events(&mut audience, WARM_UP as usize).await?;
    let one = device.events(&mut audience, bench.count(EVENTS)).await?;
    note(report, ONE, one, 1);
    let before = memory_mib(server.pid(), "VmRSS")?;
    audience.grow_to(STREAMS, &target, run_id).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let with = memory_mib(server.pid(), "VmRSS")?;
    let many = device.events(&mut audience, bench.count(EVENTS_TO_MANY)).await?;
    note(report, THOUSAND, many, STREAMS);
    let after = memory_mib(server.pid(), "VmRSS")?;
    report.part("streams_mib", json!({ "before": before, "open": with, "after_events": after }));
    report.value(MEMORY, (after - before) * 1024.0 / (STREAMS - 1) as f64);
    Ok(())
}

fn note(report: &mut Report, [p50, p99]: [&'static str; 2], mut times: Vec<f64>, streams: usize) {
    times.sort_by(f64::total_cmp);
    report.part(&format!("events_to_{streams}"), json!({ "received": times.len(), "largest_ms": times.last() }));
    report.value(p50, percentile(&times, 0.5));
    report.value(p99, percentile(&times, 0.99));
}

/// A device whose frames are sent when this program likes.
struct ByHand {
    line: RawLine,
    next_request: u64,
    run: Option<RunId>,
    seq: u64,
}

impl ByHand {
    async fn pair(server: &Server) -> anyhow::Result<Self> {
        let persona = Persona::new(7);
        server.add_device(&persona.identity("bench")).await?;
        let token = server.control_token()?;
        let Ok(mut line) = RawLine::at(&server.control_socket(), &token).await else { bail!("the door stays shut") };
        let Some(GatewayFrame::Challenge(challenge)) = line.next().await else { bail!("no challenge") };
        line.send(&persona.hello(&challenge, Vec::new())).await;
        let Some(GatewayFrame::Welcome(_)) = line.next().await else { bail!("not welcome") };
        Ok(Self { line, next_request: 1, run: None, seq: 0 })
    }

    /// The next frame that says something.
    async fn hear(&mut self) -> anyhow::Result<GatewayFrame> {
        self.line.next_answering_pings().await.context("the line ended")
    }

    async fn ask(&mut self, request: ManagementRequest) -> anyhow::Result<Value> {
        self.next_request += 1;
        self.line.send(&DeviceFrame::Request { request_id: self.next_request, request }).await;
        match self.hear().await? {
            GatewayFrame::Reply { result: ManagementResult::Ok(value), .. } => Ok(value),
            other => bail!("no reply: {other:?}"),
        }
    }

    async fn publish(&mut self, server: &Server) -> anyhow::Result<Target> {
        let created = self.ask(CreateApplication { name: "bench".to_owned() }.into()).await?;
        let app_id = created["application"]["app_id"].as_str().context("no application")?.parse()?;
        let endpoint_id = EndpointId::new();
        let endpoint = PublishEndpoint {
            app_id,
            endpoint_id,
            version: 1,
            name: "orders".to_owned(),
            description: String::new(),
            definition_sha256: Sha256Digest::of(b"bench"),
        };
        self.ask(endpoint.into()).await?;
        self.ask(SetAccess { enabled: true }.into()).await?;
        let key = created["key"]["text"].as_str().context("no key")?.to_owned();
        Ok(Target { address: server.http()?, key, endpoint_id: endpoint_id.to_string() })
    }

    async fn start_run(&mut self, target: &Target) -> anyhow::Result<RunId> {
        let mut connection = Connection::open(target.address).await?;
        let status = connection.exchange(Submission::new(target).with_key(0, 0)).await?;
        anyhow::ensure!(status == 202, "a submission was answered {status}");
        self.line.send(&DeviceFrame::Ready { slots: 1 }).await;
        let GatewayFrame::Offer(offer) = self.hear().await? else { bail!("no offer") };
        self.line.send(&DeviceFrame::Accept { run_id: offer.run_id, attempt: offer.attempt }).await;
        let GatewayFrame::Start { .. } = self.hear().await? else { bail!("no start") };
        self.run = Some(offer.run_id);
        Ok(offer.run_id)
    }

    /// Sends events one by one, and returns the milliseconds until each follower had each of them.
    async fn events(&mut self, audience: &mut Audience, count: usize) -> anyhow::Result<Vec<f64>> {
        let run_id = self.run.context("no run")?;
        let mut times = Vec::with_capacity(count * audience.size);
        for _ in 0..count {
            tokio::time::sleep(PAUSE).await;
            self.seq += 1;
            let event =
                DeviceEvent::MessageCompleted { message_id: "msg".to_owned(), text: "Order 4711 is done.".to_owned() };
            let began = Instant::now();
            self.line.send(&DeviceFrame::Event { run_id, attempt: 1, seq: self.seq, event }).await;
            for _ in 0..audience.size {
                let at = audience.heard.recv().await.context("the streams ended")?;
                times.push(at.saturating_duration_since(began).as_secs_f64() * 1e3);
            }
            let GatewayFrame::Ack { .. } = self.hear().await? else { bail!("no acknowledgement") };
        }
        Ok(times)
    }
}

/// Everybody who follows the run.
struct Audience {
    size: usize,
    hears: mpsc::UnboundedSender<Instant>,
    heard: mpsc::UnboundedReceiver<Instant>,
    followers: JoinSet<()>,
}

impl Default for Audience {
    fn default() -> Self {
        let (hears, heard) = mpsc::unbounded_channel();
        Self { size: 0, hears, heard, followers: JoinSet::new() }
    }
}

impl Audience {
    /// Opens streams behind everything that has happened, until there are so many.
    async fn grow_to(&mut self, size: usize, target: &Target, run_id: RunId) -> anyhow::Result<()> {
        let mut last = None;
        while self.size < size {
            let stream = open(target, run_id, &mut last).await?;
            self.followers.spawn(follow(stream, self.hears.clone()));
            self.size += 1;
        }
        Ok(())
    }
}

/// Opens a stream, and reads its head and the record. The first one finds out which event is the last.
async fn open(target: &Target, run_id: RunId, last: &mut Option<String>) -> anyhow::Result<TcpStream> {
    let after = match last {
        Some(last) => last.clone(),
        None => {
            let mut connection = Connection::open(target.address).await?;
            connection.exchange(crate::http::read(target, &run_id.to_string(), 0).as_bytes()).await?;
            let run: Value = serde_json::from_slice(connection.body())?;
            last.insert(run["last_sequence"].to_string()).clone()
        }
    };
    let mut stream = TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let head = format!(
        "GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         X-Gateway-Subject: customer-10042\r\nLast-Event-ID: {after}\r\n\r\n",
        target.address, target.key
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.windows(12).any(|bytes| bytes == b"run.snapshot") || !answer.ends_with(b"\n\n\r\n") {
        anyhow::ensure!(stream.read_buf(&mut answer).await? > 0, "{}", String::from_utf8_lossy(&answer));
    }
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    Ok(stream)
}

/// Says when each event was there, until the stream ends.
async fn follow(mut stream: TcpStream, hears: mpsc::UnboundedSender<Instant>) {
    let mut buffer = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let at = Instant::now();
        // An event is far smaller than what is read at once, and comes alone.
        if buffer[..length].windows(4).any(|bytes| bytes == b"id: ") && hears.send(at).is_err() {
            return;
        }
    }
}
