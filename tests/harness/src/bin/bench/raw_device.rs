//! A raw device, and streams of its runs.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceEvent, DeviceFrame, GatewayFrame, ManagementResult};
use deskgate_protocol::management::{AskedBy, CreateApplication, ManagementRequest, PublishEndpoint, SetAccess};
use deskgate_protocol::{EndpointId, RunId};
use deskgate_tests::raw::{RawConnection, RawIdentity};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::environment::BenchGateway;
use crate::http::HttpConnection;
use crate::requests::{LoadTarget, RequestTemplate};

/// A device whose frames this program sends itself.
pub(crate) struct RawDevice {
    line: RawConnection,
    next_request: u64,
    next_submission: u64,
}

impl RawDevice {
    /// Pairs it with a server, and begins its session.
    pub(crate) async fn pair(server: &BenchGateway) -> anyhow::Result<Self> {
        Self::pair_as(server, 7).await
    }

    /// The same for the device with this number.
    pub(crate) async fn pair_as(server: &BenchGateway, number: u16) -> anyhow::Result<Self> {
        let persona = RawIdentity::numbered(number);
        server.add_device(&persona.identity("bench")).await?;
        let token = server.control_token()?;
        let Ok(mut line) = RawConnection::at(&server.control_socket(), &token).await else {
            bail!("the door stays shut")
        };
        let Some(GatewayFrame::Challenge(challenge)) = line.next().await else { bail!("no challenge") };
        line.send(&persona.hello(&challenge, Vec::new())).await;
        let Some(GatewayFrame::Welcome(_)) = line.next().await else { bail!("not welcome") };
        Ok(Self { line, next_request: 1, next_submission: 0 })
    }

    /// The next frame that is not a ping.
    async fn hear(&mut self) -> anyhow::Result<GatewayFrame> {
        self.line.next_answering_pings().await.context("the line ended")
    }

    async fn ask(&mut self, request: ManagementRequest) -> anyhow::Result<Value> {
        self.next_request += 1;
        self.line.send(&DeviceFrame::Request { request_id: self.next_request, by: AskedBy::Agent, request }).await;
        match self.hear().await? {
            GatewayFrame::Reply { result: ManagementResult::Ok(value), .. } => Ok(value),
            other => bail!("no reply: {other:?}"),
        }
    }

    /// Says that it has room for so many runs.
    pub(crate) async fn declare_slots(&mut self, slots: u32) {
        self.line.send(&DeviceFrame::ready(slots)).await;
    }

    /// Publishes a service, and enables access.
    pub(crate) async fn publish(&mut self, server: &BenchGateway) -> anyhow::Result<LoadTarget> {
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
            data: Default::default(),
        };
        self.ask(endpoint.into()).await?;
        self.ask(SetAccess { enabled: true }.into()).await?;
        let key = created["key"]["text"].as_str().context("no key")?.to_owned();
        Ok(LoadTarget { address: server.http()?, key, endpoint_id: endpoint_id.to_string() })
    }

    /// Submits a run, takes it and starts it.
    pub(crate) async fn start_run(
        &mut self,
        target: &LoadTarget,
        connection: &mut HttpConnection,
    ) -> anyhow::Result<RunId> {
        self.next_submission += 1;
        let status = connection.exchange(RequestTemplate::submissions(target).next(0, self.next_submission)).await?;
        anyhow::ensure!(status == 202, "a submission was answered {status}");
        self.line.send(&DeviceFrame::ready(1)).await;
        let GatewayFrame::Offer(offer) = self.hear().await? else { bail!("no offer") };
        self.line.send(&DeviceFrame::Accept { run_id: offer.run_id, attempt: offer.attempt }).await;
        let GatewayFrame::Start { .. } = self.hear().await? else { bail!("no start") };
        Ok(offer.run_id)
    }

    /// Reports the event `seq` of a run without waiting.
    pub(crate) async fn report(&mut self, run_id: RunId, seq: u64) {
        let event = DeviceEvent::MessageCompleted {
            message_id: "msg".to_owned(),
            text: "Order 4711 is done.".to_owned(),
            reasoning_summary: None,
        };
        self.line.send(&DeviceFrame::Event { run_id, attempt: 1, seq, event }).await;
    }

    /// Only answers pings for a while.
    pub(crate) async fn answer_pings(&mut self, time: Duration) -> anyhow::Result<()> {
        match tokio::time::timeout(time, self.hear()).await {
            Ok(heard) => bail!("nothing was to be said: {heard:?}"),
            Err(_) => Ok(()),
        }
    }

    /// Waits until a report is acknowledged.
    pub(crate) async fn acknowledged(&mut self) -> anyhow::Result<()> {
        let GatewayFrame::Ack { .. } = self.hear().await? else { bail!("no acknowledgement") };
        Ok(())
    }
}

/// Opens a stream after the event `after`, and reads its head and the record. `from` is an address of this machine: a
/// gateway limits the connections from one address.
pub(crate) async fn open(target: &LoadTarget, run_id: RunId, after: u64, from: Ipv4Addr) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(target.address).await?;
    stream.set_nodelay(true)?;
    let head = format!(
        "GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         X-Gateway-Subject: customer-10042\r\nAccept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n",
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

/// Sends the arrival time of each event, until the stream ends.
pub(crate) async fn follow(mut stream: TcpStream, hears: mpsc::UnboundedSender<Instant>) {
    let mut buffer = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let at = Instant::now();
        // An event is far smaller than one read, and arrives alone.
        if buffer[..length].windows(4).any(|bytes| bytes == b"id: ") && hears.send(at).is_err() {
            return;
        }
    }
}
