//! The exit codes of both command lines.

use std::io::ErrorKind;
use std::path::Path;

/// How a command ended. Any code not listed is to be treated as a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// Failed; the reason is on stderr.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// Not set up: no configuration, not paired.
    NotSetUp = 3,
    /// Not authorised: token, socket permission.
    NotAuthorised = 4,
    /// Cannot reach the daemon, the gateway or the database.
    CannotReach = 5,
    /// Refused in this state.
    Refused = 6,
    /// Versions do not match.
    VersionMismatch = 7,
    /// Still pending when the time ran out.
    Pending = 8,
    /// The run ended, but did not succeed.
    NotSucceeded = 9,
    /// A check found a FAIL.
    CheckFailed = 10,
    /// The command was interrupted.
    Interrupted = 130,
}

/// The table that `help exit-codes` prints.
pub const EXIT_CODE_TABLE: &str = "\
  0  done
  1  failed, the reason is on stderr
  2  wrong usage
  3  not set up (no configuration, not paired)
  4  not authorised (token, socket permission)
  5  cannot reach (daemon, gateway, database)
  6  refused in this state
  7  version mismatch
  8  still pending when the time ran out
  9  the run ended, but did not succeed
 10  a check found a FAIL
130  interrupted
Any code not listed must be treated as a failure.
";

impl Exit {
    /// The word for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotSetUp => "not_set_up",
            Self::NotAuthorised => "not_authorised",
            Self::CannotReach => "cannot_reach",
            Self::Refused => "refused",
            Self::VersionMismatch => "version_mismatch",
            Self::Pending => "pending",
            Self::NotSucceeded => "not_succeeded",
            Self::CheckFailed => "check_failed",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failed command: the text for stderr, and its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What was wrong and what to do next.
    pub message: String,
}

impl Failure {
    /// A failure with a code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A file that a command could not make or write.
    pub fn file(path: &Path, error: &std::io::Error) -> Self {
        let shown = path.display();
        let message = match error.kind() {
            ErrorKind::AlreadyExists => format!("{shown} is there already, and is not overwritten; name another file"),
            _ => format!("{shown}: {error}"),
        };
        Self::new(Exit::Failed, message)
    }
}
