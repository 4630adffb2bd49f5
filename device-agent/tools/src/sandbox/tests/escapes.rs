//! A corpus of escape attempts: by path, by link, by descriptor, by process, by system call, by socket, by leftovers.
//! None may succeed, and everything outside is compared before and after.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};

use super::*;

/// The output of a successful attempt; every word of [`SECRET_TEXT`] counts as success too.
const ESCAPED_WORD: &str = "ESCAPED";

/// Attempts in a shell: each is a condition that is true if it succeeded. OUT, OWN and PID stand for somebody else's
/// folder, the agent's, and the agent's process.
const SHELL_ATTEMPTS: [(&str, &str); 50] = [
    ("an absolute path", "cat OUT/file"),
    ("a path through the parent", "cat ../out/file"),
    ("many parents", "cat ../../../../../../../../../../../OUT/file"),
    ("the agent's key", "cat OWN/key || ls OWN"),
    ("a file written outside", "echo changed >OUT/file || echo changed >../out/new"),
    ("a folder removed outside", "rm -rf OUT && test ! -e OUT/file && false"),
    ("the first process's root", "cat /proc/1/root/OUT/file"),
    ("every process's root", "cat /proc/*/root/OUT/file"),
    ("every process's working directory", "cat /proc/*/cwd/../out/file"),
    ("the agent's root by number", "ls /proc/PID/root/OUT || ls /proc/PID"),
    ("an inherited descriptor", "ls /proc/self/fd | grep -vE '^[0-3]$'"),
    ("a file behind a descriptor", "cat /proc/self/fd/*/../out/file"),
    (
        "a descriptor of the first process",
        "ls /proc/1/fd/ | while read f; do cat /proc/1/fd/$f/file; done | grep SECRET",
    ),
    ("a link to outside", "ln -s OUT link && cat link/file"),
    ("a link to the agent's folder", "ln -sf OWN link2 && cat link2/key"),
    ("a hard link to a system file", "ln /etc/passwd stolen || ln /usr/bin/env stolen"),
    ("a hard link to outside", "ln OUT/file stolen"),
    ("a device", "mknod device b 8 0 || mknod device c 1 1"),
    (
        "a disk or memory of the computer",
        "ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg /dev/port /dev/fuse /dev/kvm",
    ),
    ("a program that runs as its owner", "cp /usr/bin/id own && chmod u+s own || install -m 4755 /usr/bin/id own"),
    ("a program that runs as its group", "cp /usr/bin/id group && chmod g+s group"),
    ("another root", "chroot / true || chroot /tmp true"),
    ("a mount", "mount -t tmpfs none /tmp || mount --bind / /tmp || mount -o remount,rw /usr"),
    ("a mount taken away", "umount /usr || umount -l .git || umount -l /tmp"),
    ("a user namespace", "unshare --user true || unshare --map-root-user true"),
    ("another namespace", "unshare --mount true || unshare --net true || unshare --pid --fork true"),
    ("the first process's namespaces", "nsenter --target 1 --all true || nsenter --target 1 --mount --user true"),
    ("another user", "su -c true || sudo -n true || setpriv --reuid 0 true || newgrp root </dev/null"),
    ("a capability", "setpriv --inh-caps +all true || capsh --print | grep 'Current: =.*cap'"),
    ("a higher limit", "ulimit -n 1000000 || prlimit --pid $$ --nproc=unlimited"),
    ("the passwords", "cat /etc/shadow /etc/shadow- /etc/gshadow"),
    ("the keys of the computer", "ls /etc/ssh || ls /etc/ssl/private || ls /etc/sudoers || ls /etc/machine-id"),
    ("homes", "ls /root || ls /home/* || ls -d ~root/.ssh"),
    ("the system's files", "touch /usr/bin/new || touch /etc/new || touch /new || touch /lib/new || touch /dev/new"),
    ("a library for every program", ": >>/etc/ld.so.preload || touch /etc/ld.so.cache"),
    ("the kernel's settings", "at=/proc/sys/kernel/core_pattern; x=$(cat $at); echo \"$x\" >$at"),
    (
        "more of the kernel's settings",
        "for at in $(find /proc/sys /proc/irq -type f); do (exec 3<>$at) && exit; done; false",
    ),
    ("the kernel's magic keys", "exec 3>/proc/sysrq-trigger"),
    ("control groups and devices", "ls /sys/fs/cgroup || ls /sys/class"),
    ("the system's sockets", "ls /run/docker.sock || ls /var/run/dbus || ls /run/user || ls /tmp/.X11-unix"),
    ("the agent's process", "kill -0 PID || kill -9 PID"),
    (
        "secrets of the environment",
        "env | grep -iE 'cargo|rust|token|nextest' || tr '\\0' '\\n' </proc/1/environ | grep CARGO",
    ),
    ("a server on this computer", "exec 3<>/dev/tcp/127.0.0.1/PORT"),
    ("a terminal", "exec 3<>/dev/tty || echo x >/dev/console"),
    (
        "hooks of a repository to come",
        "mkdir .git/hooks || touch .git/config || rmdir .git || mv .git x || ln -s /tmp .git/hooks",
    ),
    (
        "something in version control's place that nobody could protect",
        "ln -s /tmp .svn || mkfifo .jj || mkdir .jj/repo || chmod 0 .svn || ln -sfn /tmp .jj && test -L .jj",
    ),
    ("a repository put in the place of another", "mv sub old || rm -rf sub && test ! -e sub"),
    ("hooks of a repository below", "touch sub/.git/hooks/post-checkout || rm -rf sub/.git || mv sub/.git sub/old"),
    ("what the owner protects", "touch guarded/new || rm guarded/file || echo changed >guarded/file || mv guarded old"),
    ("a hard link into a repository", "ln sub/.git/config stolen && echo changed >>stolen"),
];

/// Attempts by system call, in Python: each sets `escaped`. `call` makes a system call by its x86-64 number and returns
/// 0 or more on success.
const SYSCALL_ATTEMPTS: [(&str, &str); 29] = [
    ("ptrace of the first process", "escaped = call(101, 16, 1, 0, 0) >= 0"),
    ("ptrace of itself by a child", "escaped = call(101, 0, 0, 0, 0) >= 0"),
    ("memory of another process", "escaped = call(310, 1, 0, 0, 0, 0, 0) >= 0"),
    ("a descriptor of another process", "escaped = call(438, call(434, 1, 0), 0, 0) >= 0"),
    ("a keyring", "escaped = call(250, 0, -3, 1) >= 0"),
    ("a key", "escaped = call(248, b'user', b'x', b'y', 1, -3) >= 0"),
    ("a key asked for", "escaped = call(249, b'user', b'x', 0, -3) >= 0"),
    ("bpf", "escaped = call(321, 0, 0, 0) != -1 or ctypes.get_errno() != 1"),
    ("perf_event_open", "escaped = call(298, 0, 0, -1, -1, 0) != -1 or ctypes.get_errno() != 1"),
    ("userfaultfd", "escaped = call(323, 0) >= 0"),
    ("io_uring", "escaped = call(425, 8, b'\\0' * 120) >= 0"),
    ("open_by_handle_at", "escaped = call(304, -100, b'\\0' * 200, 0) != -1 or ctypes.get_errno() != 1"),
    ("name_to_handle_at", "escaped = call(303, -100, b'.', b'\\x80' + b'\\0' * 200, b'\\0' * 8, 0) >= 0"),
    ("personality", "escaped = call(135, 0x0040000) >= 0"),
    ("clone with a user namespace", "escaped = call(56, 0x10000000 | 17, 0, 0, 0, 0) > 0"),
    ("clone3, whose flags cannot be seen", "escaped = call(435, b'\\0' * 64, 64) != -1 or ctypes.get_errno() != 38"),
    ("setns", "escaped = call(308, os.open('/proc/1/ns/net', os.O_RDONLY), 0) >= 0"),
    ("the new calls for mounts", "escaped = call(430, b'tmpfs', 0) >= 0 or call(428, -100, b'/', 1) >= 0"),
    ("pivot_root", "escaped = call(155, b'.', b'.') >= 0"),
    ("kexec and modules", "escaped = any(call(n, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1 for n in (246, 313, 175, 176))"),
    ("the clock", "escaped = call(227, 0, b'\\0' * 16) >= 0"),
    ("a mode by open", "escaped = call(257, -100, b'owned', 0o101, 0o4755) >= 0"),
    ("a mode by openat2", "escaped = call(437, -100, b'owned', b'\\x41' + b'\\0' * 23, 24) != -1 or ctypes.get_errno() != 38"),
    ("a mode by fchmodat2", "escaped = call(452, -100, b'.', 0o4777, 0) >= 0"),
    ("an abstract socket of the agent", "socket.socket(socket.AF_UNIX).connect('\\0NAME'); escaped = True"),
    ("a socket of the agent", "socket.socket(socket.AF_UNIX).connect('OWN/agent.sock'); escaped = True"),
    ("raw packets", "socket.socket(17, socket.SOCK_RAW); escaped = True"),
    ("the computer's host, and other families", "
escaped = False
for family in [16, 38, 40, 44, 29, 31, 21, 30]:
    try: socket.socket(family, socket.SOCK_STREAM if family != 16 else socket.SOCK_RAW, 15 if family == 16 else 0); escaped = True
    except OSError as error: escaped = escaped or error.errno != 1"),
    ("typing into a terminal", "
main, side = os.openpty()
try: fcntl.ioctl(side, 0x5412, b'x'); escaped = True
except PermissionError: escaped = False"),
];

const PYTHON_PRELUDE: &str = "
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    word = lambda a: ctypes.c_long(a) if isinstance(a, int) else a
    return libc.syscall(ctypes.c_long(number), *map(word, arguments))
try:
    ATTEMPT
except OSError:
    escaped = False
print('ESCAPED' if escaped else 'refused')
";

/// The site with everything that the attempts target.
struct EscapeTarget {
    site: SandboxSite,
    sandbox: Sandbox,
    port: u16,
    name: String,
    _servers: (std::net::TcpListener, UnixListener, UnixListener),
}

impl EscapeTarget {
    fn new() -> Self {
        let site = SandboxSite::new();
        for folder in ["in/sub/.git/hooks", "in/guarded"] {
            std::fs::create_dir_all(site.path(folder)).expect("creates");
        }
        for file in ["in/sub/.git/config", "in/guarded/file"] {
            std::fs::write(site.path(file), "as it was").expect("writes");
        }
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let name = format!("deskgate-test-{}-{:x}", std::process::id(), rand::random::<u64>());
        let hidden = SocketAddr::from_abstract_name(&name).expect("a name");
        let port = tcp.local_addr().expect("bound").port();
        let abstract_one = UnixListener::bind_addr(&hidden).expect("binds");
        let path = UnixListener::bind(site.path("own/agent.sock")).expect("binds");
        let sandbox = site.usual();
        Self { site, sandbox, port, name, _servers: (tcp, abstract_one, path) }
    }

    fn fill(&self, attempt: &str) -> String {
        let path = |name| self.site.path(name).display().to_string();
        attempt
            .replace("OUT", &path("out"))
            .replace("OWN", &path("own"))
            .replace("PID", &std::process::id().to_string())
            .replace("PORT", &self.port.to_string())
            .replace("NAME", &self.name)
    }

    /// Everything that must stay unchanged: names, contents, modes and times.
    fn outside(&self) -> Vec<String> {
        let folders = ["out", "own", "in/sub/.git", "in/sub/.git/hooks", "in/guarded"];
        let mut all = Vec::new();
        for entry in folders.iter().flat_map(|folder| std::fs::read_dir(self.site.path(folder)).expect("stands")) {
            let path = entry.expect("stands").path();
            let found = path.symlink_metadata().expect("stands");
            if path.file_name().is_some_and(|name| name == "scratch") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let (mode, links) = (found.permissions().mode(), found.nlink());
            all.push(format!("{} {mode:o} {links} {} {text}", path.display(), found.mtime_nsec()));
        }
        for system in ["/etc/passwd", "/etc/hosts", "/usr/bin/env"] {
            let found = std::fs::metadata(system).expect("stands");
            all.push(format!("{system} {} {} {}", found.nlink(), found.ino(), found.mtime_nsec()));
        }
        all.sort();
        all
    }

    fn fails(&self, what: &str, command: &str) {
        let (said, ending) = run(&self.sandbox, command);
        let clean = said.replace(&self.name, "");
        assert!(!clean.contains(ESCAPED_WORD) && !clean.contains(SECRET_TEXT), "{what}: {said}");
        assert!(said.contains("refused"), "{what} was not tried to its end: {ending:?}: {said}");
    }
}

#[test]
fn no_attempt_of_a_shell_gets_out() {
    let target = EscapeTarget::new();
    let before = target.outside();
    for (what, attempt) in SHELL_ATTEMPTS {
        let attempt = target.fill(attempt);
        target.fails(what, &format!("if ( {attempt} ); then echo {ESCAPED_WORD}; else echo refused; fi 2>&1"));
        assert_eq!(target.outside(), before, "{what}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn no_attempt_by_system_call_gets_out() {
    let target = EscapeTarget::new();
    let before = target.outside();
    for (what, attempt) in SYSCALL_ATTEMPTS {
        let attempt = target.fill(attempt).trim_start().replace('\n', "\n    ");
        let program = PYTHON_PRELUDE.replace("ATTEMPT", &attempt);
        target.fails(what, &format!("cat >/tmp/attempt.py <<'END'\n{program}\nEND\npython3 /tmp/attempt.py 2>&1"));
        assert_eq!(target.outside(), before, "{what}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_another_kind_end_the_process() {
    let target = EscapeTarget::new();
    // getpid as an x32 call; and through the interface of 32-bit programs.
    let x32 = "call(0x40000000 | 39)";
    let old = "import mmap; page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex('b814000000cd80c3'))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()";
    for attempt in [x32, old] {
        let program = PYTHON_PRELUDE.replace("ATTEMPT", &format!("{attempt}; escaped = True"));
        let command = format!("cat >/tmp/attempt.py <<'END'\n{program}\nEND\npython3 /tmp/attempt.py; echo status $?");
        let said = ok(&target.sandbox, &command);
        assert!(said.contains("status 159"), "ended by SIGSYS: {said}");
    }
}

#[test]
fn what_a_command_leaves_behind_leads_no_later_tool_out() {
    let target = EscapeTarget::new();
    let plant = target.fill(
        "ln -s OUT/file link; ln -s OUT folder; mkfifo pipe; ln -s /proc/self/root/OUT/file proc
         printf 'echo ESCAPED' >/tmp/.bashrc; cp /tmp/.bashrc /tmp/.profile; cp /tmp/.bashrc /tmp/.bash_profile
         printf 'not a library' >/tmp/evil.so; export LD_PRELOAD=/tmp/evil.so BASH_ENV=/tmp/.bashrc",
    );
    ok(&target.sandbox, &plant);
    assert_eq!(ok(&target.sandbox, "echo later $LD_PRELOAD$BASH_ENV"), "later\n");
    let (directory, own) = (target.site.path("in"), target.site.path("own"));
    let options = WorkspaceOptions::of(&directory, &own);
    let workspace = Workspace::open(options).expect("opens");
    for planted in ["link", "folder/file", "pipe", "proc"] {
        let opened = workspace.open_file(Path::new(planted), crate::engine::workspace::LinkPolicy::Inside);
        assert!(opened.is_err(), "{planted}");
    }
}

#[test]
fn a_repository_at_the_top_can_be_read_and_not_changed() {
    let site = SandboxSite::new();
    std::fs::create_dir_all(site.path("in/.git/hooks")).expect("creates");
    std::fs::write(site.path("in/.git/config"), "as it was").expect("writes");
    let sandbox = site.usual();
    assert_eq!(ok(&sandbox, "cat .git/config"), "as it was");
    let change =
        "for do in 'touch .git/hooks/x' 'echo >.git/config' 'rm -r .git' 'mv .git x' 'chmod 777 .git/config'; do
                    sh -c \"$do\" 2>/dev/null && echo ESCAPED; done; true";
    assert_eq!(ok(&sandbox, change), "");
    drop(sandbox);
    assert!(!site.path("in/.hg").exists() && site.path("in/.git/hooks").exists());
}
