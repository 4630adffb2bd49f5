//! Text that a person hands to a command: a file, or standard input.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, stdin};
use std::path::Path;

/// The size limit of such a text, in bytes: more than any key, identity or instruction has.
pub const MAX_TEXT_BYTES: u64 = 4 * 1024 * 1024;

/// The text of a file, or of standard input for `-`. A device that never ends is read up to the limit.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is larger than [`MAX_TEXT_BYTES`].
pub fn read(path: &Path) -> Result<String> {
    match path.as_os_str() == "-" {
        true => bounded(stdin().lock()),
        false => bounded(File::open(path)?),
    }
}

fn bounded(source: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    source.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let why = format!("it is larger than {} MiB", MAX_TEXT_BYTES / (1024 * 1024));
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_and_one_without_an_end_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("text");
        std::fs::write(&file, "Grüße\n").expect("writable");
        assert_eq!(read(&file).expect("text"), "Grüße\n");
        std::fs::write(&file, [0xff]).expect("writable");
        assert_eq!(read(&file).map_err(|error| error.kind()), Err(ErrorKind::InvalidData));
        assert_eq!(read(Path::new("/dev/zero")).map_err(|error| error.kind()), Err(ErrorKind::FileTooLarge));
        assert_eq!(read(&folder.path().join("none")).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
}
