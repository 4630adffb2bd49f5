//! Files that clients of others upload and download.

use std::path::Path;

use deskgate_tests::{Folder, TestDevice, process, third_party};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::files::some_bytes;
use crate::text;

/// Bytes of the file: more than one chunk of the store, and no whole number of them.
const FILE_BYTES: usize = 9_000_001;

/// A client's program uploads a file in each way it has and reads every refusal; then it downloads what a run hands out, in two parts.
async fn serves(client: &Path, script: &str) -> Value {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let bytes = some_bytes(FILE_BYTES, 7);
    std::fs::write(folder.path().join("out.bin"), &bytes).expect("written");
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let steps = json!([{ "tool": "Deliver", "arguments": { "file_path": "out.bin" } }, { "text": "Done." }]);
    let model = folder.script("hands", steps);
    let tools = ["--model", &model, "--tools", "Deliver", "--allow", "Deliver", "--takes-files", "yes"];
    let backend = device.publish_here("shop", &folder, &tools).await;
    let ask = |more: &[&str]| {
        let mut command = process::command(client, &folder.path());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script));
        command.arg(backend.request(reqwest::Method::GET, "").build().expect("a request").url().as_str());
        command.args([backend.key(), "customer-1"]).arg(folder.path().join("out.bin")).args(more);
        let output = command.output().expect("the client is there");
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };

    let seen = ask(&["up"]);
    for way in ["file", "chunked", "again"] {
        let status = if way == "again" { 200 } else { 201 };
        assert_eq!(seen[way], json!([status, digest]), "{way}: {seen}");
    }
    assert_eq!(seen["a slash"], json!([422, "invalid_name"]), "{seen}");
    assert_eq!(seen["too large"], json!([413, "payload_too_large"]), "{seen}");
    assert_eq!(seen["a form"], json!([415, "unsupported_media_type"]), "{seen}");

    let run = backend
        .run_body(&json!({ "input": { "text": "Hand it out.", "files": [{ "file_id": seen["file_id"] }] } }))
        .await;
    assert_eq!(text(&run, "/artifacts/0/sha256"), digest, "{run}");
    let got = ask(&["down", text(&run, "/run_id"), text(&run, "/artifacts/0/artifact_id")]);
    assert_eq!(got, json!({ "status": 206, "sha256": digest, "known": 304 }));
    seen
}

#[tokio::test]
async fn httpx_brings_and_gets_files_in_each_of_its_ways() {
    let seen = serves(&third_party::python_tool("python"), "files.py").await;
    assert_eq!((&seen["asynchronous"][0], &seen["asynchronous"][1]), (&json!(201), &seen["file"][1]));
    assert_eq!(seen["wrong digest"], json!([422, "digest_mismatch"]), "{seen}");
}

#[tokio::test]
async fn fetch_and_pipes_of_node_bring_and_get_files() {
    let seen = serves(Path::new("node"), "files.mjs").await;
    assert_eq!(seen["piped"], json!([seen["file"], seen["file"]]), "{seen}");
}
