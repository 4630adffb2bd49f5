//! Commands run only where they are allowed, and no process outlives its run or its agent.

use std::path::Path;

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, process, until};
use serde_json::json;

use crate::text;

struct CommandFixture {
    _postgres: Postgres,
    gateway: GatewayProcess,
    device: TestDevice,
    folder: Folder,
}

impl CommandFixture {
    async fn new() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let device = TestDevice::paired_with(&gateway).await;
        Self { _postgres: postgres, gateway, device, folder: Folder::new() }
    }

    /// A service whose assistant runs `command` and answers with its output.
    async fn runs(&self, command: &str) -> Backend {
        let steps = json!([
            { "tool": "Bash", "arguments": { "command": command, "description": "The work of this test" } },
            { "text": "{{last_tool_result}}" }
        ]);
        let model = self.folder.script("commands", steps);
        self.device
            .publish(&self.gateway, "shop", &self.folder, &["--tools", "Bash", "--allow", "Bash", "--model", &model])
            .await
    }
}

#[tokio::test]
async fn a_run_changes_its_folder_by_a_command_and_sees_nothing_of_the_agent() {
    let site = CommandFixture::new().await;
    let home = site.device.home().display().to_string();
    let command =
        format!("wc -l <orders.txt >lines.txt; ls {home} 2>&1 | grep -c 'No such file'; env | grep -c DESKGATE_");
    let backend = site.runs(&command).await;
    let run = backend.wait_for_end(&backend.submit("Count.").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/result/text")), ("succeeded", "1\n0\n\n(exit status 1)"), "{run}");
    assert_eq!(std::fs::read_to_string(site.folder.path().join("lines.txt")).expect("written").trim(), "0");
    let left = std::fs::read_dir(site.device.home().join("scratch")).expect("made").count();
    assert_eq!(left, 0, "the run's temporary folder is gone");
}

/// Five generations of processes, each in its own session and ignoring polite signals; none ends by itself.
const PROCESS_TREE_SCRIPT: &str = "trap '' TERM HUP INT
if [ $1 -gt 1 ]; then setsid sh ./tree.sh $(($1 - 1)) & fi
while :; do sleep 60; done";

async fn stand(folder: &Path) {
    until("five generations to stand", async || {
        let standing = generations(folder);
        if standing >= 5 { Ok(()) } else { Err(format!("{standing} stand")) }
    })
    .await;
}

/// The number of shells of the tree that works in this folder.
fn generations(folder: &Path) -> usize {
    let works_here = |number: &&u32| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.starts_with(b"sh\0./tree.sh\0")
    };
    process::find_mentioning(folder).iter().filter(works_here).count()
}

#[tokio::test]
async fn a_run_stopped_in_the_middle_of_five_generations_leaves_no_process_within_three_seconds() {
    let site = CommandFixture::new().await;
    site.folder.write("tree.sh", PROCESS_TREE_SCRIPT);
    let backend = site.runs("sh ./tree.sh 5").await;
    let folder = site.folder.path();
    let run_id = backend.submit("Begin.").await;
    stand(&folder).await;
    let asked = std::time::Instant::now();
    let operation = backend.stop(&run_id).await;
    until("no process to be left", async || match process::find_mentioning(&folder) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?} are left")),
    })
    .await;
    assert!(asked.elapsed() < std::time::Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(backend.outcome(&operation).await, json!({ "code": "stopped", "run_state": "cancelled" }));
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/state"), "cancelled", "{run}");
}

#[tokio::test]
async fn kill_9_of_the_agent_leaves_no_process_of_its_commands_and_its_next_start_no_file() {
    let mut site = CommandFixture::new().await;
    site.folder.write("tree.sh", PROCESS_TREE_SCRIPT);
    let backend = site.runs("echo left >/tmp/left; sh ./tree.sh 5").await;
    let folder = site.folder.path();
    backend.submit("Begin.").await;
    stand(&folder).await;
    // Only the agent is killed, not its group: only the kernel can end its processes.
    assert!(process::kill_9(site.device.process().id()));
    until("no process to be left", async || match process::find_mentioning(&folder) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?} are left")),
    })
    .await;
    let scratch = site.device.home().join("scratch");
    let names = || -> Vec<_> {
        std::fs::read_dir(&scratch).expect("made").map(|entry| entry.expect("readable").file_name()).collect()
    };
    let left = names();
    assert_eq!(left.len(), 1, "nobody was there to remove it");
    site.device.kill_9();
    site.folder.script("commands", json!([{ "text": "done" }]));
    site.device.start().await;
    // The agent may be testing its sandbox at this moment, with a folder of its own.
    assert!(!names().contains(&left[0]));
}

#[tokio::test]
async fn without_a_sandbox_nothing_is_published_and_a_run_fails_with_sandbox_unavailable() {
    let site = CommandFixture::new().await;
    let backend = site.runs("echo never >never.txt").await;
    // A path that must be protected cannot be: from now on no command may run here.
    std::os::unix::fs::symlink("/tmp", site.folder.path().join(".git")).expect("links");
    let run = backend.wait_for_end(&backend.submit("Try.").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("failed", "sandbox_unavailable"), "{run}");
    assert_eq!(text(&run, "/error/effects"), "none", "{run}");
    assert!(!site.folder.path().join("never.txt").exists());

    let checked = site.device.plain_cli(&["service", "check", "shop"]).await;
    assert_eq!(checked.exit, 10, "{}{}", checked.stdout, checked.stderr);
    let lines: Vec<&str> = checked.stdout.lines().skip_while(|line| !line.starts_with("FAIL")).take(2).collect();
    assert!(lines[0].starts_with("FAIL  sandbox confines: .git in the working directory"), "{lines:?}");
    assert!(lines[1].trim_start().starts_with("next: make .git a plain folder"), "{lines:?}");
    let published = site.device.plain_cli(&["service", "publish", "shop"]).await;
    assert_ne!(published.exit, 0, "{}", published.stdout);
}

#[tokio::test]
async fn what_a_command_leaves_in_the_way_of_protection_is_named_with_what_to_do_by_the_log_and_the_check() {
    let site = CommandFixture::new().await;
    let backend = site.runs("mkdir -p lib && mkfifo lib/.git && echo left").await;
    let run = backend.wait_for_end(&backend.submit("Leave it.").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/result/text")), ("succeeded", "left"), "{run}");
    let run = backend.wait_for_end(&backend.submit("Again.").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("failed", "sandbox_unavailable"), "{run}");

    let cause = "lib/.git in the working directory must be protected and cannot be: it is neither a folder nor a file";
    let to_do = "make lib/.git a plain folder or file that the agent's account may read, or take it away";
    assert_eq!(site.device.log().count(&[cause, to_do]), 1);
    let checked = site.device.plain_cli(&["service", "check", "shop"]).await;
    assert!(checked.stdout.contains(cause) && checked.stdout.contains(to_do), "{}{}", checked.stdout, checked.stderr);

    std::fs::remove_file(site.folder.path().join("lib/.git")).expect("stands");
    let run = backend.wait_for_end(&backend.submit("Leave it again.").await).await;
    assert_eq!(text(&run, "/state"), "succeeded", "{run}");
}
