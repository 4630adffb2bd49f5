//! Skills: instructions for a kind of work, as people write them in a SKILL.md file.
//!
//! A service copies the text, so that a published version stays the same when the file changes. Only the instructions
//! are used: scripts and other files beside a SKILL.md are not.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// The file in a skill's folder.
const SKILL_FILE_NAME: &str = "SKILL.md";
/// The size limit of a SKILL.md, in bytes.
const MAX_FILE_BYTES: usize = 64 * 1024;
/// The length limit of a name, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The length limit of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// One skill of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// The name that the assistant uses.
    pub name: String,
    /// When the skill is useful: the assistant sees only this until it loads the skill.
    pub description: String,
    /// The text that the assistant gets.
    pub instructions: String,
    /// The folder it was read from.
    pub source: PathBuf,
}

/// Why a folder holds no skill.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why the file cannot be read.
        source: std::io::Error,
    },
    /// The file is not a valid SKILL.md.
    #[error("{path}: {problem}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and what it must be.
        problem: String,
    },
}

impl Skill {
    /// Reads the skill in a folder, or the one whose SKILL.md is named itself: a regular file or a link to one. Stops
    /// reading just above the size limit.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid SKILL.md.
    pub fn read(place: &Path) -> Result<Self, SkillError> {
        let folder = if place.ends_with(SKILL_FILE_NAME) { place.parent().unwrap_or(place) } else { place };
        let path = folder.join(SKILL_FILE_NAME);
        let io = |source| SkillError::Io { path: path.clone(), source };
        let invalid = |problem| SkillError::Invalid { path: path.clone(), problem };
        // Opening a pipe would block, and a device may too: both are opened without waiting, then refused.
        let without_waiting = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(&path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(invalid("it is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        // The size that a file system reports need not be true.
        file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() > MAX_FILE_BYTES {
            return Err(invalid(format!("a skill has at most {MAX_FILE_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid("it is not text in UTF-8".to_owned()))?;
        let source = std::path::absolute(folder).map_err(io)?;
        let SkillFile { name, description, instructions } = parse(&text).map_err(invalid)?;
        let skill = Self { name, description, instructions, source };
        skill.check().map_err(invalid)?;
        Ok(skill)
    }

    /// Checks a skill as a definition holds it.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { name, description, instructions, .. } = self;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match () {
            () if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(plain) => {
                Err(format!("its name has 1 to {MAX_NAME_CHARS} characters from a-z, 0-9 and -"))
            }
            () if description.trim().is_empty() || description.chars().count() > MAX_DESCRIPTION_CHARS => {
                Err(format!("its description has 1 to {MAX_DESCRIPTION_CHARS} characters, and says when it is of use"))
            }
            () if description.chars().any(char::is_control) => Err("its description is one line".to_owned()),
            () if instructions.trim().is_empty() => Err("it has no instructions below its front matter".to_owned()),
            () if instructions.len() > MAX_FILE_BYTES => {
                Err(format!("its instructions have at most {MAX_FILE_BYTES} bytes"))
            }
            () => Ok(()),
        }
    }
}

struct SkillFile {
    name: String,
    description: String,
    instructions: String,
}

/// The front matter is YAML; only two keys with text are needed. They are read line by line: real files hold lines that
/// a YAML reader refuses, such as `description: Use when: …`.
fn parse(text: &str) -> Result<SkillFile, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Err("it does not begin with front matter between two lines of ---".to_owned());
    }
    let mut front = Vec::new();
    loop {
        match lines.next().map(str::trim_end) {
            Some("---") => break,
            Some(line) => front.push(line),
            None => return Err("its front matter does not end with a line of ---".to_owned()),
        }
    }
    let value = |key| value(&front, key).ok_or_else(|| format!("its front matter has no {key}"));
    let instructions = lines.collect::<Vec<_>>().join("\n").trim().to_owned();
    Ok(SkillFile { name: value("name")?, description: value("description")?, instructions })
}

/// The text of a key: after its colon, quoted or not, or in the indented lines below it, as one line.
fn value(front: &[&str], key: &str) -> Option<String> {
    let at =
        front.iter().position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')))?;
    let first = front[at].split_once(':')?.1.trim();
    let is_block = matches!(first.trim_end_matches(['-', '+']), ">" | "|");
    let below = front[at + 1..].iter().take_while(|line| line.is_empty() || line.starts_with([' ', '\t']));
    let words = (!is_block).then_some(first).into_iter().chain(below.map(|line| line.trim()));
    let text = words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ");
    Some(match (text.chars().next(), text.len()) {
        (Some(quote @ ('"' | '\'')), 2..) if text.ends_with(quote) => unquoted(&text[1..text.len() - 1], quote),
        _ => text,
    })
}

/// A quoted YAML text, as far as people write such texts.
fn unquoted(text: &str, quote: char) -> String {
    match quote {
        '"' => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        _ => text.replace("''", "'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Skill, SkillError> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(SKILL_FILE_NAME), text).expect("written");
        Skill::read(folder.path())
    }

    #[test]
    fn skills_are_read_as_people_write_them() {
        for (front, description) in [
            (
                "name: refunds\ndescription: Use when: a customer wants money back.",
                "Use when: a customer wants money back.",
            ),
            ("description: \"Say \\\"sorry\\\" first\"\nname: 'refunds'", "Say \"sorry\" first"),
            ("name: refunds\ndescription: >-\n  Use it for\n  refunds.\nlicense: MIT", "Use it for refunds."),
            ("license: x\nname:   refunds\nallowed-tools: Read\ndescription: 'It''s for refunds'", "It's for refunds"),
            ("name: refunds\ndescription: Long texts\n  go on below.", "Long texts go on below."),
        ] {
            let skill = read(&format!("---\n{front}\n---\n\n# Refunds\n\nBe kind.\n")).expect(front);
            assert_eq!((skill.name.as_str(), skill.description.as_str()), ("refunds", description));
            assert_eq!(skill.instructions, "# Refunds\n\nBe kind.");
            assert!(skill.source.is_absolute());
        }
        assert!(read("\u{feff}---\r\nname: a\r\ndescription: b\r\n---\r\nc\r\n").is_ok(), "written on Windows");
    }

    #[test]
    fn what_is_no_skill_is_refused_with_what_it_lacks() {
        for (text, part) in [
            ("# Refunds", "begin with front matter"),
            ("---\nname: a\n", "does not end"),
            ("---\nname: a\n---\nc", "no description"),
            ("---\nname: A b\ndescription: c\n---\nd", "1 to 64"),
            ("---\nname: a\ndescription:\n---\nd", "1 to 1024"),
            ("---\nname: a\ndescription: b\n---\n \n", "no instructions"),
            (&"x".repeat(MAX_FILE_BYTES + 1), "at most"),
        ] {
            let error = read(text).expect_err(part).to_string();
            assert!(error.contains(part) && error.contains("SKILL.md"), "{error}");
        }
        assert!(Skill::read(Path::new("/nonexistent")).is_err());
    }

    /// Reads on its own thread, so that a read that does not end fails the test.
    fn refused(folder: &Path) -> String {
        let (answer, result) = std::sync::mpsc::channel();
        let folder = folder.to_owned();
        std::thread::spawn(move || answer.send(Skill::read(&folder)));
        let read = result.recv_timeout(std::time::Duration::from_secs(30)).expect("an answer");
        read.expect_err("no skill").to_string()
    }

    #[test]
    fn a_pipe_or_a_device_in_the_place_of_a_skill_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(SKILL_FILE_NAME);
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let error = refused(folder.path());
        assert!(error.contains("not a regular file"), "{error}");
        std::fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("linked");
        let error = refused(folder.path());
        assert!(error.contains("not a regular file"), "{error}");
    }
}
