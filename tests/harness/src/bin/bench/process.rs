//! The measured processes: starts, measures and stops them in all cases.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// The longest time to wait for a process to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is stopped, and waited for, when this is dropped.
pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    /// Starts it in its own process group, so that Ctrl-C does not reach it, with its output in a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self(child))
    }

    /// Its process identifier.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed())
            && !self.has_ended()
        {
            // An error means that it has already ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.has_ended() {
            if Instant::now() > deadline {
                eprintln!("bench: process {} did not stop and is killed", self.pid());
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
