//! The sandbox of commands: they can change the working directory and a private temporary folder only.
//!
//! | file | part |
//! |---|---|
//! | `program` | finds bubblewrap and the other programs, where only the administrator can put them |
//! | `arguments` | the file system, namespaces and environment of a command |
//! | `seccomp` | the system calls it may not make |
//! | `protected` | paths in the working directory that it may not change |
//! | `scratch` | the private temporary folder of a run |
//! | `folder_lock` | one command at a time in a folder |
//! | `limits`, `cgroup` | its resource limits, and the kernel's bound for all its processes together |
//! | `launch` | starts it, by handles and never by paths |
//! | `command` | supervises it: output, time, stop, and the end of every process |
//! | `tree` | the processes below one |
//! | `capture` | its output, bounded |
//! | `probe` | tries to escape from it |
//!
//! Trust: a command is external content, whether a model or a person wrote it. Failure: if any layer is missing,
//! commands do not run; there is no weaker fallback. docs/sandbox.md describes what is guaranteed and what is not.

mod arguments;
mod capture;
mod cgroup;
mod command;
mod folder_lock;
mod launch;
mod limits;
mod probe;
mod program;
mod protected;
mod scratch;
mod seccomp;
mod tree;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use deskgate_definition::tool::FILES_NAME;
use deskgate_definition::{Network, PROTECTED_NAMES};
use tokio_util::sync::CancellationToken;

use crate::engine::display;
use crate::engine::places::FILES_PATH;
use crate::engine::workspace::{LinkPolicy, Workspace};
use arguments::{BwrapArguments, SandboxParts};
pub use capture::Capture;
use cgroup::ControlGroup;
use command::{CommandBounds, supervise};
pub use command::{CommandEnd, KillReason};
use folder_lock::FolderLock;
pub use limits::CommandLimits;
pub use probe::probe;
use program::SandboxPrograms;
pub use protected::remove_left_stand_ins;
use protected::{NestedPlaces, ProtectedPlace, TopPlaces};
use scratch::ScratchFolder;
pub use scratch::remove_left;
pub use seccomp::FilterError;

/// Why commands cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A program is missing.
    #[error("{name} is not installed (looked for in /usr/bin and /bin)")]
    Missing {
        /// The program's name.
        name: &'static str,
        /// The package that usually contains it.
        package: &'static str,
    },
    /// A program that users other than root could have written.
    #[error("{0} could have been changed by others than root")]
    Untrusted(PathBuf),
    /// Bubblewrap did not create a sandbox; in its own words.
    #[error("no sandbox could be started: {0}")]
    Refused(String),
    /// The sandbox started and was gone again.
    #[error("the sandbox ended before a command could begin in it")]
    NotFound,
    /// The agent's own folder and the working directory lie in each other.
    #[error("the working directory and the agent's own folder lie in each other")]
    OwnFolder,
    /// The working directory would cover a part of the sandbox.
    #[error("{0} cannot be a working directory for commands: a sandbox has something of its own there")]
    NoPlace(PathBuf),
    /// A protected path cannot be protected.
    #[error("{} in the working directory must be protected and cannot be: {}", display::name(.0), .1)]
    Protected(PathBuf, String),
    /// A folder that a command could open cannot be listed.
    #[error("{} in the working directory cannot be looked through for what must be protected: {}", display::name(.0), .1)]
    Unlisted(PathBuf, String),
    /// There are more protected paths than the limit.
    #[error(
        "the working directory holds more than {0} places that had to be protected: repositories, files that the \
         service protects, and the folders above them"
    )]
    ManyPlaces(usize),
    /// The working directory itself belongs to version control, which commands must not change.
    #[error("the working directory is a part of version control's own files")]
    VersionControl,
    /// The agent runs as root, which has no process limit.
    #[error("the agent runs as root, and here only a control group could limit the number of processes then")]
    NoProcessLimit,
    /// A disk is nearly full.
    #[error("a disk that commands write to is nearly full")]
    DiskFull,
    /// Another command holds the folder.
    #[error("another command works in this folder, in one around it or in one inside")]
    Busy,
    /// The filter of system calls cannot be made.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Any other error, in the system's words.
    #[error("the sandbox cannot be prepared: {0}")]
    Io(#[from] std::io::Error),
}

impl SandboxError {
    /// The one thing to do next.
    pub fn next(&self) -> String {
        match self {
            Self::Missing { package, .. } => format!("install the package {package}"),
            Self::Untrusted(path) => format!("let root alone own {} and the folders above it", path.display()),
            Self::Refused(_) | Self::NotFound => {
                "let this user make user namespaces, with bubblewrap 0.10 or a release with its security fixes (see \
                 docs/sandbox.md)"
                    .to_owned()
            }
            Self::OwnFolder | Self::NoPlace(_) | Self::VersionControl => "choose another working directory".to_owned(),
            Self::Protected(path, _) => {
                let name = display::name(path);
                let can_be_taken_off = |known: &&str| path.as_os_str() == known.trim_end_matches('/');
                let off = match PROTECTED_NAMES.iter().any(can_be_taken_off) {
                    true => format!(", or take the name off what the service protects, as !{name}"),
                    false => String::new(),
                };
                format!("make {name} a plain folder or file that the agent's account may read, or take it away{off}")
            }
            Self::Unlisted(path, _) => {
                format!("let the agent's account list {}, or take it away", display::name(path))
            }
            Self::ManyPlaces(_) => {
                "choose a narrower working directory, or protect folders instead of files".to_owned()
            }
            Self::NoProcessLimit => "run the agent as an ordinary user".to_owned(),
            Self::DiskFull => "free some space".to_owned(),
            Self::Busy => "try again when that command has ended".to_owned(),
            Self::Filter(_) => "leave Bash out on this computer".to_owned(),
            Self::Io(_) => "remove the cause, and check again".to_owned(),
        }
    }
}

/// The sandbox of one run. Its commands share the private temporary folder only.
pub struct Sandbox {
    programs: SandboxPrograms,
    workspace: Arc<Workspace>,
    scratch: ScratchFolder,
    /// The files that the run was given.
    files: Option<OwnedFd>,
    filter: File,
    below_top: Vec<PathBuf>,
    git_settings: OwnedFd,
    network: Network,
    limits: CommandLimits,
}

impl Sandbox {
    /// Prepares it and verifies that a command can begin and end in it. `own` is the agent's own folder, which holds
    /// the temporary folders and is hidden from commands. Blocks, for some 30 ms.
    ///
    /// # Errors
    /// Why commands cannot run here.
    pub fn open(
        workspace: Arc<Workspace>,
        own: &Path,
        network: Network,
        limits: CommandLimits,
    ) -> Result<Self, SandboxError> {
        let programs = SandboxPrograms::find()?;
        if !arguments::has_a_place(workspace.path()) {
            return Err(SandboxError::NoPlace(workspace.path().to_owned()));
        }
        apart(own, workspace.path())?;
        if workspace.guard().is_within_internals() {
            return Err(SandboxError::VersionControl);
        }
        let below_top = protected::below_top(&workspace)?;
        let in_tmp = workspace.path().strip_prefix(arguments::TMP_PATH).ok();
        let scratch = ScratchFolder::make(&own.join("scratch"), in_tmp)?;
        let filter = seccomp::filter(network)?;
        // On a nearly full disk no command of the run is started, but the run is.
        let ready = CommandLimits { free_space: 0, ..limits };
        let git_settings = protected::in_memory(arguments::GIT_SETTINGS)?;
        let sandbox =
            Self { programs, workspace, scratch, files: None, filter, below_top, git_settings, network, limits: ready };
        // Fails now, not at the first command, if a path cannot be protected.
        drop((TopPlaces::hold(&sandbox.workspace)?, NestedPlaces::hold(&sandbox.workspace, &sandbox.below_top)?));
        // This command changes no file. Without protected paths, bubblewrap mounts nothing in the command's own files,
        // so it needs no folder lock.
        match sandbox.perform(
            &[],
            &NestedPlaces::default(),
            None,
            "true",
            FIRST_COMMAND_TIMEOUT,
            &CancellationToken::new(),
        )? {
            (_, CommandEnd::Finished(status)) if status.success() => Ok(Self { limits, ..sandbox }),
            (said, _) => Err(SandboxError::Refused(said.text().trim().to_owned())),
        }
    }

    /// The same sandbox, whose commands also see the files that the run was given, and cannot change them.
    ///
    /// # Errors
    /// They cannot be opened.
    pub(crate) fn with_files(self, files: &Workspace) -> Result<Self, SandboxError> {
        // Where the working directory itself is there, it stays what commands see.
        if self.workspace.path().starts_with(FILES_PATH) {
            return Ok(self);
        }
        let opened = files.open_directory(Path::new(FILES_NAME), LinkPolicy::Refused);
        let files = opened.map_err(|error| SandboxError::Io(std::io::Error::other(error)))?;
        Ok(Self { files: Some(files), ..self })
    }

    /// Runs a command in a fresh shell in the working directory. When this returns, every process that it started has
    /// ended, or was killed and hangs in the kernel, which is logged. Blocks at most `time` and
    /// [`CommandLimits::grace`], and before that at most `time` until no other command works in the folder. A sandbox
    /// that starts slowly, and a process that hangs, add seconds.
    ///
    /// The kernel kills the sandbox when the calling *thread* ends, so that no process outlives the agent.
    ///
    /// # Errors
    /// [`SandboxError::Busy`]: another command works in the folder all the time. [`SandboxError::DiskFull`]: a disk is
    /// nearly full. Any other: the command was not started, or could not be supervised.
    pub fn run(
        &self,
        command: &str,
        time: Duration,
        stop: &CancellationToken,
    ) -> Result<(Capture, CommandEnd), SandboxError> {
        let Some(_turn) = FolderLock::take(self.workspace.root(), time, stop)? else {
            return Ok((Capture::default(), CommandEnd::Ended(KillReason::Stopped)));
        };
        if self.limits.disk_is_full(&self.disks()) {
            return Err(SandboxError::DiskFull);
        }
        let top = TopPlaces::hold(&self.workspace)?;
        let below = NestedPlaces::hold(&self.workspace, &self.below_top)?;
        let (ignored, before) = (top.ignored()?, protected::covered_by_own(&self.workspace)?);
        let (mut output, end) = self.perform(&top.places, &below, Some(ignored.as_fd()), command, time, stop)?;
        match protected::set_aside(&self.workspace, &before) {
            Ok(moved) => moved.iter().for_each(|(from, to)| output.note(&renamed(from, to))),
            Err(error) => {
                tracing::warn!(%error, to_do = error.next(), "what a command made under protected names stays");
                output.note(&format!("It may have made what is protected here: {error}."));
            }
        }
        Ok((output, end))
    }

    /// Runs a command with these paths protected, without the folder lock.
    fn perform(
        &self,
        top: &[ProtectedPlace],
        below: &NestedPlaces,
        ignored: Option<BorrowedFd<'_>>,
        command: &str,
        time: Duration,
        stop: &CancellationToken,
    ) -> Result<(Capture, CommandEnd), SandboxError> {
        let group = ControlGroup::make(&self.limits);
        if group.is_none() && rustix::process::geteuid().is_root() {
            return Err(SandboxError::NoProcessLimit);
        }
        let bounds = CommandBounds {
            limits: &self.limits,
            until: Instant::now() + time,
            stop,
            watch_memory: !group.as_ref().is_some_and(|group| group.memory),
            disks: self.disks(),
        };
        let parts = SandboxParts {
            at: self.workspace.path(),
            working_directory: self.workspace.root(),
            files: self.files.as_ref().map(AsFd::as_fd),
            tmp: self.scratch.handle(),
            way: self.scratch.way(),
            folders: &below.folders,
            protected: [top, &below.places],
            ignored,
            git_settings: self.git_settings.as_fd(),
            filter: self.filter.as_fd(),
            network: self.network,
        };
        let limits = self.limits.within(&self.disks());
        let launched = launch::launch(&self.programs, BwrapArguments::new(&parts), &limits, group.as_ref(), command)?;
        Ok(supervise(launched, &bounds)?)
    }

    /// Folders on the disks that commands write to.
    fn disks(&self) -> [BorrowedFd<'_>; 2] {
        [self.workspace.root(), self.scratch.handle()]
    }
}

/// What a command is told of something that was set aside.
fn renamed(from: &Path, to: &Path) -> String {
    let (from, to) = (display::name(from), display::name(to));
    format!("This service protects {from}, which was not there. What is there now was renamed to {to}.")
}

/// The timeout of the first, empty command.
const FIRST_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// The agent's folder and the working directory must not lie in each other: a command that owns a folder above the
/// agent's own can move it, whatever is mounted over it.
fn apart(own: &Path, working_directory: &Path) -> Result<(), SandboxError> {
    let (own, works) = (own.canonicalize()?, working_directory.canonicalize()?);
    match own.starts_with(&works) || works.starts_with(&own) {
        true => Err(SandboxError::OwnFolder),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
