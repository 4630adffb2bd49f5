//! Starts a sandbox, up to the moment in which its command may begin.
//!
//! Two shells run a few lines each; neither contains the command:
//!
//! - The outer one closes every descriptor that the agent might have inherited, and opens those for bubblewrap from the
//!   agent's own: a handle, never a path. Then it becomes bubblewrap.
//! - The inner one reports that the sandbox is ready and waits for a line. Meanwhile the agent moves everything into
//!   the control group, and bubblewrap has asked the kernel to be killed with the agent; if the agent dies before, the
//!   line never comes. Then it becomes the command.

use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::arguments::BwrapArguments;
use super::cgroup::ControlGroup;
use super::limits::CommandLimits;
use super::program::SandboxPrograms;
use super::{SandboxError, tree};

/// How long a sandbox may take to be ready. It takes some 20 ms.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// The nice value of commands: the owner's own programs come first.
const COMMAND_NICE: i32 = 10;

const OUTER_SCRIPT: &str = r#"
set -e
for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    [ "$fd" -le 2 ] || eval "exec $fd>&-"
done
fd=3
while [ "$1" != -- ]; do
    eval "exec $fd<\"\$1\"" || exit 125
    fd=$((fd + 1))
    shift
done
shift
exec "$@"
"#;

const INNER_SCRIPT: &str = "echo ready; read -r go || exit 125; exec \"$@\" </dev/null";

/// A sandbox in which a command may begin or has begun.
pub(super) struct LaunchedSandbox {
    /// The bubblewrap process, outside. It ends with the command's status, and the sandbox with it.
    pub(super) bwrap: Child,
    /// The first process inside. When it ends, every other one has ended.
    pub(super) first: OwnedFd,
    /// The output of both streams, in order.
    pub(super) output: PipeReader,
}

/// Creates a sandbox and starts `command` in it.
pub(super) fn launch(
    programs: &SandboxPrograms,
    arguments: BwrapArguments<'_>,
    limits: &CommandLimits,
    group: Option<&ControlGroup>,
    command: &str,
) -> Result<LaunchedSandbox, SandboxError> {
    let (mut output, print) = std::io::pipe()?;
    let mut outside = Command::new(&programs.shell);
    outside.args(["-c", OUTER_SCRIPT, "sandbox"]);
    let own = std::process::id();
    outside.args(arguments.handles.iter().map(|handle| format!("/proc/{own}/fd/{}", handle.as_raw_fd())));
    outside.arg("--").arg(&programs.bwrap).args(arguments.list);
    outside.arg("--").arg(&programs.shell).args(["-c", INNER_SCRIPT, "sandbox"]);
    outside.arg(&programs.prlimit).args(limits.options());
    outside.arg(&programs.shell).args(["-c", "--", command]);
    outside.env_clear().stdin(Stdio::piped()).stdout(print.try_clone()?).stderr(print).current_dir("/");
    let mut bwrap = outside.spawn()?;
    // It holds the other end of the pipe, which would then never close.
    drop(outside);
    match begin(&mut bwrap, &mut output, group) {
        Ok(first) => Ok(LaunchedSandbox { bwrap, first, output }),
        Err(error) => {
            let _ = bwrap.kill();
            let _ = bwrap.wait();
            Err(error)
        }
    }
}

fn begin(bwrap: &mut Child, output: &mut PipeReader, group: Option<&ControlGroup>) -> Result<OwnedFd, SandboxError> {
    until_ready(output)?;
    let root = i32::try_from(bwrap.id()).map_err(std::io::Error::other)?;
    let inside = tree::descendants(root);
    let first = inside.first().copied().and_then(tree::hold).ok_or(SandboxError::NotFound)?;
    // What they start inherits it. The kernel derives the priority at the disk from it. Nobody can go below their own.
    let nice = rustix::process::getpriority_process(None).map_or(COMMAND_NICE, |own| own.max(COMMAND_NICE));
    for process in inside.iter().map(|process| process.pid).chain([root]) {
        rustix::process::setpriority_process(Pid::from_raw(process), nice).map_err(std::io::Error::from)?;
    }
    if let Some(group) = group {
        // Each of them waits, and starts no process meanwhile.
        inside.iter().map(|process| process.pid).chain([root]).try_for_each(|pid| group.take(pid))?;
    }
    let mut go = bwrap.stdin.take().ok_or(SandboxError::NotFound)?;
    go.write_all(b"go\n")?;
    Ok(first)
}

/// Waits for the line that reports readiness. Any other text is an error of bubblewrap's or of a shell's.
fn until_ready(output: &mut PipeReader) -> Result<(), SandboxError> {
    let until = Instant::now() + READY_TIMEOUT;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = left.try_into().map_err(std::io::Error::other)?;
        let ready = match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&wait)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        };
        let mut bytes = [0; 1024];
        let read = if ready == 0 { 0 } else { output.read(&mut bytes)? };
        said.extend_from_slice(&bytes[..read]);
        if said.ends_with(b"ready\n") {
            return Ok(());
        }
        if read == 0 || said.len() > 4096 {
            return Err(SandboxError::Refused(String::from_utf8_lossy(&said).trim().to_owned()));
        }
    }
}
