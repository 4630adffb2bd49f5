//! Debian's own SSH server, in front of a gateway's control socket.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use deskgate_protocol::identity::PublicKey;
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::wait::until;

/// A running `sshd` that admits the keys in its one authorized-keys file.
#[derive(Debug)]
pub struct Sshd {
    folder: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Sshd {
    /// Starts it with these lines as its authorized keys.
    pub async fn start(authorized_keys: &str) -> Self {
        let folder = TempDir::with_prefix("deskgate-sshd-").expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        make_key(&path("host"));
        std::fs::write(path("authorized"), authorized_keys).expect("writable");
        // Another process may take the port first; then sshd does not start, and its log says so.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("ports are left").port();
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").expect("root may make it");
        }
        let process = Some(run(folder.path(), port, &["host"]).await);
        Self { folder, port, process }
    }

    /// Ends its listener: nothing answers at its address then. Open connections stay, as sshd has them.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(rustix::process::Signal::TERM);
            process.ended().await;
        }
    }

    /// Starts it with these host keys instead, which are made if they are new; "host" is the first one. Its log goes on.
    pub async fn restart_with_keys(&mut self, names: &[&str]) {
        self.stop().await;
        for name in names {
            if !self.folder.path().join(name).exists() {
                make_key(&self.folder.path().join(name));
            }
        }
        self.process = Some(run(self.folder.path(), self.port, names).await);
    }

    /// Lets in by one line more.
    pub fn authorize(&self, line: &str) {
        let path = self.folder.path().join("authorized");
        let before = std::fs::read_to_string(&path).expect("readable");
        std::fs::write(path, format!("{before}{}\n", line.trim_end())).expect("writable");
    }

    /// Lets in by these lines alone.
    pub fn replace_authorized(&self, lines: &str) {
        std::fs::write(self.folder.path().join("authorized"), format!("{}\n", lines.trim_end())).expect("writable");
    }

    /// The fingerprint of one of its keys.
    pub fn fingerprint(&self, name: &str) -> String {
        self.key(name).fingerprint()
    }

    fn key(&self, name: &str) -> PublicKey {
        let key = std::fs::read_to_string(self.folder.path().join(format!("{name}.pub"))).expect("made");
        key.parse().expect("ssh-keygen writes keys")
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The known-hosts line of its key, in a file.
    pub fn known_hosts(&self) -> PathBuf {
        let key = self.key("host");
        let file = self.folder.path().join("known_hosts");
        std::fs::write(&file, format!("[127.0.0.1]:{} {key}\n", self.port)).expect("writable");
        file
    }

    /// The account it admits: the user who runs the tests.
    pub fn user(&self) -> String {
        let output = Command::new("id").arg("-un").output().expect("every system has it");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// All that it has logged, also before it was stopped.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("it has one")
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(made.expect("ssh-keygen is installed").success());
}

/// Starts it with these host keys of its folder.
async fn run(folder: &Path, port: u16, keys: &[&str]) -> Process {
    let path = |name: &str| folder.join(name);
    let keys: String = keys.iter().map(|name| format!("HostKey {}\n", path(name).display())).collect();
    let config = format!(
        "ListenAddress 127.0.0.1:{port}\n{keys}AuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
         UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nAllowTcpForwarding local\nSubsystem sftp internal-sftp\n",
        path("authorized").display(),
    );
    std::fs::write(path("config"), config).expect("writable");
    let mut command = process::command(Path::new("/usr/sbin/sshd"), folder);
    command.args(["-D", "-e", "-f"]).arg(path("config"));
    let mut process = Process::start(command, &path("log"));
    until("sshd to listen", async || {
        if let Some(status) = process.has_ended() {
            panic!("sshd ended with {status}:\n{}", process.log.tail(10));
        }
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    process
}
