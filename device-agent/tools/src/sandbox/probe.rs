//! The self-test: a command that tries to escape, by every way that a shell has. Each attempt must fail.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::Network;
use tokio_util::sync::CancellationToken;

use super::{CommandLimits, Sandbox, SandboxError};
use crate::engine::workspace::{Workspace, WorkspaceError, WorkspaceOptions};

/// The timeout of all attempts together.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// The last line of output: without it not all attempts were made.
const DONE_LINE: &str = "every attempt was made";
/// The content of the file outside.
const CANARY_TEXT: &str = "a command must not read this";

/// Why commands must not run in a working directory.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The working directory cannot be used.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The sandbox cannot be created.
    #[error(transparent)]
    Unavailable(#[from] SandboxError),
    /// The sandbox has a hole.
    #[error("the sandbox does not confine here: a command could {}", .0.join(", "))]
    Escaped(Vec<String>),
    /// Some attempts were not made.
    #[error("the attempts to get out of the sandbox did not come to their end: {0}")]
    Unfinished(String),
}

impl ProbeError {
    /// The one thing to do next.
    pub fn next(&self) -> String {
        match self {
            Self::Workspace(_) => "choose another working directory".to_owned(),
            Self::Unavailable(unavailable) => unavailable.next(),
            Self::Escaped(_) | Self::Unfinished(_) => {
                "leave Bash out on this computer, and report this as SECURITY.md says".to_owned()
            }
        }
    }
}

/// Creates a sandbox as a run does and tries to escape from it. `Ok` is the number of attempts that failed. Blocks for
/// some 200 ms.
///
/// # Errors
/// The working directory cannot be used, the sandbox cannot be created, an attempt succeeded, or not all were made.
pub fn probe(options: WorkspaceOptions<'_>) -> Result<usize, ProbeError> {
    let WorkspaceOptions { own_folder: own, network, .. } = options;
    let workspace = Workspace::open(options)?;
    let sandbox = Sandbox::open(Arc::new(workspace), own, network, CommandLimits::default())?;
    let outside = ProbeTargets::new(own).map_err(SandboxError::from)?;
    let attempts = outside.attempts(own, network);
    let (said, ending) = sandbox.run(&script(&attempts), PROBE_TIMEOUT, &CancellationToken::new())?;
    let said = said.text();
    if !said.lines().any(|line| line == DONE_LINE) {
        return Err(ProbeError::Unfinished(format!("{ending:?}: {}", said.trim())));
    }
    let mut escaped: Vec<String> =
        said.lines().filter_map(|line| line.strip_prefix(ESCAPED_PREFIX)).map(str::to_owned).collect();
    if std::fs::read_to_string(outside.folder.join("canary")).ok().as_deref() != Some(CANARY_TEXT) {
        escaped.push("change a file outside".to_owned());
    }
    if escaped.is_empty() { Ok(attempts.len()) } else { Err(ProbeError::Escaped(escaped)) }
}

const ESCAPED_PREFIX: &str = "escaped: ";

/// The escape in words, and a shell condition that is true exactly when the sandbox has that hole.
type EscapeAttempt = (&'static str, String);

fn script(attempts: &[EscapeAttempt]) -> String {
    let mut script = String::new();
    for (what, attempt) in attempts {
        let line = quoted(format!("{ESCAPED_PREFIX}{what}"));
        script += &format!("if ( {attempt} ) >/dev/null 2>&1 </dev/null; then echo {line}; fi\n");
    }
    script + "echo '" + DONE_LINE + "'"
}

/// Resources of the agent that no command may reach, created for the test.
struct ProbeTargets {
    folder: std::path::PathBuf,
    tcp: TcpListener,
    name: String,
    _abstract: UnixListener,
    _path: UnixListener,
}

impl ProbeTargets {
    fn new(own: &Path) -> std::io::Result<Self> {
        let name = format!("deskgate-probe-{}-{:x}", std::process::id(), rand::random::<u64>());
        let folder = own.join("scratch").join(&name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("canary"), CANARY_TEXT)?;
        Ok(Self {
            tcp: TcpListener::bind(("127.0.0.1", 0))?,
            _abstract: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?,
            // A socket's path is limited to some hundred bytes.
            _path: UnixListener::bind(std::env::temp_dir().join(&name))?,
            name,
            folder,
        })
    }

    fn attempts(&self, own: &Path, network: Network) -> Vec<EscapeAttempt> {
        let (own, canary) = (quoted(own), quoted(self.folder.join("canary")));
        let socket = quoted(std::env::temp_dir().join(&self.name));
        let mut attempts = vec![
            ("read a file outside", format!("cat {canary} || cat /proc/1/root{canary} || cat /proc/*/cwd{canary}")),
            ("write a file outside", format!("echo changed >{canary}")),
            ("see the agent's folder", format!("ls {own}")),
            ("reach a socket of the agent's", format!("test -e {socket}")),
            ("read the passwords of the system", "cat /etc/shadow || cat /etc/gshadow".to_owned()),
            ("see the keys of the system", "ls /etc/ssh || ls /etc/ssl/private || ls /root".to_owned()),
            (
                "change the system",
                "touch /usr/x || touch /usr/bin/x || touch /etc/x || touch /x || touch /dev/x".to_owned(),
            ),
            ("see the kernel's settings", "ls /sys/kernel".to_owned()),
            (
                "change the kernel's settings",
                "x=$(cat /proc/sys/kernel/panic); echo $x >/proc/sys/kernel/panic".to_owned(),
            ),
            ("see the sockets of the system", "ls /run/* || ls /var/run/*".to_owned()),
            ("mount a file system", "mount -t tmpfs none /tmp || mount --bind /usr /tmp".to_owned()),
            (
                "make a namespace",
                "unshare --user true || unshare --map-root-user true || unshare --mount true".to_owned(),
            ),
            ("enter a namespace", "nsenter --target 1 --mount true".to_owned()),
            ("change its root", "chroot / true".to_owned()),
            ("make a device", "mknod /tmp/deskgate-probe c 1 3".to_owned()),
            ("keep a capability", "grep -E '^Cap(Inh|Prm|Eff|Amb):.*[1-9a-f]' /proc/self/status".to_owned()),
            ("gain privileges", "! grep '^NoNewPrivs:.*1$' /proc/self/status".to_owned()),
            ("use every system call", "! grep '^Seccomp:.*2$' /proc/self/status".to_owned()),
            ("start processes without a limit", "! grep '^Max processes *[0-9]' /proc/self/limits".to_owned()),
            ("change what git executes", "mkdir -p .git/hooks && touch .git/hooks/deskgate-probe".to_owned()),
            ("see the agent's environment", "! test \"$(env | grep -c .)\" -le 12".to_owned()),
        ];
        attempts.extend(self.namespaces(network));
        if network == Network::None {
            let port = self.tcp.local_addr().map_or(0, |address| address.port());
            attempts.push(("reach a server of this computer", format!("exec 3<>/dev/tcp/127.0.0.1/{port}")));
            attempts.push(("see the computer's abstract sockets", format!("grep -F {} /proc/net/unix", self.name)));
        }
        attempts
    }

    /// A command in one of the agent's namespaces would see its processes, mounts and so on.
    fn namespaces(&self, network: Network) -> impl Iterator<Item = EscapeAttempt> {
        let kinds = [
            ("user", "be in the agent's user namespace"),
            ("pid", "see the agent's processes"),
            ("mnt", "see the agent's mounts"),
            ("ipc", "share memory with other programs"),
            ("uts", "name the computer"),
            ("net", "use the computer's network"),
        ];
        kinds.into_iter().filter(move |(kind, _)| network == Network::None || *kind != "net").map(|(kind, what)| {
            let link = format!("/proc/self/ns/{kind}");
            let agents = std::fs::read_link(&link).unwrap_or_default();
            (what, format!("test \"$(readlink {link})\" = {} || ! readlink {link}", quoted(agents)))
        })
    }
}

impl Drop for ProbeTargets {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(std::env::temp_dir().join(&self.name));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The text quoted as one word for a shell.
fn quoted(word: impl AsRef<OsStr>) -> String {
    format!("'{}'", word.as_ref().to_string_lossy().replace('\'', r"'\''"))
}
