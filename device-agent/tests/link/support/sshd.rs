//! OpenSSH's own server, unprivileged, with a Unix socket behind it.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use deskgate::identity::DeviceKey;
use deskgate::link::Ssh;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::gateway::Gateway;
use super::{device_key, pinned};

pub struct Sshd {
    pub port: u16,
    pub folder: TempDir,
    pub gateway: Gateway,
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
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path("host"))
            .status()
            .expect("ssh-keygen runs");
        assert!(made.success());
        let host = fs::read_to_string(path("host.pub")).expect("made");
        let fingerprint = host.parse::<deskgate_protocol::identity::PublicKey>().expect("a key").fingerprint();
        let line = format!("restrict,port-forwarding {}\n", device.public_key());
        fs::write(path("authorized"), line).expect("written");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             {options}\n",
            path("host").display(),
            path("authorized").display(),
        );
        fs::write(path("config"), config).expect("written");
        // Started as root it insists on this folder.
        let _ = fs::create_dir_all("/run/sshd");
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-f"])
            .arg(path("config"))
            .arg("-E")
            .arg(path("log"))
            .stdin(Stdio::null())
            .spawn()
            .expect("sshd starts");
        let mut sshd =
            Self { port, gateway: Gateway::new(), device, fingerprint, child, tasks: JoinSet::new(), folder };
        sshd.listen();
        let deadline = Instant::now() + Duration::from_secs(10);
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(Instant::now() < deadline, "sshd listens; its log: {}", sshd.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sshd
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

/// Who runs this test: an unprivileged sshd lets in nobody else.
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
