//! Private Unix sockets: bound with a mode; messages are lines of JSON.
//!
//! One connection carries one request, and one answer of one or more lines. Both daemons and both command lines use it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The size limit of a request or answer line.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_CONNECTIONS: usize = 64;

/// The kernel's limit for the name of a socket (`sun_path`, unix(7)), without the final zero.
const MAX_SOCKET_NAME_BYTES: usize = 107;

/// The path as the kernel takes it, and the folder handle it may lead through, which must stay open meanwhile.
struct ShortSocketPath {
    name: PathBuf,
    _folder: Option<OwnedFd>,
}

/// Shortens a path that exceeds a socket's name limit: it then leads through an open handle of its folder.
fn short(path: &Path) -> io::Result<ShortSocketPath> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(ShortSocketPath { name: path.to_owned(), _folder: None });
    };
    if path.as_os_str().len() <= MAX_SOCKET_NAME_BYTES {
        return Ok(ShortSocketPath { name: path.to_owned(), _folder: None });
    }
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let name = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(ShortSocketPath { name, _folder: Some(folder) })
}

/// Binds a socket with a mode. Replaces a socket that a killed process left behind.
///
/// # Errors
/// Another process answers on the socket, or it cannot be bound.
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    bind_for(path, mode, None)
}

/// As [`bind`], with a socket that belongs to a group, by its number. This process must be a member, or root.
///
/// # Errors
/// As [`bind`].
pub fn bind_for(path: &Path, mode: u32, group: Option<u32>) -> io::Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} exists and is no socket", path.display()),
            ));
        }
        let reachable = short(path)?;
        if std::os::unix::net::UnixStream::connect(&reachable.name).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another process answers on {}", path.display()),
            ));
        }
        std::fs::remove_file(path)?;
    }
    // Bound under another name first, so that nobody connects before the mode is set.
    let hidden = path.with_extension(format!("{}.new", std::process::id()));
    let _ = std::fs::remove_file(&hidden);
    let bindable = short(&hidden)?;
    let listener = UnixListener::bind(&bindable.name)?;
    // The group is set first: with the mode alone, this process's own group would have access for a moment.
    std::os::unix::fs::chown(&hidden, None, group)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&hidden, path)?;
    Ok(listener)
}

/// The caller, as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user's number.
    pub uid: u32,
}

/// Answers requests until `stop`. Only this process's own user and root may call, unless the socket's mode admits a
/// group (`group_may`).
pub async fn serve<Q, A, R>(
    listener: UnixListener,
    group_may: bool,
    stop: CancellationToken,
    answer: impl Fn(Q, Peer) -> R + Clone + Send + 'static,
) where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
    R: Future<Output = A> + Send + 'static,
{
    let own = rustix::process::geteuid().as_raw();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                // A caller that the kernel cannot identify is refused.
                let Some(peer) = stream.peer_cred().ok().map(|peer| Peer { uid: peer.uid() }) else { continue };
                if peer.uid != own && peer.uid != 0 && !group_may {
                    tracing::warn!("another user was turned away from the private socket");
                    continue;
                }
                let answer = answer.clone();
                let answer = move |request| answer(request, peer);
                connections.spawn(async move {
                    if let Err(error) = converse(stream, answer).await {
                        tracing::debug!(%error, "a conversation on the private socket ended");
                    }
                });
            }
        }
    }
    // The caller that requested the stop still gets its answer.
    let _ =
        tokio::time::timeout(Duration::from_secs(1), async { while connections.join_next().await.is_some() {} }).await;
}

async fn converse<Q: DeserializeOwned, A: Serialize, R: Future<Output = A>>(
    stream: UnixStream,
    answer: impl Fn(Q) -> R,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader).take(MAX_LINE_BYTES);
    tokio::time::timeout(Duration::from_secs(10), reader.read_line(&mut line)).await.map_err(io::Error::other)??;
    let request = serde_json::from_str(&line)?;
    let mut gone = String::new();
    let answer = tokio::select! {
        answer = answer(request) => answer,
        // The command line was interrupted.
        _ = reader.read_line(&mut gone) => return Ok(()),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    writer.write_all(text.as_bytes()).await
}

/// Why a call to a daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no socket, or no process answers on it.
    #[error("nothing answers on {path}")]
    NotRunning {
        /// The socket.
        path: String,
    },
    /// The socket's mode keeps this user out.
    #[error("this user may not use {path}")]
    NotAllowed {
        /// The socket.
        path: String,
    },
    /// The answer cannot be parsed, or the connection broke.
    #[error("the answer on {path} broke off: {problem}")]
    Broken {
        /// The socket.
        path: String,
        /// What happened.
        problem: String,
    },
}

/// Sends one request and reads its answer.
///
/// # Errors
/// The daemon does not run, refuses this user, or its answer cannot be read.
pub async fn call<Q: Serialize, A: DeserializeOwned>(path: &Path, request: &Q) -> Result<A, CallError> {
    let shown = path.display().to_string();
    let not_running = |_| CallError::NotRunning { path: shown.clone() };
    let reachable = short(path).map_err(not_running)?;
    let mut stream = UnixStream::connect(&reachable.name).await.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => CallError::NotAllowed { path: shown.clone() },
        _ => CallError::NotRunning { path: shown.clone() },
    })?;
    let broken = |error: io::Error| CallError::Broken { path: shown.clone(), problem: error.to_string() };
    let mut text = serde_json::to_string(request).map_err(|error| broken(error.into()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).await.map_err(broken)?;
    let mut line = String::new();
    BufReader::new(stream).take(MAX_LINE_BYTES).read_line(&mut line).await.map_err(broken)?;
    serde_json::from_str(&line).map_err(|error| broken(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_in_a_folder_with_a_long_path_is_bound_answered_on_and_not_taken_twice() {
        let top = tempfile::tempdir().expect("new");
        let folder = top.path().join("a-folder-with-quite-a-long-name/".repeat(5));
        std::fs::create_dir_all(&folder).expect("new");
        let path = folder.join("agent.sock");
        assert!(path.as_os_str().len() > MAX_SOCKET_NAME_BYTES);
        let missing = call::<_, u32>(&path, &1).await.expect_err("nobody there");
        assert!(matches!(missing, CallError::NotRunning { .. }), "{missing}");

        let listener = bind(&path, 0o600).expect("bound");
        let stop = CancellationToken::new();
        let serving =
            tokio::spawn(serve(listener, false, stop.clone(), |question: u32, _| async move { question + 1 }));
        assert_eq!(call::<_, u32>(&path, &41).await.expect("answered"), 42);
        assert_eq!(bind(&path, 0o600).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        stop.cancel();
        serving.await.expect("ended");
        assert!(bind(&path, 0o600).is_ok(), "what a predecessor left is replaced");
    }

    /// The answer that another user of this machine gets on a socket whose file admits everybody.
    async fn asked_by_another_user(path: &Path) -> String {
        const CLIENT_SCRIPT: &str = "import socket, sys\n\
            s = socket.socket(socket.AF_UNIX)\n\
            s.connect(sys.argv[1])\n\
            try: s.sendall(b'41\\n'); print(s.recv(99).decode().strip())\n\
            except (BrokenPipeError, ConnectionResetError): print()";
        let (path, nobody) = (path.to_owned(), 65534);
        let asking = tokio::task::spawn_blocking(move || {
            let mut python = std::process::Command::new("python3");
            std::os::unix::process::CommandExt::uid(&mut python, nobody).args(["-c", CLIENT_SCRIPT]).arg(path).output()
        });
        let output = asking.await.expect("ended").expect("python3 is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    #[tokio::test]
    async fn another_user_is_turned_away_even_where_the_file_lets_it_in() {
        // Only root can act as another user.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("new");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
        for (group_may, answer) in [(false, ""), (true, "42")] {
            let path = folder.path().join(format!("{group_may}.sock"));
            let listener = bind(&path, 0o666).expect("bound");
            let stop = CancellationToken::new();
            let serving =
                tokio::spawn(serve(listener, group_may, stop.clone(), |question: u32, _| async move { question + 1 }));
            assert_eq!(call::<_, u32>(&path, &41).await.expect("the own user is answered"), 42);
            assert_eq!(asked_by_another_user(&path).await, answer);
            stop.cancel();
            serving.await.expect("ended");
        }
    }

    #[tokio::test]
    async fn a_socket_can_belong_to_a_group_of_its_own() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("new");
        // Root may give it to any group, other users only to their own.
        let group = if rustix::process::geteuid().is_root() { 4711 } else { rustix::process::getegid().as_raw() };
        let path = folder.path().join("admin.sock");
        let _listener = bind_for(&path, 0o660, Some(group)).expect("bound");
        let metadata = std::fs::metadata(&path).expect("there");
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, group));
    }
}
