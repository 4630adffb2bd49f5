//! Work on a real project: a copy of Django's sources, some thousand files.

use std::path::Path;
use std::process::Command;

use deskgate_tests::{Folder, TestDevice, third_party};
use serde_json::{Value, json};

use crate::approvals::waiting;
use crate::text;

const CODE_FILE: &str = "django/utils/text.py";
const TEST_FILE: &str = "tests/utils_tests/test_text.py";
const GUIDE_FILE: &str = "docs/ref/templates/builtins.txt";

/// Runs the project's own tests of the changed module, with the new one. They may leave no files in the folder.
const TEST_COMMAND: &str = "PYTHONPATH=. python3 -B tests/runtests.py --parallel=1 utils_tests.test_text";

/// The expected `diff` of the whole project, without its headers.
const EXPECTED_DIFF: [&str; 10] = [
    "-    if not isinstance(x, str):",
    "-        x = str(x)",
    "-    return x[0].upper() + x[1:]",
    "+    first, *others = str(x)",
    "+    return first.upper() + \"\".join(others)",
    "-Capitalizes the first character of the value. If the first character is not",
    "+Capitalizes the first character of the value and leaves the others. If the first character is not",
    "+    def test_capfirst(self):",
    "+        self.assertEqual(text.capfirst(\"hELLO\"), \"HELLO\")",
    "+",
];

/// The file, the old text, and the new text.
fn edits() -> [(&'static str, &'static str, &'static str); 3] {
    [
        (
            CODE_FILE,
            "    if not isinstance(x, str):\n        x = str(x)\n    return x[0].upper() + x[1:]\n",
            "    first, *others = str(x)\n    return first.upper() + \"\".join(others)\n",
        ),
        (
            TEST_FILE,
            "    def test_get_text_list(self):\n",
            "    def test_capfirst(self):\n        self.assertEqual(text.capfirst(\"hELLO\"), \"HELLO\")\n\n    def test_get_text_list(self):\n",
        ),
        (
            GUIDE_FILE,
            "Capitalizes the first character of the value. If",
            "Capitalizes the first character of the value and leaves the others. If",
        ),
    ]
}

/// Searches, reads the files, changes them, checks the result, and runs the tests.
fn steps() -> Value {
    let call = |tool: &str, arguments: Value| json!({ "tool": tool, "arguments": arguments });
    let mut steps = vec![call("Grep", json!({ "pattern": "def capfirst|^``capfirst``", "path": "." }))];
    steps.push(json!({ "text": "I read what there is." }));
    steps.extend(edits().map(|(file, ..)| call("Read", json!({ "file_path": file }))));
    steps.push(json!({ "text": "I change it." }));
    steps.extend(
        edits()
            .map(|(file, old, new)| call("Edit", json!({ "file_path": file, "old_string": old, "new_string": new }))),
    );
    steps.push(json!({ "text": "I look at it." }));
    let pattern = "first, \\*others|and leaves the others|capfirst\\(.hELLO";
    steps.push(call("Grep", json!({ "pattern": pattern, "output_mode": "content" })));
    steps.push(json!({ "text": "{{last_tool_result}}" }));
    steps.push(call("Bash", json!({ "command": TEST_COMMAND, "description": "Runs the tests of what I changed" })));
    steps.push(json!({ "text": "{{last_tool_result}}" }));
    steps.into()
}

/// The approvals in order, each with the argument to decide on.
fn questions() -> [(&'static str, &'static str, &'static str); 4] {
    let [one, two, three] = edits().map(|(file, ..)| ("Edit", "/arguments/file_path", file));
    [one, two, three, ("Bash", "/arguments/command", TEST_COMMAND)]
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().expect("cp is there");
    assert!(copied.success(), "a copy of {}", from.display());
}

/// The lines in which two folders differ, in the order of their files.
fn difference(before: &Path, after: &Path) -> Vec<String> {
    let output = Command::new("diff").args(["-r", "-U0"]).arg(before).arg(after).output().expect("diff is there");
    let text = String::from_utf8(output.stdout).expect("both are text");
    let header = |line: &&str| ["---", "+++", "@@", "diff"].iter().any(|start| line.starts_with(start));
    text.lines().filter(|line| !header(line)).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_run_changes_three_files_of_a_project_of_thousands_as_its_owner_allows_and_the_projects_tests_pass() {
    let Some(place) = third_party::install_dir().await else { return };
    let sources = place.join("project/sources");
    let folder = Folder::new();
    std::fs::remove_file(folder.path().join("orders.txt")).expect("it was there");
    copy(&sources, &folder.path());
    let device = TestDevice::built_in().await;
    let model = folder.script("change", steps());
    let service = ["--model", &model, "--tools", "Read,Grep,Edit,Bash"];
    let backend = device.publish_here("workshop", &folder, &service).await;
    let run_id = backend.submit("Let capfirst say what it does.").await;
    for (tool, argument, value) in questions() {
        let request = waiting(&device).await;
        assert_eq!((text(&request, "/tool"), text(&request, argument)), (tool, value), "{request}");
        if tool == "Edit" {
            let content = |place: &Path| std::fs::read(place.join(value)).expect("it is there");
            assert!(content(&sources) == content(&folder.path()), "{value} was changed before its owner said yes");
        } else {
            // Its message before the command is the result of its last search.
            let why = text(&request, "/why").lines();
            let found: Vec<_> = why.filter_map(|line| line.split(':').next()).collect();
            assert_eq!(found, [CODE_FILE, GUIDE_FILE, TEST_FILE], "{request}");
        }
        device.cli(&["approval", "approve", text(&request, "/approval_id")]).await.ok();
    }
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!((&run["state"], &run["usage"]["tool_calls"]), (&json!("succeeded"), &json!(9)), "{run}");
    let said = text(&run, "/result/text");
    assert!(said.contains("Ran 21 tests") && said.contains("\nOK") && !said.contains("exit status"), "{said}");
    assert_eq!(difference(&sources, &folder.path()), EXPECTED_DIFF);
}
