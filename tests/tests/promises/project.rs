//! Work on a real project: a copy of Django's sources, some thousand files that others wrote.

use std::path::Path;
use std::process::Command;

use deskgate_tests::{Device, Folder, others};
use serde_json::{Value, json};

use crate::text;

const CODE: &str = "django/utils/text.py";
const TEST: &str = "tests/utils_tests/test_text.py";
const GUIDE: &str = "docs/ref/templates/builtins.txt";

/// What `diff` says of the whole project afterwards, without its headers.
const DIFFERENCE: [&str; 10] = [
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

/// The file, the text in it, and what takes its place.
fn edits() -> [(&'static str, &'static str, &'static str); 3] {
    [
        (
            CODE,
            "    if not isinstance(x, str):\n        x = str(x)\n    return x[0].upper() + x[1:]\n",
            "    first, *others = str(x)\n    return first.upper() + \"\".join(others)\n",
        ),
        (
            TEST,
            "    def test_get_text_list(self):\n",
            "    def test_capfirst(self):\n        self.assertEqual(text.capfirst(\"hELLO\"), \"HELLO\")\n\n    def test_get_text_list(self):\n",
        ),
        (
            GUIDE,
            "Capitalizes the first character of the value. If",
            "Capitalizes the first character of the value and leaves the others. If",
        ),
    ]
}

/// Looks for the place, reads the files, changes them, and looks at what came of it.
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
    steps.into()
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
async fn a_run_changes_three_files_of_a_project_of_thousands_and_nothing_else() {
    let Some(place) = others::place().await else { return };
    let sources = place.join("project/sources");
    let folder = Folder::new();
    std::fs::remove_file(folder.path().join("orders.txt")).expect("it was there");
    copy(&sources, &folder.path());
    let device = Device::built_in().await;
    let model = folder.script("change", steps());
    let backend = device.publish_here("workshop", &folder, &["--model", &model, "--allow", "Edit"]).await;
    let run = backend.ended(&backend.submit("Let capfirst say what it does.").await).await;
    assert_eq!((&run["state"], &run["usage"]["tool_calls"]), (&json!("succeeded"), &json!(8)), "{run}");
    let found: Vec<_> = text(&run, "/result/text").lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(found, [CODE, GUIDE, TEST], "{run}");
    assert_eq!(difference(&sources, &folder.path()), DIFFERENCE);
    // The project's own tests, the new one among them.
    let mut tests = Command::new("python3");
    tests.args(["-B", "tests/runtests.py", "--parallel=1", "utils_tests.test_text"]).env("PYTHONPATH", ".");
    let tested = tests.current_dir(folder.path()).output().expect("python3 is there");
    let said = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success() && said.contains("Ran 21 tests"), "{said}");
}
