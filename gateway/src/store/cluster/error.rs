//! Errors of the private cluster, with texts for the person who has to resolve them.

use std::path::{Path, PathBuf};

/// Why the private cluster could not be started or used.
///
/// Every text names the problem and the next step.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There are no PostgreSQL programs, or none new enough.
    #[error(
        "no PostgreSQL {} or newer was found{}; install it with: sudo apt-get install postgresql \
         (or set database.url to use a PostgreSQL server you already run)",
        super::binaries::OLDEST_MAJOR,
        found_old(.too_old)
    )]
    NoBinaries {
        /// Installed majors that are too old.
        too_old: Vec<u32>,
    },
    /// The data directory belongs to another major version than any that is installed.
    #[error(
        "{} was made by PostgreSQL {wanted}, which is not installed (installed: {}); \
         install it with: sudo apt-get install postgresql-{wanted} \
         (a newer PostgreSQL cannot open these files; to move on, dump with {wanted} and restore into a new directory)",
        .data_dir.display(),
        list(.installed)
    )]
    OtherMajor {
        /// The data directory.
        data_dir: PathBuf,
        /// The major version that can open it.
        wanted: u32,
        /// The installed major versions.
        installed: Vec<u32>,
    },
    /// Another process holds the state directory.
    #[error(
        "{} is in use by another process{}; stop it first, or choose another state directory",
        .state_dir.display(),
        .owner.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The contested directory.
        state_dir: PathBuf,
        /// The process that holds it, if known.
        owner: Option<u32>,
    },
    /// PostgreSQL refuses to run as root, and there is no account to run it as.
    #[error(
        "PostgreSQL does not run as root, and this machine has neither a \"postgres\" nor a \"nobody\" account \
         to run it as; create one with: useradd --system postgres"
    )]
    NoAccount,
    /// The data belongs to another user.
    #[error(
        "{} belongs to user id {owner}, but this process runs as user id {me}; \
         start it as that user, or choose another state directory",
        .data_dir.display()
    )]
    OtherOwner {
        /// The data directory.
        data_dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Our user id.
        me: u32,
    },
    /// Root would leave files in another account's state directory that this account cannot open.
    #[error(
        "{} belongs to {owner}, and root would leave files there that {owner} cannot open; \
         run the same command as that account, with: sudo -u {owner}",
        .state_dir.display()
    )]
    NotForRoot {
        /// The state directory.
        state_dir: PathBuf,
        /// The name of its owner; `'#` and the number, as a shell and sudo take it, where it has none.
        owner: String,
    },
    /// The data directory's path holds something else than PostgreSQL data.
    #[error(
        "{} exists but holds no PostgreSQL data; move it away, then start again",
        .data_dir.display()
    )]
    NotData {
        /// The path.
        data_dir: PathBuf,
    },
    /// The directory for the socket cannot be trusted or used.
    #[error("the socket directory {} cannot be used: {problem}", .path.display())]
    SocketDirectory {
        /// The directory.
        path: PathBuf,
        /// The problem and the next step.
        problem: String,
    },
    /// The data directory could not be created.
    #[error("creating the database with {} failed:\n{output}", .initdb.display())]
    Initdb {
        /// The program that was run.
        initdb: PathBuf,
        /// Its output.
        output: String,
    },
    /// The server ended before it took connections.
    #[error("PostgreSQL did not start ({status}); its last words in {}:\n{last_lines}", .log.display())]
    Startup {
        /// How it ended.
        status: String,
        /// The path of the whole log.
        log: PathBuf,
        /// The last lines of the log.
        last_lines: String,
    },
    /// The server of a killed predecessor does not end.
    #[error(
        "an earlier PostgreSQL still works in {} and does not stop (pid {pid}); end it with: kill -QUIT {pid}",
        .data_dir.display()
    )]
    Orphan {
        /// Its data directory.
        data_dir: PathBuf,
        /// Its process.
        pid: i32,
    },
    /// The server runs, but a query failed.
    #[error("the private PostgreSQL does not answer as it should")]
    Query(#[from] tokio_postgres::Error),
    /// A file or process operation failed.
    #[error("{what} {} failed", .path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// Its file or program.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl ClusterError {
    /// Whether a person must act; otherwise starting again may help.
    pub fn needs_a_person(&self) -> bool {
        !matches!(
            self,
            Self::InUse { .. } | Self::Startup { .. } | Self::Orphan { .. } | Self::Query { .. } | Self::Io { .. }
        )
    }
}

impl ClusterError {
    /// For `map_err`: adds the operation and its path.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

fn list(majors: &[u32]) -> String {
    if majors.is_empty() {
        return "none".to_owned();
    }
    majors.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn found_old(too_old: &[u32]) -> String {
    if too_old.is_empty() { String::new() } else { format!(" (installed, but too old: {})", list(too_old)) }
}
