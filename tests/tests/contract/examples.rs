//! The programs in `docs/`, as they stand there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use deskgate_tests::third_party::python_tool;

/// One block of code in a guide.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Example {
    /// Its position, such as `runs.md:17`.
    pub(crate) place: String,
    language: String,
    /// A text that it must print.
    pub(crate) prints: String,
    code: String,
}

/// What guides have.
#[derive(Debug, Default)]
pub(crate) struct Guides {
    pub(crate) examples: Vec<Example>,
    /// The files that a reader saves beside the examples, by name.
    files: BTreeMap<String, String>,
}

const LANGUAGES: [&str; 6] = ["sh", "python", "ts", "go", "ruby", "php"];

impl Guides {
    /// Of all pages in `docs/`.
    pub(crate) fn read() -> Self {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let entries = std::fs::read_dir(docs).expect("the folder is there");
        let mut pages: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        pages.sort();
        let mut guides = Self::default();
        for path in pages.iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
            let name = path.file_name().expect("a file").to_string_lossy();
            guides.add(&name, &std::fs::read_to_string(path).expect("readable"));
        }
        guides
    }

    /// Adds the programs of a page. Each has `<!-- prints: … -->` or `<!-- file: … -->` before it, so that none can pass
    /// without a check.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let mut announced = None;
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if let Some(note) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
                announced = note.split_once(": ").filter(|(what, _)| ["prints", "file"].contains(what));
            } else if let Some(language) = line.strip_prefix("```") {
                let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
                let code: String = block.fold(String::new(), |code, line| code + line + "\n");
                let place = format!("{name}:{}", number + 1);
                if !LANGUAGES.contains(&language) {
                    continue;
                }
                match announced.take().unwrap_or_else(|| panic!("{place} does not say what it prints")) {
                    ("file", file) => {
                        let same = self.files.insert(file.to_owned(), code.clone()).is_none_or(|other| other == code);
                        assert!(same, "{place}: another page has another {file}");
                    }
                    (_, prints) => self.examples.push(Example {
                        place,
                        language: language.to_owned(),
                        prints: prints.to_owned(),
                        code,
                    }),
                }
            }
        }
    }

    /// Saves the files.
    pub(crate) fn save_files(&self, folder: &Path) {
        for (name, code) in &self.files {
            std::fs::write(folder.join(name), code).expect("writable");
        }
    }
}

impl Example {
    /// Whether it sends requests.
    pub(crate) fn calls(&self) -> bool {
        self.code.contains("deskgate.sh") || self.code.contains("from deskgate ") || self.code.contains("deskgate.mjs")
    }

    /// Saves it. Returns the program that runs it, and its arguments; `None` without that program.
    pub(crate) fn save(&self, folder: &Path) -> Option<(PathBuf, Vec<String>)> {
        // The command of a reader: the examples themselves say that they stop when something fails.
        let (program, ending): (PathBuf, _) = match self.language.as_str() {
            "sh" => ("bash".into(), "sh"),
            // With the libraries that examples name.
            "python" => (python_tool("python3"), "py"),
            "go" => ("go".into(), "go"),
            "ruby" => ("ruby".into(), "rb"),
            "php" => ("php".into(), "php"),
            _ => ("node".into(), "mjs"),
        };
        // Libraries that no other test needs are not installed for it.
        if ["go", "ruby", "php"].contains(&self.language.as_str()) && !is_installed(&program) {
            println!("SKIPPED: {}: {} is missing", self.place, program.display());
            return None;
        }
        let file = folder.join(format!("example.{ending}"));
        std::fs::write(&file, &self.code).expect("writable");
        let file = file.to_str().expect("a plain name").to_owned();
        Some((program, if self.language == "go" { vec!["run".to_owned(), file] } else { vec![file] }))
    }
}

fn is_installed(program: &Path) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

#[test]
fn only_programs_are_run_and_each_must_say_what_it_prints() {
    let text = "# A\n\n```text\nno program\n```\n\n<!-- file: a.sh -->\n```sh\na() { :; }\n```\n\n\
        <!-- prints: x -->\n```sh\necho x\n\necho y\n```\n";
    let example = Example {
        place: "a.md:13".into(),
        language: "sh".into(),
        prints: "x".into(),
        code: "echo x\n\necho y\n".into(),
    };
    let mut guides = Guides::default();
    guides.add("a.md", text);
    assert_eq!(guides.examples, [example]);
    assert_eq!(guides.files, BTreeMap::from([("a.sh".to_owned(), "a() { :; }\n".to_owned())]));
    let broken = |text: &str| std::panic::catch_unwind(|| Guides::default().add("b.md", text)).is_err();
    assert!(broken("```python\nprint()\n```\n"));
    assert!(broken("<!-- file: a.sh -->\n```sh\na\n```\n<!-- file: a.sh -->\n```sh\nb\n```\n"));
}
