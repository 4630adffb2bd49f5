//! A file that a rule hides is visible to no tool that reads, however it is reached.

use deskgate_definition::approvals::{Rule, RuleAction};
use deskgate_definition::{ApprovalPolicy, ModelReads};

use super::*;

fn toolbox_without_keys(directory: &Path) -> Toolbox {
    let rule = Rule { action: RuleAction::Deny, tool: "Read".into(), path: Some("keys".into()) };
    let rules = ApprovalPolicy { rules: vec![rule], ..ApprovalPolicy::default() }.rulebook().expect("rules");
    let options = WorkspaceOptions::of(directory, Path::new("/nonexistent"));
    Toolbox::open_under(&rules, &ToolName::WORKSPACE_TOOLS, &[], ModelReads::Text, None, options).expect("opens")
}

#[tokio::test]
async fn what_may_not_be_read_shows_in_no_search_and_behind_no_link() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("keys/deep")).expect("made");
    std::fs::create_dir(folder.path().join("docs")).expect("made");
    for (name, text) in [("keys/a.txt", "SECRET"), ("keys/deep/b.txt", "SECRET"), ("docs/c.txt", "no SECRET here")] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    for (link, target) in [("link", "keys"), ("docs/link.txt", "../keys/a.txt")] {
        std::os::unix::fs::symlink(target, folder.path().join(link)).expect("linked");
    }
    let tools = toolbox_without_keys(folder.path());
    let call = async |tool: &str, arguments: Value| {
        tools.call(tool, arguments, CancellationToken::new()).await.expect("the directory stands")
    };
    for path in ["keys/a.txt", "./keys/../keys/a.txt", "link/a.txt", "docs/link.txt", "link/deep/b.txt"] {
        let read = call("Read", json!({ "file_path": path })).await;
        assert!(read.is_error && read.text.contains("owner's rules"), "{path}: {}", read.text);
    }
    for mode in ["content", "files_with_matches", "count"] {
        for (path, found) in [(".", true), ("keys", false), ("keys/a.txt", false), ("link/a.txt", false)] {
            let grep = call("Grep", json!({ "pattern": "SECRET", "path": path, "output_mode": mode })).await.text;
            assert_eq!((grep.contains("docs/c.txt"), grep.contains("keys")), (found, false), "{mode} {path}: {grep}");
        }
    }
    for (pattern, found) in [("**/*", true), ("keys/**", false), ("**/*.txt", true)] {
        let glob = call("Glob", json!({ "pattern": pattern })).await.text;
        assert_eq!((glob.contains("docs/c.txt"), glob.contains("keys")), (found, false), "{pattern}: {glob}");
    }
    let missing = call("Read", json!({ "file_path": "keyz" })).await.text;
    assert!(!missing.contains("keys"), "nor as a name that may have been meant: {missing}");
}

#[tokio::test]
async fn the_rules_judge_the_place_that_a_link_leads_to() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("keys")).expect("made");
    std::fs::write(folder.path().join("keys/a.txt"), "SECRET").expect("written");
    std::os::unix::fs::symlink("keys", folder.path().join("link")).expect("linked");
    let tools = toolbox_without_keys(folder.path());
    let plan = tools.plan("Read", &json!({ "file_path": "link/a.txt" })).expect("a tool").await.expect("a plan");
    assert_eq!(plan.place.as_deref(), Some("keys/a.txt"));
}
