//! How long the desktop keeps finished records, as its owner chooses.

use deskgate_tests::{Folder, TestDevice};
use serde_json::json;

use crate::text;

#[tokio::test]
async fn keeping_less_deletes_after_a_question_with_numbers_and_never_without_a_yes() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let backend = device.publish_here("shop", &folder, &[]).await;
    backend.wait_for_end(&backend.submit("Look.").await).await;
    let log = device.home().join("agent.log");
    std::fs::write(&log, "2026-01-01T00:00:00Z  INFO long ago\n").expect("ours");

    let kept = device.cli(&["settings", "retention", "--keep-runs", "1", "--keep-log", "30"]).await.ok();
    assert_eq!(kept["runs"], json!({ "kept": 1, "going": 0 }), "{kept}");
    assert_eq!(kept["log"], json!({ "kept": 1, "going": 1 }), "{kept}");
    assert_eq!(kept["keep"]["log"], 90, "asking changes nothing");
    let wrong = device.cli(&["settings", "set", "keep-runs", "0"]).await;
    assert!(wrong.exit != 0 && wrong.stderr.contains("choose from 1 to 365 days"), "{}", wrong.stderr);

    let asked = device.cli(&["settings", "set", "keep-log", "30", "--no-input"]).await;
    assert!(asked.exit != 0 && asked.stderr.contains("lines of the log"), "{}", asked.stderr);
    assert!(std::fs::read_to_string(&log).expect("readable").contains("long ago"), "nothing goes without a yes");
    let set = device.cli(&["settings", "set", "keep-log", "30", "--yes"]).await.ok();
    assert_eq!(set["keep"]["log"], 30, "{set}");
    assert!(!std::fs::read_to_string(&log).expect("readable").contains("long ago"));
    let set = device.cli(&["settings", "set", "keep-runs", "7"]).await.ok();
    assert_eq!(set["keep"]["runs"], 7, "where nothing goes, nothing is asked: {set}");
    assert_eq!(text(&set, "/device_name"), text(&device.cli(&["settings", "show"]).await.ok(), "/device_name"));
}
