//! One thing, one name: people read *service*, and *endpoint* only where the wire has it (`agent-endpoints`, `endpoint_id`).

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The word that is the wire's.
const WIRE_WORD: &str = "endpoint";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below a folder of the project with one of these endings.
fn files(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push((path.display().to_string(), std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no {ending}");
    found
}

/// A text without what stands between two marks.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once(open) {
        kept.push_str(before);
        // What was cut out may have had words on both sides.
        kept.push(' ');
        rest = inside.split_once(close).map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Markdown without its code.
fn prose(text: &str) -> String {
    without(&without(text, "```", "```"), "`", "`")
}

fn has_word(text: &str) -> bool {
    text.replace("/agent-endpoints", "").to_lowercase().contains(WIRE_WORD)
}

#[test]
fn guides_call_a_service_a_service() {
    let pages = files("docs", ".md").into_iter().chain(files("deploy", ".md"));
    let wrong: Vec<_> = pages.filter(|(_, text)| has_word(&prose(text))).map(|(path, _)| path).collect();
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn pages_call_a_service_a_service() {
    for folder in ["gateway/templates", "device-agent/templates"] {
        for (path, text) in files(folder, ".html") {
            let text = without(&without(&without(&text, "{%", "%}"), "{{", "}}"), "<code>", "</code>");
            assert!(!has_word(&without(&text, "<", ">")), "{path}");
        }
    }
}

#[test]
fn the_api_document_calls_a_service_a_service() {
    let document: Value = serde_json::from_str(&files("docs", "openapi.json")[0].1).expect("JSON");
    let mut values = vec![&document];
    let mut read = 0;
    while let Some(value) = values.pop() {
        for name in ["description", "summary", "title", "detail"] {
            let Some(text) = value[name].as_str() else { continue };
            assert!(!has_word(&prose(text)), "{text}");
            read += 1;
        }
        match value {
            Value::Array(list) => values.extend(list),
            Value::Object(members) => values.extend(members.values()),
            _ => {}
        }
    }
    assert!(read > 300, "only {read} texts were found");
}

#[test]
fn help_calls_a_service_a_service() {
    for folder in ["device-agent/src/cli", "gateway/src/admin"] {
        for (path, text) in files(folder, ".rs") {
            for line in text.lines().filter(|line| line.trim_start().starts_with("/// ") || line.contains("value_name"))
            {
                let line = line.replace("alias = \"endpoint\"", "");
                assert!(!has_word(&prose(&line)), "{path}: {line}");
            }
        }
    }
}
