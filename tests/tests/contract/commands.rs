//! The commands in the guides: the programs know each of them, with its options.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use deskgate_tests::binaries;

/// What follows a program's name in a block, with its place.
struct GuideCommand {
    place: String,
    program: &'static str,
    words: Vec<String>,
}

/// The commands of a page's blocks without a language.
fn commands(name: &str, text: &str) -> Vec<GuideCommand> {
    let mut found = Vec::new();
    // The language of the block that a line is in.
    let mut block: Option<&str> = None;
    let mut continued = String::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language) };
            continue;
        }
        if !block.is_some_and(|language| ["", "text"].contains(&language)) {
            continue;
        }
        continued.push_str(line.trim_end_matches('\\'));
        if line.ends_with('\\') {
            continue;
        }
        let whole = std::mem::take(&mut continued);
        for program in ["deskgate-gateway", "deskgate"] {
            let Some(rest) = after_program(&whole, program) else { continue };
            let place = format!("{name}:{}", number + 1);
            found.push(GuideCommand { place, program, words: words(rest) });
            break;
        }
    }
    found
}

/// What may stand before a program's name.
const BEFORE_A_COMMAND: [&str; 6] = ["sudo ", "sudo -u deskgate ", "| ", "gateway ", "/usr/bin/", "("];

/// What stands behind a program's name, where that begins a command.
fn after_program<'a>(line: &'a str, program: &str) -> Option<&'a str> {
    let at = line.find(&format!("{program} "))?;
    let before = &line[..at];
    let begins = before.is_empty() || BEFORE_A_COMMAND.iter().any(|words| before.ends_with(words));
    let rest = line[at + program.len() + 1..].trim_start();
    (begins && rest.starts_with(|first: char| first.is_ascii_lowercase())).then_some(rest)
}

/// The words of a command: up to its comment, a pipe, or what else follows. What is quoted is one word.
fn words(rest: &str) -> Vec<String> {
    let end = ["   ", " #", " | ", " && ", " > ", " >> "].iter().filter_map(|mark| rest.find(mark)).min();
    let mut words = Vec::new();
    for (place, part) in rest[..end.unwrap_or(rest.len())].split(['"', '\'']).enumerate() {
        match place % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(format!("\"{part}\"")),
        }
    }
    words
}

/// The help of a program's command; `None` if it does not know it.
fn help(program: &Path, command: &[String]) -> Option<String> {
    let asked = Command::new(program).args(command).arg("--help").output().expect("the program is there");
    asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).into_owned())
}

#[test]
fn the_programs_know_every_command_of_the_guides() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(root.join("docs")).expect("readable").map(|entry| entry.expect("readable").path());
    let pages = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let pages: Vec<PathBuf> = pages.chain([root.join("README.md")]).collect();
    let mut known: BTreeMap<(&str, Vec<String>), Option<String>> = BTreeMap::new();
    let (mut count, mut wrong) = (0, Vec::new());
    for path in pages {
        let name = path.file_name().expect("a name").to_string_lossy();
        for GuideCommand { place, program, words } in commands(&name, &std::fs::read_to_string(&path).expect("text")) {
            let file = if program == "deskgate" { binaries::agent() } else { binaries::gateway() };
            let mut ask = |command: Vec<String>| {
                known.entry((program, command.clone())).or_insert_with(|| help(&file, &command)).clone()
            };
            let is_name = |word: &&String| word.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase());
            let mut command = Vec::new();
            for word in words.iter().take_while(|word| is_name(word) && !word.starts_with('-')) {
                let longer = [&command[..], std::slice::from_ref(word)].concat();
                if ask(longer.clone()).is_none() {
                    break;
                }
                command = longer;
            }
            let text = ask(command.clone()).unwrap_or_default();
            let options =
                words.iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap_or(word));
            wrong.extend(options.filter(|option| !text.contains(*option)).map(|option| format!("{place}: {option}")));
            if command.is_empty() || text.contains("<COMMAND>") {
                wrong.push(format!("{place}: there is no {program} {}", words.join(" ")));
            }
            count += 1;
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count > 80, "only {count} commands were found");
}
