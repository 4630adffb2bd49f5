//! The model `folder`: reads the working directory with the real tools and reports what it found.
//!
//! A pure function of the conversation. First it lists the folder (and searches it, when the question has a word in
//! quotes), then it reads a few files, then it answers. Every claim comes from a tool result; the answer says that the
//! model understands nothing. Asked for data, it fills in the schema: with its answer as every text, how many files it found
//! as every number, and their names as every list of texts.

use std::cell::Cell;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{RESULT_TOOL, ToolSpec};
use serde_json::{Value, json};

use super::{Message, ModelEvent, StopReason, ToolAnswer, ToolCall};

/// How many files one answer reads.
const MAX_FILES_READ: usize = 3;
/// How many lines it reads of each file.
const MAX_LINES_READ: usize = 40;
/// How many lines it quotes of each result.
const MAX_LINES_QUOTED: usize = 5;
/// How many names the answer lists.
const MAX_NAMES_LISTED: usize = 20;
/// How deep it fills in a schema ...
const MAX_DATA_DEPTH: usize = 16;
/// ... and how many parts of it: parts that lead to each other multiply.
const MAX_DATA_PARTS: u32 = 2_000;
/// File extensions that suggest text.
const TEXT_EXTENSIONS: [&str; 22] = [
    "md", "txt", "rst", "toml", "json", "yaml", "yml", "csv", "ini", "cfg", "conf", "log", "rs", "py", "js", "ts",
    "html", "css", "sh", "go", "java", "c",
];

/// The next turn.
pub(super) fn respond(messages: &[Message], tools: &[ToolSpec]) -> Vec<ModelEvent> {
    let (_, messages) = super::newest(messages);
    let question = messages.iter().find_map(question).unwrap_or_default();
    let may = |tool: ToolName| tools.iter().any(|spec| spec.name == tool.as_str());
    let results = results(messages);
    let calls = if results.is_empty() {
        look(question, &may)
    } else if !results.iter().any(|(call, _)| call.name == ToolName::Read.as_str()) && may(ToolName::Read) {
        read(question, &results)
    } else {
        Vec::new()
    };
    let mut events: Vec<_> = if calls.is_empty() {
        let text = answer(question, &results);
        let schema = tools.iter().find(|spec| spec.name == RESULT_TOOL).map(|spec| &spec.parameters);
        let data = schema.map(|root| Findings::new(root, &text, names(&results)).fill(root, 0));
        let arguments =
            data.map(|arguments| ToolCall { id: "data".to_owned(), name: RESULT_TOOL.to_owned(), arguments });
        std::iter::once(ModelEvent::TextDelta(text)).chain(arguments.map(ModelEvent::ToolCall)).collect()
    } else {
        calls.into_iter().map(ModelEvent::ToolCall).collect()
    };
    events.push(ModelEvent::End(StopReason::Completed));
    events
}

fn question(message: &Message) -> Option<&str> {
    match message {
        Message::User { text, .. } => Some(text),
        _ => None,
    }
}

/// Every call so far, with its result.
fn results(messages: &[Message]) -> Vec<(&ToolCall, &ToolAnswer)> {
    let calls = messages.iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => &tool_calls[..],
        _ => &[],
    });
    let answers = messages.iter().flat_map(|message| match message {
        Message::ToolResults(answers) => &answers[..],
        _ => &[],
    });
    calls.zip(answers).collect()
}

fn call(id: &str, tool: ToolName, arguments: Value) -> ToolCall {
    ToolCall { id: id.to_owned(), name: tool.to_string(), arguments }
}

fn look(question: &str, may: &impl Fn(ToolName) -> bool) -> Vec<ToolCall> {
    let mut calls = Vec::new();
    if may(ToolName::Glob) {
        calls.push(call("list", ToolName::Glob, json!({ "pattern": "**/*" })));
        // The list shows the newest files; a README is often among the oldest.
        calls.push(call("explained", ToolName::Glob, json!({ "pattern": "README*" })));
    }
    if let Some(word) = quoted_word(question).filter(|_| may(ToolName::Grep)) {
        let arguments = json!({ "pattern": literal(word), "output_mode": "content", "head_limit": 20 });
        calls.push(call("search", ToolName::Grep, arguments));
    }
    calls
}

fn read(question: &str, results: &[(&ToolCall, &ToolAnswer)]) -> Vec<ToolCall> {
    let mut names: Vec<_> = results
        .iter()
        .filter(|(call, answer)| call.name == ToolName::Glob.as_str() && !answer.is_error)
        .flat_map(|(_, answer)| body(&answer.text))
        .filter_map(|name| Some((rank(question, name)?, name.matches('/').count(), name)))
        .collect();
    names.sort_unstable();
    names.dedup();
    let read = |(index, (_, _, name)): (usize, &(u8, usize, &str))| {
        let arguments = json!({ "file_path": name, "limit": MAX_LINES_READ });
        call(&format!("read_{}", index + 1), ToolName::Read, arguments)
    };
    names.iter().take(MAX_FILES_READ).enumerate().map(read).collect()
}

/// How promising a file is, best first; `None` if it does not look like text.
fn rank(question: &str, path: &str) -> Option<u8> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    if question.contains(name) {
        Some(0)
    } else if name.to_ascii_uppercase().starts_with("README") {
        Some(1)
    } else {
        match ending {
            Some(ending) => TEXT_EXTENSIONS.contains(&ending.as_str()).then_some(2),
            None => Some(3),
        }
    }
}

fn answer(question: &str, results: &[(&ToolCall, &ToolAnswer)]) -> String {
    let mut text = "I am the scripted assistant. I am not a language model: I take fixed steps with real tools \
                    and report what they returned.\n"
        .to_owned();
    if results.is_empty() {
        text.push_str("\nThis service gives me no tool to look into a folder with, so I can say nothing about one.\n");
    }
    for (call, answer) in results {
        let argument = |name| call.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        match call.id.as_str() {
            _ if answer.is_error => {
                text.push_str(&format!("\n{} could not do what I asked: {}\n", call.name, answer.text));
            }
            "list" => text.push_str(&listing(&answer.text)),
            "explained" => {}
            "search" => {
                let word = quoted_word(question).unwrap_or_default();
                let lines: Vec<_> = body(&answer.text).collect();
                text.push_str(&format!("\nLines with \"{word}\", as Grep found them: {}", lines.len()));
                text.push_str(&quoted(lines.into_iter()));
            }
            _ => {
                let lines = body(&answer.text).filter_map(|line| Some(line.split_once('\t')?.1));
                text.push_str(&format!("\nFrom {}", argument("file_path")));
                text.push_str(&quoted(lines.filter(|line| !line.trim().is_empty())));
            }
        }
    }
    text
}

/// The names of the files that were listed.
fn names(results: &[(&ToolCall, &ToolAnswer)]) -> Vec<String> {
    let listed = results.iter().find(|(call, answer)| call.id == "list" && !answer.is_error);
    listed.into_iter().flat_map(|(_, answer)| body(&answer.text)).map(str::to_owned).collect()
}

/// What data is made from.
struct Findings<'a> {
    /// The whole schema, to which references lead.
    root: &'a Value,
    text: &'a str,
    names: Vec<String>,
    /// How many parts may still be filled in.
    left: Cell<u32>,
}

impl<'a> Findings<'a> {
    fn new(root: &'a Value, text: &'a str, names: Vec<String>) -> Self {
        Self { root, text, names, left: Cell::new(MAX_DATA_PARTS) }
    }

    /// Data for a part of the schema. It may not fit: whoever asked finds out.
    fn fill(&self, schema: &Value, depth: usize) -> Value {
        let member = |name| schema.get(name);
        let left = self.left.get();
        if depth > MAX_DATA_DEPTH || left == 0 {
            return Value::Null;
        }
        self.left.set(left - 1);
        if let Some(target) =
            member("$ref").and_then(Value::as_str).and_then(|to| self.root.pointer(to.strip_prefix('#')?))
        {
            return self.fill(target, depth + 1);
        }
        let choices = member("enum").and_then(|choices| choices.get(0));
        if let Some(only) = member("const").or(choices) {
            return only.clone();
        }
        let kind = member("type").map(|kind| kind.get(0).unwrap_or(kind));
        match kind.and_then(Value::as_str) {
            Some("object") => {
                let properties = member("properties").and_then(Value::as_object).into_iter().flatten();
                properties.map(|(name, part)| (name.clone(), self.fill(part, depth + 1))).collect()
            }
            Some("array") => match member("items") {
                Some(items) if items["type"] == "string" => json!(self.names),
                items => items.map(|items| self.fill(items, depth + 1)).into_iter().collect(),
            },
            Some("integer" | "number") => self.names.len().into(),
            Some("boolean") => (!self.names.is_empty()).into(),
            Some("null") => Value::Null,
            _ => self.text.into(),
        }
    }
}

fn listing(result: &str) -> String {
    let names: Vec<_> = body(result).collect();
    let mut text = match names.len() {
        0 => "\nThe folder holds no files that I can see.\n".to_owned(),
        1 => "\nThe folder holds 1 file:\n".to_owned(),
        count => match notice(result) {
            // The list was cut; the notice gives the number of files.
            Some(notice) => format!("\nGlob listed {count} files of the folder ({notice}):\n"),
            None => format!("\nThe folder holds {count} files:\n"),
        },
    };
    for name in names.iter().take(MAX_NAMES_LISTED) {
        text.push_str(&format!("- {name}\n"));
    }
    if names.len() > MAX_NAMES_LISTED {
        text.push_str(&format!("- and {} more\n", names.len() - MAX_NAMES_LISTED));
    }
    text
}

/// The lines of a result without its notices, which stand in brackets after an empty line.
fn body(result: &str) -> impl Iterator<Item = &str> {
    let body = match result.rsplit_once("\n\n(") {
        Some((body, _)) => body,
        None if result.starts_with('(') => "",
        None => result,
    };
    body.lines()
}

fn notice(result: &str) -> Option<&str> {
    result.rsplit_once("\n\n(")?.1.strip_suffix(')')
}

fn quoted<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines: Vec<_> = lines.take(MAX_LINES_QUOTED).collect();
    if lines.is_empty() {
        return ": nothing.\n".to_owned();
    }
    lines.iter().fold(":\n".to_owned(), |text, line| text + "> " + line + "\n")
}

/// The first word or phrase in double quotes or backticks.
fn quoted_word(question: &str) -> Option<&str> {
    [('"', '"'), ('“', '”'), ('`', '`')].into_iter().find_map(|(open, close)| {
        let word = question.split_once(open)?.1.split_once(close)?.0;
        (!word.trim().is_empty() && word.len() <= 200 && !word.contains('\n')).then_some(word)
    })
}

/// A regular expression that matches exactly this text.
fn literal(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(names: &[ToolName]) -> Vec<ToolSpec> {
        let spec =
            |name: &ToolName| ToolSpec { name: name.to_string(), description: String::new(), parameters: json!({}) };
        names.iter().map(spec).collect()
    }

    fn calls(events: &[ModelEvent]) -> Vec<ToolCall> {
        events
            .iter()
            .filter_map(|event| if let ModelEvent::ToolCall(call) = event { Some(call.clone()) } else { None })
            .collect()
    }

    fn text(events: &[ModelEvent]) -> &str {
        match events {
            [ModelEvent::TextDelta(text), ModelEvent::End(StopReason::Completed)] => text,
            other => panic!("an answer was expected, not {other:?}"),
        }
    }

    fn results(conversation: &mut Vec<Message>, events: &[ModelEvent], texts: &[&str]) {
        let tool_calls = calls(events);
        let answer = |(call, text): (&ToolCall, &&str)| ToolAnswer::text(call.id.clone(), (*text).to_owned(), false);
        let answers = tool_calls.iter().zip(texts).map(answer).collect();
        conversation.push(Message::assistant("", tool_calls));
        conversation.push(Message::ToolResults(answers));
    }

    #[test]
    fn it_lists_and_searches_then_reads_then_answers_from_the_results() {
        let tools = specs(&ToolName::ALL);
        let asked = "Where is \"a.b\" in notes.log?".to_owned();
        let mut conversation = vec![Message::User { text: asked, details: None }];

        let first = respond(&conversation, &tools);
        assert_eq!(calls(&first)[2].arguments["pattern"], r"a\.b");
        results(
            &mut conversation,
            &first,
            &["z.bin\nsrc/notes.log\nREADME.md\nb.txt\na.txt", "README.md", "src/notes.log:3:x a.b y"],
        );

        let second = respond(&conversation, &tools);
        let read: Vec<_> = calls(&second).into_iter().map(|call| call.arguments["file_path"].clone()).collect();
        assert_eq!(read, ["src/notes.log", "README.md", "a.txt"]);
        results(
            &mut conversation,
            &second,
            &["     1\tone\n     2\t\n     3\tx a.b y", "     1\t# Title", "(The file is empty.)"],
        );

        let third = respond(&conversation, &tools);
        let answer = text(&third);
        for part in [
            "scripted assistant",
            "holds 5 files:\n- z.bin\n",
            "Lines with \"a.b\", as Grep found them: 1:\n> src/notes.log:3:x a.b y\n",
            "From src/notes.log:\n> one\n> x a.b y\n",
            "From README.md:\n> # Title\n",
            "From a.txt: nothing.\n",
        ] {
            assert!(answer.contains(part), "{part:?} is missing in:\n{answer}");
        }
    }

    #[test]
    fn asked_for_data_it_fills_in_what_it_found() {
        let schema = json!({
            "type": "object",
            "properties": {
                "summary": { "type": "string" },
                "files": { "type": "array", "items": { "type": "string" } },
                "count": { "type": ["integer", "null"] },
                "state": { "enum": ["open", "paid"] },
                "first": { "$ref": "#/$defs/file" },
            },
            "$defs": { "file": { "type": "object", "properties": { "found": { "type": "boolean" }, "again": { "$ref": "#/$defs/file" } } } },
        });
        let mut tools = specs(&[ToolName::Glob]);
        let description = String::new();
        tools.push(ToolSpec { name: RESULT_TOOL.to_owned(), description, parameters: schema });
        let mut conversation = vec![Message::User { text: "What is there?".to_owned(), details: None }];
        let first = respond(&conversation, &tools);
        results(&mut conversation, &first, &["a.txt\nb.txt", "(no files found)"]);
        let second = respond(&conversation, &tools);
        let called = calls(&second);
        let [call] = &called[..] else { panic!("{second:?}") };
        let data = &call.arguments;
        assert_eq!(
            (&data["files"], &data["count"], &data["state"]),
            (&json!(["a.txt", "b.txt"]), &json!(2), &json!("open"))
        );
        assert!(data["summary"].as_str().is_some_and(|text| text.contains("holds 2 files")), "{data}");
        assert_eq!(data["first"]["found"], true);
    }

    #[test]
    fn a_schema_that_leads_to_itself_everywhere_is_filled_in_as_far_as_it_goes() {
        let again: serde_json::Map<_, _> = (0..20).map(|n| (format!("p{n}"), json!({ "$ref": "#" }))).collect();
        let root = json!({ "type": "object", "properties": again });
        let data = Findings::new(&root, "text", Vec::new()).fill(&root, 0);
        assert!(data["p0"].is_object() && data.to_string().len() < 300_000, "{} bytes", data.to_string().len());
    }

    #[test]
    fn without_tools_it_claims_nothing() {
        let conversation = [Message::User { text: "What is in \"it\"?".to_owned(), details: None }];
        assert!(text(&respond(&conversation, &[])).contains("no tool"));
    }

    #[test]
    fn an_empty_folder_and_a_cut_list_are_said_to_be_that() {
        assert!(listing("(no files found)").contains("holds no files"));
        assert!(
            listing("a\nb\n\n(the newest 2 of 9 files: use a narrower pattern)")
                .contains("listed 2 files of the folder (the newest 2 of 9")
        );
        assert!(listing("a\nb (copy)").contains("holds 2 files:\n- a\n- b (copy)\n"));
    }
}
