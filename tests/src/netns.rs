//! An isolated network (an island): every address in it belongs to this machine, and the test controls DNS.
//!
//! So a host can have an address of the public Internet, and a connection to any address is seen. The test runs again
//! inside it, in a process of its own:
//!
//! ```text
//! #[test]
//! fn nothing_leaves() {
//!     netns::run_test("destination_guard::nothing_leaves", async || {
//!         let names = Names::start().await;
//!         names.lead("hooks.example.com", &["93.184.216.34"]);
//!         …
//!     });
//! }
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::UdpSocket;
use tokio_util::task::AbortOnDropHandle;

/// The variable that is set inside.
const INSIDE_ENV: &str = "DESKGATE_TEST_ISLAND";
/// The address of the name server inside.
const RESOLVER_ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);

/// Runs a test, by its name in the test program, on an island.
pub fn run_test(test: &str, work: impl AsyncFnOnce()) {
    run_test_unconfigured(test, async || {
        arrange();
        work().await;
    });
}

/// Whether isolated networks can be made here. If not, a message is printed; on a build server the test fails.
pub fn is_supported() -> bool {
    if std::env::var_os(INSIDE_ENV).is_some() {
        return true;
    }
    let tried = command(Path::new("true")).output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    assert!(std::env::var_os("CI").is_none(), "no network of a test's own can be made: {why}");
    println!("SKIPPED: no network of a test's own can be made here: {why}");
    false
}

/// As [`run_test`], in a network that is still empty.
pub fn run_test_unconfigured(test: &str, work: impl AsyncFnOnce()) {
    if std::env::var_os(INSIDE_ENV).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(work());
    }
    let mut again = command(&std::env::current_exe().expect("this program's file"));
    again.args([test, "--exact", "--nocapture"]).env(INSIDE_ENV, "1");
    // A program that uses a proxy of the environment is seen at this machine's port 443.
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        again.env(variable, "http://127.0.0.1:443");
    }
    let output = again.output().expect("util-linux is there");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{test}, on an island of its own");
    assert!(said.contains("1 passed"), "{test} is not what the test is called");
}

/// A command for a program on an island. The program has to call [`arrange`].
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--net", "--mount", "--propagation", "private", "--"]).arg(program);
    command
}

/// Gives this machine every address, and sets the island's name server.
pub fn arrange() {
    for arguments in ["link set lo up", "route add local default dev lo", "-6 route add local default dev lo"] {
        run("ip", &arguments.split(' ').collect::<Vec<_>>());
    }
    // A file system in memory without a name outside: it exists until its last mount is gone. A sandbox in here mounts
    // these files again, which fails for a removed file.
    let folder = tempfile::tempdir().expect("a temporary folder");
    run("mount", &["-t", "tmpfs", "tmpfs", &folder.path().display().to_string()]);
    for (path, content) in [
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("/etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n"),
    ] {
        let own = folder.path().join(Path::new(path).file_name().expect("a file's path"));
        std::fs::write(&own, content).expect("written");
        run("mount", &["--bind", &own.display().to_string(), path]);
    }
    run("umount", &["--lazy", &folder.path().display().to_string()]);
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program is there");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Loses packets of one port of an island, in both directions, until this is dropped.
#[derive(Debug)]
pub struct PacketLoss(String);

impl PacketLoss {
    /// Loses this percentage of packets.
    pub fn of(port: u16, of_a_hundred: u32) -> Self {
        let table = format!("loss-{port}");
        let nft = |rest: String| run("nft", &rest.split(' ').collect::<Vec<_>>());
        nft(format!("add table inet {table}"));
        nft(format!("add chain inet {table} arriving {{ type filter hook input priority 0 ; }}"));
        for side in ["sport", "dport"] {
            nft(format!(
                "add rule inet {table} arriving tcp {side} {port} numgen random mod 100 < {of_a_hundred} counter drop"
            ));
        }
        Self(table)
    }

    /// How many packets were lost.
    pub fn lost(&self) -> u64 {
        let rules = run("nft", &["list", "table", "inet", &self.0]);
        let counts = rules.split("counter packets ").skip(1);
        counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
    }
}

impl Drop for PacketLoss {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "inet", &self.0]).status();
    }
}

/// The address sets of a name, one for each look-up; the last one stays.
type AddressSequence = Vec<Vec<IpAddr>>;

/// The name server of an island (RFC 1035). Its answers must not be cached.
pub struct DnsServer {
    ways: Arc<Mutex<HashMap<String, AddressSequence>>>,
    _serving: AbortOnDropHandle<()>,
}

impl DnsServer {
    /// Starts it without any names.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind(RESOLVER_ADDRESS).await.expect("nobody else is here");
        let ways: Arc<Mutex<HashMap<String, AddressSequence>>> = Arc::default();
        let serving = tokio::spawn(serve(socket, ways.clone()));
        Self { ways, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Gives a name these addresses from now on.
    pub fn set_addresses(&self, name: &str, to: &[&str]) {
        self.set_address_sequence(name, &[to]);
    }

    /// Gives a name another set of addresses for each look-up.
    pub fn set_address_sequence(&self, name: &str, turns: &[&[&str]]) {
        let addresses = |turn: &&[&str]| turn.iter().map(|text| text.parse().expect("an address")).collect();
        let way = turns.iter().map(addresses).collect();
        self.ways.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), way);
    }
}

/// A look-up asks for both families, IPv4 first; the set changes when both were answered.
const RECORD_TYPE_A: u16 = 1;
const RECORD_TYPE_AAAA: u16 = 28;

async fn serve(socket: UdpSocket, ways: Arc<Mutex<HashMap<String, AddressSequence>>>) {
    let mut packet = [0; 1500];
    let mut answered: HashMap<String, Vec<u16>> = HashMap::new();
    while let Ok((length, asker)) = socket.recv_from(&mut packet).await {
        let Some((name, kind, question)) = question(&packet[..length]) else { continue };
        let way = {
            let mut ways = ways.lock().unwrap_or_else(PoisonError::into_inner);
            let way = ways.get_mut(&name);
            let kinds = answered.entry(name).or_default();
            way.and_then(|way| {
                if kinds.contains(&kind) {
                    kinds.clear();
                    if way.len() > 1 {
                        way.remove(0);
                    }
                }
                kinds.push(kind);
                way.first().cloned()
            })
        };
        let _ = socket.send_to(&reply(&packet[..2], question, kind, way), asker).await;
    }
}

/// The name of a question, its record type, and its bytes.
fn question(packet: &[u8]) -> Option<(String, u16, &[u8])> {
    let asked = packet.get(12..)?;
    let (mut labels, mut at) = (Vec::new(), 0);
    while *asked.get(at)? != 0 {
        let length = usize::from(asked[at]);
        labels.push(std::str::from_utf8(asked.get(at + 1..at + 1 + length)?).ok()?.to_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes(asked.get(at + 1..at + 3)?.try_into().ok()?);
    Some((labels.join("."), kind, asked.get(..at + 5)?))
}

fn reply(id: &[u8], question: &[u8], kind: u16, way: Option<Vec<IpAddr>>) -> Vec<u8> {
    let code = if way.is_some() { 0 } else { 3 };
    let records: Vec<Vec<u8>> = way
        .unwrap_or_default()
        .into_iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(address), RECORD_TYPE_A) => Some(address.octets().to_vec()),
            (IpAddr::V6(address), RECORD_TYPE_AAAA) => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let count = u8::try_from(records.len()).expect("few addresses");
    let mut reply = [id, &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0], question].concat();
    for record in records {
        let length = u8::try_from(record.len()).expect("an address");
        // A pointer to the question's name, this type, class IN, TTL 0.
        reply.extend([&[0xc0, 12], &kind.to_be_bytes()[..], &[0, 1, 0, 0, 0, 0, 0, length], &record].concat());
    }
    reply
}
