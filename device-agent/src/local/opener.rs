//! Opens the management pages in the person's own browser.
//!
//! The browser gets a file that only this user can read, and the file redirects: a link on a command line would show
//! its code to everybody who lists processes.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Opens a link through `file`.
///
/// # Errors
/// Why it could not be opened, for a person.
pub async fn open(file: &Path, link: String) -> Result<(), String> {
    let file: PathBuf = file.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let opened = start(&file, &link);
        if opened.is_err() {
            let _ = std::fs::remove_file(&file);
        }
        opened
    });
    opened.await.unwrap_or_else(|_| Err("the browser could not be started".to_owned()))
}

fn start(file: &Path, link: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    // Created anew each time, so that its mode is the one requested here.
    let _ = std::fs::remove_file(file);
    let mut page = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    page.write_all(leading_to(link).as_bytes()).map_err(failed)?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = std::process::Command::new(program)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => Ok(()),
        _ => Err("no browser could be opened from here".to_owned()),
    }
}

/// A link is an address, in which quotes and brackets are written otherwise.
fn leading_to(link: &str) -> String {
    let link = link.replace('&', "&amp;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>Deskgate</title><a href=\"{link}\">Continue</a>\n"
    )
}
