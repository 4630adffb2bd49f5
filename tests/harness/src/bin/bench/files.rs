//! Files of 64 MiB on their way to runs and from them, over our SSH listener: how fast beside OpenSSH's `scp`, what they do to
//! those who submit meanwhile, and what memory they take.
//!
//! All of it is the real thing: a run that is given a file and answers at once, and one that hands a file out. With `scp` the
//! connection is there already; a transfer of ours has its own ticket, connection and key exchange in its time, the digests of
//! both halves, and the gateway's syncs.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate_protocol::time::Timestamp;
use deskgate_tests::sshd::Sshd;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway, START_TIMEOUT};
use crate::http::HttpConnection;
use crate::load::{self, LoadPlan, LoadTransport};
use crate::memory::IDLE_PERIOD;
use crate::process::ChildProcess;
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestKind, SUBJECT, until_ended};
use deskgate_harness::statistics::median;
use deskgate_harness::usage::{cpu_seconds, memory_mib};

/// To a run, and from one.
const SPEED_METRICS: [&str; 2] = ["file_through_tunnel_vs_openssh", "artifact_through_tunnel_vs_openssh"];
const ACCEPT_METRIC: &str = "accept_p99_beside_transfer";
/// Of the gateway, and of the desktop's agent.
const MEMORY_METRICS: [&str; 2] = ["files_rss_gateway_mib", "files_rss_device_mib"];

/// Bytes of a file: as many as one may have.
const FILE_BYTES: usize = 64 * 1024 * 1024;
const FILE_MIB: f64 = (FILE_BYTES >> 20) as f64;
/// Rounds of the comparison with `scp`; all four take turns, and the medians count.
const SPEED_ROUNDS: usize = 9;
/// Files in each direction while memory is watched: 1 GiB.
const MEMORY_FILES: usize = 16;
/// How often memory is read.
const MEMORY_INTERVAL: Duration = Duration::from_millis(10);
/// Rounds of submissions, beside transfers and alone in turns.
const ACCEPT_ROUNDS: usize = 7;
/// Submissions a second.
const ACCEPT_RATE_PER_S: f64 = 1_000.0;
/// The name of the file that is handed out, in the service's folder.
const FILE_NAME: &str = "big.bin";
/// The cipher that both sides of the comparison use.
const CIPHER: &str = "aes256-gcm@openssh.com";

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&SPEED_METRICS) && !bench.wants(&MEMORY_METRICS) && !bench.wants(&[ACCEPT_METRIC]) {
        return Ok(());
    }
    println!("Files");
    let site = FileSite::start(bench).await?;
    if bench.wants(&SPEED_METRICS) {
        site.beside_openssh(bench, report).await?;
    }
    if bench.wants(&[ACCEPT_METRIC]) {
        site.accepting(bench, report).await?;
    }
    if bench.wants(&MEMORY_METRICS) {
        site.memory(bench, report).await?;
    }
    Ok(())
}

/// A gateway and a desktop with two services: one takes a file, one hands one out.
struct FileSite {
    server: BenchGateway,
    desktop: Desktop,
    taking: LoadTarget,
    giving: LoadTarget,
    /// The file that runs are given.
    file_id: String,
    number: Cell<u64>,
    folder: TempDir,
}

impl FileSite {
    async fn start(bench: &Bench) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let server = BenchGateway::start(&bench.programs, folder.path()).await?;
        let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
        desktop.pair(&server).await?;
        let answers = desktop.script("answers", &json!([{ "text": "It has come." }]))?;
        let taking = ["--model", &answers, "--tools", "none", "--takes-files", "yes"];
        let taking = desktop.publish_as("taking", &taking).await?;
        let steps = json!([{ "tool": "Deliver", "arguments": { "file_path": FILE_NAME } }, { "text": "It is out." }]);
        let delivers = desktop.script("delivers", &steps)?;
        let giving = ["--model", &delivers, "--tools", "Deliver", "--allow", "Deliver"];
        let giving = desktop.publish_as("giving", &giving).await?;
        let bytes = some_bytes(FILE_BYTES);
        std::fs::write(desktop.work().join(FILE_NAME), &bytes)?;
        let file_id = upload(&taking, &bytes).await?;
        Ok(Self { server, desktop, taking, giving, file_id, number: Cell::new(0), folder })
    }

    /// A file goes to a run. Returns the seconds from the submission until the run has ended, which did nothing with it.
    async fn take(&self) -> anyhow::Result<f64> {
        let input = json!({ "text": "Take it.", "files": [{ "file_id": self.file_id }] });
        let began = Instant::now();
        self.run(&self.taking, &input).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// A file comes from a run. Returns the seconds from the end of the call that handed it out, when a copy of it lay ready to be
    /// sent, until it was stored durably and in the run's record.
    async fn give(&self) -> anyhow::Result<f64> {
        let run_id = self.run(&self.giving, &json!({ "text": "Hand it out." })).await?;
        let mut connection = HttpConnection::open(self.giving.address).await?;
        let path = format!("/api/v1/runs/{run_id}/events");
        let events = exchange(&mut connection, &self.giving, &format!("GET {path}"), &[], b"").await?;
        let moment = |kind: &str| {
            let event = events["data"].as_array()?.iter().find(|event| event["type"] == kind)?;
            serde_json::from_value::<Timestamp>(event["created_at"].clone()).ok()
        };
        let (left, came) = moment("tool.completed").zip(moment("artifact.created")).context("an event is missing")?;
        Ok((came.0.as_millisecond() - left.0.as_millisecond()) as f64 / 1e3)
    }

    /// Submits a run, and waits until it has succeeded.
    async fn run(&self, target: &LoadTarget, input: &Value) -> anyhow::Result<String> {
        let mut connection = HttpConnection::open(target.address).await?;
        self.number.set(self.number.get() + 1);
        let key = format!("Idempotency-Key: file-{}", self.number.get());
        let path = format!("POST /api/v1/agent-endpoints/{}/runs", target.endpoint_id);
        let body = json!({ "input": input });
        let headers = [key.as_str(), "Content-Type: application/json"];
        let run = exchange(&mut connection, target, &path, &headers, body.to_string().as_bytes()).await?;
        let run_id = run["run_id"].as_str().context("a run without an identifier")?.to_owned();
        let run = until_ended(&mut connection, target, &run_id).await?;
        anyhow::ensure!(run["state"] == "succeeded", "a run ended {}: {}", run["state"], run["error"]);
        Ok(run_id)
    }

    async fn beside_openssh(&self, bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
        let openssh = OpenSsh::start(self.folder.path(), &self.desktop.work().join(FILE_NAME)).await?;
        // Until pages and plans are there.
        self.take().await?;
        self.give().await?;
        openssh.download().await?;
        openssh.upload().await?;
        let mut mib_per_s: [[Vec<f64>; 2]; 2] = Default::default();
        let programs = [("gateway", self.server.pid()), ("agent", self.desktop.pid()?)];
        let mut cpu_s = [[0.0; 2]; 2];
        for _ in 0..bench.count(SPEED_ROUNDS) {
            for direction in 0..2 {
                let before = programs.map(|(_, pid)| cpu_seconds(pid));
                let ours = if direction == 0 { self.take().await? } else { self.give().await? };
                let after = programs.map(|(_, pid)| cpu_seconds(pid));
                let theirs = if direction == 0 { openssh.download().await? } else { openssh.upload().await? };
                mib_per_s[direction][0].push(FILE_MIB / ours);
                mib_per_s[direction][1].push(FILE_MIB / theirs);
                (0..2).for_each(|program| cpu_s[direction][program] += after[program] - before[program]);
            }
        }
        for (direction, (name, [ours, theirs])) in SPEED_METRICS.into_iter().zip(&mib_per_s).enumerate() {
            let cpu_ms = cpu_s[direction].map(|seconds| seconds * 1e3 / ours.len() as f64);
            let parts = json!({
                "ours_mib_per_s": ours,
                "openssh_mib_per_s": theirs,
                "gateway_cpu_ms_per_file": cpu_ms[0],
                "agent_cpu_ms_per_file": cpu_ms[1],
            });
            report.part(&format!("{name}_parts"), parts);
            report.value(name, median(ours) / median(theirs));
        }
        Ok(())
    }

    async fn accepting(&self, bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
        // Runs of a device that is not there: they are accepted, and nothing else is done.
        let folder = environment::folder()?;
        let mut absent = Desktop::start(&bench.programs, folder.path()).await?;
        absent.pair(&self.server).await?;
        let target = absent.publish().await?;
        absent.pause();
        let plan = LoadPlan {
            target,
            connections: 16,
            warm_up: bench.time(1.0),
            time: bench.time(5.0),
            rate: Some(ACCEPT_RATE_PER_S),
            at_most: None,
            asks: RequestKind::Submit,
            over: LoadTransport::Tcp,
        };
        let (mut alone, mut beside, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.count(ACCEPT_ROUNDS) {
            self.server.forget_runs().await?;
            alone.push(load::send(&plan).await?);
            self.server.forget_runs().await?;
            let is_over = Cell::new(false);
            let sending = async {
                let sent = load::send(&plan).await;
                is_over.set(true);
                sent
            };
            let taking = async {
                let mut count = 0_u32;
                while !is_over.get() {
                    self.take().await?;
                    count += 1;
                }
                Ok(count)
            };
            let (sent, count) = tokio::try_join!(sending, taking)?;
            beside.push(sent);
            files.push(count);
        }
        let of = |rounds: &[load::LoadResult]| rounds.iter().map(|round| round.p99_ms).collect::<Vec<_>>();
        let p50 = |rounds: &[load::LoadResult]| rounds.iter().map(|round| round.p50_ms).collect::<Vec<_>>();
        let parts = json!({
            "alone_p99_ms": of(&alone),
            "beside_p99_ms": of(&beside),
            "alone_p50_ms": p50(&alone),
            "beside_p50_ms": p50(&beside),
            "files": files,
        });
        report.part("accept_beside_transfer_parts", parts);
        report.value(ACCEPT_METRIC, median(&of(&beside)) / median(&of(&alone)));
        Ok(())
    }

    async fn memory(&self, bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
        self.take().await?;
        self.give().await?;
        tokio::time::sleep(IDLE_PERIOD).await;
        let pids = [self.server.pid(), self.desktop.pid()?];
        let resident =
            || -> anyhow::Result<[f64; 2]> { Ok([memory_mib(pids[0], "VmRSS")?, memory_mib(pids[1], "VmRSS")?]) };
        let before = resident()?;
        let (least, most, is_over) = (Cell::new(before), Cell::new(before), Cell::new(false));
        let watching = async {
            while !is_over.get() {
                let now = resident()?;
                least.set(std::array::from_fn(|program| least.get()[program].min(now[program])));
                most.set(std::array::from_fn(|program| most.get()[program].max(now[program])));
                tokio::time::sleep(MEMORY_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        let passing = async {
            for _ in 0..bench.count(MEMORY_FILES) {
                self.take().await?;
            }
            for _ in 0..bench.count(MEMORY_FILES) {
                self.give().await?;
            }
            is_over.set(true);
            anyhow::Ok(())
        };
        tokio::try_join!(watching, passing)?;
        let after = resident()?;
        for (program, name) in MEMORY_METRICS.into_iter().enumerate() {
            let [before, least, most, after] = [before, least.get(), most.get(), after].map(|of| of[program]);
            report.part(
                &format!("{name}_parts"),
                json!({ "before": before, "least": least, "most": most, "after": after }),
            );
            report.value(name, (most - before).max(before - least));
        }
        Ok(())
    }
}

/// OpenSSH's server with a connection to it, and a file on either side.
struct OpenSsh {
    sshd: Sshd,
    _connection: ChildProcess,
    folder: PathBuf,
    file: PathBuf,
}

impl OpenSsh {
    async fn start(folder: &Path, file: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("scp");
        std::fs::create_dir(&folder)?;
        let key = folder.join("id");
        let mut make = std::process::Command::new("ssh-keygen");
        let made = make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status()?;
        anyhow::ensure!(made.success(), "ssh-keygen failed");
        let sshd = Sshd::start(&std::fs::read_to_string(folder.join("id.pub"))?).await;
        let address = sshd.address();
        let (_, port) = address.rsplit_once(':').context("a port")?;
        let mut ssh = std::process::Command::new("ssh");
        ssh.args(["-N", "-M", "-F", "none", "-c", CIPHER, "-o", "IdentitiesOnly=yes", "-S"]).arg(folder.join("line"));
        ssh.arg("-o").arg(format!("UserKnownHostsFile={}", sshd.known_hosts().display())).arg("-i").arg(&key);
        ssh.args(["-p", port, &format!("{}@127.0.0.1", sshd.user())]);
        let log = folder.join("ssh.log");
        let mut connection = ChildProcess::start(&mut ssh, &log)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while !folder.join("line").exists() {
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            anyhow::ensure!(!connection.has_ended() && Instant::now() < deadline, "ssh does not connect: {}", said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self { sshd, _connection: connection, folder, file: file.to_owned() })
    }

    /// From the server, as files go to a device. Returns the seconds.
    async fn download(&self) -> anyhow::Result<f64> {
        let target = self.folder.join("down");
        self.copy(&self.there(&self.file), &target.display().to_string(), &target).await
    }

    /// To the server, as artifacts come from a device. Returns the seconds.
    async fn upload(&self) -> anyhow::Result<f64> {
        let target = self.folder.join("up");
        self.copy(&self.file.display().to_string(), &self.there(&target), &target).await
    }

    fn there(&self, path: &Path) -> String {
        format!("{}@127.0.0.1:{}", self.sshd.user(), path.display())
    }

    async fn copy(&self, from: &str, to: &str, target: &Path) -> anyhow::Result<f64> {
        // Each copy is a new file, as ours are.
        let _ = std::fs::remove_file(target);
        let mut scp = tokio::process::Command::new("scp");
        scp.args(["-q", "-F", "none", "-o"]).arg(format!("ControlPath={}", self.folder.join("line").display()));
        scp.args([from, to]).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        let began = Instant::now();
        let status = scp.status().await?;
        let seconds = began.elapsed().as_secs_f64();
        let copied = std::fs::metadata(target).map_or(0, |file| file.len());
        anyhow::ensure!(status.success() && copied == FILE_BYTES as u64, "scp copied {copied} bytes: {status}");
        Ok(seconds)
    }
}

/// Uploads a file, and returns its identifier.
async fn upload(target: &LoadTarget, bytes: &[u8]) -> anyhow::Result<String> {
    let mut connection = HttpConnection::open(target.address).await?;
    let head = format!("POST /api/v1/files?name={FILE_NAME}");
    let file = exchange(&mut connection, target, &head, &["Content-Type: application/octet-stream"], bytes).await?;
    Ok(file["file_id"].as_str().context("a file without an identifier")?.to_owned())
}

/// One request as the load's own caller, and the document that answers it.
async fn exchange(
    connection: &mut HttpConnection,
    target: &LoadTarget,
    request: &str,
    headers: &[&str],
    body: &[u8],
) -> anyhow::Result<Value> {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let (address, key, length) = (target.address, &target.key, body.len());
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nX-Gateway-Subject: {SUBJECT}\r\n\
         Content-Length: {length}\r\n{headers}\r\n"
    );
    let status = connection.exchange(&[head.as_bytes(), body].concat()).await?;
    let answer: Value = serde_json::from_slice(connection.body())?;
    anyhow::ensure!((200..300).contains(&status), "{request} was answered {status}: {answer}");
    Ok(answer)
}

/// Bytes in which no part repeats another.
fn some_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}
