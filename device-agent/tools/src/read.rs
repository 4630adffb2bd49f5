//! Read: a text file with line numbers, as `cat -n` prints them; for a model that reads them, images and PDFs.
//!
//! Lines are scanned until enough are shown, so the beginning of a file of any size can be read; text after the first
//! [`MAX_SCANNED_BYTES`] bytes is for Grep. For a file that Edit may change, exactly the shown bytes are recorded as
//! seen; a larger one is never loaded whole.

use std::io::{BufRead, BufReader, Cursor, Read as _};
use std::path::Path;
use std::sync::Arc;

use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_definition::{ModelReads, ToolName};
use deskgate_media::{MAX_PDF_PAGES, MediaKind};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::engine::access::{AccessError, FileKind};
use crate::engine::change::ChangeError;
use crate::engine::output::{MAX_LINE_CHARS, OutputBuffer};
use crate::engine::places::{Places, is_of_files};
use crate::engine::seen_files::{MAX_CHANGED_FILE_BYTES, SeenFiles};
use crate::engine::workspace::{LinkPolicy, Workspace};
use crate::engine::{display, nearest, walk};

/// How many lines are shown unless a limit is given.
const DEFAULT_LINES: usize = 2000;
/// How many bytes one call scans.
const MAX_SCANNED_BYTES: usize = 50 * 1024 * 1024;
/// How many bytes decide whether a file is text.
const TEXT_PROBE_BYTES: usize = 8 * 1024;
/// How many bytes of a line are kept: enough for [`MAX_LINE_CHARS`] characters of any kind, and one more.
const MAX_LINE_BYTES: usize = (MAX_LINE_CHARS + 1) * 4;
/// How many names of a directory are compared when a file is missing.
const MAX_COMPARED_NAMES: usize = 5000;

pub(super) struct ReadTool {
    places: Places,
    known: Arc<SeenFiles>,
    reads: ModelReads,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    file_path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl ReadTool {
    pub(super) fn new(places: Places, known: Arc<SeenFiles>, reads: ModelReads) -> Self {
        Self { places, known, reads }
    }
}

impl Tool for ReadTool {
    fn spec(&self) -> ToolSpec {
        let others = match self.reads {
            ModelReads::Text => "Images, PDFs and other binary files cannot be read.".to_owned(),
            ModelReads::Images => {
                "PNG, JPEG, GIF and WebP images are shown to you. PDFs and other binary files cannot be read."
                    .to_owned()
            }
            ModelReads::Pdfs => format!(
                "PNG, JPEG, GIF and WebP images are shown to you, and PDFs of up to {MAX_PDF_PAGES} pages. Other binary \
                 files cannot be read."
            ),
        };
        ToolSpec {
            name: ToolName::Read.to_string(),
            description: format!(
                "Reads a text file in the working directory. Lines come with their numbers. At most {DEFAULT_LINES} \
                 lines unless limit says otherwise; lines longer than {MAX_LINE_CHARS} characters are cut. {others}"
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "file_path": {
                        "type": "string",
                        "description": "The file, relative to the working directory or absolute within it."
                    },
                    "offset": { "type": "integer", "minimum": 1, "description": "The first line to read. Default 1." },
                    "limit": { "type": "integer", "minimum": 1, "description": "How many lines to read." }
                },
                "required": ["file_path"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let places = self.places.clone();
        crate::blocking::plan_on_blocking_thread(ToolName::Read, arguments.clone(), move |arguments: ReadArguments| {
            let (workspace, file_path) = places.of(&arguments.file_path);
            let file_path = file_path.as_ref();
            match crate::reader::plan_of_looking(&workspace, file_path) {
                Err(ChangeError::Access(AccessError::Missing)) => {
                    Err(ChangeError::rule(missing(&workspace, &workspace.relative(file_path)?)))
                }
                plan => plan,
            }
        })
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let (places, known, reads) = (self.places.clone(), Arc::clone(&self.known), self.reads);
        crate::blocking::on_blocking_thread(ToolName::Read, arguments, &stop, move |arguments: ReadArguments, stop| {
            let (workspace, file_path) = places.of(&arguments.file_path);
            // What cannot be changed need not be known as read.
            let known = (!is_of_files(&file_path)).then_some(known.as_ref());
            let arguments = ReadArguments { file_path: file_path.into_owned(), ..arguments };
            read(&workspace, known, reads, &arguments, stop)
        })
    }
}

fn read(
    workspace: &Workspace,
    known: Option<&SeenFiles>,
    reads: ModelReads,
    arguments: &ReadArguments,
    stop: &CancellationToken,
) -> Result<ToolOutput, AccessError> {
    let path = workspace.relative(&arguments.file_path)?;
    let opened =
        workspace.find(&path, LinkPolicy::Inside).and_then(|resolved| Ok((resolved.open_file()?.0, resolved.path())));
    let (mut file, found) = match opened {
        Ok(opened) => opened,
        Err(AccessError::Missing) => return Ok(ToolOutput::error(missing(workspace, &path))),
        Err(AccessError::NotAFile(FileKind::Directory)) => {
            return Ok(ToolOutput::error("This is a directory. Use Glob to find the files in it."));
        }
        Err(error) => return Err(error),
    };
    let mut start = Vec::new();
    (&mut file).take(MAX_CHANGED_FILE_BYTES as u64 + 1).read_to_end(&mut start)?;
    if let Some(kind) = MediaKind::of(&start) {
        return show_media(kind, reads, start, file);
    }
    if is_binary(&start[..start.len().min(TEXT_PROBE_BYTES)]) {
        let what = unreadable_kind(&path).unwrap_or("a binary file");
        return Ok(ToolOutput::error(format!("This is {what}. Read shows text files only.")));
    }
    if let Some(known) = known
        && start.len() <= MAX_CHANGED_FILE_BYTES
    {
        known.record_seen(found, Sha256Digest::of(&start));
    }
    if start.is_empty() {
        return Ok(ToolOutput::ok("(The file is empty.)"));
    }
    let reader = BufReader::with_capacity(64 * 1024, Cursor::new(start).chain(file));
    let mut lines = LineReader { reader, scanned: 0, stop };
    show(&mut lines, arguments.offset.unwrap_or(1).max(1), arguments.limit.unwrap_or(DEFAULT_LINES).max(1))
}

/// Shows an image or a PDF, whose beginning was read, if the model takes it.
fn show_media(
    kind: MediaKind,
    reads: ModelReads,
    mut content: Vec<u8>,
    file: impl std::io::Read,
) -> Result<ToolOutput, AccessError> {
    let (what, least) = match kind {
        MediaKind::Picture => ("an image", ModelReads::Images),
        MediaKind::Pdf => ("a PDF document", ModelReads::Pdfs),
    };
    if reads < least {
        return Ok(ToolOutput::error(format!("This is {what}, which the model of this service does not read.")));
    }
    let room = (kind.max_bytes() + 1).saturating_sub(content.len());
    file.take(room as u64).read_to_end(&mut content)?;
    let shown = match kind {
        MediaKind::Picture => deskgate_media::picture(content),
        MediaKind::Pdf => deskgate_media::pdf(content),
    };
    Ok(match shown {
        Ok(attachment) => ToolOutput::showing(attachment),
        Err(error) => ToolOutput::error(format!("This is {what} that cannot be shown. {error}")),
    })
}

fn show(lines: &mut LineReader<'_, impl BufRead>, offset: usize, limit: usize) -> Result<ToolOutput, AccessError> {
    let mut output = OutputBuffer::default();
    let mut kept = Vec::new();
    let mut number = 0;
    loop {
        let next = lines.next(&mut kept)?;
        if next == LineStatus::End {
            break;
        }
        number += 1;
        if number >= offset {
            let text = String::from_utf8_lossy(&kept);
            let line = format!("{number:>6}\t{}", display::line(text.trim_end_matches('\r'), MAX_LINE_CHARS));
            if output.lines() == limit || !output.push(&line) {
                let shown = number - 1;
                let notice = format!("lines {offset} to {shown} are shown and more follow: go on with offset {number}");
                return Ok(ToolOutput::ok(output.finish(&[notice])));
            }
        }
        if next == LineStatus::TooFar {
            let notice = "the rest of the file is beyond the first 50 MiB, which Read does not scan: use Grep";
            return Ok(match output.lines() {
                0 => ToolOutput::error(format!(
                    "Line {offset} was not reached in the first 50 MiB of the file, and Read scans no further. Use Grep."
                )),
                _ => ToolOutput::ok(output.finish(&[notice.to_owned()])),
            });
        }
    }
    Ok(match output.lines() {
        0 => ToolOutput::error(format!("The file has {number} lines; there is no line {offset}.")),
        _ => ToolOutput::ok(output.finish(&[])),
    })
}

/// Reads lines of any length in bounded memory.
struct LineReader<'a, R> {
    reader: R,
    scanned: usize,
    stop: &'a CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineStatus {
    Line,
    /// A line, perhaps incomplete; the rest of the file is not scanned.
    TooFar,
    End,
}

impl<R: BufRead> LineReader<'_, R> {
    /// Reads the beginning of the next line into `kept`, without its line feed.
    fn next(&mut self, kept: &mut Vec<u8>) -> Result<LineStatus, AccessError> {
        kept.clear();
        let mut any = false;
        loop {
            if self.stop.is_cancelled() {
                return Err(AccessError::Stopped);
            }
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(if any { LineStatus::Line } else { LineStatus::End });
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            kept.extend(&piece[..piece.len().min(MAX_LINE_BYTES - kept.len())]);
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(used);
            self.scanned += used;
            if self.scanned > MAX_SCANNED_BYTES {
                return Ok(LineStatus::TooFar);
            }
            if end.is_some() {
                return Ok(LineStatus::Line);
            }
        }
    }
}

fn is_binary(probe: &[u8]) -> bool {
    let invalid: usize = probe.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    probe.contains(&0) || invalid * 10 > probe.len() * 3
}

/// Kinds of files without text that models ask for, by file extension.
fn unreadable_kind(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "bmp" | "ico" | "tif" | "tiff" | "avif" | "heic" | "jxl" => Some("an image of a kind that models do not take"),
        "png" | "jpg" | "jpeg" | "gif" | "webp" => Some("a damaged image"),
        "pdf" => Some("a damaged PDF document"),
        _ => None,
    }
}

fn missing(workspace: &Workspace, path: &Path) -> String {
    let refusal = AccessError::Missing.to_string();
    let Some(wanted) = path.file_name().map(|name| name.to_string_lossy()) else { return refusal };
    let parent = path.parent().unwrap_or(Path::new(""));
    let Ok(Ok(entries)) = workspace.open_directory(parent, LinkPolicy::Inside).map(walk::list) else {
        return format!("{refusal} Its directory does not exist either.");
    };
    let seen = |name: &String| !workspace.hides(&parent.join(name));
    let names = entries.take(MAX_COMPARED_NAMES).filter_map(|name| name.into_string().ok()).filter(seen);
    let near: Vec<_> =
        nearest::similar(&wanted, names).into_iter().map(|name| display::name(&parent.join(name))).collect();
    if near.is_empty() { refusal } else { format!("{refusal} Did you mean {}?", near.join(" or ")) }
}
