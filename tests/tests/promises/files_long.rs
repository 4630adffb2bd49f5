//! A thousand files with awkward names through the whole product, over lines that are cut at random bytes, while programs are killed.
//!
//! A backend uploads files and gives them to runs; each run copies them into its folder and hands all of them out again; the backend downloads them, and what it
//! gets has the digest of what it sent. Half of it goes over the gateway's own SSH listener, half over OpenSSH's sshd.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deskgate_protocol::file::{MAX_FILE_NAME_BYTES, MAX_RUN_FILES, unique_name};
use deskgate_tests::backend::fresh_key;
use deskgate_tests::gateway::Address;
use deskgate_tests::sshd::Sshd;
use deskgate_tests::wait::until_within;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, Proxy, TestDevice};
use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use crate::files::{some_bytes, with_files};
use crate::text;

/// Files in all, unless `FILES` says otherwise.
const FILES: usize = 1_000;
/// The most bytes of one: more than a chunk of the gateway's storage has.
const MAX_SIZE_BYTES: u64 = 6 * 1024 * 1024;
/// Services of each device, each with one run at a time.
const LANES: usize = 3;
/// The most bytes between two cuts of a line.
const MAX_CUT_BYTES: u64 = 64 * 1024 * 1024;
/// The least bytes between two kills, on all lines, and the most more.
const MIN_KILL_BYTES: u64 = 1024 * 1024;
const MAX_KILL_BYTES: u64 = 48 * 1024 * 1024;
/// The pause of a careful backend before it repeats a request.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);
/// The longest that a run may take with all that befalls it.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest that all may take.
const ALL_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Takes the files of a run into the folder, and nothing of an earlier one.
const COPY_COMMAND: &str = "rm -rf out && mkdir out && cp -r --no-preserve=mode /files/. out/";

/// What names begin with that people, shells and file systems may take for something else.
const AWKWARD: [&str; 44] = [
    "report.pdf",
    "a b",
    "Ä ö ß.txt",
    "日本語.txt",
    "🙂.png",
    "-rf",
    "--help",
    ".hidden",
    "..double",
    "...",
    "CON",
    "nul.txt",
    "semi;colon",
    "it's",
    "\"quoted\"",
    "$(touch x)",
    "`id`",
    "%2e%2e%2f",
    "a%00b",
    "*.txt",
    "[a-z]?",
    "{a,b}",
    "~",
    "~root",
    "#hash",
    "&amp;",
    "<b>",
    "a|b",
    "a:b",
    "name.",
    "é",
    "e\u{301}",
    "ﬁ",
    "İ.txt",
    "ẞ",
    "@files",
    "x=1",
    "שלום.txt",
    "नमस्ते",
    "^caret",
    "!bang",
    "new (2).txt",
    ",comma",
    "tar.gz.tar.gz",
];
/// Sizes at which something ends: nothing, a message, a chunk.
const EDGES: [u64; 8] = [0, 1, 131_071, 131_072, 131_073, 4_194_303, 4_194_304, 4_194_305];

/// What a seed decides.
struct Dice(StdMutex<u64>);

impl Dice {
    /// A number below `end`, of splitmix64.
    fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().expect("nobody panics with it");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// A number of at most `most`: each order of magnitude is as likely as another.
    fn magnitude(&self, most: u64) -> u64 {
        let share = self.below(1 << 32) as f64 / f64::from(u32::MAX);
        (((most as f64 + 1.0).ln() * share).exp() - 1.0) as u64
    }

    fn one_of<'a, T>(&self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    fn name(&self) -> String {
        let mut name = (*self.one_of(&AWKWARD)).to_owned();
        // Some are the same as others, some as long as they may be.
        if self.below(4) > 0 {
            name = format!("{name} {}", self.below(10_000));
        }
        while self.below(12) == 0 || name.len() > 60 {
            name += "ö";
            if name.len() + 2 > MAX_FILE_NAME_BYTES {
                break;
            }
        }
        name
    }
}

/// A file that is to go there and back.
struct Planned {
    name: String,
    size: u64,
    seed: u64,
}

/// What was counted.
#[derive(Default)]
struct Counters {
    files: AtomicU64,
    bytes: AtomicU64,
    runs: AtomicU64,
    again: AtomicU64,
    cuts: AtomicU64,
    gateway_kills: AtomicU64,
    agent_kills: AtomicU64,
}

impl Counters {
    fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }

    fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::SeqCst);
    }
}

/// A device on a line of its own, with services that each hand out what their script says.
struct Side {
    device: Mutex<TestDevice>,
    line: Proxy,
    lanes: Vec<(Backend, Folder)>,
}

impl Side {
    async fn over_our_listener(gateway: &GatewayProcess) -> Self {
        let line = Proxy::to(gateway.ssh()).await;
        let device = TestDevice::for_remote().await;
        let paired = device.pair(gateway, &[]).await;
        device.connect_straight(line.address(), &paired, &gateway.control_token_file()).await.ok();
        Self::publish(device, line, gateway).await
    }

    async fn over_sshd(gateway: &GatewayProcess) -> (Self, Sshd) {
        let device = TestDevice::for_remote().await;
        let paired = device.pair(gateway, &[]).await;
        let file = device.folder().join("identity.json");
        let printed = gateway.plain_admin(&["device", "add", plain(&file), "--print-authorized-keys"]).await;
        let sshd = Sshd::start(&printed.stdout).await;
        let line = Proxy::to(Address::new(sshd.address().parse().expect("an address"))).await;
        // The same key, at the line's address.
        let known = std::fs::read_to_string(sshd.known_hosts()).expect("readable");
        let (_, key) = known.split_once(' ').expect("a line of known hosts");
        let known_hosts = device.folder().join("known_hosts");
        std::fs::write(&known_hosts, format!("[127.0.0.1]:{} {key}", line.address().port())).expect("written");
        let (address, user, socket) =
            (line.address().to_string(), sshd.user(), text(&paired, "/details/control_socket"));
        let token = gateway.control_token_file();
        let connection = ["--ssh-address", &address, "--ssh-user", &user, "--known-hosts", plain(&known_hosts)];
        device
            .save(&[&connection[..], &["--control-socket", socket, "--token-file", plain(&token)]].concat())
            .await
            .ok();
        (Self::publish(device, line, gateway).await, sshd)
    }

    async fn publish(device: TestDevice, line: Proxy, gateway: &GatewayProcess) -> Self {
        device.wait_until_connected().await;
        let mut lanes: Vec<(Backend, Folder)> = Vec::new();
        for number in 0..LANES {
            let folder = Folder::new();
            let model = folder.script("lane", json!([{ "text": "Nothing yet." }]));
            let tools = ["--tools", "Bash,Deliver", "--allow", "Bash", "--allow", "Deliver", "--takes-files", "yes"];
            let arguments = [&["--model", &model][..], &tools].concat();
            let backend = match lanes.first() {
                None => device.publish(gateway, "shop", &folder, &arguments).await,
                Some((first, _)) => {
                    let endpoint_id = device.add_service("shop", &format!("lane{number}"), &folder, &arguments).await;
                    Backend::new(gateway.http(), first.key(), &endpoint_id)
                }
            };
            lanes.push((backend, folder));
        }
        Self { device: Mutex::new(device), line, lanes }
    }

    /// Takes groups of files there and back, until none are left.
    async fn work(&self, lane: usize, groups: &StdMutex<VecDeque<Vec<Planned>>>, counters: &Counters) {
        let next = || groups.lock().expect("nobody panics with it").pop_front();
        while let Some(group) = next() {
            self.there_and_back(lane, &group, counters).await;
            Counters::add(&counters.files, group.len() as u64);
            Counters::add(&counters.bytes, group.iter().map(|planned| planned.size).sum());
        }
    }

    async fn there_and_back(&self, lane: usize, group: &[Planned], counters: &Counters) {
        let (backend, folder) = &self.lanes[lane];
        let mut files = Vec::new();
        for planned in group {
            let bytes = some_bytes(usize::try_from(planned.size).expect("small"), planned.seed);
            let sha256 = sha256(&bytes);
            let file = upload(backend, planned, bytes).await;
            assert_eq!((&file["size"], text(&file, "/sha256")), (&json!(planned.size), sha256.as_str()), "{file}");
            files.push(file);
        }
        let mut expected: Vec<(String, String)> = Vec::new();
        for file in &files {
            let taken = |name: &str| expected.iter().any(|(known, _)| known.to_lowercase() == name.to_lowercase());
            expected.push((unique_name(text(file, "/name"), taken).into_owned(), text(file, "/sha256").to_owned()));
        }
        let deliver = |(name, _): &(String, String)| json!({ "tool": "Deliver", "arguments": { "file_path": format!("out/{name}") } });
        // What is handed out lies in the service's folder.
        let copy = json!({ "tool": "Bash", "arguments": { "command": COPY_COMMAND } });
        let steps = [copy, json!({ "text": "Copied." })].into_iter().chain(expected.iter().map(deliver));
        let steps: Vec<_> = steps.chain([json!({ "text": "{{last_tool_result}}" })]).collect();
        folder.script("lane", json!(steps));
        loop {
            let run = self.run(backend, &with_files("Hand them out.", &files)).await;
            Counters::add(&counters.runs, 1);
            let given = run["input"]["files"].as_array().expect("a list").iter();
            let given: Vec<_> =
                given.map(|file| (text(file, "/name").to_owned(), text(file, "/sha256").to_owned())).collect();
            assert_eq!(given, expected, "{run}");
            let stored = |artifact: &&Value| artifact["state"] == "stored";
            let mut found = Vec::new();
            for artifact in run["artifacts"].as_array().into_iter().flatten().filter(stored) {
                let bytes = download(backend, text(&run, "/run_id"), artifact).await;
                found.push((text(artifact, "/name").to_owned(), sha256(&bytes)));
            }
            if run["state"] == "succeeded" {
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "{run}");
                return;
            }
            // Only what a killed agent was doing ends otherwise, and says so.
            assert!(found.iter().all(|artifact| expected.contains(artifact)), "{found:?}: {run}");
            assert!(["interrupted", "internal"].contains(&text(&run, "/error/code")), "{run}");
            assert!(Counters::of(&counters.agent_kills) > 0, "{run}");
            Counters::add(&counters.again, 1);
        }
    }

    /// A run at its end. Of one that was interrupted the owner says that it is over.
    async fn run(&self, backend: &Backend, body: &Value) -> Value {
        let key = fresh_key();
        let accepted = repeat(async || {
            let answer = backend.try_submit_body(&key, body).await.map_err(|error| error.to_string())?;
            Ok((answer.status.as_u16(), answer.body))
        })
        .await;
        let run_id = text(&accepted, "/run_id");
        until_within(RUN_TIMEOUT, &format!("run {run_id} to end"), async || {
            let answer = backend.read(run_id, 5).await.map_err(|error| error.to_string())?;
            if answer.body["phase"] == "final" {
                return Ok(answer.body);
            }
            if answer.body["state"] == "awaiting_reconciliation" {
                // Refused while the agent is not there or has said it already.
                self.device.lock().await.cli(&["run", "reconcile", run_id, "--finished"]).await;
            }
            Err(answer.body.to_string())
        })
        .await
    }

    /// Cuts the line for as long as it is polled, at bytes that chance names.
    async fn cut(&self, dice: &Dice, counters: &Counters) {
        loop {
            self.line.cut_after(dice.magnitude(MAX_CUT_BYTES)).await;
            Counters::add(&counters.cuts, 1);
        }
    }

    async fn is_tidy(&self) {
        let home = self.device.lock().await.home();
        for name in ["files", "outbox"] {
            until_within(RUN_TIMEOUT, &format!("{name} to be empty"), async || {
                let left: Vec<_> = std::fs::read_dir(home.join(name)).into_iter().flatten().flatten().collect();
                if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
            })
            .await;
        }
    }
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks until a request succeeds, as a careful backend does: only what passes is asked again.
async fn repeat(mut ask: impl AsyncFnMut() -> Result<(u16, Value), String>) -> Value {
    let deadline = Instant::now() + RUN_TIMEOUT;
    loop {
        let seen = match ask().await {
            Ok((200..=299, body)) => return body,
            Ok((status, body)) => {
                assert!(matches!(status, 429 | 503), "{status} {body}");
                body.to_string()
            }
            Err(error) => error,
        };
        assert!(Instant::now() < deadline, "not answered within {RUN_TIMEOUT:?}: {seen}");
        tokio::time::sleep(REPEAT_PAUSE).await;
    }
}

async fn upload(backend: &Backend, planned: &Planned, bytes: Vec<u8>) -> Value {
    let name: String = planned.name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let key = fresh_key();
    repeat(async || {
        let request: RequestBuilder = backend.request(Method::POST, &format!("/files?name={name}"));
        let answer = backend.send(request.header("Idempotency-Key", &key).body(bytes.clone())).await;
        answer.map(|answer| (answer.status.as_u16(), answer.body)).map_err(|error| error.to_string())
    })
    .await
}

async fn download(backend: &Backend, run_id: &str, artifact: &Value) -> Vec<u8> {
    let path = format!("/runs/{run_id}/artifacts/{}", text(artifact, "/artifact_id"));
    let mut bytes = Vec::new();
    repeat(async || {
        let answer = backend.request(Method::GET, &path).send().await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        bytes = answer.bytes().await.map_err(|error| error.to_string())?.to_vec();
        Ok((status, Value::Null))
    })
    .await;
    bytes
}

/// Kills programs at bytes that chance names, from when half of the files are through until all are. All run when it returns.
async fn kill(gateway: &mut GatewayProcess, sides: &[Side], all: u64, dice: &Dice, counters: &Counters) {
    let passed = || sides.iter().map(|side| side.line.passed()).sum::<u64>();
    let files = || Counters::of(&counters.files);
    let wait = async |is_so: &dyn Fn() -> bool| {
        until_within(ALL_TIMEOUT, "files to pass", async || if is_so() { Ok(()) } else { Err(files().to_string()) })
            .await;
    };
    wait(&|| files() >= all / 2).await;
    loop {
        let moment = passed() + MIN_KILL_BYTES + dice.magnitude(MAX_KILL_BYTES);
        wait(&|| passed() >= moment || files() == all).await;
        if files() == all {
            return;
        }
        match dice.below(1 + sides.len() as u64) {
            0 => {
                gateway.kill_9();
                gateway.restart().await;
                Counters::add(&counters.gateway_kills, 1);
            }
            place => {
                let mut device = sides[place as usize - 1].device.lock().await;
                Counters::add(&counters.agent_kills, 1);
                device.kill_9();
                device.start().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make files-long"]
async fn every_file_comes_back_as_it_was_sent_whatever_is_cut_or_killed() {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let seed = given("SEED").unwrap_or(now % 1_000_000);
    let count = given("FILES").map_or(FILES, |files| usize::try_from(files).expect("fewer"));
    println!("files-long: SEED={seed} FILES={count}");
    let dice = Dice(StdMutex::new(seed));
    let mut groups: [VecDeque<Vec<Planned>>; 2] = Default::default();
    let mut left = count;
    while left > 0 {
        let length = left.min(1 + dice.below(MAX_RUN_FILES as u64) as usize);
        let size = || if dice.below(20) == 0 { *dice.one_of(&EDGES) } else { dice.magnitude(MAX_SIZE_BYTES) };
        let group = (0..length).map(|_| Planned { name: dice.name(), size: size(), seed: dice.below(u64::MAX) });
        // Each half gets as many runs as the other.
        let group = group.collect();
        let place = usize::from(groups[0].len() > groups[1].len());
        groups[place].push_back(group);
        left -= length;
    }
    let groups = groups.map(StdMutex::new);

    let began = Instant::now();
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let (through_sshd, _sshd) = Side::over_sshd(&gateway).await;
    let sides = [Side::over_our_listener(&gateway).await, through_sshd];
    let counters = Counters::default();
    let (sides_, groups_, counters_) = (&sides, &groups, &counters);
    let lanes = (0..sides.len())
        .flat_map(|place| (0..LANES).map(move |lane| sides_[place].work(lane, &groups_[place], counters_)));
    let cutting = select_all(sides.iter().map(|side| side.cut(&dice, &counters).boxed()));
    let working =
        futures_util::future::join(join_all(lanes), kill(&mut gateway, &sides, count as u64, &dice, &counters));
    tokio::select! {
        _ = working => {}
        _ = cutting => unreachable!("it cuts for as long as it is polled"),
    }
    for side in &sides {
        side.is_tidy().await;
    }
    let of = Counters::of;
    println!(
        "files-long: {} files with {} bytes came back as they were, in {} runs, of which {} were repeated; {} cuts, {} kills of the \
         gateway and {} of agents, {} s; SEED={seed}",
        of(&counters.files),
        of(&counters.bytes),
        of(&counters.runs),
        of(&counters.again),
        of(&counters.cuts),
        of(&counters.gateway_kills),
        of(&counters.agent_kills),
        began.elapsed().as_secs(),
    );
    assert_eq!(of(&counters.files), count as u64);
    assert!(of(&counters.cuts) > 0, "no line was cut");
}
