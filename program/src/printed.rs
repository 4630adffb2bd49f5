//! Every command that a page, a problem, an error or a guide prints has to work as printed: its words, options and required
//! arguments are those of the command line, under their own names. Tests of both programs ask this module.

use std::path::Path;

use clap::Command as Arguments;

/// Words behind the program's name in sentences about it.
const PROSE: [&str; 6] = ["process", "subject", "peer", "on", "listen", "to"];

/// What may stand behind a command in a sentence.
const ENDS: [&str; 15] = ["\"", "`", "<", "\n", "\\n", ";", ")", "(", "|", ", ", ". ", ".\\", ": ", " and ", " && "];

/// The commands that a file prints, with what follows the program's name.
fn printed(text: &str, program: &str) -> Vec<String> {
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
    let named = format!("{program} ");
    let mut found = Vec::new();
    for (at, name) in joined.match_indices(&named) {
        let before = joined[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "-/._$".contains(before)) {
            continue;
        }
        let rest = &joined[at + name.len()..];
        let end = ENDS.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        // A literal that is a command and nothing else is a part of a text, which may go on.
        let is_part = before == Some('"') && rest[end..].starts_with('"');
        found.push(format!("{}{}", &rest[..end], if is_part { " " } else { "" }));
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
    let goes_on = printed.ends_with(' ') || printed.ends_with('=');
    if words.contains(&"--help") {
        return None;
    }
    let (mut command, mut at) = (root, 0);
    while let Some(inner) = words.get(at).and_then(|word| command.find_subcommand(word)) {
        if inner.get_name() != words[at] {
            return Some(format!("{} is an alias of {}", words[at], inner.get_name()));
        }
        (command, at) = (inner, at + 1);
    }
    let rest = &words[at..];
    let name = command.get_name();
    if command.is_subcommand_required_set() {
        return match rest.first() {
            None if goes_on => None,
            Some(word) if is_placeholder(word) => None,
            Some(word) if at == 0 && PROSE.contains(&word.trim_matches('\'')) => None,
            other => Some(format!("{name} has no command {other:?}")),
        };
    }
    let is_given = |long: &str| rest.iter().any(|word| word.split('=').next() == Some(&format!("--{long}")));
    for word in rest {
        let Some(long) = word.strip_prefix("--").and_then(|word| word.split(['=', '.', ',', ':']).next()) else {
            continue;
        };
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

/// The commands of a guide in Markdown, and whether each only names a command: those of its code blocks can be typed, those between
/// backticks in a sentence may leave their arguments out.
fn of_guide(text: &str, program: &str) -> Vec<(String, bool)> {
    let (mut found, mut is_block) = (Vec::new(), false);
    let begins = format!("{program} ");
    for line in text.replace("\\\n", "").lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            let typed = line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo ");
            let command = typed.strip_prefix(&begins).and_then(|rest| rest.split([';', '|', '#', '>', '<']).next());
            found.extend(command.map(|command| (command.trim_end().to_owned(), false)));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            let named = spans.filter_map(|span| span.trim_start_matches("sudo ").strip_prefix(&begins));
            found.extend(named.map(|command| (command.to_owned(), true)));
        }
    }
    found
}

/// How many commands of a program the files below a folder print, and what is wrong with each.
///
/// # Panics
/// The folder cannot be read, or there is a file that is no text: this is for tests.
pub fn check(root: &Arguments, folder: &Path) -> (usize, Vec<String>) {
    let mut root = root.clone();
    root.build();
    let (mut count, mut problems) = (0, Vec::new());
    check_below(&root, folder, &mut count, &mut problems);
    (count, problems)
}

fn check_below(root: &Arguments, path: &Path, count: &mut usize, problems: &mut Vec<String>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("the folder of the sources") {
            check_below(root, &entry.expect("an entry").path(), count, problems);
        }
    } else if let Ok(text) = std::fs::read_to_string(path) {
        let program = root.get_name();
        let commands = match path.extension().is_some_and(|extension| extension == "md") {
            true => of_guide(&text, program),
            false => printed(&text, program).into_iter().map(|command| (command, false)).collect(),
        };
        for (command, is_name) in commands {
            *count += 1;
            // A name may go on with anything.
            let found = problem(root, &if is_name { format!("{command} ") } else { command.clone() });
            problems.extend(found.map(|found| format!("{}: {program} {command}: {found}", path.display())));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgGroup};

    use super::*;

    fn root() -> Arguments {
        let wanted = |name: &'static str| Arg::new(name).required(true);
        let flag = |name: &'static str| Arg::new(name).long(name).action(clap::ArgAction::SetTrue);
        let reconcile = Arguments::new("reconcile")
            .args([wanted("run"), flag("finished"), flag("not-done")])
            .group(ArgGroup::new("finding").required(true).args(["finished", "not-done"]));
        let run = Arguments::new("run").alias("runs").subcommand_required(true).subcommands([
            Arguments::new("show").arg(wanted("run")),
            Arguments::new("list").arg(Arg::new("limit").long("limit")),
            reconcile,
        ]);
        let mode = Arg::new("mode").long("mode").required(true);
        let connection =
            Arguments::new("connection").subcommand_required(true).subcommand(Arguments::new("discard").arg(mode));
        let mut root =
            Arguments::new("tool").subcommand_required(true).subcommands([run, connection, Arguments::new("status")]);
        root.build();
        root
    }

    #[test]
    fn what_would_be_a_usage_error_is_a_problem() {
        let root = root();
        for wrong in [
            "connections show",
            "connection",
            "connection tell",
            "run show",
            "run list --last",
            "run reconcile RUN",
            "connection discard",
            "runs list",
        ] {
            assert!(problem(&root, wrong).is_some(), "{wrong}");
        }
        for right in
            ["status", "run show {}", "run show ", "run list --limit 3", "run reconcile {id} --finished", "run --help"]
        {
            assert_eq!(problem(&root, right), None, "{right}");
        }
    }

    #[test]
    fn a_guide_names_commands_in_sentences_and_has_whole_ones_in_blocks() {
        let text = "Use `tool run show` or `sudo tool status`.\n\n```\n$ tool run list \\\n  --limit 3 | head\n# tool x\n```\nSee `other`.";
        let found = of_guide(text, "tool");
        let found: Vec<_> = found.iter().map(|(command, is_name)| (command.as_str(), *is_name)).collect();
        assert_eq!(found, [("run show", true), ("status", true), ("run list   --limit 3", false)]);
    }

    #[test]
    fn commands_are_found_in_texts_and_not_in_comments_or_paths() {
        let text =
            "// tool nothing\nlet a = \"See: tool run \\\n    show RUN. Or tool status\"; /usr/bin/tool x; tool-box y";
        assert_eq!(printed(text, "tool"), ["run     show RUN", "status"]);
    }
}
