//! Files of callers on their way to runs, over every line, and what is left of them afterwards.

use deskgate_tests::sshd::Sshd;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::text;

/// Bytes in which no part repeats another.
pub(crate) fn some_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(length);
    bytes
}

pub(crate) async fn upload(backend: &Backend, name: &str, bytes: impl Into<Vec<u8>>) -> Value {
    let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let request = backend.request(Method::POST, &format!("/files?name={name}")).body(bytes.into());
    let answer = backend.send(request).await.expect("answered");
    assert_eq!(answer.status.as_u16(), 201, "{}", answer.body);
    answer.body
}

pub(crate) fn with_files(text: &str, files: &[Value]) -> Value {
    let files: Vec<_> = files.iter().map(|file| json!({ "file_id": file["file_id"] })).collect();
    json!({ "input": { "text": text, "files": files } })
}

/// Waits until nothing is left of any run's files on the device.
async fn is_tidy(device: &TestDevice) {
    until("the run's files to be gone", async || {
        let left = std::fs::read_dir(device.home().join("files")).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} folders")) }
    })
    .await;
}

#[tokio::test]
async fn tools_and_commands_read_the_files_of_a_run_and_change_nothing_of_them() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let calls = [
        ("Read", json!({ "file_path": "@files/names.txt" }), "     2\tBerta"),
        ("Read", json!({ "file_path": "/files/names.txt" }), "     1\tAnton"),
        ("Grep", json!({ "pattern": "Bert", "path": "@files", "output_mode": "content" }), "@files/names.txt:2:Berta"),
        ("Glob", json!({ "pattern": "*.txt", "path": "@files" }), "@files/names.txt"),
        ("Glob", json!({ "pattern": "@files/*" }), "@files/table (2).csv"),
        ("Write", json!({ "file_path": "@files/names.txt", "content": "x" }), "cannot be changed"),
        (
            "Edit",
            json!({ "file_path": "@files/names.txt", "old_string": "Anton", "new_string": "x" }),
            "cannot be changed",
        ),
        ("Read", json!({ "file_path": "@files/../../deskgate.db" }), "outside"),
        (
            "Bash",
            json!({ "command": "cat /files/names.txt; ls /files | wc -l; echo x >/files/names.txt; rm /files/names.txt" }),
            "Anton\nBerta\n3\n",
        ),
        (
            "Bash",
            json!({ "command": "sh -c 'chmod +x /files/names.txt; touch /files/new'; echo $?" }),
            "Read-only file system",
        ),
    ];
    let tools = "Read,Grep,Glob,Write,Edit,Bash";
    for (place, (tool, arguments, expected)) in calls.into_iter().enumerate() {
        let steps = json!([{ "tool": tool, "arguments": arguments }, { "text": "{{last_tool_result}}" }]);
        let (name, model) = (format!("s{place}"), folder.script(&format!("m{place}"), steps));
        let more = ["--model", &model, "--tools", tools, "--allow", "*", "--takes-files", "yes"];
        let backend = device.publish_here(&name, &folder, &more).await;
        let mut files = vec![upload(&backend, "names.txt", "Anton\nBerta\n").await];
        files.push(upload(&backend, "table.csv", "a,b\n").await);
        files.push(upload(&backend, "TABLE.csv", "c,d\n").await);
        files[2]["name"] = json!("TABLE (2).csv");
        let run = backend.run_body(&with_files("Look.", &files)).await;
        let said = text(&run, "/result/text");
        let expected = expected.replace("table (2)", "TABLE (2)");
        assert!(text(&run, "/state") == "succeeded" && said.contains(&expected), "{tool}: {said:?} lacks {expected:?}");
        assert!(!folder.path().join("@files").exists(), "nothing of it is in the folder");
        is_tidy(&device).await;
    }
}

#[tokio::test]
async fn a_service_reads_the_files_of_a_run_without_any_tool_of_its_own() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let read = |path: &str| json!({ "tool": "Read", "arguments": { "file_path": path } });
    let steps = json!([read("@files/a.txt"), read("orders.txt"), { "text": "{{last_tool_result}}" }]);
    let model = folder.script("reads", steps);
    let backend =
        device.publish_here("shop", &folder, &["--model", &model, "--tools", "none", "--takes-files", "yes"]).await;
    let file = upload(&backend, "a.txt", "inside").await;
    let run = backend.run_body(&with_files("Look.", &[file])).await;
    let said = text(&run, "/result/text");
    assert!(
        text(&run, "/state") == "succeeded" && said.contains("There is no such file"),
        "the folder stays closed: {run}"
    );
}

#[tokio::test]
async fn a_service_whose_owner_does_not_say_so_takes_no_files_whatever_the_gateway_offers() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let file = upload(&backend, "a.txt", "x").await;
    let refused =
        backend.try_submit_body("a", &with_files("Look.", std::slice::from_ref(&file))).await.expect("answered");
    assert_eq!((refused.status.as_u16(), &refused.body["errors"][0]["pointer"]), (422, &json!("/input/files")));
    // As a gateway that was taken over would say it.
    assert_eq!(postgres.change("UPDATE endpoints SET takes_files = true").await, 1);
    let run = backend.run_body(&with_files("Look.", &[file])).await;
    assert_eq!((text(&run, "/error/code"), text(&run, "/error/effects")), ("definition_mismatch", "none"), "{run}");
    assert!(!device.home().join("files").exists(), "nothing was fetched");
}

/// A run that lists the digests of its files, by the system's own program.
async fn digests(backend: &Backend, files: &[Value]) -> Vec<(String, String)> {
    let run = backend.run_body(&with_files("Sum up.", files)).await;
    assert_eq!(text(&run, "/state"), "succeeded", "{run}");
    let line = |line: &str| line.split_once("  /files/").map(|(sum, name)| (name.to_owned(), sum.to_owned()));
    let mut found: Vec<_> = text(&run, "/result/text").lines().filter_map(line).collect();
    found.sort();
    found
}

fn expected(files: &[Value]) -> Vec<(String, String)> {
    let mut expected: Vec<_> =
        files.iter().map(|file| (text(file, "/name").to_owned(), text(file, "/sha256").to_owned())).collect();
    expected.sort();
    expected
}

fn summing(folder: &Folder) -> Vec<String> {
    let steps = json!([
        { "tool": "Bash", "arguments": { "command": "sha256sum /files/*" } }, { "text": "{{last_tool_result}}" }
    ]);
    let model = folder.script("sums", steps);
    ["--model", &model, "--tools", "Bash", "--allow", "Bash", "--takes-files", "yes"].map(str::to_owned).to_vec()
}

async fn publish_summing(device: &TestDevice, gateway: &GatewayProcess, folder: &Folder) -> Backend {
    let arguments = summing(folder);
    device.publish(gateway, "shop", folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
}

#[tokio::test]
async fn files_come_whole_over_a_line_that_is_cut_at_any_byte() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = publish_summing(&device, &gateway, &folder).await;
    let mut files = Vec::new();
    for (place, length) in [0, 1, 4 * 1024 * 1024, 9_000_001, 3].into_iter().enumerate() {
        files.push(upload(&backend, &format!("f{place}"), some_bytes(length, place as u64 + 1)).await);
    }
    assert_eq!(digests(&backend, &files).await, expected(&files));
    // About three seconds for all, and a cut every few hundred milliseconds.
    device.proxy().narrow(32_000);
    let cutting = async {
        for pause in [150, 300, 450, 600, 700, 900] {
            tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
            device.proxy().cut();
            device.proxy().heal();
        }
        device.proxy().narrow(0);
    };
    let (found, ()) = tokio::join!(digests(&backend, &files), cutting);
    assert_eq!(found, expected(&files));
    is_tidy(&device).await;
}

#[tokio::test]
async fn files_come_through_the_servers_own_sshd() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let paired = device.pair(&gateway, &[]).await;
    let file = device.folder().join("identity.json");
    let printed = gateway.plain_admin(&["device", "add", file.to_str().unwrap(), "--print-authorized-keys"]).await;
    let sshd = Sshd::start(&printed.stdout).await;
    let (address, user, known_hosts) = (sshd.address(), sshd.user(), sshd.known_hosts());
    let (socket, token) = (text(&paired, "/details/control_socket"), gateway.control_token_file());
    let (known_hosts, token) = (known_hosts.to_str().unwrap(), token.to_str().unwrap());
    let connection =
        ["--ssh-address", &address, "--ssh-user", &user, "--known-hosts", known_hosts, "--control-socket", socket];
    device.save(&[&connection[..], &["--token-file", token]].concat()).await.ok();
    device.wait_until_connected().await;
    let folder = Folder::new();
    let backend = publish_summing(&device, &gateway, &folder).await;
    let files = [upload(&backend, "a b.bin", some_bytes(6_000_000, 5)).await, upload(&backend, "ö", "x").await];
    assert_eq!(digests(&backend, &files).await, expected(&files));
}

#[tokio::test]
async fn a_gateway_or_an_agent_that_is_killed_while_files_come_loses_nothing() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = publish_summing(&device, &gateway, &folder).await;
    let files = [upload(&backend, "a", some_bytes(8_000_000, 7)).await];
    for victim in ["gateway", "agent"] {
        device.proxy().narrow(16_000);
        let body = with_files("Sum up.", &files);
        let answer = backend.try_submit_body(victim, &body).await.expect("answered");
        let run_id = text(&answer.body, "/run_id").to_owned();
        until("the file to come", async || {
            let folders = std::fs::read_dir(device.home().join("files")).into_iter().flatten().flatten();
            let sizes = folders.filter_map(|folder| std::fs::metadata(folder.path().join("@files/a")).ok());
            let size = sizes.map(|file| file.len()).max().unwrap_or_default();
            if size > 100_000 { Ok(()) } else { Err(format!("{size} bytes")) }
        })
        .await;
        match victim {
            "gateway" => {
                gateway.kill_9();
                gateway.restart().await;
            }
            _ => {
                device.kill_9();
                device.start().await;
            }
        }
        device.proxy().narrow(0);
        let run = backend.wait_for_end(&run_id).await;
        assert!(text(&run, "/result/text").contains(text(&files[0], "/sha256")), "{victim}: {run}");
        is_tidy(&device).await;
    }
}

#[tokio::test]
async fn a_run_whose_file_vanished_from_the_store_fails_and_says_which_and_nothing_ran() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = publish_summing(&device, &gateway, &folder).await;
    let whole = upload(&backend, "whole.txt", "x").await;
    for damage in ["gone", "other bytes", "shorter"] {
        let file = upload(&backend, "report.pdf", "some bytes").await;
        let chunk = gateway.state_dir().join("objects").join(&text(&file, "/file_id")["file_".len()..]).join("0");
        match damage {
            "gone" => std::fs::remove_file(&chunk).expect("removed"),
            "other bytes" => std::fs::write(&chunk, "same bytes").expect("written"),
            _ => std::fs::write(&chunk, "some").expect("written"),
        }
        let run = backend.run_body(&with_files("Sum up.", &[whole.clone(), file])).await;
        let error = &run["error"];
        assert_eq!((text(error, "/code"), text(error, "/effects")), ("file_unavailable", "none"), "{damage}: {run}");
        assert!(text(error, "/message").contains("report.pdf") && error["retryable"] == true, "{damage}: {run}");
        assert_eq!(run["usage"]["tool_calls"], 0, "{damage}: {run}");
    }
}

#[tokio::test]
async fn a_large_file_holds_up_no_other_run() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = publish_summing(&device, &gateway, &folder).await;
    let quick = {
        let key = backend.key().to_owned();
        let endpoint = device.add_service("shop", "quick", &folder, &[]).await;
        Backend::new(gateway.http(), &key, &endpoint)
    };
    let file = upload(&backend, "large", some_bytes(20_000_000, 9)).await;
    // Ten seconds for the file.
    device.proxy().narrow(16_000);
    let body = with_files("Sum up.", std::slice::from_ref(&file));
    let answer = backend.try_submit_body("large", &body).await.expect("answered");
    let large = text(&answer.body, "/run_id").to_owned();
    backend.wait_for_state(&large, "running").await;
    for _ in 0..5 {
        let run = quick.wait_for_end(&quick.submit("What does order 4711 say?").await).await;
        assert_eq!(text(&run, "/state"), "succeeded", "{run}");
    }
    assert_eq!(text(&backend.run(&large).await, "/state"), "running", "the file is still on its way");
    device.proxy().narrow(0);
    let run = backend.wait_for_end(&large).await;
    assert!(text(&run, "/result/text").contains(text(&file, "/sha256")), "{run}");
}
