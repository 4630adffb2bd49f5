//! Supervises one command, from its start to the end of every process it has started.

use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::launch::LaunchedSandbox;
use super::limits::CommandLimits;
use super::tree;

/// How often memory is checked. The disk is looked at as often as a stop, or more often.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How long killed processes may take to end; they end at once, unless a file system hangs.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself, or by a signal from inside.
    Finished(ExitStatus),
    /// The agent ended it.
    Ended(KillReason),
}

/// Why the agent ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// The run was stopped.
    Stopped,
    /// Its time was over.
    Time,
    /// Its processes together used too much memory.
    Memory,
    /// A disk it writes to was nearly full.
    Disk,
}

/// The limits of a command.
pub(super) struct CommandBounds<'a> {
    pub(super) limits: &'a CommandLimits,
    pub(super) until: Instant,
    pub(super) stop: &'a CancellationToken,
    /// Whether memory must be polled, because no control group bounds it.
    pub(super) watch_memory: bool,
    /// Folders on the disks that it writes to.
    pub(super) disks: [BorrowedFd<'a>; 2],
}

impl CommandBounds<'_> {
    fn broken(&self, root: i32, look: bool) -> Option<KillReason> {
        match () {
            () if self.stop.is_cancelled() => Some(KillReason::Stopped),
            () if Instant::now() >= self.until => Some(KillReason::Time),
            () if look && self.watch_memory && tree::memory(&tree::descendants(root)) > self.limits.memory => {
                Some(KillReason::Memory)
            }
            () if self.limits.disk_is_full(&self.disks) => Some(KillReason::Disk),
            () => None,
        }
    }
}

/// Supervises a command. When this returns, every process that it started has ended, or was killed and hangs in the
/// kernel.
pub(super) fn supervise(
    launched: LaunchedSandbox,
    bounds: &CommandBounds<'_>,
) -> std::io::Result<(Capture, CommandEnd)> {
    let mut sandbox = RunningSandbox::new(launched)?;
    let ending = sandbox.until_it_ends(bounds);
    sandbox.end()?;
    Ok((std::mem::take(&mut sandbox.capture), ending?))
}

/// A running sandbox; dropping it ends the sandbox.
struct RunningSandbox {
    launched: LaunchedSandbox,
    /// A handle of bubblewrap, to wait for its end.
    handle: OwnedFd,
    capture: Capture,
}

impl RunningSandbox {
    fn new(launched: LaunchedSandbox) -> std::io::Result<Self> {
        let pid = i32::try_from(launched.bwrap.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        fcntl_setfl(&launched.output, fcntl_getfl(&launched.output)? | OFlags::NONBLOCK)?;
        Ok(Self { launched, handle, capture: Capture::default() })
    }

    fn root(&self) -> i32 {
        self.launched.bwrap.id().cast_signed()
    }

    fn until_it_ends(&mut self, bounds: &CommandBounds<'_>) -> std::io::Result<CommandEnd> {
        let mut asked: Option<(KillReason, Instant)> = None;
        let mut looked = Instant::now();
        loop {
            let open = self.read()?;
            if let Some(status) = self.launched.bwrap.try_wait()? {
                return Ok(asked.map_or(CommandEnd::Finished(status), |(reason, _)| CommandEnd::Ended(reason)));
            }
            match asked {
                Some((reason, until)) if Instant::now() >= until => return Ok(CommandEnd::Ended(reason)),
                Some(_) => {}
                None => {
                    let look = looked.elapsed() >= MEMORY_CHECK_INTERVAL;
                    looked = if look { Instant::now() } else { looked };
                    if let Some(reason) = bounds.broken(self.root(), look) {
                        // A command that exhausts memory or disk gets no grace time.
                        if matches!(reason, KillReason::Memory | KillReason::Disk) {
                            return Ok(CommandEnd::Ended(reason));
                        }
                        tree::ask_to_end(&tree::descendants(self.root()));
                        asked = Some((reason, Instant::now() + bounds.limits.grace));
                    }
                }
            }
            self.wait(open, bounds.limits.next_look(&bounds.disks))?;
        }
    }

    /// Waits for more output, for the end, or for a moment.
    fn wait(&self, open: bool, moment: Duration) -> std::io::Result<()> {
        let moment = moment.try_into().map_err(std::io::Error::other)?;
        let end = PollFd::new(&self.handle, PollFlags::IN);
        let more = PollFd::new(&self.launched.output, PollFlags::IN);
        // A pipe that every writer has closed would be ready forever.
        let mut both = [end, more];
        let watched = if open { &mut both[..] } else { &mut both[..1] };
        match poll(watched, Some(&moment)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads the available output, at most a bounded part, so that a flood does not delay the time checks. Returns
    /// whether more may come.
    fn read(&mut self) -> std::io::Result<bool> {
        read(&mut self.launched.output, &mut self.capture)
    }

    /// Kills the remaining processes, waits for their end, and reads the last output.
    fn end(&mut self) -> std::io::Result<()> {
        let _ = pidfd_send_signal(&self.launched.first, Signal::KILL);
        let _ = self.launched.bwrap.kill();
        self.launched.bwrap.wait()?;
        let wait = Timespec { tv_sec: KILL_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        let gone = poll(&mut [PollFd::new(&self.launched.first, PollFlags::IN)], Some(&wait));
        if gone.is_ok_and(|ready| ready == 0) {
            tracing::warn!("processes of a command do not end after they were killed: a file system may hang");
        }
        // All writers have ended: at most the content of the pipe is left.
        self.read()?;
        Ok(())
    }
}

impl Drop for RunningSandbox {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.launched.first, Signal::KILL);
        let _ = self.launched.bwrap.kill();
        let _ = self.launched.bwrap.wait();
    }
}

/// The default size of a pipe.
const PIPE_BYTES: usize = 64 * 1024;

fn read(output: &mut PipeReader, capture: &mut Capture) -> std::io::Result<bool> {
    let mut bytes = vec![0; PIPE_BYTES];
    let mut taken = 0;
    while taken < PIPE_BYTES {
        match output.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                capture.take(&bytes[..read]);
                taken += read;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
