//! Lets the server end when this process is killed, so that nothing is left running.
//!
//! The kernel can signal a child when the *thread* that started it ends (`PR_SET_PDEATHSIG`). The supervisor's thread
//! lives as long as the server, so for us it means: when the process dies. Requesting it between fork and exec would
//! need unsafe code; util-linux's `setpriv` requests it for us and then becomes the server. Where it is missing, the
//! next start ends the orphaned server.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// The words before a command so that it gets `signal` when the calling thread ends; none where this machine does not
/// support that.
pub(super) fn prefix(signal: &str) -> Vec<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("setpriv")).find(|program| program.is_file());
    let Some(program) = found else { return Vec::new() };
    let words = [program.into(), "--pdeathsig".into(), signal.into(), "--".into()];
    // Other programs of this name do not know the option, so it is tried.
    let mut trial = Command::new(&words[0]);
    trial.args(&words[1..]).args(["/bin/sh", "-c", ":"]).env_clear();
    trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match trial.status() {
        Ok(status) if status.success() => words.into(),
        _ => Vec::new(),
    }
}
