//! Grep and Glob against ripgrep's own program, over a tree of source files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use deskgate_definition::ToolName;
use deskgate_tools::Toolbox;
use deskgate_tools::engine::workspace::WorkspaceOptions;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::report::BenchReport;
use crate::{Bench, environment};
use deskgate_harness::statistics::median;

/// Files in one folder of the tree.
const FILES_PER_FOLDER: usize = 100;
/// One of this many files has a match.
const FILES_PER_MATCH: usize = 100;
/// Lines of a file.
const LINES_PER_FILE: usize = 40;
/// How often each is timed, in turns.
const SEARCH_ROUNDS: usize = 15;

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["grep_vs_ripgrep", "glob_vs_ripgrep"]) {
        return Ok(());
    }
    println!("Searching");
    let folder = environment::folder()?;
    let files = bench.count(50_000);
    let tree = folder.path().join("tree");
    plant(&tree, files)?;
    let own = folder.path().join("none");
    let toolbox = Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], WorkspaceOptions::of(&tree, &own))?;
    if bench.wants(&["grep_vs_ripgrep"]) {
        let call = json!({ "pattern": "needle_[0-9]+", "head_limit": 0 });
        let pair = SearchPair { toolbox: &toolbox, tree: &tree, tool: "Grep", call, rg: &["-l", "needle_[0-9]+"] };
        pair.note(report, "grep_vs_ripgrep", files / FILES_PER_MATCH).await?;
    }
    if bench.wants(&["glob_vs_ripgrep"]) {
        let call = json!({ "pattern": "**/*.rs" });
        let pair = SearchPair { toolbox: &toolbox, tree: &tree, tool: "Glob", call, rg: &["--files", "-g", "*.rs"] };
        pair.note(report, "glob_vs_ripgrep", files / 4).await?;
    }
    Ok(())
}

/// A tool call and the command that does the same.
struct SearchPair<'a> {
    toolbox: &'a Toolbox,
    tree: &'a Path,
    tool: &'static str,
    call: Value,
    rg: &'a [&'a str],
}

impl SearchPair<'_> {
    /// Measures both and records the result. `found` is the number of files that both must find.
    async fn note(&self, report: &mut BenchReport, name: &'static str, found: usize) -> anyhow::Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first time fills the system's caches.
        for round in 0..=SEARCH_ROUNDS {
            let (ms, text) = self.ours().await?;
            let (their_ms, their_found) = self.theirs()?;
            let our_found = count(&text);
            anyhow::ensure!(
                our_found == found && their_found == found,
                "{name}: {our_found}, {their_found} of {found}"
            );
            if round > 0 {
                ours.push(ms);
                theirs.push(their_ms);
            }
        }
        let (ours, theirs) = (median(&ours), median(&theirs));
        report.part(&format!("{name}_parts"), json!({ "ours_ms": ours, "ripgrep_ms": theirs }));
        report.value(name, ours / theirs);
        Ok(())
    }

    async fn ours(&self) -> anyhow::Result<(f64, String)> {
        let begin = Instant::now();
        let output = self.toolbox.call(self.tool, self.call.clone(), CancellationToken::new()).await?;
        let ms = begin.elapsed().as_secs_f64() * 1000.0;
        anyhow::ensure!(!output.is_error, "{}", output.text);
        Ok((ms, output.text))
    }

    fn theirs(&self) -> anyhow::Result<(f64, usize)> {
        let begin = Instant::now();
        let mut command = Command::new("rg");
        let output = command.args(self.rg).current_dir(self.tree).stdin(Stdio::null()).output();
        let ms = begin.elapsed().as_secs_f64() * 1000.0;
        let output = output.context("rg, ripgrep's program (Debian: ripgrep)")?;
        Ok((ms, output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()))
    }
}

/// The files in an answer: its lines, or the number that Glob reports when it shows only the newest.
fn count(text: &str) -> usize {
    let notice = text.rsplit_once(" of ").and_then(|(_, rest)| rest.split_once(" files:")).map(|(number, _)| number);
    match notice.and_then(|number| number.parse().ok()) {
        Some(number) => number,
        None => text.lines().count(),
    }
}

/// Writes a repository with nested folders, four kinds of files, and ignore rules.
fn plant(tree: &Path, files: usize) -> anyhow::Result<()> {
    let line = |n: usize| format!("let value_{} = compute(\"{}\", {});\n", n % 401, n % 7, n % 1009);
    for folder in 0..files / FILES_PER_FOLDER {
        let path = tree.join(format!("part{}/module{}", folder / 10, folder % 10));
        std::fs::create_dir_all(&path)?;
        for file in 0..FILES_PER_FOLDER {
            let number = folder * FILES_PER_FOLDER + file;
            let mut text: String = (0..LINES_PER_FILE).map(|n| line(number * 7 + n)).collect();
            if number.is_multiple_of(FILES_PER_MATCH) {
                text += &format!("// needle_{number}\n");
            }
            let ending = ["rs", "ts", "md", "py"][file % 4];
            std::fs::write(path.join(format!("file{file}.{ending}")), text)?;
        }
    }
    std::fs::create_dir(tree.join(".git"))?;
    std::fs::create_dir(tree.join("target"))?;
    std::fs::write(tree.join("target/built.rs"), "needle_1\n")?;
    Ok(std::fs::write(tree.join(".gitignore"), "/target\n*.log\n")?)
}
