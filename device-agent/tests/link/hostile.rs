//! Servers that do what no gateway does.

use deskgate::link::{
    ConnectStage, Connector, DisconnectReason, Link, LinkError, LinkStatus, MAX_REFUSED_CHANNELS, Session, Ssh,
};
use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_protocol::identity::PublicKey;
use ed25519_dalek::SigningKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::support::gateway::FakeGateway;
use crate::support::raw_ssh::{
    CHANNEL_DATA, CHANNEL_OPEN, CHANNEL_OPEN_CONFIRMATION, CHANNEL_OPEN_FAILURE, CHANNEL_WINDOW_ADJUST, GLOBAL_REQUEST,
    Packet, RawSsh, Received,
};
use crate::support::{connect, credentials, device_key, pinned, soon, ssh};

/// A server that carries a good gateway's session, and says beside it what it is told to.
struct HostileServer {
    ssh: Ssh,
    gateway: FakeGateway,
    folder: tempfile::TempDir,
    /// What it says, each batch at once.
    says: mpsc::Sender<Vec<Packet>>,
    /// What the device answers beside the session.
    hears: mpsc::UnboundedReceiver<Received>,
    _tasks: JoinSet<()>,
}

impl HostileServer {
    /// `first` is said before the channel of the session is confirmed.
    async fn start(first: Vec<Packet>) -> Self {
        let host_key = SigningKey::from_bytes(&[3; 32]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (says, orders) = mpsc::channel(1);
        let (heard, hears) = mpsc::unbounded_channel();
        let gateway = FakeGateway::new();
        let ssh = ssh(port, pinned(&PublicKey::of(&host_key).fingerprint()));
        let served = gateway.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (socket, _) = listener.accept().await.expect("a device");
            let ssh = RawSsh::server(socket, &host_key).await.expect("it signs in");
            serve(ssh, served, first, orders, heard).await;
        });
        Self { ssh, gateway, folder: tempfile::tempdir().expect("a folder"), says, hears, _tasks: tasks }
    }

    fn credentials(&self) -> deskgate::link::Credentials {
        credentials(&device_key(self.folder.path(), "device"), &self.gateway.token)
    }

    async fn connect(&self) -> Result<Session, LinkError> {
        connect(self.ssh.clone(), &self.credentials()).await
    }

    async fn hear(&mut self) -> Received {
        soon("an answer", self.hears.recv()).await.expect("the connection holds")
    }
}

async fn serve(
    ssh: RawSsh,
    gateway: FakeGateway,
    first: Vec<Packet>,
    mut orders: mpsc::Receiver<Vec<Packet>>,
    heard: mpsc::UnboundedSender<Received>,
) {
    let RawSsh { mut reader, mut writer, .. } = ssh;
    let (arriving, mut packets) = mpsc::channel(64);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(packet) = reader.receive().await {
            if arriving.send(packet).await.is_err() {
                break;
            }
        }
    });
    let (mut near, far) = tokio::io::duplex(64 * 1024);
    let mut far = Some(far);
    let (mut channel, mut buffer) = (0, vec![0; 16 * 1024]);
    let mut first = Some(first);
    loop {
        let packets = tokio::select! {
            packet = packets.recv() => {
                let Some(mut packet) = packet else { return };
                match packet.kind() {
                    CHANNEL_OPEN => {
                        packet.string();
                        channel = packet.u32();
                        let (gateway, far) = (gateway.clone(), far.take().expect("one channel"));
                        tasks.spawn(async move { gateway.echo(far).await });
                        let mut packets = first.take().unwrap_or_default();
                        packets.push(Packet::new(CHANNEL_OPEN_CONFIRMATION).u32(channel).u32(0).u32(1 << 30).u32(32_768));
                        packets
                    }
                    CHANNEL_DATA => {
                        packet.skip(4);
                        if near.write_all(&packet.string()).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    CHANNEL_WINDOW_ADJUST => continue,
                    _ => {
                        let _ = heard.send(packet);
                        continue;
                    }
                }
            }
            Ok(bytes) = near.read(&mut buffer) => {
                vec![Packet::new(CHANNEL_DATA).u32(channel).string(&buffer[..bytes])]
            }
            Some(order) = orders.recv() => order,
        };
        if writer.send(packets).await.is_err() {
            return;
        }
    }
}

/// Every kind that there is, and two that there are not, each with the reason for which it is refused.
fn every_kind() -> Vec<(Packet, u32)> {
    let nothing = Packet::default;
    let address = || nothing().string("127.0.0.1").u32(22).string("127.0.0.1").u32(4711);
    let kinds = [
        ("session", nothing(), 1),
        ("x11", nothing().string("127.0.0.1").u32(6010), 1),
        ("auth-agent@openssh.com", nothing(), 1),
        ("forwarded-tcpip", address(), 1),
        ("direct-tcpip", address(), 1),
        ("forwarded-streamlocal@openssh.com", nothing().string("/tmp/x").string(""), 1),
        ("direct-streamlocal@openssh.com", nothing().string("/tmp/x").string("").u32(0), 1),
        ("tun@openssh.com", nothing().u32(1).u32(0), 3),
        ("nobody-knows@example.com", nothing().string("anything"), 3),
    ];
    let kinds = kinds.into_iter().zip(100..);
    kinds.map(|((kind, more, reason), number)| (Packet::channel(kind, number, more), reason)).collect()
}

async fn answers(session: &mut Session) {
    session.sender().send(DeviceFrame::Pong).await.expect("queued");
    assert_eq!(soon("an answer", session.next()).await, Some(GatewayFrame::Ping));
}

#[tokio::test]
async fn every_channel_that_a_server_opens_is_refused_and_the_session_goes_on() {
    let mut server = HostileServer::start(Vec::new()).await;
    let mut session = server.connect().await.expect("welcomed");
    for (number, (packet, reason)) in (100..).zip(every_kind()) {
        server.says.send(vec![packet]).await.expect("said");
        let mut answer = server.hear().await;
        assert_eq!((answer.kind(), answer.u32(), answer.u32()), (CHANNEL_OPEN_FAILURE, number, reason));
    }
    answers(&mut session).await;
}

#[tokio::test]
async fn a_server_that_keeps_opening_channels_is_hung_up_on_and_shown_as_a_problem() {
    let mut server = HostileServer::start(Vec::new()).await;
    let mut link = Link::new(Connector::Ssh(server.ssh.clone()), server.credentials());
    let mut status = link.handle().status();
    let mut session = soon("welcomed", link.connect(|| async { Vec::new() })).await;
    let kinds: Vec<_> = every_kind().into_iter().map(|(packet, _)| packet).collect();
    let count = MAX_REFUSED_CHANNELS as usize;
    server.says.send(kinds.iter().cycle().take(count).cloned().collect()).await.expect("said");
    for _ in 0..count {
        assert_eq!(server.hear().await.kind(), CHANNEL_OPEN_FAILURE);
    }
    answers(&mut session).await;
    server.says.send(kinds[..1].to_vec()).await.expect("said");
    assert_eq!(soon("hung up", session.next()).await, None);
    assert_eq!(session.lost(), Some(&DisconnectReason::Hostile));
    drop(session);
    let shown = status.wait_for(|status| {
        matches!(status, LinkStatus::Disconnected { failed_at: Some(ConnectStage::Conduct), why, .. } if why.contains("16 channels"))
    });
    tokio::select! {
        _ = link.connect(|| async { Vec::new() }) => panic!("there is no second connection"),
        shown = soon("the problem is shown", shown) => drop(shown.expect("the link lives")),
    }
}

#[tokio::test]
async fn a_server_that_opens_channels_instead_of_the_one_asked_for_is_named_as_such() {
    let channels = (0..40).map(|number| Packet::channel("nobody-knows@example.com", number, Packet::default()));
    let server = HostileServer::start(channels.collect()).await;
    let error = server.connect().await.expect_err("hung up");
    assert!(matches!(error, LinkError::Hostile { .. }), "{error}");
}

/// The memory of this process, in KiB.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn global_requests_are_answered_in_order_and_nothing_is_kept_of_them() {
    use crate::support::raw_ssh::{REQUEST_FAILURE, REQUEST_SUCCESS};
    let mut server = HostileServer::start(Vec::new()).await;
    let mut session = server.connect().await.expect("welcomed");
    let request = |name: &str, reply: u8| Packet::new(GLOBAL_REQUEST).string(name).byte(reply);
    let key = Packet::default().string("ssh-ed25519").string([9; 32]).0;
    let batch = vec![
        request("keepalive@openssh.com", 1),
        request("tcpip-forward", 1).string("0.0.0.0").u32(22),
        request("hostkeys-00@openssh.com", 0).string(&key).string(vec![0; 16 * 1024]),
        request("streamlocal-forward@openssh.com", 1).string("/tmp/x"),
        request("nobody-knows@example.com", 1).string(vec![0; 16 * 1024]),
    ];
    let round = [REQUEST_SUCCESS, REQUEST_FAILURE, REQUEST_FAILURE, REQUEST_FAILURE];
    let mut before = 0;
    for number in 0..3_000 {
        server.says.send(batch.clone()).await.expect("said");
        for expected in round {
            assert_eq!(server.hear().await.kind(), expected);
        }
        if number == 300 {
            before = memory_kib();
        }
    }
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB more after 90 MiB of requests");
    answers(&mut session).await;
}

#[tokio::test]
async fn a_device_that_opens_other_channels_at_the_gateway_is_refused_each_and_gets_its_own() {
    let mut server = crate::support::server::SshServer::start().await;
    let device = SigningKey::from_bytes(&[4; 32]);
    server.paired.admit(PublicKey::of(&device));
    let socket = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.expect("it listens");
    let mut ssh = soon("a sign-in", RawSsh::client(socket, &device)).await.expect("paired");
    for (number, (packet, reason)) in (100..).zip(every_kind()) {
        ssh.writer.send([packet]).await.expect("sent");
        loop {
            let mut answer = soon("an answer", ssh.reader.receive()).await.expect("the line holds");
            let answer = (answer.kind(), answer.u32(), answer.u32());
            // russh refuses the kinds that its server never asks about twice.
            if answer != (CHANNEL_OPEN_FAILURE, number - 1, 1) {
                assert_eq!(answer, (CHANNEL_OPEN_FAILURE, number, reason));
                break;
            }
        }
    }
    let own = Packet::default().string(crate::support::CONTROL_SOCKET_PATH).string("").u32(0);
    ssh.writer.send([Packet::channel("direct-streamlocal@openssh.com", 1, own)]).await.expect("sent");
    let mut answer = soon("an answer", ssh.reader.receive()).await.expect("the line holds");
    if answer.kind() == CHANNEL_OPEN_FAILURE {
        assert_eq!(answer.u32(), 108, "the second refusal of the last one");
        answer = soon("an answer", ssh.reader.receive()).await.expect("the line holds");
    }
    assert_eq!(answer.kind(), CHANNEL_OPEN_CONFIRMATION);
    assert_eq!(server.arrival().await.public_key, PublicKey::of(&device));
}
