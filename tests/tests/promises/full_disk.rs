//! A command that fills the disk of the agent itself as fast as it can: it is ended, the run has its outcome, the next works.
//! A gateway whose disk is full says so wherever somebody looks, and works again once there is room.

use deskgate_gateway::ops::health_check::send_request;
use deskgate_tests::disk::Disk;
use deskgate_tests::{Folder, GatewayProcess, TestDevice, netns, until};
use rustix::process::Signal;
use serde_json::json;

use crate::doctor::finding;
use crate::text;

/// What the disk has beside what stands on it: what commands must leave, the reserve, and some to fill.
const SPARE_KIB: u64 = 900 * 1024;

/// Ways to fill a disk, each with more than one file, because one alone reaches its own limit first.
const WRITERS: [(&str, &str); 5] = [
    ("dd", "for i in 1 2 3; do dd if=/dev/zero of=dd$i bs=1M & done; wait"),
    ("fallocate", "i=0; while fallocate -l 30M fallocated$i; do i=$((i+1)); done; sleep 100"),
    (
        "small files",
        "mkdir small; for w in 1 2; do (i=0; while head -c 1000000 /dev/zero >small/$w-$i; do i=$((i+1)); done) & done; wait",
    ),
    (
        "sparse files",
        "for i in 1 2 3; do truncate -s 100M sparse$i; dd if=/dev/zero of=sparse$i conv=notrunc bs=1M & done; wait",
    ),
    ("unlinked", "for i in 1 2 3; do (exec 3>gone$i; rm gone$i; dd if=/dev/zero bs=1M >&3) & done; wait"),
];

async fn reports_reserve(device: &TestDevice) -> bool {
    let report = device.cli(&["doctor"]).await.value;
    let problems = report["problems"].as_array().cloned().unwrap_or_default();
    problems.iter().any(|problem| text(problem, "/code") == "reserve_used")
}

#[test]
fn a_command_that_fills_the_agents_own_disk_is_ended_and_everything_is_written_down() {
    if !netns::is_supported() {
        return;
    }
    let name = "full_disk::a_command_that_fills_the_agents_own_disk_is_ended_and_everything_is_written_down";
    netns::run_test(name, async || {
        let (mut device, folder) = (TestDevice::built_in().await, Folder::new());
        device.stop(Signal::TERM).await;
        let disk = Disk::over(&device.home(), SPARE_KIB);
        device.start().await;
        device.wait_until_connected().await;
        let script = |command: &str| {
            let call = json!({ "tool": "Bash", "arguments": { "command": command } });
            folder.script("writer", json!([call, { "text": "{{last_tool_result}}" }]))
        };
        let model = script("true");
        let options = ["--tools", "Bash", "--allow", "Bash", "--model", &model];
        let backend = device.publish_here("shop", &folder, &options).await;
        for (writer, command) in WRITERS {
            // `/tmp` of a command lies in the agent's folder.
            script(&format!("cd /tmp && {command}"));
            let run = backend.wait_for_end(&backend.submit("Fill it.").await).await;
            assert_eq!(text(&run, "/state"), "succeeded", "{writer}: {run}");
            assert!(text(&run, "/result/text").contains("a disk was nearly full"), "{writer}: {run}");
            script("echo fine");
            let run = backend.wait_for_end(&backend.submit("Say it.").await).await;
            assert_eq!((text(&run, "/state"), text(&run, "/result/text")), ("succeeded", "fine"), "{writer}: {run}");
        }
        assert!(!reports_reserve(&device).await, "no command got that far");
        // Whatever else fills it to the last byte: the agent gives its reserve and says so, and takes it again.
        assert!(disk.fill() > 0);
        let reported = async |wanted: bool| match reports_reserve(&device).await == wanted {
            true => Ok(()),
            false => Err(device.log().tail(3)),
        };
        until("the reserve to be given", async || reported(true).await).await;
        let run = backend.wait_for_end(&backend.submit("Say it.").await).await;
        assert!(text(&run, "/result/text").contains("Nothing was run"), "no command begins: {run}");
        disk.free();
        until("the reserve to be taken again", async || reported(false).await).await;
        device.stop(Signal::TERM).await;
        disk.end();
    });
}

/// What the gateway's disk has beside what stands on it: enough for PostgreSQL to work on.
const GATEWAY_SPARE_KIB: u64 = 256 * 1024;
/// What is left of it: less than PostgreSQL may need at once, and enough for the log of an idle one.
const LEFT_BYTES: u64 = 8 * 1024 * 1024;

/// What a command says of the disk, and how it ends.
async fn disk_verdict(gateway: &GatewayProcess) -> (String, i32) {
    let report = gateway.command_line(&["check"]).await;
    (text(finding(&report.value, "disk"), "/verdict").to_owned(), report.exit)
}

#[test]
fn a_gateway_whose_disk_is_full_says_so_everywhere_and_works_again_with_room() {
    if !netns::is_supported() {
        return;
    }
    netns::run_test(
        "full_disk::a_gateway_whose_disk_is_full_says_so_everywhere_and_works_again_with_room",
        async || {
            let mut gateway = GatewayProcess::on_private_cluster(&[]).await;
            gateway.stop(Signal::TERM).await;
            let disk = Disk::over(&gateway.state_dir(), GATEWAY_SPARE_KIB);
            gateway.restart().await;
            let ready = async || send_request(gateway.ops().get(), "/readyz?verbose").await;
            assert_eq!(ready().await.err(), None);
            assert_ne!(disk_verdict(&gateway).await.0, "FAIL");

            disk.leave(LEFT_BYTES);
            let says = ready().await.expect_err("it is not ready");
            assert!(says.contains("[-] disk: ") && says.contains("MiB are left on the disk of"), "{says}");
            assert_eq!(disk_verdict(&gateway).await, ("FAIL".to_owned(), 10));
            until("the doctor to say so", async || {
                let doctor = gateway.command_line(&["doctor"]).await;
                if doctor.stdout.contains("(disk_full)") { Ok(()) } else { Err(doctor.stdout) }
            })
            .await;

            disk.free();
            assert_eq!(ready().await.err(), None);
            gateway.stop(Signal::TERM).await;
            disk.end();
        },
    );
}
