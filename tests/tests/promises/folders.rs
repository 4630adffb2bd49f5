//! A service works in the folder that was checked and published, whatever bears its path later.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use deskgate_tests::{Backend, Folder, TestDevice};
use serde_json::{Value, json};

use crate::text;

/// Two services: `outer` runs commands in a folder, `inner` reads and lists what lies in one inside of it.
struct NestedServices {
    device: TestDevice,
    folder: Folder,
    outer: Backend,
    inner: Backend,
}

const SECRET: &str = "the victim's secret";

impl NestedServices {
    async fn new(command: &str) -> Self {
        let (device, folder) = (TestDevice::built_in().await, Folder::new());
        std::fs::create_dir_all(folder.path().join("shelf/inner")).expect("created");
        folder.write("shelf/inner/note.txt", "a note");
        let steps =
            json!([{ "tool": "Bash", "arguments": { "command": command } }, { "text": "{{last_tool_result}}" }]);
        let model = folder.script("outer", steps);
        let outer =
            device.publish_here("outer", &folder, &["--tools", "Bash", "--allow", "Bash", "--model", &model]).await;
        let steps = json!([
            { "tool": "Write", "arguments": { "file_path": "answer.txt", "content": "written" } },
            { "tool": "Read", "arguments": { "file_path": "note.txt" } },
            { "text": "{{last_tool_result}}" }
        ]);
        let model = folder.script("inner", steps);
        let path = folder.path().join("shelf/inner");
        let service = [
            "service",
            "create",
            "inner",
            "--app",
            "outer",
            "--dir",
            path.to_str().expect("plain"),
            "--model",
            &model,
            "--tools",
            "Read,Write",
            "--allow",
            "Write",
        ];
        device.cli(&service).await.ok();
        device.cli(&["service", "check", "inner"]).await.ok();
        let published = device.cli(&["service", "publish", "inner"]).await.ok();
        let inner = device.caller_here(outer.key(), text(&published, "/endpoint_id")).await;
        Self { device, folder, outer, inner }
    }

    fn inner_path(&self) -> PathBuf {
        self.folder.path().join("shelf/inner")
    }

    /// A folder of the owner's that no service has, with the file that `inner` reads.
    fn victim(&self) -> PathBuf {
        let victim = self.folder.path().parent().expect("it has one").join("victim");
        std::fs::create_dir(&victim).expect("created");
        std::fs::write(victim.join("note.txt"), SECRET).expect("written");
        victim
    }

    async fn run(&self, service: &Backend) -> Value {
        service.wait_for_end(&service.submit("Go.").await).await
    }

    /// `inner` does nothing, says nothing of what it would have reached, and is paused.
    async fn is_paused_without_effect(&self, reached: &Path) {
        let run = self.run(&self.inner).await;
        let failure = (text(&run, "/state"), text(&run, "/error/code"), text(&run, "/error/effects"));
        assert_eq!(failure, ("failed", "definition_mismatch", "none"), "{run}");
        let path = self.folder.path().display().to_string();
        assert!(!run.to_string().contains(SECRET) && !run.to_string().contains(&path), "{run}");
        assert!(!reached.join("answer.txt").exists(), "nothing was written");
        let shown = self.device.cli(&["service", "show", "inner"]).await.ok();
        let why = text(&shown, "/published/paused");
        assert!(why.contains("is another folder than the one that was checked"), "{shown}");
        let problems = self.device.plain_cli(&["doctor"]).await.stdout;
        assert!(problems.contains("A service's folder is another one"), "{problems}");
        assert!(
            problems.contains("deskgate service check") && problems.contains("deskgate service publish"),
            "{problems}"
        );
    }
}

#[tokio::test]
async fn a_command_cannot_move_or_replace_the_folder_of_another_service_inside_its_own() {
    let command = "mv shelf/inner away; mv shelf away; rm -r shelf/inner; rmdir shelf/inner; ls -d shelf/inner; \
                   echo more >shelf/inner/more.txt; echo >shelf/inner/note.txt back";
    let services = NestedServices::new(command).await;
    let run = services.run(&services.outer).await;
    assert!(text(&run, "/result/text").ends_with("\nshelf/inner"), "it is still there: {run}");
    assert!(services.inner_path().join("more.txt").exists(), "commands work in it: {run}");
    let run = services.run(&services.inner).await;
    assert!(text(&run, "/result/text").contains("back"), "the same folder, with what a command may change: {run}");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_services_folder_leads_it_nowhere_and_pauses_it() {
    let services = NestedServices::new("true").await;
    let victim = services.victim();
    std::fs::rename(services.inner_path(), services.folder.path().join("away")).expect("moved");
    symlink(&victim, services.inner_path()).expect("linked");
    services.is_paused_without_effect(&victim).await;

    // The folder is back: its owner looks, checks and publishes, and it works.
    std::fs::remove_file(services.inner_path()).expect("removed");
    std::fs::rename(services.folder.path().join("away"), services.inner_path()).expect("moved");
    services.device.cli(&["service", "check", "inner"]).await.ok();
    services.device.cli(&["service", "publish", "inner"]).await.ok();
    let run = services.run(&services.inner).await;
    assert!(text(&run, "/result/text").contains("a note"), "{run}");
}

#[tokio::test]
async fn a_link_above_a_services_folder_leads_it_nowhere_and_pauses_it() {
    let services = NestedServices::new("true").await;
    let victim = services.victim();
    std::fs::create_dir(victim.join("inner")).expect("created");
    std::fs::write(victim.join("inner/note.txt"), SECRET).expect("written");
    let shelf = services.folder.path().join("shelf");
    std::fs::rename(&shelf, services.folder.path().join("away")).expect("moved");
    symlink(&victim, &shelf).expect("linked");
    services.is_paused_without_effect(&victim.join("inner")).await;
}

#[tokio::test]
async fn another_folder_in_the_place_of_a_services_folder_pauses_it() {
    let services = NestedServices::new("true").await;
    let victim = services.victim();
    std::fs::rename(services.inner_path(), services.folder.path().join("away")).expect("moved");
    std::fs::rename(&victim, services.inner_path()).expect("moved");
    services.is_paused_without_effect(&services.inner_path()).await;
}

#[tokio::test]
async fn the_check_names_services_that_lie_inside_each_other_and_where_a_link_leads() {
    let services = NestedServices::new("true").await;
    let cause = async |service: &str, check: &str| {
        let report = services.device.cli(&["service", "check", service]).await.ok();
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        let found = checks.iter().find(|made| made["name"] == check).cloned().unwrap_or_default();
        text(&found, "/cause").to_owned()
    };
    let inner = cause("inner", "directory is narrow enough").await;
    assert!(inner.contains("it lies in the folder of the service outer"), "{inner}");
    let outer = cause("outer", "directory is narrow enough").await;
    assert!(outer.contains("the folder of the service inner lies in it"), "{outer}");

    let link = services.folder.path().parent().expect("it has one").join("link");
    symlink(services.inner_path(), &link).expect("linked");
    let edited = ["service", "edit", "inner", "--dir", link.to_str().expect("plain")];
    services.device.cli(&edited).await.ok();
    let real = services.inner_path().canonicalize().expect("there");
    let leads = cause("inner", "directory is a folder").await;
    assert!(leads.contains(&real.display().to_string()), "{leads}");
}
