//! Files that an owner tries a service with, and artifacts that the owner gets.

use std::os::unix::fs::PermissionsExt;

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use serde_json::{Value, json};

use crate::files::some_bytes;
use crate::text;

#[tokio::test]
async fn an_owner_tries_a_draft_and_what_is_published_with_files() {
    let device = TestDevice::built_in().await;
    let (folder, mine) = (Folder::new(), tempfile::tempdir().expect("new"));
    let steps = json!([
        { "tool": "Glob", "arguments": { "pattern": "@files/*" } },
        { "text": "{{last_tool_result}}" }
    ]);
    let model = folder.script("lists", steps);
    let arguments = ["--model", &model, "--tools", "Read,Glob", "--takes-files", "yes"];
    device.publish_here("shop", &folder, &arguments).await;
    let path = |name: &str| mine.path().join(name).display().to_string();
    std::fs::create_dir(mine.path().join("more")).expect("made");
    for name in ["Größe.csv", "more/Größe.csv"] {
        std::fs::write(mine.path().join(name), name).expect("written");
    }
    let (first, second) = (path("Größe.csv"), path("more/Größe.csv"));
    let give = |more: &[&str]| {
        let mut words = vec!["service", "try", "shop", "--input", "What is there?", "--wait", "60s"];
        words.extend_from_slice(more);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words
    };
    let ask = async |more: &[&str]| {
        let words = give(more);
        device.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let tried = ask(&["--file", &first, "--file", &second]).await.ok();
    assert_eq!(text(&tried, "/run/state"), "succeeded", "{tried}");
    let listed = text(&tried, "/run/result/text");
    assert!(listed.contains("@files/Größe.csv") && listed.contains("@files/Größe (2).csv"), "{listed}");
    let names: Vec<_> = (0..2).map(|place| text(&tried, &format!("/run/input/files/{place}/name"))).collect();
    assert_eq!(names, ["Größe.csv", "Größe (2).csv"]);

    // The draft is offered with exactly these files, and nothing else is executed by it.
    device.cli(&["service", "edit", "shop", "--description", "Another one."]).await.ok();
    device.cli(&["service", "check", "shop"]).await.ok();
    let tried = ask(&["--draft", "--file", &first, "--file", &second]).await.ok();
    assert_eq!((text(&tried, "/run/state"), tried["run"]["endpoint_version"].as_u64()), ("succeeded", Some(0)));
    assert!(text(&tried, "/run/result/text").contains("@files/Größe (2).csv"), "{tried}");

    let large = std::fs::File::create(mine.path().join("large")).expect("made");
    large.set_len(64 * 1024 * 1024 + 1).expect("sparse");
    let made = std::process::Command::new("mkfifo").arg(mine.path().join("pipe")).status().expect("coreutils");
    assert!(made.success());
    std::fs::write(mine.path().join("gpj.\u{202e}exe"), "x").expect("written");
    for (name, expected) in [
        ("large", "a file has at most 67108864 bytes"),
        ("pipe", "no regular file"),
        ("more", "no regular file"),
        ("missing", "No such file"),
        ("gpj.\u{202e}exe", "U+202E"),
    ] {
        let refused = ask(&["--file", &path(name)]).await;
        assert!(refused.exit != 0 && refused.stderr.contains(expected), "{name}: {}", refused.stderr);
        assert!(!refused.stderr.contains('\u{202e}'), "{}", refused.stderr);
    }
    let none = ["--model", &model, "--tools", "Read,Glob"];
    device.publish_here("plain", &folder, &none).await;
    let words = ["service", "try", "plain", "--input", "What?", "--file", &first];
    let refused = device.cli(&words).await;
    assert!(refused.exit != 0 && refused.stderr.contains("takes no files"), "{}", refused.stderr);
}

#[tokio::test]
async fn an_owner_gives_and_gets_files_over_a_line_that_breaks() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let (folder, mine) = (Folder::new(), tempfile::tempdir().expect("new"));
    let bytes = some_bytes(6_000_001, 24);
    std::fs::write(mine.path().join("in.bin"), &bytes).expect("written");
    std::fs::write(folder.path().join("out.bin"), &bytes).expect("written");
    let steps = json!([{ "tool": "Deliver", "arguments": { "file_path": "out.bin" } }, { "text": "Done." }]);
    let model = folder.script("hands", steps);
    let arguments = ["--model", &model, "--tools", "Deliver", "--allow", "Deliver", "--takes-files", "yes"];
    device.publish(&gateway, "shop", &folder, &arguments).await;
    let cut_when = async |what: &str, begun: &dyn Fn() -> Option<String>, sql: Option<&str>| {
        until(what, async || {
            let is_there = match sql {
                Some(sql) => postgres.rows(sql).await.len() == 1,
                None => begun().is_some(),
            };
            if is_there { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        device.proxy().cut();
        device.proxy().heal();
    };

    device.proxy().narrow(16_000);
    let file = mine.path().join("in.bin").display().to_string();
    let words = ["service", "try", "shop", "--input", "Go.", "--file", &file, "--wait", "60s"];
    let trying = device.cli(&words);
    let arriving = "SELECT object_id::text FROM objects WHERE stored_at IS NULL AND released_at IS NULL";
    let (tried, ()) = tokio::join!(trying, async {
        cut_when("the file to be on its way", &|| None, Some(arriving)).await;
        device.proxy().narrow(0);
    });
    let tried = tried.ok();
    assert_eq!(text(&tried, "/run/state"), "succeeded", "{tried}");
    let (run_id, sha256) = (text(&tried, "/run/run_id"), text(&tried, "/run/input/files/0/sha256"));
    assert_eq!(sha256, text(&tried, "/run/artifacts/0/sha256"));

    let listed = device.plain_cli(&["run", "artifacts", "list", run_id]).await.stdout;
    assert!(listed.contains("out.bin") && listed.contains("6000001") && listed.contains("stored"), "{listed}");
    device.proxy().narrow(16_000);
    let target = mine.path().join("got.bin");
    let to = target.display().to_string();
    let in_part = || {
        let mut entries = std::fs::read_dir(mine.path()).expect("there").flatten();
        let part = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(".deskgate-"))?;
        (part.metadata().ok()?.len() > 0).then(|| part.path().display().to_string())
    };
    let words = ["run", "artifacts", "get", run_id, "out.bin", "--output", &to];
    let getting = device.cli(&words);
    let (got, ()) = tokio::join!(getting, async {
        cut_when("the first bytes", &in_part, None).await;
        device.proxy().narrow(0);
    });
    let got = got.ok();
    assert_eq!((text(&got, "/path"), text(&got, "/artifact/sha256")), (&*to, sha256), "{got}");
    assert!(std::fs::read(&target).expect("there") == bytes);
    assert_eq!(std::fs::metadata(&target).expect("there").permissions().mode() & 0o777, 0o600);

    // Nothing is written over, and nothing is left of what fails.
    let again = device.cli(&["run", "artifacts", "get", run_id, "out.bin", "--output", &to]).await;
    assert!(again.exit != 0 && again.stderr.contains("exists"), "{}", again.stderr);
    let into_folder = mine.path().display().to_string();
    device.cli(&["run", "artifacts", "get", run_id, "out.bin", "--output", &into_folder]).await.ok();
    assert!(std::fs::read(mine.path().join("out.bin")).expect("there") == bytes);
    for (artifact, expected) in
        [("nothing", "has no artifact"), ("art_01a1fdacce837a12b3c4d5e6f7a8b9c0", "has no artifact")]
    {
        let refused = device.cli(&["run", "artifacts", "get", run_id, artifact]).await;
        assert!(refused.exit != 0 && refused.stderr.contains(expected), "{}", refused.stderr);
    }
    let left = std::fs::read_dir(mine.path()).expect("there").count();
    assert_eq!(left, 3, "in.bin, got.bin, out.bin");
    let none: Vec<Value> = Vec::new();
    let other = folder.script("none", json!([{ "text": "Nothing." }]));
    device.publish(&gateway, "plain", &folder, &["--model", &other]).await;
    let tried = device.cli(&["service", "try", "plain", "--input", "Go.", "--wait", "60s"]).await.ok();
    let listed = device.cli(&["run", "artifacts", "list", text(&tried, "/run/run_id")]).await.ok();
    assert_eq!(listed["artifacts"], json!(none));
}
