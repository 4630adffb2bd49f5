//! What stock OpenSSH can and cannot do with the gateway's SSH listener, with a paired key.

use std::process::{Command, Output, Stdio};

use deskgate_gateway::tunnel::KeyStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::support::server::SshServer;
use crate::support::{CONTROL_SOCKET_PATH, device_key, soon};

fn command(server: &SshServer, key: &str) -> Command {
    let known = server.folder.path().join("known_hosts");
    let entry = format!("[127.0.0.1]:{} {}\n", server.port, server.host_key.public_key());
    std::fs::write(&known, entry).expect("written");
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes"])
        .args(["-o", "IdentityAgent=none", "-o", "GlobalKnownHostsFile=/dev/null"])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .arg("-i")
        .arg(server.folder.path().join(key))
        .args(["-p", &server.port.to_string(), "anyone@127.0.0.1"])
        .stdin(Stdio::null());
    ssh
}

async fn output(mut command: Command) -> (Output, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("ssh runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

#[tokio::test]
async fn a_command_a_shell_a_terminal_and_sftp_are_refused() {
    let mut server = SshServer::start().await;
    for arguments in [&["id"][..], &[], &["-tt"], &["-s", "sftp"]] {
        let mut ssh = command(&server, "device");
        ssh.args(arguments);
        let (output, text) = soon("ssh gives up", output(ssh)).await;
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {text}");
        assert!(text.contains("prohibited") || text.contains("open failed"), "{arguments:?}: {text}");
    }
    assert!(server.arrivals.try_recv().is_err());
}

#[tokio::test]
async fn a_tcp_forward_is_refused() {
    let server = SshServer::start().await;
    let mut ssh = command(&server, "device");
    ssh.args(["-W", "127.0.0.1:22"]);
    let (output, text) = soon("ssh gives up", output(ssh)).await;
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("prohibited"), "{text}");
}

#[tokio::test]
async fn forwarding_from_the_server_is_refused() {
    let server = SshServer::start().await;
    let socket = server.folder.path().join("reverse.sock");
    for forward in ["0:127.0.0.1:22".to_owned(), format!("{}:127.0.0.1:22", socket.display())] {
        let mut ssh = command(&server, "device");
        ssh.args(["-N", "-o", "ExitOnForwardFailure=yes", "-R", &forward]);
        let (output, text) = soon("ssh gives up", output(ssh)).await;
        assert!(!output.status.success() && text.contains("remote port forwarding failed"), "{forward}: {text}");
    }
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_password_is_not_even_asked_for() {
    let server = SshServer::start().await;
    let mut ssh = command(&server, "device");
    ssh.args(["-o", "BatchMode=no", "-o", "PubkeyAuthentication=no"]);
    ssh.args(["-o", "PreferredAuthentications=none,password,keyboard-interactive,hostbased"]);
    let (output, text) = soon("ssh gives up", output(ssh)).await;
    assert!(!output.status.success());
    assert!(text.contains("Permission denied (publickey)"), "{text}");
}

#[tokio::test]
async fn an_unpaired_and_a_revoked_key_are_refused() {
    let server = SshServer::start().await;
    let stranger = device_key(server.folder.path(), "stranger");
    for verdict in [KeyStatus::Unknown, KeyStatus::Revoked] {
        server.paired.set(&stranger, verdict);
        let (output, text) = soon("ssh gives up", output(command(&server, "stranger"))).await;
        assert!(!output.status.success());
        assert!(text.contains("Permission denied (publickey)"), "{text}");
    }
}

#[tokio::test]
async fn it_can_forward_the_one_socket_once_and_no_other() {
    let mut server = SshServer::start().await;
    let (good, bad) = (server.folder.path().join("good.sock"), server.folder.path().join("bad.sock"));
    let mut ssh = command(&server, "device");
    ssh.arg("-N")
        .arg("-L")
        .arg(format!("{}:{CONTROL_SOCKET_PATH}", good.display()))
        .arg("-L")
        .arg(format!("{}:/run/other.sock", bad.display()));
    let mut child = ChildGuard(ssh.stderr(Stdio::null()).spawn().expect("ssh starts"));

    let mut other = dial(&bad).await;
    assert_eq!(soon("refused", other.read(&mut [0; 1])).await.unwrap_or(0), 0);
    let mut first = dial(&good).await;
    first.write_all(b"hello").await.expect("written");
    let mut arrival = server.arrival().await;
    assert_eq!(arrival.public_key, server.device.public_key());
    let mut heard = [0; 5];
    arrival.stream.read_exact(&mut heard).await.expect("it arrives");
    assert_eq!(&heard, b"hello");

    let mut second = dial(&good).await;
    assert_eq!(soon("refused", second.read(&mut [0; 1])).await.unwrap_or(0), 0, "a second channel is refused");
    arrival.stream.write_all(b"still here").await.expect("the first goes on");
    let mut heard = [0; 10];
    first.read_exact(&mut heard).await.expect("it arrives");
    assert!(server.arrivals.try_recv().is_err());
    assert!(child.0.try_wait().expect("asked").is_none());

    let last_words = vec![7; 1024 * 1024];
    let writing = async {
        arrival.stream.write_all(&last_words).await.expect("written");
        drop(arrival);
    };
    let mut heard = Vec::new();
    soon("the last words", async { tokio::join!(writing, first.read_to_end(&mut heard)) }).await.1.expect("read");
    assert_eq!(heard.len(), last_words.len(), "what was written before the drop arrives");
    let status = soon("ssh ends with the arrival", tokio::task::spawn_blocking(move || child.0.wait())).await;
    status.expect("no panic").expect("it ended");
}

struct ChildGuard(std::process::Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn dial(path: &std::path::Path) -> UnixStream {
    soon("ssh listens", async {
        loop {
            match UnixStream::connect(path).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    })
    .await
}
