//! The limits of a command, and what happens when it exceeds them.

use super::*;

fn limited(site: &SandboxSite, change: impl FnOnce(&mut CommandLimits)) -> Sandbox {
    let mut limits = CommandLimits::default();
    change(&mut limits);
    site.sandbox(Network::None, limits)
}

#[test]
fn a_fork_bomb_runs_into_its_limit_and_is_gone_when_its_time_is_over() {
    let site = SandboxSite::new();
    let sandbox = limited(&site, |limits| limits.processes = 48);
    let bomb = "bomb() { bomb | bomb & }; bomb; for i in $(seq 200); do sleep 2718281 & done; wait";
    let started = Instant::now();
    let (said, ending) = sandbox.run(bomb, Duration::from_secs(3), &CancellationToken::new()).expect("stands");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(said.text().contains("Resource temporarily unavailable"), "{ending:?}");
    assert!(survivors::with_argument("2718281").is_empty());
    assert_eq!(ok(&sandbox, "echo usable"), "usable\n");
}

#[test]
fn a_process_that_wants_too_much_memory_does_not_get_it() {
    let site = SandboxSite::new();
    let sandbox = limited(&site, |limits| limits.memory = 512 << 20);
    let (said, _) = run(&sandbox, "python3 -c 'x = bytearray(900 << 20); print(\"had it\")' 2>&1 | tail -1");
    assert!(said.contains("MemoryError") || said.contains("Killed"), "{said}");
}

#[test]
fn processes_that_together_want_too_much_memory_are_ended() {
    let site = SandboxSite::new();
    let sandbox = limited(&site, |limits| limits.memory = 256 << 20);
    let hold = "for i in 1 2 3 4; do python3 -c 'import time
x = bytearray(b\"x\") * (150 << 20)
time.sleep(60)' & done; wait; echo all had it";
    let started = Instant::now();
    let (said, ending) = run(&sandbox, hold);
    assert!(ending == CommandEnd::Ended(KillReason::Memory) || said.contains("Killed"), "{ending:?}: {said}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn no_file_grows_beyond_its_limit_wherever_it_stands() {
    let site = SandboxSite::new();
    let sandbox = limited(&site, |limits| limits.file_size = 1 << 20);
    for place in [".", "/tmp", "/dev/shm"] {
        let (_, ending) = run(&sandbox, &format!("head -c 5000000 /dev/zero >{place}/large"));
        assert!(!matches!(ending, CommandEnd::Finished(status) if status.success()), "{place}");
        let size = ok(&sandbox, &format!("stat -c %s {place}/large 2>/dev/null || echo 0"));
        assert!(size.trim().parse::<u64>().expect("a number") <= 1 << 20, "{place}: {size}");
    }
}

#[test]
fn memory_cannot_be_had_as_files_of_the_sandboxs_own_folders() {
    let site = SandboxSite::new();
    let fill = "for at in / /dev /etc /home /run /usr/local/etc /dev/shm; do
                  head -c 200000000 /dev/zero 2>/dev/null >$at/fill && echo filled $at; done; true";
    assert_eq!(ok(&site.usual(), fill), "");
}

#[test]
fn a_command_that_fills_a_disk_is_ended_and_on_a_full_one_a_run_begins_and_no_command() {
    let site = SandboxSite::new();
    let stat = rustix::fs::statvfs(site.folder.path()).expect("a disk");
    let free = stat.f_bavail * stat.f_frsize;
    let sandbox = limited(&site, |limits| limits.free_space = free - (1 << 30));
    let (said, ending) = run(&sandbox, "for i in 1 2 3 4 5 6; do fallocate -l 300M /tmp/fill$i; done; sleep 50");
    assert_eq!(ending, CommandEnd::Ended(KillReason::Disk), "{said}");
    drop(sandbox);
    let full = limited(&site, |limits| limits.free_space = u64::MAX);
    let refused = full.run("touch file", COMMAND_TIMEOUT, &CancellationToken::new());
    assert!(matches!(refused, Err(SandboxError::DiskFull)));
    assert!(!site.path("in/file").exists());
}

#[test]
fn a_commands_processes_give_way_to_the_owners_programs() {
    let site = SandboxSite::new();
    let own = rustix::process::getpriority_process(None).expect("known");
    // The nice value, field 19 of proc_pid_stat(5), of a shell and of what it starts.
    let nice = "sed 's/.*) //' /proc/$$/stat | cut -d' ' -f17; sed 's/.*) //' /proc/self/stat | cut -d' ' -f17";
    assert_eq!(ok(&site.usual(), nice), "10\n10\n");
    assert!(own < 10, "the agent itself has {own}");
}

#[test]
fn no_single_file_takes_what_is_to_stay_free() {
    let site = SandboxSite::new();
    let stat = rustix::fs::statvfs(site.folder.path()).expect("a disk");
    let free = stat.f_bavail * stat.f_frsize;
    let sandbox = limited(&site, |limits| limits.free_space = free - (256 << 20));
    let (said, ending) = run(&sandbox, "fallocate -l 1G /tmp/fill; stat -c %s /tmp/fill");
    let size = said.lines().filter_map(|line| line.parse::<u64>().ok()).next_back().unwrap_or(0);
    assert!(size <= 256 << 20, "{ending:?}: {said}");
}

#[test]
fn a_flood_of_output_is_taken_and_only_its_ends_are_kept() {
    let site = SandboxSite::new();
    let said = ok(&site.usual(), "echo first; yes 'a line of a flood' | head -c 1000000000; echo; echo last");
    assert!(said.len() < 64 * 1024 && said.starts_with("first\n") && said.ends_with("last\n"));
    assert!(said.contains("bytes of output are left out here"));
}
