//! OpenSSH's own server, unprivileged, with a Unix socket behind it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use deskgate::identity::DeviceKey;
use deskgate::link::Ssh;
use deskgate_protocol::identity::PublicKey;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::gateway::FakeGateway;
use super::{device_key, pinned};

pub struct Sshd {
    pub port: u16,
    pub folder: TempDir,
    pub gateway: FakeGateway,
    pub device: DeviceKey,
    pub fingerprint: String,
    child: Child,
    tasks: JoinSet<()>,
}

impl Sshd {
    /// `options` are further lines of its configuration.
    pub async fn start(options: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let device = device_key(folder.path(), "device");
        let fingerprint = key(&path("host")).fingerprint();
        let line = format!("restrict,port-forwarding {}\n", device.public_key());
        fs::write(path("authorized"), line).expect("written");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             {options}\n",
            path("authorized").display(),
        );
        fs::write(path("config"), config).expect("written");
        // Started as root it needs this folder.
        let _ = fs::create_dir_all("/run/sshd");
        let child = spawn(folder.path(), &["host"]);
        let mut sshd =
            Self { port, gateway: FakeGateway::new(), device, fingerprint, child, tasks: JoinSet::new(), folder };
        sshd.listen();
        sshd.is_up().await;
        sshd
    }

    /// Restarts it with these host keys, of which it shows the first; creates missing ones.
    pub async fn show(&mut self, names: &[&str]) -> Vec<PublicKey> {
        let keys = names.iter().map(|name| key(&self.folder.path().join(name))).collect();
        self.child.kill().and_then(|()| self.child.wait()).expect("it ran");
        self.child = spawn(self.folder.path(), names);
        self.is_up().await;
        keys
    }

    async fn is_up(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(Instant::now() < deadline, "sshd listens; its log: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn ssh(&self) -> Ssh {
        Ssh {
            user: user(),
            socket_path: self.socket().display().to_string(),
            ..super::ssh(self.port, pinned(&self.fingerprint))
        }
    }

    fn listen(&mut self) {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        let gateway = self.gateway.clone();
        self.tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let gateway = gateway.clone();
                sessions.spawn(async move { gateway.echo(stream).await });
            }
        });
    }
}

/// The public half of a key, which is created if needed.
fn key(path: &Path) -> PublicKey {
    if !path.exists() {
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
        assert!(made.expect("ssh-keygen runs").success());
    }
    fs::read_to_string(path.with_extension("pub")).expect("made").parse().expect("a key")
}

fn spawn(folder: &Path, host_keys: &[&str]) -> Child {
    let keys = host_keys.iter().flat_map(|name| ["-h".into(), folder.join(name).into_os_string()]);
    let (config, log) = (folder.join("config"), folder.join("log"));
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-f"]).arg(config).arg("-E").arg(log).args(keys).stdin(Stdio::null());
    command.spawn().expect("sshd starts")
}

/// The user who runs this test: an unprivileged sshd admits nobody else.
fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id runs");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
