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
    process: Process,
}

impl Sshd {
    /// Starts it with these lines as its authorized keys.
    pub async fn start(authorized_keys: &str) -> Self {
        let folder = TempDir::with_prefix("deskgate-sshd-").expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path("host")).status();
        assert!(made.expect("ssh-keygen is installed").success());
        std::fs::write(path("authorized"), authorized_keys).expect("writable");
        // Another process may take the port first; then sshd does not start, and its log says so.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("ports are left").port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nAllowTcpForwarding local\n",
            path("host").display(),
            path("authorized").display(),
        );
        std::fs::write(path("config"), config).expect("writable");
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").expect("root may make it");
        }
        let mut command = process::command(Path::new("/usr/sbin/sshd"), folder.path());
        command.args(["-D", "-e", "-f"]).arg(path("config"));
        let mut process = Process::start(command, &path("log"));
        until("sshd to listen", async || {
            if let Some(status) = process.has_ended() {
                panic!("sshd ended with {status}:\n{}", process.log.tail(10));
            }
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        Self { folder, port, process }
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The known-hosts line of its key, in a file.
    pub fn known_hosts(&self) -> PathBuf {
        let key = std::fs::read_to_string(self.folder.path().join("host.pub")).expect("made");
        let key: PublicKey = key.parse().expect("ssh-keygen writes keys");
        let file = self.folder.path().join("known_hosts");
        std::fs::write(&file, format!("[127.0.0.1]:{} {key}\n", self.port)).expect("writable");
        file
    }

    /// The account it admits: the user who runs the tests.
    pub fn user(&self) -> String {
        let output = Command::new("id").arg("-un").output().expect("every system has it");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}
