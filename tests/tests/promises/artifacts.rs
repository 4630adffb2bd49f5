//! What runs hand out: asked for, whole, listed before the end, and gone with the run.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, until};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::files::some_bytes;
use crate::text;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A script that hands these files out, one after the other.
fn delivering(folder: &Folder, name: &str, calls: &[Value]) -> String {
    let calls = calls.iter().map(|arguments| json!({ "tool": "Deliver", "arguments": arguments }));
    let steps: Vec<_> = calls.chain([json!({ "text": "{{last_tool_result}}" })]).collect();
    folder.script(name, json!(steps))
}

pub(crate) async fn download(
    backend: &Backend,
    run_id: &str,
    artifact: &Value,
    more: &[(&'static str, &str)],
) -> (u16, HeaderMap, Vec<u8>) {
    let path = format!("/runs/{run_id}/artifacts/{}", text(artifact, "/artifact_id"));
    let request =
        more.iter().fold(backend.request(Method::GET, &path), |request, (name, value)| request.header(*name, *value));
    let answer = request.send().await.expect("answered");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, answer.bytes().await.expect("whole").to_vec())
}

/// Waits until no copy is left on the device.
async fn is_tidy(device: &TestDevice) {
    until("the copies to be gone", async || {
        let left = std::fs::read_dir(device.home().join("outbox")).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} copies")) }
    })
    .await;
}

#[tokio::test]
async fn a_file_that_a_run_hands_out_is_listed_and_downloaded_as_it_was() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let report: Vec<u8> = (0..9_000_001_u32).map(|n| (n * 7 % 251) as u8).collect();
    std::fs::write(folder.path().join("report.bin"), &report).expect("written");
    std::fs::write(folder.path().join("Größe.csv"), "a,b\n").expect("written");
    std::fs::write(folder.path().join("empty"), "").expect("written");
    let calls = [
        json!({ "file_path": "report.bin", "name": "report.xlsx", "description": "All of it." }),
        json!({ "file_path": "Größe.csv" }),
        json!({ "file_path": "Größe.csv" }),
        json!({ "file_path": "empty" }),
    ];
    let model = delivering(&folder, "hands", &calls);
    let backend = device
        .publish_here("shop", &folder, &["--model", &model, "--tools", "Read,Deliver", "--allow", "Deliver"])
        .await;
    let run = backend.run_body(&json!({ "input": { "text": "Report." } })).await;
    let run_id = text(&run, "/run_id");
    assert_eq!(text(&run, "/result/text"), "empty (0 bytes) was handed out to the application.", "{run}");
    let artifacts = run["artifacts"].as_array().expect("a list");
    let told: Vec<_> = artifacts
        .iter()
        .map(|a| (text(a, "/name"), text(a, "/media_type"), a["size"].as_u64(), text(a, "/state")))
        .collect();
    let xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
    let expected = [
        ("report.xlsx", xlsx, Some(9_000_001), "stored"),
        ("Größe.csv", "text/csv", Some(4), "stored"),
        ("Größe (2).csv", "text/csv", Some(4), "stored"),
        ("empty", "application/octet-stream", Some(0), "stored"),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        (text(&artifacts[0], "/description"), text(&artifacts[0], "/sha256")),
        ("All of it.", sha256(&report).as_str())
    );
    assert!(artifacts[1].get("description").is_none());

    let (status, headers, bytes) = download(&backend, run_id, &artifacts[0], &[]).await;
    assert!(status == 200 && bytes == report);
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().expect("ASCII"));
    let etag = format!("\"{}\"", sha256(&report));
    assert_eq!((header("content-type"), header("etag"), header("content-length")), (xlsx, etag.as_str(), "9000001"));
    assert_eq!(header("content-disposition"), "attachment; filename=\"report.xlsx\"; filename*=UTF-8''report.xlsx");
    assert_eq!((header("x-content-type-options"), header("accept-ranges")), ("nosniff", "bytes"));
    assert!(
        header("content-security-policy").starts_with("sandbox") && header("content-digest").starts_with("sha-256=:")
    );
    let (status, headers, bytes) = download(&backend, run_id, &artifacts[0], &[("Range", "bytes=8999990-")]).await;
    assert!(status == 206 && bytes == report[8_999_990..], "{headers:?}");
    assert_eq!(headers["content-range"], "bytes 8999990-9000000/9000001");
    let whole = download(&backend, run_id, &artifacts[0], &[("Range", "bytes=5-9"), ("If-Range", "\"other\"")]).await;
    assert!(whole.0 == 200 && whole.2.len() == report.len());
    assert_eq!(download(&backend, run_id, &artifacts[1], &[("Range", "bytes=9-")]).await.0, 416);
    assert_eq!(download(&backend, run_id, &artifacts[3], &[]).await.2, b"");
    let unknown = json!({ "artifact_id": "art_01a1fdacce837a12b3c4d5e6f7a8b9c0" });
    assert_eq!(download(&backend, run_id, &unknown, &[]).await.0, 404);

    let shown = device.plain_cli(&["run", "show", run_id]).await.stdout;
    let line = format!("\nHanded out\n  report.xlsx  9000001 bytes, sha256 {}\n", sha256(&report));
    assert!(shown.contains(&line) && shown.contains("artifact.created         report.xlsx"), "{shown}");

    // Each is told before the end, by an event of its own.
    let events =
        backend.send(backend.request(Method::GET, &format!("/runs/{run_id}/events"))).await.expect("answered").body;
    let events = events["data"].as_array().expect("a page");
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("artifact.created").len(), 4);
    assert_eq!(of("artifact.created")[0]["data"], artifacts[0]);
    assert_eq!(events.last().expect("some")["type"], "run.succeeded");
    is_tidy(&device).await;

    let deleted =
        backend.send(backend.request(Method::DELETE, &format!("/runs/{run_id}/content"))).await.expect("answered");
    assert_eq!(deleted.status.as_u16(), 204);
    assert!(backend.run(run_id).await.get("artifacts").is_none());
    assert_eq!(download(&backend, run_id, &artifacts[0], &[]).await.0, 404);
    let objects = device.home().join("gateway/objects");
    until("the bytes to be gone", async || {
        let left = std::fs::read_dir(&objects).map_or(0, Iterator::count);
        if left == 0 { Ok(()) } else { Err(format!("{left} objects")) }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_handed_out_that_rules_or_the_folder_keep_back() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    for name in ["secret", "plain"] {
        std::fs::create_dir(folder.path().join(name)).expect("made");
    }
    std::fs::write(folder.path().join("secret/key.txt"), "x").expect("written");
    std::fs::write(folder.path().join("letters.txt"), "x").expect("written");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("linked");
    std::os::unix::fs::symlink("secret/key.txt", folder.path().join("inner")).expect("linked");
    let large = std::fs::File::create(folder.path().join("large")).expect("made");
    large.set_len(64 * 1024 * 1024 + 1).expect("sparse");
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("coreutils");
    assert!(made.success());
    let cases = [
        ("secret/key.txt", "do not allow this place"),
        ("inner", "do not allow this place"),
        ("link", "outside"),
        ("../x", "outside"),
        ("/etc/passwd", "outside"),
        ("fifo", "pipe"),
        ("plain", "directory"),
        ("missing", "no such file"),
        ("large", "larger than 67108864 bytes"),
    ];
    let rules = ["--tools", "Read,Deliver", "--allow", "*", "--deny", "Read:secret"];
    for (place, (path, expected)) in cases.into_iter().enumerate() {
        let model = delivering(&folder, &format!("m{place}"), &[json!({ "file_path": path })]);
        let backend =
            device.publish_here(&format!("s{place}"), &folder, &[&["--model", &model][..], &rules].concat()).await;
        let run = backend.run_body(&json!({ "input": { "text": "Report." } })).await;
        let said = text(&run, "/result/text");
        assert!(run.get("artifacts").is_none(), "{path}: {run}");
        assert!(said.to_lowercase().contains(expected), "{path}: {said:?} lacks {expected:?}");
    }
    // Without a rule its owner is asked, with what stands in the file, and a no is a no.
    let model = delivering(&folder, "asks", &[json!({ "file_path": "letters.txt" })]);
    let backend = device.publish_here("asks", &folder, &["--model", &model, "--tools", "Read,Deliver"]).await;
    let run_id = backend.submit("Report.").await;
    backend.wait_for_state(&run_id, "awaiting_approval").await;
    let waiting = device.cli(&["approval", "list"]).await.ok();
    let approval = &waiting["approvals"][0];
    let shown = &approval["plan"]["shown"];
    assert_eq!(
        (text(shown, "/kind"), text(shown, "/name"), text(shown, "/text")),
        ("delivery", "letters.txt", "x"),
        "{waiting}"
    );
    // What was shown is what leaves: another content is asked about again.
    std::fs::write(folder.path().join("letters.txt"), "something else").expect("written");
    device.cli(&["approval", "approve", text(approval, "/approval_id")]).await.ok();
    let again = until("to be asked again", async || {
        let waiting = device.cli(&["approval", "list"]).await.ok();
        let next = waiting["approvals"][0].clone();
        if next["plan"]["shown"]["text"] == "something else" { Ok(next) } else { Err(waiting.to_string()) }
    })
    .await;
    device.cli(&["approval", "deny", text(&again, "/approval_id")]).await.ok();
    let run = backend.wait_for_end(&run_id).await;
    assert!(run.get("artifacts").is_none(), "{run}");
    is_tidy(&device).await;
}

#[tokio::test]
async fn an_artifact_is_there_before_the_end_whatever_breaks_in_between() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let report: Vec<u8> = (0..12_000_001_u32).map(|n| (n * 11 % 253) as u8).collect();
    std::fs::write(folder.path().join("report.bin"), &report).expect("written");
    let model = delivering(&folder, "hands", &[json!({ "file_path": "report.bin" })]);
    let arguments = ["--model", &model, "--tools", "Deliver", "--allow", "Deliver"];
    let backend = device.publish(&gateway, "shop", &folder, &arguments).await;
    for what in ["cut", "gateway", "agent"] {
        // Three seconds for the file.
        device.proxy().narrow(32_000);
        let run_id = backend.submit("Report.").await;
        until("the copy to be on its way", async || {
            let arriving = "SELECT object_id::text FROM objects WHERE stored_at IS NULL AND released_at IS NULL";
            let found = postgres.rows(arriving).await;
            if found.len() == 1 { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
        match what {
            "cut" => {
                for pause in [300, 700, 500] {
                    tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
                    device.proxy().cut();
                    device.proxy().heal();
                }
            }
            "gateway" => {
                gateway.kill_9();
                gateway.restart().await;
            }
            _ => {
                until("the run's end to be written down", async || {
                    let state = device.status().await;
                    if state.to_string().contains("finished") { Ok(()) } else { Err(state.to_string()) }
                })
                .await;
                device.kill_9();
                device.start().await;
            }
        }
        device.proxy().narrow(0);
        let run = backend.wait_for_end(&run_id).await;
        assert_eq!((text(&run, "/state"), text(&run, "/artifacts/0/state")), ("succeeded", "stored"), "{what}: {run}");
        assert!(download(&backend, &run_id, &run["artifacts"][0], &[]).await.2 == report, "{what}");
        is_tidy(&device).await;
    }
}

#[tokio::test]
async fn an_artifact_that_cannot_be_brought_is_listed_as_missing_and_the_run_has_its_end() {
    let postgres = Postgres::shared().await;
    // Each counts with 64 KiB at least: one has room.
    let gateway = GatewayProcess::start(&postgres, &["limits.stored_bytes_per_application=70000"]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    std::fs::write(folder.path().join("first"), "x").expect("written");
    std::fs::write(folder.path().join("second"), "one too many").expect("written");
    let model = delivering(&folder, "hands", &[json!({ "file_path": "first" }), json!({ "file_path": "second" })]);
    let backend = device
        .publish(&gateway, "shop", &folder, &["--model", &model, "--tools", "Deliver", "--allow", "Deliver"])
        .await;
    let run = backend.run_body(&json!({ "input": { "text": "Report." } })).await;
    let states: Vec<_> = run["artifacts"].as_array().expect("a list").iter().map(|a| text(a, "/state")).collect();
    assert_eq!((text(&run, "/state"), states), ("succeeded", vec!["stored", "missing"]), "{run}");
    let (status, _, body) = download(&backend, text(&run, "/run_id"), &run["artifacts"][1], &[]).await;
    let problem: Value = serde_json::from_slice(&body).expect("a problem");
    assert_eq!((status, text(&problem, "/code")), (410, "artifact_missing"));
    is_tidy(&device).await;
}

#[tokio::test]
async fn an_application_downloads_so_many_at_once_and_another_when_one_has_ended() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let report = some_bytes(16 << 20, 5);
    std::fs::write(folder.path().join("report.bin"), &report).expect("written");
    let model = delivering(&folder, "hands", &[json!({ "file_path": "report.bin" })]);
    let tools = ["--model", &model, "--tools", "Deliver", "--allow", "Deliver"];
    let backend = device.publish_here("shop", &folder, &tools).await;
    let run = backend.run_body(&json!({ "input": { "text": "Report." } })).await;
    let (run_id, artifact) = (text(&run, "/run_id"), &run["artifacts"][0]);
    let path = format!("/runs/{run_id}/artifacts/{}", text(artifact, "/artifact_id"));
    // Nobody reads them, and no buffer takes them whole.
    let mut open = Vec::new();
    for _ in 0..64 {
        let answer = backend.request(Method::GET, &path).send().await.expect("answered");
        assert_eq!(answer.status().as_u16(), 200);
        open.push(answer);
    }
    let refused = backend.send(backend.request(Method::GET, &path)).await.expect("answered");
    assert_eq!((refused.status.as_u16(), text(&refused.body, "/code")), (429, "rate_limited"));
    assert_eq!(open.pop().expect("one").bytes().await.expect("whole"), report);
    assert!(download(&backend, run_id, artifact, &[]).await.2 == report);
}
