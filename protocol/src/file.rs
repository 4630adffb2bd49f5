//! Files: those that callers give to runs, and the artifacts that runs hand out.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::canonical::Sha256Digest;
use crate::hidden::hidden;
use crate::ids::{ArtifactId, FileId};
use crate::time::Timestamp;
use crate::words::api_words;

/// Bytes of the largest file or artifact.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The most files of one run.
pub const MAX_RUN_FILES: usize = 16;
/// The most bytes that the files of one run have together.
pub const MAX_RUN_FILE_BYTES: u64 = 128 * 1024 * 1024;
/// The most artifacts of one run.
pub const MAX_RUN_ARTIFACTS: usize = 16;
/// The most bytes that the artifacts of one run have together.
pub const MAX_RUN_ARTIFACT_BYTES: u64 = 256 * 1024 * 1024;
/// The longest name of a file, in bytes of UTF-8.
pub const MAX_FILE_NAME_BYTES: usize = 120;
/// The longest media type, in bytes.
pub const MAX_MEDIA_TYPE_BYTES: usize = 100;
/// What a file is that its giver says nothing about.
pub const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

/// A file that was uploaded, as its caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct File {
    /// What a run names it by.
    pub file_id: FileId,
    /// Its name, in Unicode's composed form (NFC).
    pub name: String,
    /// What it is, as its caller says.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// The SHA-256 of its bytes.
    pub sha256: Sha256Digest,
    /// When it was uploaded.
    pub created_at: Timestamp,
    /// When it is deleted unless a run has it. Absent: a run has it, and it is kept as long as that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A file of a run's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputFile {
    /// The file.
    pub file_id: FileId,
    /// Its name, which no other file of the run has.
    pub name: String,
    /// What it is, as its caller says.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// The SHA-256 of its bytes.
    pub sha256: Sha256Digest,
}

/// A file that a run handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Artifact {
    /// Its identifier.
    pub artifact_id: ArtifactId,
    /// Its name.
    pub name: String,
    /// What it is, as its name says.
    pub media_type: String,
    /// What the assistant says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Bytes.
    pub size: u64,
    /// The SHA-256 of its bytes.
    pub sha256: Sha256Digest,
    /// Whether its bytes can be read here.
    pub state: ArtifactState,
}

impl InputFile {
    /// Files as a run has them, in their order, each under a name of its own. Device and gateway make the same of the same files.
    pub fn list<'f>(files: impl IntoIterator<Item = &'f File>) -> Vec<Self> {
        let mut list = Vec::<Self>::new();
        for File { file_id, name, media_type, size, sha256, .. } in files {
            let taken = |name: &str| list.iter().any(|other| other.name.to_lowercase() == name.to_lowercase());
            let (name, media_type) = (unique_name(name, taken).into_owned(), media_type.clone());
            list.push(Self { file_id: *file_id, name, media_type, size: *size, sha256: *sha256 });
        }
        list
    }
}

api_words! {
    /// Whether the bytes of an artifact can be read.
    pub enum ArtifactState {
        /// They can.
        Stored = "stored",
        /// The run handed it out, and its bytes could not be brought here.
        Missing = "missing",
    }
}

/// Checks the name of a file, which comes from the other side and stands where names of files stand.
///
/// # Errors
/// What is wrong with the name, for people.
pub fn check_file_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a file has a name".to_owned());
    }
    if name.len() > MAX_FILE_NAME_BYTES {
        return Err(format!("a name has at most {MAX_FILE_NAME_BYTES} bytes; this one has {}", name.len()));
    }
    if name == "." || name == ".." {
        return Err(format!("{name:?} is a folder's name"));
    }
    // The blank of Braille is none to Unicode, and looks like one.
    let is_blank = |c: char| c.is_whitespace() || c == '\u{2800}';
    if name.starts_with(is_blank) || name.ends_with(is_blank) {
        return Err("a name must not begin or end with a space".to_owned());
    }
    if let Some(c) = name.chars().find(|c| matches!(c, '/' | '\\')) {
        return Err(format!("a name must not contain {c}: it is no path"));
    }
    match hidden(name).chain(name.chars().filter(|c| *c == '\t')).next() {
        Some(c) => {
            Err(format!("a name must not contain characters that are not seen; this one has U+{:04X}", u32::from(c)))
        }
        None => Ok(()),
    }
}

/// Whether a text may be a media type (RFC 9110, section 8.3.1): a type and a subtype of token characters, and parameters in
/// visible ASCII.
pub fn is_media_type(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    text.len() <= MAX_MEDIA_TYPE_BYTES
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        && essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// What a file of this name usually is. Nobody looks into it.
pub fn usual_media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "html" | "htm" => "text/html",
        "ics" => "text/calendar",
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "ppt" => "application/vnd.ms-powerpoint",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "odt" => "application/vnd.oasis.opendocument.text",
        "ods" => "application/vnd.oasis.opendocument.spreadsheet",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        _ => UNKNOWN_MEDIA_TYPE,
    }
}

/// Bytes of what counts as an extension, with its dot.
const MAX_EXTENSION_BYTES: usize = 20;

/// A name that none of `taken` has: `report.pdf`, `report (2).pdf`. Names that differ in case only count as the same, because
/// some file systems know no difference.
pub fn unique_name<'a>(name: &'a str, taken: impl Fn(&str) -> bool) -> Cow<'a, str> {
    if !taken(name) {
        return Cow::Borrowed(name);
    }
    let (stem, extension) = match name.rfind('.') {
        Some(dot) if dot > 0 && name.len() - dot <= MAX_EXTENSION_BYTES => name.split_at(dot),
        _ => (name, ""),
    };
    for number in 2.. {
        let suffix = format!(" ({number}){extension}");
        let room = MAX_FILE_NAME_BYTES.saturating_sub(suffix.len());
        let fits = stem.char_indices().map(|(place, c)| place + c.len_utf8()).take_while(|end| *end <= room).last();
        let name = format!("{}{suffix}", stem[..fits.unwrap_or(0)].trim_end());
        if !taken(&name) {
            return Cow::Owned(name);
        }
    }
    unreachable!("there are more numbers than names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths_and_hide_nothing() {
        for good in ["a", "Rechnung März 2026.pdf", ".env", "-rf", "a.tar.gz", "名前.txt", "🏴‍☠️.txt", "CON", "a:b"]
        {
            assert_eq!(check_file_name(good), Ok(()), "{good}");
        }
        let long = "x".repeat(MAX_FILE_NAME_BYTES + 1);
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "a\u{0}b",
            "a\nb",
            "a\tb",
            "gpj.\u{202e}exe",
            "a\u{200b}",
            "a\u{34f}",
            "a\u{1d173}b",
            " a",
            "a ",
            "a\u{2800}",
            &long,
        ] {
            assert!(check_file_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn media_types_have_two_parts() {
        for good in ["application/pdf", "text/plain; charset=utf-8", "image/svg+xml"] {
            assert!(is_media_type(good), "{good}");
        }
        for bad in ["", "pdf", "a/", "/b", "a/b\r\nx: y", "a b/c", "tëxt/plain"] {
            assert!(!is_media_type(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let taken = ["a.pdf", "a (2).pdf", "b"];
        let unique = |name: &str| unique_name(name, |other| taken.contains(&other)).into_owned();
        assert_eq!([unique("a.pdf"), unique("b"), unique("c")], ["a (3).pdf", "b (2)", "c"]);
        let long = "ä".repeat(MAX_FILE_NAME_BYTES / 2);
        let other = unique_name(&long, |name| name == long);
        assert!(other.len() <= MAX_FILE_NAME_BYTES && other.ends_with(" (2)") && check_file_name(&other).is_ok());
        let odd = format!("a.{}", "x".repeat(MAX_FILE_NAME_BYTES - 2));
        assert_eq!(check_file_name(&unique_name(&odd, |name| name == odd)), Ok(()));
    }
}
