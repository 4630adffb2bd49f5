//! A job that spreads: its model asks in one answer for reads and commands, each of which leaves marks in the shelf, and
//! looks whether their results come back as they should.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::effect_log::LOG_FILE_NAME;
use super::shelf::{SHELF_NAME, shelf};

/// Whether each call may write: one beside reads, two in a row, and one at the end.
const WRITES: [bool; 10] = [false, false, false, true, true, false, false, false, false, true];
/// What the identifiers of its calls begin with.
const CALL_PREFIX: &str = "spread-";
/// Lines of a page before the one that is read: enough for a read to take some milliseconds.
const PAGE_LINES: usize = 300_000;

/// The answer of a model to a job: where it is in the model's journal, and the folder of the service.
pub(super) struct Spread<'a> {
    pub(super) job: &'a str,
    pub(super) answer: usize,
    pub(super) folder: &'a Path,
}

impl Spread<'_> {
    fn mark(&self, index: usize) -> String {
        format!("{}.{}.{index}", self.job, self.answer)
    }

    fn page(&self, index: usize) -> PathBuf {
        shelf(self.folder).join(format!("{}.page", self.mark(index)))
    }

    /// Lays the pages down that are to be read, unseen by the witness of the shelf. Pages that a full disk has no room
    /// for are not asked for.
    pub(super) fn lay_pages(&self) {
        for index in (0..WRITES.len()).filter(|index| !WRITES[*index]) {
            let text = format!("{}page {}\n", "line\n".repeat(PAGE_LINES), self.mark(index));
            let fresh = self.folder.join(format!("{}.new", self.mark(index)));
            if old_file(&fresh, &text).is_err() || std::fs::rename(&fresh, self.page(index)).is_err() {
                let _ = std::fs::remove_file(fresh);
            }
        }
    }

    /// The calls, as OpenAI's format has them.
    pub(super) fn calls(&self) -> Vec<Value> {
        let call = |(index, writes): (usize, &bool)| {
            let mark = self.mark(index);
            let (name, arguments) = if *writes {
                let (job, place) = (self.job, format!("{SHELF_NAME}/{mark}"));
                let command = format!(
                    "touch {place}.begun; printf '%s %s\\n' {job}.{index} $(date +%s%N) >> {LOG_FILE_NAME}; \
                     sleep 0.1; echo wrote {mark}; touch {place}.ended"
                );
                ("Bash", json!({ "command": command }))
            } else if self.page(index).exists() {
                let path = format!("{SHELF_NAME}/{mark}.page");
                ("Read", json!({ "file_path": path, "offset": PAGE_LINES + 1 }))
            } else {
                return None;
            };
            let function = json!({ "name": name, "arguments": arguments.to_string() });
            Some(json!({ "id": format!("{CALL_PREFIX}{mark}"), "type": "function", "function": function }))
        };
        let calls = WRITES.iter().enumerate().filter_map(call).enumerate();
        calls
            .map(|(place, mut call)| {
                call["index"] = place.into();
                call
            })
            .collect()
    }
}

/// Writes a file that is older than any other: a check of the service reads the newest one, and would be taken for a call.
fn old_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.set_modified(SystemTime::UNIX_EPOCH)
}

/// Takes the pages of a job away that were read.
pub(super) fn clear_pages(job: &str, folder: &Path) {
    let files = std::fs::read_dir(shelf(folder)).into_iter().flatten().flatten();
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(job).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".page")) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// What is wrong with the results of calls in a request, in words: each answer's results must come right behind it, in
/// the order of its calls, and a call that leaves marks has its mark in its own result.
pub(super) fn disorder(messages: &[Value]) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (place, message) in messages.iter().enumerate() {
        let Some(calls) = message["tool_calls"].as_array() else { continue };
        let asked: Vec<_> = calls.iter().map(|call| text(&call["id"])).collect();
        let results: Vec<_> = messages[place + 1..].iter().take_while(|message| message["role"] == "tool").collect();
        let got: Vec<_> = results.iter().map(|result| text(&result["tool_call_id"])).collect();
        if got != asked {
            return Some(format!("the results of {} came as {}", asked.join(", "), got.join(", ")));
        }
        for (id, result) in asked.iter().zip(results) {
            let mark = id.strip_prefix(CALL_PREFIX).unwrap_or_default();
            // A mark is not the beginning of another one's.
            let is_own = result["content"].to_string().split(|letter: char| !is_of_a_mark(letter)).any(|w| w == mark);
            if !mark.is_empty() && !is_own {
                return Some(format!("the result of {id} is {}", result["content"]));
            }
        }
    }
    None
}

fn is_of_a_mark(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '.' || letter == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(results: &[(&str, &str)]) -> Option<String> {
        let call = |id: &str| json!({ "id": id });
        let mut messages = vec![json!({ "role": "user", "content": "job=j" })];
        messages.push(json!({ "role": "assistant", "tool_calls": [call("spread-j.1.0"), call("spread-j.1.1")] }));
        let result = |(id, text): &(&str, &str)| json!({ "role": "tool", "tool_call_id": id, "content": text });
        messages.extend(results.iter().map(result));
        disorder(&messages)
    }

    #[test]
    fn results_that_come_in_another_order_or_are_anothers_are_seen() {
        assert_eq!(told(&[("spread-j.1.0", "     9→page j.1.0"), ("spread-j.1.1", "wrote j.1.1\n")]), None);
        let swapped = told(&[("spread-j.1.1", "wrote j.1.1"), ("spread-j.1.0", "page j.1.0")]);
        assert!(swapped.expect("seen").contains("came as spread-j.1.1"));
        assert!(told(&[("spread-j.1.0", "page j.1.0")]).expect("seen").contains("came as spread-j.1.0"));
        let mixed = told(&[("spread-j.1.0", "wrote j.1.1"), ("spread-j.1.1", "page j.1.0")]);
        assert!(mixed.expect("seen").contains("the result of spread-j.1.0 is"));
        assert!(told(&[("spread-j.1.0", "page j.1.0"), ("spread-j.1.1", "page j.1.10")]).is_some());
    }

    #[test]
    fn its_calls_are_those_whose_pages_lie_on_the_shelf() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(shelf(folder.path())).expect("fresh");
        let spread = Spread { job: "j-1", answer: 4, folder: folder.path() };
        let commands = WRITES.iter().filter(|writes| **writes).count();
        assert_eq!(spread.calls().len(), commands);
        spread.lay_pages();
        let calls = spread.calls();
        assert_eq!(calls.len(), WRITES.len());
        assert_eq!((&calls[9]["id"], &calls[9]["index"]), (&json!("spread-j-1.4.9"), &json!(9)));
        clear_pages("j-1", folder.path());
        assert_eq!(spread.calls().len(), commands);
    }
}
