//! Bubblewrap's arguments: the file system, namespaces and environment of a command.
//!
//! The order matters: a later mount covers an earlier one. Bubblewrap follows links on the way to a mount point, and a
//! command could put one there for the next sandbox, or move a folder away with its protected content. But a mount
//! point cannot be renamed or removed. So every folder on the way to a mount is mounted onto itself.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use deskgate_definition::Network;

use super::protected::ProtectedPlace;
use crate::engine::places::FILES_PATH;

/// Folders of programs and libraries. A link between them, as on merged systems, stays a link.
const SYSTEM_FOLDERS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The entries of `/etc` that programs need and that hold no secrets. The rest is not visible: shadow files, host keys,
/// private keys, passwords of services.
#[rustfmt::skip]
const ETC_ENTRIES: [&str; 34] = [
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "group", "host.conf", "hosts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "locale.conf", "localtime", "magic", "magic.mime", "mime.types", "networks", "nsswitch.conf", "os-release",
    "passwd", "perl", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "resolv.conf",
    "services", "ssl/certs", "ssl/openssl.cnf", "terminfo",
];

/// Prefixes of further names there: settings of language versions.
const ETC_PREFIXES: [&str; 2] = ["java-", "python3"];

/// The complete environment of a command.
const COMMAND_ENVIRONMENT: [(&str, &str); 9] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("SHELL", "/bin/sh"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("GIT_CONFIG_SYSTEM", GIT_SETTINGS_PATH),
];

/// Where Git reads settings of the whole system, and those that stand there: it does not list stand-ins as new files.
const GIT_SETTINGS_PATH: &str = "/etc/gitconfig";
const GIT_IGNORED_PATH: &str = "/etc/gitignore";
pub(super) const GIT_SETTINGS: &str = "[core]\n\texcludesFile = /etc/gitignore\n";

/// The path at which a command sees the private temporary folder.
pub(super) const TMP_PATH: &str = "/tmp";

/// The user and group that a command sees as its own, whichever user runs the agent.
const SANDBOX_UID: &str = "1000";

/// The size limit of `/dev/shm`, which is memory, in bytes.
const SHM_BYTES: &str = "67108864";

/// The first descriptor that bubblewrap gets; the others follow.
pub(super) const FIRST_DESCRIPTOR: usize = 3;

/// The arguments, with the handles they refer to, in the order of their numbers.
pub(super) struct BwrapArguments<'a> {
    pub(super) list: Vec<OsString>,
    pub(super) handles: Vec<BorrowedFd<'a>>,
}

/// The parts of a sandbox.
pub(super) struct SandboxParts<'a> {
    /// The path of the working directory, outside and inside.
    pub(super) at: &'a Path,
    pub(super) working_directory: BorrowedFd<'a>,
    /// The files that the run was given.
    pub(super) files: Option<BorrowedFd<'a>>,
    pub(super) tmp: BorrowedFd<'a>,
    /// The folders in `tmp` on the way to the working directory, outer ones first.
    pub(super) way: &'a [ProtectedPlace],
    /// The folders in the working directory on the way to protected paths, outer ones first.
    pub(super) folders: &'a [ProtectedPlace],
    pub(super) protected: [&'a [ProtectedPlace]; 2],
    /// The text of [`GIT_SETTINGS`], and what Git does not list then.
    pub(super) git_settings: BorrowedFd<'a>,
    pub(super) ignored: Option<BorrowedFd<'a>>,
    pub(super) filter: BorrowedFd<'a>,
    pub(super) network: Network,
}

impl<'a> BwrapArguments<'a> {
    /// All arguments before the command.
    pub(super) fn new(parts: &SandboxParts<'a>) -> Self {
        let mut arguments = Self { list: Vec::new(), handles: Vec::new() };
        arguments.namespaces(parts.network);
        arguments.system();
        arguments.mount("--bind-fd", parts.tmp, Path::new(TMP_PATH));
        arguments.mount_all("--ro-bind-fd", parts.way, Path::new(TMP_PATH));
        if let Some(files) = parts.files {
            arguments.mount("--ro-bind-fd", files, Path::new(FILES_PATH));
        }
        arguments.mount("--bind-fd", parts.working_directory, parts.at);
        arguments.mount_all("--bind-fd", parts.folders, parts.at);
        arguments.mount_all("--ro-bind-fd", parts.protected.into_iter().flatten(), parts.at);
        if let Some(ignored) = parts.ignored {
            arguments.mount("--ro-bind-data", parts.git_settings, Path::new(GIT_SETTINGS_PATH));
            arguments.mount("--ro-bind-data", ignored, Path::new(GIT_IGNORED_PATH));
        }
        // Last, because mounting needs it writable: the root itself is memory without a bound.
        arguments.add(["--remount-ro", "/"]);
        arguments.add([OsStr::new("--chdir"), parts.at.as_os_str()]);
        let filter = arguments.descriptor(parts.filter);
        arguments.add(["--seccomp", &filter]);
        arguments.add(["--clearenv"]);
        for (name, value) in COMMAND_ENVIRONMENT {
            arguments.add(["--setenv", name, value]);
        }
        arguments
    }

    fn namespaces(&mut self, network: Network) {
        // Each by its own option: the short form makes some of them only if possible. Here only the cgroup namespace is
        // made so.
        self.add(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
        if network == Network::None {
            self.add(["--unshare-net"]);
        }
        self.add(["--disable-userns", "--assert-userns-disabled"]);
        self.add(["--uid", SANDBOX_UID, "--gid", SANDBOX_UID, "--hostname", "sandbox", "--cap-drop", "ALL"]);
        self.add(["--new-session", "--die-with-parent"]);
    }

    fn system(&mut self) {
        self.add(["--ro-bind", "/usr", "/usr"]);
        // Settings of the administrator's own programs, passwords among them.
        if Path::new("/usr/local/etc").is_dir() {
            self.add(["--tmpfs", "/usr/local/etc", "--remount-ro", "/usr/local/etc"]);
        }
        for folder in SYSTEM_FOLDERS {
            match std::fs::read_link(folder) {
                Ok(target) => self.add([OsStr::new("--symlink"), target.as_os_str(), OsStr::new(folder)]),
                Err(_) if Path::new(folder).is_dir() => self.add(["--ro-bind", folder, folder]),
                Err(_) => {}
            }
        }
        for path in settings() {
            self.add(["--ro-bind-try", &path, &path]);
        }
        // Read-only: for an agent that runs as root, the kernel's settings there would be writable.
        self.add(["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]);
        self.add(["--size", SHM_BYTES, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
    }

    fn mount(&mut self, option: &str, handle: BorrowedFd<'a>, at: &Path) {
        let number = self.descriptor(handle);
        self.add([OsStr::new(option), OsStr::new(&number), at.as_os_str()]);
    }

    fn mount_all(&mut self, option: &str, places: impl IntoIterator<Item = &'a ProtectedPlace>, below: &Path) {
        for (path, handle) in places {
            self.mount(option, handle.as_fd(), &below.join(path));
        }
    }

    fn descriptor(&mut self, handle: BorrowedFd<'a>) -> String {
        self.handles.push(handle);
        (FIRST_DESCRIPTOR + self.handles.len() - 1).to_string()
    }

    fn add<T: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = T>) {
        self.list.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    }
}

fn settings() -> Vec<String> {
    let listed = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
    let versions = names.filter(|name| ETC_PREFIXES.iter().any(|beginning| name.starts_with(beginning)));
    ETC_ENTRIES.into_iter().map(str::to_owned).chain(versions).map(|name| format!("/etc/{name}")).collect()
}

/// Whether a working directory can be mounted at its own path inside: it must not cover what a command needs, nor be on
/// a file system of the kernel.
pub(super) fn has_a_place(working_directory: &Path) -> bool {
    let covers = |part: &&str| Path::new(part).starts_with(working_directory);
    let lies_in = |part: &&str| working_directory.starts_with(part);
    let is_plain = working_directory.is_absolute() && !working_directory.iter().any(|name| name == "..");
    is_plain
        && !["/usr", "/etc", TMP_PATH, "/proc", "/dev"].iter().chain(&SYSTEM_FOLDERS).any(covers)
        && !["/proc", "/dev"].iter().any(lies_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_directory_may_not_lie_over_what_makes_the_sandbox() {
        for wrong in
            ["/", "/usr", "/etc", "/tmp", "/proc/self/cwd", "/dev/shm", "/lib", "/srv/../tmp/project", "project"]
        {
            assert!(!has_a_place(Path::new(wrong)), "{wrong}");
        }
        for right in ["/home/me/project", "/tmp/project", "/usr/src/project", "/srv"] {
            assert!(has_a_place(Path::new(right)), "{right}");
        }
    }

    #[test]
    fn no_secret_of_the_system_is_on_the_list() {
        let secrets =
            ["shadow", "gshadow", "ssh", "ssl", "ssl/private", "sudoers", "pki", "machine-id", "netrc", "environment"];
        assert!(!ETC_ENTRIES.iter().any(|name| secrets.contains(name)));
    }
}
