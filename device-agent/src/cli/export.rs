//! `app export`: an application's runs as JSON Lines, on standard output or in a private file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;
use deskgate_protocol::ApplicationId;
use deskgate_protocol::management::ShowApplication;
use serde_json::json;

use super::socket::AgentClient;
use crate::local::export::Export;

pub(super) async fn run(
    agent: AgentClient,
    app_id: ApplicationId,
    output: Option<PathBuf>,
    out: Output,
) -> Result<(), Failure> {
    let name = agent.manage(ShowApplication { app_id }).await?.name;
    let Some(path) = output else {
        let failed = |error: std::io::Error| {
            terminal::end_if_closed(&error);
            Failure::new(Exit::Failed, format!("the export was not written to its end: {error}"))
        };
        write(agent, app_id, std::io::stdout().lock(), failed).await?;
        return Ok(());
    };
    let failed = |error: std::io::Error| Failure::file(&path, &error);
    let file = create(&path).map_err(failed)?;
    let part = PartialFile(&path);
    let runs = write(agent, app_id, file, failed).await?;
    std::mem::forget(part);
    out.result("app-exported/1", &json!({ "file": path, "app_id": app_id, "runs": runs }), || {
        format!("{runs} runs of {name} written to {}, one on each line.", path.display())
    });
    Ok(())
}

/// An incomplete file, removed also on interruption: it would look like a complete one.
pub(super) struct PartialFile<'a>(pub(super) &'a Path);

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        // The earlier failure is the one that is reported.
        let _ = std::fs::remove_file(self.0);
    }
}

/// Creates a private file, which must not exist yet.
pub(super) fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns how many runs were written.
async fn write(
    agent: AgentClient,
    app_id: ApplicationId,
    to: impl Write,
    failed: impl Fn(std::io::Error) -> Failure,
) -> Result<u64, Failure> {
    let (mut export, mut to) = (Export::new(agent, app_id), BufWriter::new(to));
    while let Some(text) = export.more().await? {
        to.write_all(text.as_bytes()).map_err(&failed)?;
    }
    to.flush().map_err(failed)?;
    Ok(export.runs())
}
