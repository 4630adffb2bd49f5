//! Every command that a page, a problem or an error prints has to work as printed: its words, options and required
//! arguments are those of the command line.

use std::path::Path;

use clap::{Command as Arguments, CommandFactory};

use super::Cli;

/// Words behind the program's name in sentences about it.
const PROSE: [&str; 4] = ["process", "subject", "peer", "on"];
/// The beginnings of commands that a text in another place completes.
const COMPLETED_ELSEWHERE: [&str; 1] = ["app"];

/// What may stand behind a command in a sentence.
const ENDS: [&str; 15] = ["\"", "`", "<", "\n", "\\n", ";", ")", "(", "|", ", ", ". ", ".\\", ": ", " and ", " && "];

/// The commands that a file prints, with what follows the program's name.
fn printed(text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    // A text goes on behind the end of a line.
    let mut joined = String::new();
    for line in lines {
        match line.strip_suffix('\\') {
            Some(begun) => joined += begun,
            None => joined += &format!("{line}\n"),
        }
    }
    // Quotation marks inside a text are a shell's.
    let joined = joined.replace("\\\"", "'");
    let mut found = Vec::new();
    for (at, name) in joined.match_indices("deskgate ") {
        let before = joined[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "-/._$".contains(before)) {
            continue;
        }
        let rest = &joined[at + name.len()..];
        let end = ENDS.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        found.push(rest[..end].to_owned());
    }
    found
}

/// Whether the text stands for something that is filled in.
fn is_placeholder(word: &str) -> bool {
    word.contains('{') || word.contains('…') || word.chars().all(|c| c.is_ascii_uppercase() || "_-:/.".contains(c))
}

/// Why a printed command would be a usage error.
fn problem(root: &Arguments, printed: &str) -> Option<String> {
    let words: Vec<_> = printed.split_whitespace().collect();
    // The rest is put behind it by the program.
    let goes_on = printed.ends_with(' ') || printed.ends_with('=') || COMPLETED_ELSEWHERE.contains(&printed);
    if words.contains(&"--help") {
        return None;
    }
    let (mut command, mut at) = (root, 0);
    while let Some(inner) = words.get(at).and_then(|word| command.find_subcommand(word)) {
        (command, at) = (inner, at + 1);
    }
    let rest = &words[at..];
    let name = command.get_name();
    if command.is_subcommand_required_set() {
        return match rest.first() {
            None if goes_on => None,
            Some(word) if is_placeholder(word) => None,
            Some(word) if at == 0 && PROSE.contains(word) => None,
            other => Some(format!("{name} has no command {other:?}")),
        };
    }
    let is_given = |long: &str| rest.iter().any(|word| word.split('=').next() == Some(&format!("--{long}")));
    for word in rest {
        let Some(long) = word.strip_prefix("--").and_then(|word| word.split(['=', '.', ',']).next()) else { continue };
        let known =
            command.get_arguments().chain(root.get_arguments()).any(|argument| argument.get_long() == Some(long));
        if !known && !is_placeholder(long) {
            return Some(format!("{name} has no option --{long}"));
        }
    }
    if goes_on {
        return None;
    }
    let positionals = rest.iter().take_while(|word| !word.starts_with("--")).count();
    let required = command.get_positionals().filter(|argument| argument.is_required_set()).count();
    if positionals < required {
        return Some(format!("{name} needs {required} arguments, and has {positionals}"));
    }
    let options = command.get_arguments().filter(|argument| argument.is_required_set() && !argument.is_positional());
    let missing = options.filter_map(|argument| argument.get_long()).find(|long| !is_given(long));
    if let Some(long) = missing {
        return Some(format!("{name} needs --{long}"));
    }
    let chosen = |id: &clap::Id| {
        let member = command.get_arguments().find(|argument| argument.get_id() == id);
        member.is_some_and(|argument| argument.get_long().is_none_or(is_given))
    };
    let group = command.get_groups().find(|group| group.is_required_set() && !group.get_args().any(chosen));
    group.map(|group| format!("{name} needs one of {:?}", group.get_args().collect::<Vec<_>>()))
}

/// Every printed command of the files below a folder, and what is wrong with it.
fn check(root: &Arguments, folder: &Path, problems: &mut Vec<String>) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            count += check(root, &path, problems);
        } else if path.file_name().is_none_or(|name| name != "printed_commands.rs")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            for command in printed(&text) {
                count += 1;
                let found = problem(root, &command);
                problems.extend(found.map(|found| format!("{}: deskgate {command}: {found}", path.display())));
            }
        }
    }
    count
}

#[test]
fn every_command_that_is_printed_works_as_printed() {
    let mut root = Cli::command();
    root.build();
    let (mut problems, mut count) = (Vec::new(), 0);
    for folder in ["src", "templates"] {
        count += check(&root, &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut problems);
    }
    assert!(count > 150, "{count} are found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_would_be_a_usage_error_is_one_here() {
    let mut root = Cli::command();
    root.build();
    let wrong = |text: &str| problem(&root, text).is_some();
    assert!(wrong("connections show") && wrong("connection") && wrong("connection tell"));
    assert!(wrong("runs show") && wrong("runs list --last") && wrong("runs reconcile RUN"));
    assert!(wrong("connection discard") && wrong("settings set"));
    for right in ["status", "runs show {}", "runs show ", "runs list --limit 3", "runs reconcile {id} --finished"] {
        assert!(!wrong(right), "{:?}", problem(&root, right));
    }
    let text =
        "// deskgate nothing\nlet a = \"See: deskgate runs \\\n    show RUN. Or deskgate doctor\"; /usr/bin/deskgate x";
    assert_eq!(printed(text), ["runs     show RUN", "doctor"]);
}
