//! The tunnel: bytes between a device and a server over our SSH at both ends, beside OpenSSH at both ends.
//!
//! Both lead to the same process, which echoes or discards the bytes. OpenSSH's client and server each have a Unix
//! socket at their end; both tunnels use the same cipher.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate::identity::DeviceKey;
use deskgate::link::{HostPin, Ssh};
use deskgate_gateway::tunnel::{self, HostKeys, KeyAdmission, KeyStatus};
use deskgate_protocol::identity::PublicKey;
use deskgate_tests::sshd::Sshd;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Bench;
use crate::environment::{self, START_TIMEOUT};
use crate::process::ChildProcess;
use crate::report::BenchReport;
use deskgate_harness::statistics::{median, percentile};

const METRICS: [&str; 2] = ["tunnel_throughput_vs_openssh", "tunnel_rtt_vs_openssh"];
/// A device's first byte: echo all bytes.
const ECHO_COMMAND: u8 = b'e';
/// Or discard this many bytes, and then confirm them.
const SINK_COMMAND: u8 = b's';
/// The bytes of one request and of one answer.
const MESSAGE_BYTES: usize = 64;
/// Rounds of each.
const TUNNEL_ROUNDS: usize = 5;
/// The bytes of one write.
const CHUNK_BYTES: usize = 32 * 1024;

/// The socket at the far end of both tunnels, in the role of the control socket.
const SOCKET_NAME: &str = "echo.sock";

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&METRICS) {
        return Ok(());
    }
    println!("Tunnel");
    let folder = environment::folder()?;
    let key = DeviceKey::load_or_create(&folder.path().join("device_key"))?;
    let (_far, port) = start(folder.path()).await?;
    let (sshd, ssh) = openssh(folder.path()).await?;
    let ours = async || -> anyhow::Result<TunnelStream> {
        let known = HostKeys::load_or_create(folder.path())?.current().fingerprint();
        let ssh = Ssh {
            host: "127.0.0.1".to_owned(),
            port,
            user: "bench".to_owned(),
            socket_path: folder.path().join(SOCKET_NAME).display().to_string(),
            pin: HostPin::Fingerprint(known.parse()?),
            followed: None,
        };
        Ok(ssh.open(&key).await?)
    };
    let theirs = async || -> anyhow::Result<TunnelStream> {
        let line: TunnelStream = Box::new(UnixStream::connect(folder.path().join("near.sock")).await?);
        Ok(line)
    };

    let mut found = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..bench.count(TUNNEL_ROUNDS) {
        for (place, line) in [ours().await?, theirs().await?].into_iter().enumerate() {
            found[0][place].push(round_trip_us(line, bench.count(3_000)).await?);
        }
        for (place, line) in [ours().await?, theirs().await?].into_iter().enumerate() {
            found[1][place].push(mib_per_second(line, bench.count(256)).await?);
        }
    }
    drop((sshd, ssh));
    for (name, [ours, theirs]) in ["tunnel_rtt", "tunnel_throughput"].into_iter().zip(&found) {
        let unit = if name == "tunnel_rtt" { "us" } else { "mib_per_s" };
        report.part(&format!("{name}_{unit}"), json!({ "ours": ours, "openssh": theirs }));
    }
    report.value(METRICS[0], median(&found[1][0]) / median(&found[1][1]));
    report.value(METRICS[1], median(&found[0][0]) / median(&found[0][1]));
    Ok(())
}

type TunnelStream = Box<dyn tunnel::ByteStream>;

/// The median round trip in microseconds.
async fn round_trip_us(mut line: TunnelStream, count: usize) -> anyhow::Result<f64> {
    line.write_all(&[ECHO_COMMAND]).await?;
    let mut word = [7; MESSAGE_BYTES];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        line.write_all(&word).await?;
        line.flush().await?;
        line.read_exact(&mut word).await?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(percentile(&times, 0.5))
}

/// The rate at which this many MiB arrive at the other end.
async fn mib_per_second(mut line: TunnelStream, mib: usize) -> anyhow::Result<f64> {
    line.write_all(&[SINK_COMMAND]).await?;
    line.write_all(&u64::try_from(mib << 20)?.to_be_bytes()).await?;
    let piece = vec![7; CHUNK_BYTES];
    let began = Instant::now();
    for _ in 0..(mib << 20) / CHUNK_BYTES {
        line.write_all(&piece).await?;
    }
    line.flush().await?;
    line.read_u8().await?;
    Ok(mib as f64 / began.elapsed().as_secs_f64())
}

/// Starts the process at the far end of both tunnels. Returns it with the port of our listener in it.
async fn start(folder: &Path) -> anyhow::Result<(ChildProcess, u16)> {
    let log = folder.join("far.log");
    let mut command = Command::new(std::env::current_exe()?);
    let mut process = ChildProcess::start(command.arg("far").current_dir(folder), &log)?;
    let port = environment::first_line(&log, &mut process, |line| line.parse().ok()).await?;
    Ok((process, port))
}

/// Starts OpenSSH's server, and its client with a socket on this side.
async fn openssh(folder: &Path) -> anyhow::Result<(Sshd, ChildProcess)> {
    let key = folder.join("id");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status()?;
    anyhow::ensure!(made.success(), "ssh-keygen failed");
    let sshd = Sshd::start(&std::fs::read_to_string(folder.join("id.pub"))?).await;
    let (_, port) =
        sshd.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).context("a port")?;
    let near = folder.join("near.sock");
    let mut ssh = Command::new("ssh");
    ssh.args([
        "-N",
        "-F",
        "none",
        "-c",
        "aes256-gcm@openssh.com",
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        "ExitOnForwardFailure=yes",
    ]);
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", sshd.known_hosts().display()));
    ssh.arg("-i").arg(&key).arg("-L").arg(format!("{}:{}", near.display(), folder.join(SOCKET_NAME).display()));
    ssh.args(["-p", &port, &format!("{}@127.0.0.1", sshd.user())]);
    let mut process = ChildProcess::start(&mut ssh, &folder.join("ssh.log"))?;
    let deadline = Instant::now() + START_TIMEOUT;
    while !near.exists() {
        let said = || std::fs::read_to_string(folder.join("ssh.log")).unwrap_or_default();
        anyhow::ensure!(!process.has_ended() && Instant::now() < deadline, "ssh does not connect: {}", said());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok((sshd, process))
}

/// Admits every device.
struct AdmitEveryone;

impl KeyAdmission for AdmitEveryone {
    fn admit<'a>(&'a self, _: &'a PublicKey) -> Pin<Box<dyn Future<Output = KeyStatus> + Send + 'a>> {
        Box::pin(async { KeyStatus::Admit })
    }
}

/// The process at the far end of both tunnels, in the folder it was started in, until a signal ends it.
pub(crate) fn run_echo_server() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let folder = std::env::current_dir()?;
        let socket: PathBuf = folder.join(SOCKET_NAME);
        let unix = UnixListener::bind(&socket)?;
        let tcp = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", tcp.local_addr()?.port());
        let host_keys = HostKeys::load_or_create(&folder)?;
        let config = tunnel::TunnelConfig::new(socket.display().to_string());
        let (arrivals, mut arrived) = mpsc::channel(8);
        tokio::spawn(tunnel::serve(
            tcp,
            host_keys,
            config,
            Arc::new(AdmitEveryone),
            arrivals,
            CancellationToken::new(),
        ));
        loop {
            let line: TunnelStream = tokio::select! {
                Some(arrival) = arrived.recv() => arrival.stream,
                accepted = unix.accept() => Box::new(accepted?.0),
            };
            tokio::spawn(answer(line));
        }
    })
}

async fn answer(mut line: TunnelStream) -> std::io::Result<()> {
    let mut piece = vec![0; CHUNK_BYTES];
    if line.read_u8().await? == SINK_COMMAND {
        let mut left = line.read_u64().await?;
        while left > 0 {
            let read = line.read(&mut piece).await?;
            left = left.saturating_sub(read as u64);
            if read == 0 {
                return Ok(());
            }
        }
        line.write_all(&[SINK_COMMAND]).await?;
        line.flush().await?;
        // The other end closes it.
        line.read_u8().await?;
        return Ok(());
    }
    loop {
        let read = line.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        line.write_all(&piece[..read]).await?;
        line.flush().await?;
    }
}
