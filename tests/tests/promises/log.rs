//! The agent's log on the command line: by run, as it comes, with an agent and without, and with its identifiers.

use std::fs::OpenOptions;
use std::io::Write;

use deskgate_tests::{Folder, TestDevice};

#[tokio::test]
async fn the_log_of_one_run_is_followed_across_a_rotation_and_without_the_agent() {
    let (mut device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("shop", &folder, &[]).await;
    let run_id = backend.submit("what is here?").await;
    backend.wait_for_end(&run_id).await;
    let path = device.home().join("agent.log");
    let append = |text: &str| {
        let mut log = OpenOptions::new().create(true).append(true).open(&path).expect("ours");
        log.write_all(text.as_bytes()).expect("written");
    };
    let other = "run_00000000000000000000000000000001";
    append(&format!("INFO first run_id={run_id} key=dgk_canary0123456789\nINFO other run_id={other}\n"));

    let shown = device.cli(&["log", "--run", &run_id]).await.ok();
    let lines = shown["lines"].as_array().expect("a list");
    assert_eq!(lines.len(), 1, "{shown}");
    assert!(lines[0].as_str().expect("text").contains(&run_id) && !shown.to_string().contains("canary"), "{shown}");

    let end = &run_id[run_id.len() - 6..];
    let follower = device.begin_cli(&["log", "--follow", "--run", end]);
    follower.log.line(&["INFO first", &run_id]).await;
    append(&format!("INFO second run_id={other}\nINFO second run_id={run_id}\n"));
    follower.log.line(&["INFO second", &run_id]).await;
    std::fs::rename(&path, device.home().join("agent.log.1")).expect("moved");
    append(&format!("INFO third run_id={run_id}\n"));
    follower.log.line(&["INFO third"]).await;
    device.kill_9();
    append(&format!("INFO fourth run_id={run_id}\n"));
    follower.log.line(&["INFO fourth"]).await;
    let all = follower.log.own();
    assert!(!all.contains(other) && !all.contains("canary"), "{all}");
    for word in ["first", "second", "third", "fourth"] {
        assert_eq!(follower.log.count(&[word]), 1, "{word} came once: {all}");
    }
    drop(follower);

    let without = device.plain_cli(&["log", "--run", &run_id]).await;
    assert_eq!(without.exit, 0, "{}", without.stderr);
    assert!(without.stdout.contains("INFO fourth") && !without.stdout.contains(other), "{}", without.stdout);
    assert!(without.stderr.contains("The agent is not running"), "{}", without.stderr);
    std::fs::remove_file(&path).expect("ours");
    let none = device.plain_cli(&["log"]).await;
    assert!(none.exit == 0 && none.stdout.contains("There is no log here"), "{}{}", none.stdout, none.stderr);
}

#[tokio::test]
async fn a_bundle_keeps_every_identifier_of_real_work_and_no_planted_secret() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("shop", &folder, &[]).await;
    let run_id = backend.submit("what is here?").await;
    backend.wait_for_end(&run_id).await;
    // What the agent said of this work, and what it never says.
    let own = device.log().all();
    let secrets = ["dgk_canary0123456789", "sk-canary-0123456789", "Bearer canary-bearer", "canary-password"];
    let planted = format!(
        "INFO {}\nINFO {}\nINFO Authorization: {}\nINFO postgres://me:{}@db/x\n",
        secrets[0], secrets[1], secrets[2], secrets[3]
    );
    std::fs::write(device.home().join("agent.log"), own.clone() + &planted).expect("ours");
    let file = device.folder().join("support.txt");
    device.cli(&["bundle", "--yes", "--output", file.to_str().expect("a plain name")]).await.ok();
    let bundle = std::fs::read_to_string(&file).expect("written");
    assert!(!bundle.contains("canary"), "{bundle}");
    assert_eq!(bundle.matches("[removed]").count(), secrets.len(), "nothing else is removed: {bundle}");
    assert!(own.contains(&format!("run_id={run_id}")) && own.contains("device_id=dev_"), "{own}");
    for word in own.split_whitespace().filter(|word| word.contains("_id=")) {
        assert!(bundle.contains(word), "{word} is lost");
    }
}
