//! Where bytes of a command reach a terminal, a pipe or a file: the one place, so that foreign text is visible everywhere,
//! and a reader that has seen enough (`deskgate run list | head -1`) ends the command quietly.

use std::io::{self, ErrorKind, Write};

use crate::exit::Exit;
use crate::{look, visible};

/// Prints text, with a line break at its end if it has none.
pub fn print(text: &str) {
    let mut text = visible::text(text);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    write(&look::with_colours(text));
}

/// Prints one JSON value in a line. What would steer a terminal is written as `\u…`, which means the same to a program.
pub fn print_json(value: &serde_json::Value) {
    write(&format!("{}\n", visible::json(&value.to_string())));
}

/// Prints a document of ours byte for byte: a script for a shell, the OpenAPI document.
pub fn print_document(bytes: &[u8]) {
    settle(io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush()));
}

/// Prints a failure, a warning or a question on stderr, where results never go.
pub fn report(text: &str) {
    // A closed stderr leaves nobody to report to.
    let _ = writeln!(io::stderr().lock(), "{}", visible::text(text).trim_end_matches('\n'));
}

/// Prints a failure as one JSON value on stderr.
pub fn report_json(value: &serde_json::Value) {
    let _ = writeln!(io::stderr().lock(), "{}", visible::json(&value.to_string()));
}

/// Asks on stderr for what is typed behind it.
///
/// # Errors
/// Nobody can be asked.
pub fn prompt(text: &str) -> io::Result<()> {
    write!(io::stderr().lock(), "{}", visible::text(text))?;
    io::stderr().flush()
}

/// Ends the command quietly if its output failed because the reader has gone.
pub fn end_if_closed(error: &io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(Exit::Done as i32);
    }
}

fn settle(written: io::Result<()>) {
    if let Err(error) = written {
        end_if_closed(&error);
        report(&format!("the output cannot be written: {error}"));
        std::process::exit(Exit::Failed as i32);
    }
}

fn write(text: &str) {
    settle(io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
}
