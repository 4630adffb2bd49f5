//! A process of a test, in its own process group, with its log; killed when it is dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

use crate::wait::until;

/// The variable that names the folder of crash points, for programs that were built with them.
pub const CRASH_DIR_ENV: &str = "CRASH_POINTS_DIR";

/// A command with the environment that every program needs, without that of the person who runs the tests.
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("LC_ALL", "C.UTF-8");
    for name in ["PATH", CRASH_DIR_ENV] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// A running program. Its output is appended to its log.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its output, with that of earlier processes with the same log.
    pub log: Log,
}

impl Process {
    /// Starts it.
    pub fn start(mut command: Command, log: &Path) -> Self {
        use std::os::unix::process::CommandExt;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("the log can be opened");
        let begin = file.metadata().expect("it is open").len();
        let copy = file.try_clone().expect("descriptors are left");
        command.stdin(Stdio::null()).stdout(copy).stderr(file).process_group(0);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("{:?} does not start: {error}", command.get_program()));
        Self { child, log: Log { path: log.to_owned(), begin } }
    }

    /// Its process identifier.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to this one process.
    pub fn signal(&self, signal: Signal) {
        kill_process(pid(self.id()), signal).expect("it is a child that was not reaped yet");
    }

    /// Kills it and its process group. Returns how it ended.
    pub fn kill_9(mut self) -> ExitStatus {
        self.end();
        self.child.wait().expect("it is a child")
    }

    /// How it ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child")
    }

    /// Waits until it has ended.
    pub async fn ended(mut self) -> ExitStatus {
        let number = self.id();
        until(&format!("process {number} to end"), async || {
            self.has_ended().ok_or_else(|| format!("it is running; log:\n{}", self.log.tail(20)))
        })
        .await
    }

    fn end(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Its group has its identifier, which stays reserved until it is reaped below.
            let _ = kill_process_group(pid(self.id()), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("---- {}\n{}", self.log.path.display(), self.log.tail(60));
        }
    }
}

fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("the number of a process")
}

/// Whether a process with this identifier exists.
pub fn exists(number: u32) -> bool {
    test_kill_process(pid(number)).is_ok()
}

/// Kills a process that need not be a child of this one. False if it did not exist.
pub fn kill_9(number: u32) -> bool {
    kill_process(pid(number), Signal::KILL).is_ok()
}

/// Sends a signal to a process that need not be a child of this one. False if it did not exist.
pub fn send_signal(number: u32, signal: Signal) -> bool {
    kill_process(pid(number), signal).is_ok()
}

/// Limits the open files of a process. Returns the previous limit.
pub fn limit_files(number: u32, files: u64) -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let own = getrlimit(Resource::Nofile);
    // The hard limit stays.
    let wanted = Rlimit { current: Some(files), maximum: own.maximum };
    prlimit(Some(pid(number)), Resource::Nofile, wanted).expect("it runs, and is ours").current
}

/// How many files a process has open.
pub fn files(number: u32) -> usize {
    std::fs::read_dir(format!("/proc/{number}/fd")).map_or(0, Iterator::count)
}

/// The running children of a process.
pub fn children(of: u32) -> Vec<u32> {
    processes().into_iter().filter(|number| parent(*number) == Some(of)).collect()
}

/// The first process of the private cluster in a gateway's state directory, if one runs.
pub fn postmaster(state_dir: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let data = state_dir.join("postgres");
    let number = std::fs::read_to_string(data.join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()?;
    let works_in = std::fs::metadata(format!("/proc/{number}/cwd")).ok()?;
    let data = std::fs::metadata(data).ok()?;
    // Another process may have the identifier now.
    ((works_in.dev(), works_in.ino()) == (data.dev(), data.ino())).then_some(number)
}

/// Kills the private cluster in a gateway's state directory, with all its processes. False if none ran.
pub fn kill_cluster(state_dir: &Path) -> bool {
    let Some(first) = postmaster(state_dir) else { return false };
    // The first one is killed first: it would restart the others.
    let rest = children(first);
    let killed = kill_9(first);
    for number in rest {
        kill_9(number);
    }
    killed
}

/// Removes what a private cluster leaves outside of its state directory for its next start: its socket's folder.
pub fn remove_socket_folder(state_dir: &Path) {
    let options = std::fs::read_to_string(state_dir.join("postgres/postmaster.opts")).unwrap_or_default();
    let folder = options.split("unix_socket_directories=").nth(1).and_then(|rest| {
        let rest = rest.trim_start_matches(['\\', '"']);
        rest.split(['\\', '"']).next()
    });
    if let Some(folder) = folder.filter(|folder| folder.contains("/deskgate-")) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Every process whose command line or environment names this path.
pub fn find_mentioning(path: &Path) -> Vec<u32> {
    let needle = path.to_str().expect("temporary folders have plain names").as_bytes();
    let names = |number: &u32| {
        ["cmdline", "environ"].iter().any(|file| {
            let text = std::fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
            text.windows(needle.len()).any(|window| window == needle)
        })
    };
    processes().into_iter().filter(|number| *number != std::process::id()).filter(names).collect()
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn parent(number: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The output of a process.
#[derive(Clone, Debug)]
pub struct Log {
    /// The file.
    pub path: PathBuf,
    /// The offset at which the present process's part begins.
    begin: u64,
}

impl Log {
    /// A log without a present process.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), begin: 0 }
    }

    /// The whole log, with earlier processes.
    pub fn all(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.path).unwrap_or_default()).into_owned()
    }

    /// The present process's part.
    pub fn own(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let begin = usize::try_from(self.begin).expect("a log that was just written").min(bytes.len());
        String::from_utf8_lossy(&bytes[begin..]).into_owned()
    }

    /// How many lines of the whole log have all of these texts.
    pub fn count(&self, texts: &[&str]) -> usize {
        self.all().lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }

    /// Waits until the present process has written a line with all of these texts.
    pub async fn line(&self, texts: &[&str]) -> String {
        until(&format!("a line with {texts:?} in {}", self.path.display()), async || {
            let log = self.own();
            let found = log.lines().find(|line| texts.iter().all(|text| line.contains(text)));
            found.map(str::to_owned).ok_or_else(|| self.tail(5))
        })
        .await
    }

    /// Its last lines.
    pub fn tail(&self, lines: usize) -> String {
        let all = self.all();
        let skipped = all.lines().count().saturating_sub(lines);
        all.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }
}
