//! The thread that owns the server process: starts it, waits for it, reaps it, starts it again.
//!
//! One dedicated thread, for two reasons. The kernel's "signal me when my parent dies" follows the
//! thread that started the child, so that thread must live as long as the child. And the child must be
//! reaped by the waiting process, or its number stays taken and blocks the next start.
//!
//! ```text
//! prepare ─► start ─► ready ─► (ended by itself) ─► pause ─► start …
//!                        └──── asked to stop ────► reaped ─► the thread ends, the lock is free
//! ```

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::oneshot;

use super::account::ServerAccount;
use super::binaries::{self, Binaries};
use super::error::ClusterError;
use super::paths::ClusterPaths;
use super::{ClusterConfig, initdb, log, orphan, parent_death, settings, socket_dir};

/// Recovery after a crash reads at most `max_wal_size`; this is far more than that takes.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(3);
/// Fast shutdown with clients connected takes milliseconds; the rest is for a slow disk.
const FAST_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1500);
const IMMEDIATE_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(100);
const MAX_RESTART_INTERVAL: Duration = Duration::from_secs(5);
/// A server that ran this long has recovered: the next pause is short again.
const STABLE_UPTIME: Duration = Duration::from_secs(30);

/// The result of the server's thread before the server accepts connections.
#[derive(Clone, Debug)]
pub(super) struct StartedServer {
    pub(super) socket_dir: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) is_new: bool,
}

/// Owns the thread. Dropping it ends the server at once and waits for that.
#[derive(Debug)]
pub(super) struct Supervisor {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    ended: oneshot::Receiver<()>,
}

impl Supervisor {
    /// Starts the thread. The receiver gets the message when the server accepts connections, or the reason why not.
    pub(super) fn begin(
        config: ClusterConfig,
    ) -> Result<(Self, oneshot::Receiver<Result<StartedServer, ClusterError>>), ClusterError> {
        let shared = Arc::new(SharedState::default());
        let (report, started) = oneshot::channel();
        let (at_end, ended) = oneshot::channel();
        let state_dir = config.state_dir.clone();
        let thread = std::thread::Builder::new()
            .name("postgres-keeper".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || {
                    keep(&config, &shared, report);
                    let _ = at_end.send(());
                }
            })
            .map_err(ClusterError::io("starting a thread for", &state_dir))?;
        Ok((Self { shared, thread: Some(thread), ended }, started))
    }

    /// The server's process, while there is one.
    pub(super) fn postmaster(&self) -> Option<Pid> {
        self.shared.lock().postmaster
    }

    /// Stops in good order: clients are disconnected, everything is written. After a timeout of 1.5 seconds it stops at
    /// once instead, which costs a recovery at the next start and no data.
    pub(super) async fn stop(mut self) {
        for (signal, patience) in [(Signal::INT, FAST_SHUTDOWN_TIMEOUT), (Signal::QUIT, IMMEDIATE_SHUTDOWN_TIMEOUT)] {
            self.shared.ask_to_stop(signal);
            if tokio::time::timeout(patience, &mut self.ended).await.is_ok() {
                return;
            }
            tracing::warn!(?signal, "the private PostgreSQL takes long to stop; insisting");
        }
        self.shared.ask_to_stop(Signal::KILL);
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // After an orderly stop the thread has ended and both lines do nothing. Otherwise the stop was forgotten or
        // cancelled: an immediate shutdown takes milliseconds and loses nothing.
        self.shared.ask_to_stop(Signal::QUIT);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default)]
struct SharedState {
    state: Mutex<SupervisorState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SupervisorState {
    is_stopping: bool,
    /// Set from start until it is reaped; signals are sent under the lock, so the number is never stale.
    postmaster: Option<Pid>,
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, SupervisorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_to_stop(&self, signal: Signal) {
        let mut state = self.lock();
        state.is_stopping = true;
        if let Some(pid) = state.postmaster {
            // It may have ended a moment ago and not be reaped yet: then there is nothing to do.
            let _ = rustix::process::kill_process(pid, signal);
        }
        self.changed.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Waits, and returns whether a stop was requested meanwhile.
    fn pause(&self, length: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), length, |state| !state.is_stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_stopping
    }

    fn took_up(&self, pid: Pid) {
        let mut state = self.lock();
        state.postmaster = Some(pid);
        if state.is_stopping {
            let _ = rustix::process::kill_process(pid, Signal::QUIT);
        }
    }

    fn reap(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let mut state = self.lock();
        state.postmaster = None;
        child.wait()
    }
}

/// Everything that a start of the server needs.
struct LaunchSettings {
    place: ClusterPaths,
    account: ServerAccount,
    binaries: Binaries,
    socket_parent: PathBuf,
    is_new: bool,
}

/// The main loop of the thread.
fn keep(config: &ClusterConfig, shared: &SharedState, report: oneshot::Sender<Result<StartedServer, ClusterError>>) {
    let launch = match prepare(config) {
        Ok(launch) => launch,
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    let mut report = Some(report);
    let mut pause = MIN_RESTART_INTERVAL;
    while !shared.is_stopping() {
        let began = Instant::now();
        let ended = run(&launch, shared, |started| {
            if let Some(report) = report.take() {
                // The receiver is gone: then the supervisor is being dropped and requests a stop.
                let _ = report.send(Ok(started));
            }
        });
        if shared.is_stopping() {
            return;
        }
        if let Some(report) = report.take() {
            let error = ended.err().unwrap_or_else(|| startup_error(&launch, "it ended at once".to_owned(), &[]));
            let _ = report.send(Err(error));
            return;
        }
        match ended {
            Ok(status) => tracing::error!(%status, "the private PostgreSQL ended by itself; starting it again"),
            Err(error) => tracing::error!(%error, "the private PostgreSQL does not start; trying again"),
        }
        pause = if began.elapsed() > STABLE_UPTIME { MIN_RESTART_INTERVAL } else { pause };
        if shared.pause(pause) {
            return;
        }
        pause = (pause * 2).min(MAX_RESTART_INTERVAL);
    }
}

/// Claims the paths, finds program and account, and creates the data directory if there is none.
fn prepare(config: &ClusterConfig) -> Result<LaunchSettings, ClusterError> {
    let place = ClusterPaths::claim(&config.state_dir)?;
    let existing = place.existing_major()?;
    let directories = binaries::directories(config.bin_dir.as_deref(), std::env::var_os("PATH").as_deref());
    let binaries = binaries::choose(&directories, existing.map(|major| (place.data_dir.as_path(), major)))?;
    let account = ServerAccount::choose(&place.data_dir)?;
    let is_root = rustix::process::geteuid().is_root();
    let session = std::env::var_os("XDG_RUNTIME_DIR");
    let socket_parent = socket_dir::parent(config.socket_parent.as_deref(), session.as_deref(), is_root);
    if existing.is_none() {
        initdb::create(&place, &account, &binaries)?;
    }
    Ok(LaunchSettings { place, account, binaries, socket_parent, is_new: existing.is_none() })
}

/// One life of the server, from start to reaped.
///
/// # Errors
/// When it did not get ready, or could not be started at all.
fn run(
    launch: &LaunchSettings,
    shared: &SharedState,
    on_ready: impl FnOnce(StartedServer),
) -> Result<ExitStatus, ClusterError> {
    let LaunchSettings { place, account, binaries, socket_parent, .. } = launch;
    let data_dir = &place.data_dir;
    let left_over = orphan::stop(data_dir)?;
    if left_over > 0 {
        tracing::warn!(processes = left_over, "stopped a PostgreSQL that a killed predecessor had left running");
    }
    let socket_dir = socket_dir::prepare(socket_parent, &place.state_dir, account)?;
    initdb::write_access_rules(data_dir, account)?;

    let program = binaries.postgres();
    let mut words: Vec<OsString> = parent_death::prefix("INT");
    words.push(program.clone().into());
    for setting in settings::settings(&socket_dir) {
        words.extend(["-c".into(), setting.into()]);
    }
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let spawn_failed = |error| ClusterError::io("starting", &program)(error);
    let (said, says) = std::io::pipe().map_err(spawn_failed)?;
    let mut command = account.command(data_dir, &words)?;
    command.stdout(says.try_clone().map_err(spawn_failed)?).stderr(says);
    let mut child = command.spawn().map_err(spawn_failed)?;
    // It holds our copies of the pipe's end; the log is complete when all copies are closed.
    drop(command);
    let pid = pid_of(&child);
    shared.took_up(pid);

    std::thread::scope(|scope| {
        let copier = scope.spawn(|| log::copy(said, &place.log));
        let is_ready = wait_until_ready(pid, data_dir, shared);
        if is_ready {
            let is_new = launch.is_new;
            on_ready(StartedServer { socket_dir: socket_dir.clone(), data_dir: data_dir.clone(), is_new });
        }
        wait_for_end(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let status = shared.reap(&mut child).map_err(|error| ClusterError::io("waiting for", &program)(error))?;
        // A killed postmaster leaves children, and they hold the log's pipe open.
        orphan::stop(data_dir)?;
        let last_lines = copier.join().unwrap_or_default();
        // Refused while the server still has files in it, which is right.
        let _ = std::fs::remove_dir(&socket_dir);
        if is_ready { Ok(status) } else { Err(startup_error(launch, status.to_string(), &last_lines)) }
    })
}

fn startup_error(launch: &LaunchSettings, status: String, last_lines: &[String]) -> ClusterError {
    ClusterError::Startup { status, log: launch.place.log.clone(), last_lines: last_lines.join("\n") }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed()).expect("a child that was just started has a number above zero")
}

/// Waits for the end of a child process; with `NOHANG` it only checks. Returns whether it has ended.
fn wait_for_end(pid: Pid, options: WaitIdOptions) -> bool {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            // An error means that there is no such child: it has ended.
            other => return !matches!(other, Ok(None)),
        }
    }
}

/// Returns whether the server became ready before it ended, was asked to stop, or ran out of time.
fn wait_until_ready(pid: Pid, data_dir: &Path, shared: &SharedState) -> bool {
    let deadline = Instant::now() + READY_TIMEOUT;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while !wait_for_end(pid, options) && !shared.is_stopping() {
        if is_ready(&std::fs::read_to_string(data_dir.join("postmaster.pid")).unwrap_or_default(), pid) {
            return true;
        }
        if Instant::now() > deadline {
            // The log's last lines then show what it was doing.
            let _ = rustix::process::kill_process(pid, Signal::QUIT);
            return false;
        }
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    false
}

/// Reads `postmaster.pid`: the process in its first line, its status in the eighth (pidfile.h).
fn is_ready(pid_file: &str, pid: Pid) -> bool {
    let line = |number: usize| pid_file.lines().nth(number - 1).map(str::trim);
    line(1) == Some(pid.as_raw_pid().to_string().as_str()) && line(8) == Some("ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_servers_ready_line_counts() {
        let pid = Pid::from_raw(4711).expect("above zero");
        let file =
            |pid: &str, status: &str| format!("{pid}\n/data\n1795254166\n5432\n/run/x\n\n 10117126  4\n{status}\n");
        assert!(is_ready(&file("4711", "ready   "), pid));
        assert!(!is_ready(&file("4711", "starting"), pid));
        assert!(!is_ready(&file("4712", "ready   "), pid), "a predecessor's file");
        assert!(!is_ready("4711\n/data\n", pid), "half written");
    }
}
