//! The guarantees of a sandbox, tested with real ones.

mod escapes;
mod limits;
mod nested;
mod survivors;
mod turns;

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::engine::workspace::WorkspaceOptions;

/// The content of every file that no command may read.
const SECRET_TEXT: &str = "SECRET-OF-SOMEBODY-ELSE";

/// A working directory `in`, the agent's folder `own` and somebody else's folder `out` beside it.
struct SandboxSite {
    folder: TempDir,
}

impl SandboxSite {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["in", "own", "out"] {
            std::fs::create_dir(folder.path().join(name)).expect("creates");
        }
        for name in ["own/key", "out/file"] {
            std::fs::write(folder.path().join(name), SECRET_TEXT).expect("writes");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, directory: &Path, network: Network, limits: CommandLimits) -> Result<Sandbox, SandboxError> {
        let own = self.path("own");
        let options =
            WorkspaceOptions { protected: &["guarded".to_owned()], network, ..WorkspaceOptions::of(directory, &own) };
        Sandbox::open(Arc::new(Workspace::open(options).expect("opens")), &own, network, limits)
    }

    fn sandbox(&self, network: Network, limits: CommandLimits) -> Sandbox {
        let opened = self.open(&self.path("in"), network, limits);
        opened.expect("bubblewrap is installed and user namespaces are allowed")
    }

    fn usual(&self) -> Sandbox {
        self.sandbox(Network::None, CommandLimits::default())
    }
}

/// Enough for every command of a test that ends by itself.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

fn run(sandbox: &Sandbox, command: &str) -> (String, CommandEnd) {
    let (said, ending) = sandbox.run(command, COMMAND_TIMEOUT, &CancellationToken::new()).expect("a sandbox stands");
    (said.text(), ending)
}

/// The output of a command that must succeed.
fn ok(sandbox: &Sandbox, command: &str) -> String {
    let (said, ending) = run(sandbox, command);
    assert!(matches!(ending, CommandEnd::Finished(status) if status.success()), "{command}: {ending:?}: {said}");
    said
}

#[test]
fn a_command_works_in_the_working_directory_and_its_changes_stay() {
    let site = SandboxSite::new();
    std::fs::write(site.path("in/a.txt"), "one\n").expect("writes");
    let sandbox = site.usual();
    let said = ok(&sandbox, "pwd; cat a.txt; echo two >>a.txt; mkdir sub && cd sub && echo three >b.txt; echo err >&2");
    assert_eq!(said, format!("{}\none\nerr\n", site.path("in").display()));
    assert_eq!(std::fs::read_to_string(site.path("in/a.txt")).expect("stands"), "one\ntwo\n");
    assert_eq!(
        ok(&sandbox, "cat sub/b.txt; ls -A | sort | grep -x -e '.git' -e '.hg' -e '.jj' -e '.svn' -e a.txt"),
        "three\n.git\n.hg\n.jj\n.svn\na.txt\n"
    );
    let left: Vec<_> =
        std::fs::read_dir(site.path("in")).expect("stands").map(|e| e.expect("stands").file_name()).collect();
    assert_eq!(left.len(), 2, "the stand-ins of version control are gone: {left:?}");
}

#[test]
fn a_call_is_a_fresh_shell_and_shares_only_the_temporary_folder() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    ok(&sandbox, "cd /tmp; x=1; export x; echo kept >note; mkdir deep; chmod 0 deep");
    assert_eq!(ok(&sandbox, "echo $x; pwd; cat /tmp/note"), format!("\n{}\nkept\n", site.path("in").display()));
    assert_eq!(ok(&site.usual(), "cat /tmp/note 2>/dev/null || echo another run"), "another run\n");
    drop(sandbox);
    assert_eq!(std::fs::read_dir(site.path("own/scratch")).expect("made").count(), 0, "removed with the run");
}

#[test]
fn the_environment_is_ours_alone_and_nobody_waits_for_input() {
    let site = SandboxSite::new();
    let said = ok(&site.usual(), "env | cut -d= -f1 | sort | tr '\\n' ' '; cat; echo; id -u; hostname");
    assert_eq!(said, "GIT_CONFIG_SYSTEM HOME LANG LOGNAME PATH PWD SHELL SHLVL TERM TMPDIR USER _ \n1000\nsandbox\n");
}

#[test]
fn the_working_directory_is_the_one_that_was_opened_whatever_bears_its_name_now() {
    let site = SandboxSite::new();
    let sandbox = site.usual();
    std::fs::rename(site.path("in"), site.path("moved")).expect("moves");
    std::os::unix::fs::symlink(site.path("out"), site.path("in")).expect("links");
    match sandbox.run("cat file; echo changed >file; ls", COMMAND_TIMEOUT, &CancellationToken::new()) {
        Ok((said, _)) => assert!(!said.text().contains(SECRET_TEXT)),
        Err(error) => assert!(matches!(error, SandboxError::Refused(_)), "{error}"),
    }
    assert_eq!(std::fs::read_to_string(site.path("out/file")).expect("stands"), SECRET_TEXT);
}

#[test]
fn the_agents_folder_and_a_working_directory_around_it_do_not_go_together() {
    let site = SandboxSite::new();
    let (directory, own) = (site.folder.path(), site.path("own"));
    let options = WorkspaceOptions::of(directory, &own);
    let workspace = Arc::new(Workspace::open(options).expect("opens"));
    let refused = Sandbox::open(workspace, &own, Network::None, CommandLimits::default());
    assert!(matches!(refused, Err(SandboxError::OwnFolder)));
}

#[test]
fn every_attempt_of_the_self_test_fails_with_and_without_a_network() {
    let site = SandboxSite::new();
    let (directory, own) = (site.path("in"), site.path("own"));
    for network in [Network::None, Network::Host] {
        let attempts = probe(WorkspaceOptions { protected: &[], network, ..WorkspaceOptions::of(&directory, &own) })
            .expect("confines");
        assert!(attempts >= 25, "{attempts} attempts");
    }
    assert_eq!(std::fs::read_dir(own.join("scratch")).expect("made").count(), 0, "nothing is left of it");
}

#[test]
fn with_the_hosts_network_a_server_can_be_reached_and_no_unix_socket() {
    let site = SandboxSite::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("bound").port();
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached
         python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | grep -o PermissionError
         python3 -c 'import socket; socket.socketpair(); print(\"a pair\")'"
    );
    assert_eq!(
        ok(&site.sandbox(Network::Host, CommandLimits::default()), &command),
        "reached\nPermissionError\na pair\n"
    );
}
