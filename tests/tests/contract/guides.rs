//! The examples in `docs/`, executed as a reader would.

use std::path::{Path, PathBuf};

use crate::fixture::ContractFixture;

/// One block of code in a guide.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    /// Its position, such as `runs.md:17`.
    place: String,
    language: String,
    /// A text that it must print.
    prints: String,
    code: String,
}

/// The programs in a guide. Each has `<!-- prints: … -->` before it, so that none can pass without a check.
fn examples(name: &str, text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let mut announced = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(prints) = line.strip_prefix("<!-- prints: ").and_then(|rest| rest.strip_suffix(" -->")) {
            announced = Some(prints.to_owned());
        } else if let Some(language) = line.strip_prefix("```") {
            let code: String = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| *line != "```")
                .fold(String::new(), |code, line| code + line + "\n");
            let place = format!("{name}:{}", number + 1);
            if ["sh", "python", "ts", "go", "ruby", "php"].contains(&language) {
                let prints = announced.take().unwrap_or_else(|| panic!("{place} does not say what it prints"));
                found.push(Example { place, language: language.to_owned(), prints, code });
            }
        }
    }
    found
}

impl Example {
    async fn run(&self, site: &ContractFixture) {
        let (program, ending, arguments): (_, _, &[&str]) = match self.language.as_str() {
            "sh" => ("bash", "sh", &["-euo", "pipefail"]),
            "python" => ("python3", "py", &[]),
            "go" => ("go", "go", &["run"]),
            "ruby" => ("ruby", "rb", &[]),
            "php" => ("php", "php", &[]),
            _ => ("node", "mjs", &[]),
        };
        // Libraries that no other test needs are not installed for it.
        if ["go", "ruby", "php"].contains(&program) && !is_installed(program) {
            println!("SKIPPED: {}: {program} is missing", self.place);
            return;
        }
        let file = site.folder().join(format!("example.{ending}"));
        std::fs::write(&file, &self.code).expect("writable");
        let file = file.to_str().expect("a plain name");
        let printed = site.run(Path::new(program), &[arguments, &[file]].concat()).await;
        assert!(printed.contains(&self.prints), "{} prints no {:?}:\n{printed}", self.place, self.prints);
    }
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

fn guides() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let entries = std::fs::read_dir(docs).expect("the folder is there").map(|entry| entry.expect("readable").path());
    let mut guides: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    guides.sort();
    guides
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_in_the_guides_does_what_it_says() {
    let site = ContractFixture::open().await;
    let mut count = 0;
    for path in guides() {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        for example in examples(&name, &std::fs::read_to_string(&path).expect("readable")) {
            example.run(&site).await;
            count += 1;
        }
    }
    assert!(count >= 27, "only {count} examples were found");
}

#[test]
fn only_programs_are_run_and_each_must_say_what_it_prints() {
    let text = "# A\n\n```text\nno program\n```\n\n<!-- prints: x -->\n```sh\necho x\n\necho y\n```\n";
    let example = Example {
        place: "a.md:8".into(),
        language: "sh".into(),
        prints: "x".into(),
        code: "echo x\n\necho y\n".into(),
    };
    assert_eq!(examples("a.md", text), [example]);
    assert!(std::panic::catch_unwind(|| examples("b.md", "```python\nprint()\n```\n")).is_err());
}
