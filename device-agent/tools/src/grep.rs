//! Grep: searches file contents with ripgrep's own library, in files opened by handle.

use std::fs::File;
use std::io;
use std::path::Path;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::access::{AccessError, FileKind};
use crate::engine::bounded_reader::BoundedReader;
use crate::engine::display;
use crate::engine::hits::{FileLines, LineHits};
use crate::engine::output::MAX_LINE_CHARS;
use crate::engine::places::Places;
use crate::engine::walk::{FileVisitor, FoundFile, WalkSummary, walk};
use crate::engine::workspace::{LinkPolicy, Workspace};

/// How many lines are returned unless `head_limit` is given; 0 means as many as fit.
const DEFAULT_HEAD_LINES: usize = 250;
/// The limit of context lines, which are kept in memory during the search.
const MAX_CONTEXT_LINES: usize = 1000;
/// The memory limit of a compiled pattern.
const MAX_REGEX_BYTES: usize = 10 << 20;
/// The size limit of one thread's regex cache, in bytes.
const MAX_REGEX_CACHE_BYTES: usize = 16 << 20;
/// The memory limit for one line with its context, or for a whole file when matches may span lines.
const MAX_HEAP_BYTES: usize = 32 * 1024 * 1024;
/// How many bytes of a line are searched: a thread does not notice a stop during a match.
const MAX_SEARCHED_LINE_BYTES: usize = 1024 * 1024;

pub(super) struct GrepTool {
    places: Places,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    #[default]
    FilesWithMatches,
    Count,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    output_mode: OutputMode,
    #[serde(rename = "-i", default)]
    ignore_case: bool,
    #[serde(rename = "-n")]
    numbers: Option<bool>,
    #[serde(rename = "-A", default)]
    after: usize,
    #[serde(rename = "-B", default)]
    before: usize,
    #[serde(rename = "-C")]
    around: Option<usize>,
    #[serde(default)]
    multiline: bool,
    head_limit: Option<usize>,
}

impl GrepTool {
    pub(super) fn new(places: Places) -> Self {
        Self { places }
    }
}

impl Tool for GrepTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Grep.to_string(),
            description: "Searches the contents of files in the working directory with a regular expression \
                          (ripgrep's syntax). Hidden and ignored files, binary files and symbolic links are skipped. \
                          A file named by path is searched in any case."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "description": "The regular expression." },
                    "path": { "type": "string", "description": "A file or directory. Default: the working directory." },
                    "glob": { "type": "string", "description": "Only files of this pattern, such as *.{ts,tsx} or !*.md." },
                    "type": { "type": "string", "description": "Only files of this type, such as rust, js or py." },
                    "output_mode": {
                        "type": "string", "enum": ["content", "files_with_matches", "count"],
                        "description": "Matching lines, names of files, or matching lines per file. Default files_with_matches."
                    },
                    "-i": { "type": "boolean", "description": "Ignore case." },
                    "-n": { "type": "boolean", "description": "Line numbers, with content. Default true." },
                    "-A": { "type": "integer", "minimum": 0, "description": "Lines after each match, with content." },
                    "-B": { "type": "integer", "minimum": 0, "description": "Lines before each match, with content." },
                    "-C": { "type": "integer", "minimum": 0, "description": "Lines around each match, with content." },
                    "multiline": { "type": "boolean", "description": "A match may span lines, and . matches line ends." },
                    "head_limit": { "type": "integer", "minimum": 0, "description": "Lines of output. Default 250; 0 for as many as fit." }
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let places = self.places.clone();
        crate::blocking::plan_on_blocking_thread(ToolName::Grep, arguments.clone(), move |arguments: GrepArguments| {
            let (workspace, path) = places.of(arguments.path.as_deref().unwrap_or(""));
            crate::reader::plan_of_looking(&workspace, &path)
        })
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let places = self.places.clone();
        let work = move |arguments: GrepArguments, stop: &CancellationToken| {
            let (workspace, path) = places.of(arguments.path.as_deref().unwrap_or(""));
            match Search::new(&arguments, stop) {
                Ok(search) => search.run(&workspace, &path),
                Err(complaint) => Ok(ToolOutput::error(complaint)),
            }
        };
        let search = crate::blocking::on_blocking_thread(ToolName::Grep, arguments, &stop, work);
        async move {
            tokio::select! {
                found = search => found,
                // While a pattern is matched against a long line, its thread does not notice a stop. It only reads.
                () = stop.cancelled() => Ok(ToolOutput::error(AccessError::Stopped.to_string())),
            }
        }
        .boxed()
    }
}

/// What one call searches for, and its results so far.
struct Search<'a> {
    matcher: RegexMatcher,
    searcher: SearcherBuilder,
    only: Override,
    types: Types,
    mode: OutputMode,
    stop: &'a CancellationToken,
    hits: LineHits,
}

impl<'a> Search<'a> {
    /// The error is for the model: which argument is wrong, and why.
    fn new(arguments: &GrepArguments, stop: &'a CancellationToken) -> Result<Self, String> {
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(arguments.ignore_case)
            .multi_line(true)
            .dot_matches_new_line(arguments.multiline)
            .line_terminator((!arguments.multiline).then_some(b'\n'))
            // Each thread has its own cache, and a pattern may be crafted to fill it.
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_REGEX_CACHE_BYTES)
            .build(&arguments.pattern)
            .map_err(|error| format!("The pattern is not a regular expression that can be searched for: {error}"))?;
        let context = |lines: usize| match arguments.output_mode {
            OutputMode::Content => arguments.around.unwrap_or(lines).min(MAX_CONTEXT_LINES),
            OutputMode::FilesWithMatches | OutputMode::Count => 0,
        };
        let numbers = arguments.numbers.unwrap_or(true);
        let mut searcher = SearcherBuilder::new();
        searcher
            .multi_line(arguments.multiline)
            .line_number(numbers && arguments.output_mode == OutputMode::Content)
            .before_context(context(arguments.before))
            .after_context(context(arguments.after))
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HEAP_BYTES));
        let mut only = OverrideBuilder::new(".");
        if let Some(glob) = &arguments.glob {
            only.add(glob).map_err(|error| format!("The glob is not valid: {error}"))?;
        }
        let mut types = TypesBuilder::new();
        types.add_defaults();
        if let Some(kind) = &arguments.kind {
            types.select(kind);
        }
        Ok(Self {
            matcher,
            searcher,
            only: only.build().map_err(|error| format!("The glob is not valid: {error}"))?,
            types: types.build().map_err(|error| {
                format!("The type is not known: {error}. Use ripgrep's names, such as rust, js or py, or use glob.")
            })?,
            mode: arguments.output_mode,
            stop,
            hits: LineHits::new(match arguments.head_limit.unwrap_or(DEFAULT_HEAD_LINES) {
                0 => usize::MAX,
                lines => lines,
            }),
        })
    }

    fn run(self, workspace: &Workspace, path: &str) -> Result<ToolOutput, AccessError> {
        let given = workspace.relative(path)?;
        let searcher = || SearchWorker {
            search: &self,
            matcher: self.matcher.clone(),
            searcher: self.searcher.build(),
            failed: 0,
            cut: 0,
        };
        let (walked, searchers) = match workspace.open_file(&given, LinkPolicy::Inside) {
            Ok((file, _)) => {
                let mut one = searcher();
                one.file(&given, file)?;
                (WalkSummary::default(), vec![one])
            }
            Err(AccessError::NotAFile(FileKind::Directory)) => {
                let base = workspace.relative_without_links(path)?;
                walk(workspace, &base, false, self.stop, searcher)?
            }
            Err(error) => return Err(error),
        };
        let failed: usize = searchers.iter().map(|searcher| searcher.failed).sum();
        let cut_lines: usize = searchers.iter().map(|searcher| searcher.cut).sum();
        drop(searchers);
        let mut notices = walked.notices();
        let (output, cut) = self.hits.finish();
        if output.lines() == 0 {
            notices.insert(0, "no matches found".to_owned());
        }
        if cut {
            notices.push(format!("cut after {} lines: there may be more", output.lines()));
        }
        if cut_lines > 0 {
            let limit = MAX_SEARCHED_LINE_BYTES / (1024 * 1024);
            notices
                .push(format!("{cut_lines} files have lines of more than {limit} MiB: no more of each was searched"));
        }
        if failed > 0 {
            notices.push(format!("{failed} files could not be searched"));
        }
        Ok(ToolOutput::ok(output.finish(&notices)))
    }
}

/// One of the search threads.
struct SearchWorker<'a> {
    search: &'a Search<'a>,
    matcher: RegexMatcher,
    searcher: Searcher,
    /// How many files could not be searched to the end.
    failed: usize,
    /// How many files had lines of which only the beginning was searched.
    cut: usize,
}

impl FileVisitor for SearchWorker<'_> {
    fn wants(&self, path: &Path) -> bool {
        self.search.hits.wants(path)
    }

    fn visit(&mut self, found: &FoundFile<'_>) -> Result<(), AccessError> {
        let Search { only, types, .. } = self.search;
        if only.matched(found.path, false).is_ignore() || types.matched(found.path, false).is_ignore() {
            return Ok(());
        }
        match found.open() {
            Ok((file, _)) => self.file(found.path, file),
            Err(AccessError::Gone) => Err(AccessError::Gone),
            Err(AccessError::Denied) => {
                self.failed += 1;
                Ok(())
            }
            // The file was removed, or became something else, since it was listed.
            Err(_) => Ok(()),
        }
    }
}

impl SearchWorker<'_> {
    fn file(&mut self, path: &Path, file: File) -> Result<(), AccessError> {
        let search = self.search;
        let mut matches = MatchSink { search, path, name: None, lines: FileLines::default(), matches: 0 };
        let limit =
            if self.searcher.multi_line_with_matcher(&self.matcher) { usize::MAX } else { MAX_SEARCHED_LINE_BYTES };
        let mut reader = BoundedReader::new(file, limit, search.stop);
        let outcome = self.searcher.search_reader(&self.matcher, &mut reader, &mut matches);
        if search.stop.is_cancelled() {
            return Err(AccessError::Stopped);
        }
        self.failed += usize::from(outcome.is_err());
        self.cut += usize::from(reader.is_cut());
        match (search.mode, matches.matches) {
            (OutputMode::FilesWithMatches, 1..) => drop(matches.push(|name| name.to_owned())),
            (OutputMode::Count, count @ 1..) => drop(matches.push(|name| format!("{name}:{count}"))),
            _ => {}
        }
        search.hits.add(path, matches.lines);
        Ok(())
    }
}

/// Collects the matches in one file.
struct MatchSink<'a> {
    search: &'a Search<'a>,
    path: &'a Path,
    /// The name as it is shown; made with the first match.
    name: Option<String>,
    lines: FileLines,
    matches: usize,
}

impl MatchSink<'_> {
    /// `false` ends the search of this file.
    fn push(&mut self, line: impl FnOnce(&str) -> String) -> bool {
        let name = self.name.get_or_insert_with(|| display::name(self.path));
        self.lines.push(line(name), self.search.hits.head())
    }

    fn show(&mut self, line: &[u8], number: Option<u64>, separator: char) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = display::line(text.trim_end_matches(['\n', '\r']), MAX_LINE_CHARS);
        self.push(|name| match number {
            Some(number) => format!("{name}{separator}{number}{separator}{text}"),
            None => format!("{name}{separator}{text}"),
        })
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.search.stop.is_cancelled() {
            return Ok(false);
        }
        match self.search.mode {
            OutputMode::FilesWithMatches => {
                self.matches += 1;
                Ok(false)
            }
            OutputMode::Count => {
                self.matches += found.lines().count();
                Ok(true)
            }
            OutputMode::Content => {
                let mut number = found.line_number();
                for line in found.lines() {
                    if !self.show(line, number, ':') {
                        return Ok(false);
                    }
                    number = number.map(|number| number + 1);
                }
                Ok(true)
            }
        }
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        debug_assert!(*context.kind() != SinkContextKind::Other, "nothing is passed through");
        Ok(self.show(context.bytes(), context.line_number(), '-'))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        Ok(self.push(|_| "--".to_owned()))
    }
}
