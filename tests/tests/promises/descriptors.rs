//! A gateway raises its limit of descriptors, and reports when it is too low.

use deskgate_tests::process::{self, Process};
use deskgate_tests::{Folder, binaries, until};
use serde_json::Value;

/// A gateway's command line under a limit of open files, such as `-Sn 300`.
fn limited(folder: &Folder, limit: &str, words: &[&str]) -> std::process::Command {
    let mut command = process::command("/bin/sh".as_ref(), &folder.path());
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\"")).arg(binaries::gateway());
    for name in ["state", "run"] {
        command.arg("--set").arg(format!("{name}_dir={}", folder.path().join(name).display()));
    }
    command.args(["--set", "server.listen=127.0.0.1:0", "--set", "ssh.listen=", "--set", "ops.listen="]).args(words);
    command
}

#[tokio::test]
async fn a_gateway_that_was_given_few_descriptors_takes_those_it_may_have() {
    let folder = Folder::new();
    let gateway = Process::start(limited(&folder, "-Sn 300", &["serve"]), &folder.path().join("gateway.log"));
    until("the gateway to be ready", async || {
        if gateway.log.own().contains("gateway ready") { Ok(()) } else { Err(gateway.log.tail(3)) }
    })
    .await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).expect("it runs");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("Linux says so");
    let [soft, hard, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert_eq!(soft, hard);
    assert_ne!(soft, "300");
}

#[tokio::test]
async fn a_gateway_that_may_have_too_few_descriptors_says_what_to_do() {
    let folder = Folder::new();
    for name in ["state", "run"] {
        std::fs::create_dir(folder.path().join(name)).expect("a fresh folder");
    }
    let output = limited(&folder, "-n 900", &["check", "--json"]).output().expect("there is a shell");
    assert_eq!(output.status.code(), Some(10), "{output:?}");
    let checked: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = checked["findings"].as_array().expect("a list");
    let failed: Vec<_> = findings.iter().filter(|finding| finding["verdict"] == "FAIL").collect();
    let [descriptors] = failed[..] else { panic!("{checked}") };
    assert_eq!(descriptors["name"], "descriptors");
    let detail = descriptors["detail"].as_str().expect("a text");
    assert!(detail.contains("900") && detail.contains("LimitNOFILE"), "{detail}");
}
