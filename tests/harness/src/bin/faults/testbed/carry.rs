//! A job that carries files: a command lists what it was given with the digests that the system's own program finds, a read shows
//! the beginning of the first of them, and copies are handed out. The model's journal keeps what the tools said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What the identifiers of its calls begin with.
const LIST_PREFIX: &str = "list-";
const SHOW_PREFIX: &str = "show-";
const HAND_PREFIX: &str = "hand-";
/// What Deliver says of a file that it has taken.
const HANDED_OUT_TEXT: &str = " bytes) was handed out to the application.";
/// The names that the application gets files by: more than one file has each.
const HANDED_NAMES: [&str; 3] = ["Ergebnis, 100% & mehr.txt", "-rf", ".profil é.tar.gz"];

/// Where a job puts what it hands out, in its service's folder. From the first one rules allow it; for the other one, its owner is
/// asked.
pub(crate) const FREE_FOLDER: &str = "out";
pub(crate) const ASKED_FOLDER: &str = "ask";

/// What tools told the model of files, in one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShownFiles {
    /// The digest of each of the run's files, by its name on the device.
    pub(crate) digests: BTreeMap<String, String>,
    /// The first line of the first one, if Read showed it.
    pub(crate) first_line: Option<String>,
    /// The names of what was handed out.
    pub(crate) handed_out: Vec<String>,
}

impl ShownFiles {
    /// Reads them from the messages of a run.
    pub(super) fn read(messages: &[Value]) -> Self {
        let mut shown = Self::default();
        for message in messages.iter().filter(|message| message["role"] == "tool") {
            let (id, text) = (message["tool_call_id"].as_str().unwrap_or_default(), content(message));
            if id.starts_with(LIST_PREFIX) {
                let line = |line: &str| {
                    let (digest, name) = line.split_once("  /files/")?;
                    (digest.len() == 64).then(|| (name.to_owned(), digest.to_owned()))
                };
                shown.digests.extend(text.lines().filter_map(line));
            } else if id.starts_with(SHOW_PREFIX) {
                let line = text.lines().next().and_then(|line| line.trim_start().strip_prefix("1\t"));
                shown.first_line = line.map(str::to_owned);
            } else if id.starts_with(HAND_PREFIX) {
                let taken = text.trim_end().strip_suffix(HANDED_OUT_TEXT);
                shown.handed_out.extend(taken.and_then(|taken| Some(taken.rsplit_once(" (")?.0.to_owned())));
            }
        }
        shown
    }

    /// The call of a turn, as OpenAI's format has it; `None` in the last one. `paths` are to be handed out.
    pub(super) fn call(&self, job: &str, turn: usize, paths: &[String]) -> Option<Value> {
        let show = self.digests.keys().next().map(|first| {
            (format!("{SHOW_PREFIX}{job}"), "Read", json!({ "file_path": format!("@files/{first}"), "limit": 1 }))
        });
        // Whatever the command's result was, a job that does not know what it was given hands nothing out.
        let paths = if show.is_some() { paths } else { &[] };
        let hand = paths.iter().enumerate().map(|(place, path)| {
            let name = HANDED_NAMES[path.len() % HANDED_NAMES.len()];
            let arguments = json!({ "file_path": path, "name": name, "description": path });
            (format!("{HAND_PREFIX}{job}.{place}"), "Deliver", arguments)
        });
        let list = (format!("{LIST_PREFIX}{job}"), "Bash", json!({ "command": command(job) }));
        let (id, name, arguments) = std::iter::once(list).chain(show).chain(hand).nth(turn)?;
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        Some(json!({ "index": 0, "id": id, "type": "function", "function": function }))
    }
}

/// The paths of what a job makes: all bytes that it was given, and their list.
pub(crate) fn made(folder: &str, job: &str) -> [String; 2] {
    ["all", "list"].map(|what| format!("{folder}/{job}.{what}"))
}

fn command(job: &str) -> String {
    let [[all, list], [all_asked, list_asked]] = [FREE_FOLDER, ASKED_FOLDER].map(|folder| made(folder, job));
    format!(
        "mkdir -p {FREE_FOLDER} {ASKED_FOLDER}; files() {{ find /files -type f | LC_ALL=C sort; }}; \
         files | xargs -rd '\\n' cat >{all}; files | xargs -rd '\\n' sha256sum | tee {list}; \
         cp {all} {all_asked}; cp {list} {list_asked}"
    )
}

fn content(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_say_of_files_is_read_and_the_next_call_follows_from_it() {
        let paths = made(FREE_FOLDER, "j-1");
        let told = |results: &[(&str, &str)]| {
            let result = |(id, text): &(&str, &str)| json!({ "role": "tool", "tool_call_id": id, "content": text });
            ShownFiles::read(&results.iter().map(result).collect::<Vec<_>>())
        };
        let name = |shown: &ShownFiles, turn| {
            shown.call("j-1", turn, &paths).map(|call| call["function"]["name"].as_str().expect("named").to_owned())
        };
        let digest = "0".repeat(64);
        let listed = format!("{digest}  /files/a b.txt\n{digest}  /files/-x\nsomething else\n");
        let shown = told(&[
            ("list-j-1", &listed),
            ("show-j-1", "     1\tfirst"),
            ("hand-j-1.0", "x (2) (7 bytes) was handed out to the application."),
        ]);
        assert_eq!(shown.digests.keys().collect::<Vec<_>>(), ["-x", "a b.txt"]);
        assert_eq!((shown.first_line.as_deref(), &shown.handed_out), (Some("first"), &vec!["x (2)".to_owned()]));
        let names: Vec<_> = (0..5).map(|turn| name(&shown, turn)).collect();
        assert_eq!(
            names,
            [Some("Bash"), Some("Read"), Some("Deliver"), Some("Deliver"), None].map(|name| name.map(str::to_owned))
        );
        let nothing = told(&[("list-j-1", "It may have happened.")]);
        assert_eq!((name(&nothing, 0).as_deref(), name(&nothing, 1)), (Some("Bash"), None));
    }
}
