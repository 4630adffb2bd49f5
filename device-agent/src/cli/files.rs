//! Files for a run that the owner requests, and the artifacts that runs handed out: `run artifacts …`.

use std::path::PathBuf;

use clap::Subcommand;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_program::records::given::GivenId;
use deskgate_program::visible;
use deskgate_protocol::file::{Artifact, File};
use deskgate_protocol::management::ShowRun;
use deskgate_protocol::{ApplicationId, RunId};

use super::run::find;
use super::socket::AgentClient;
use crate::local::{GetArtifact, SavedArtifact, UploadFile};

/// `deskgate run artifacts …`
#[derive(Debug, Subcommand)]
pub(super) enum ArtifactsCommand {
    /// The files that a run handed out
    List {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
    },
    /// Get one of them into a new file
    Get {
        /// Of which run: its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// Its name or identifier
        artifact: String,
        /// The file, which must not be there yet, or a folder [default: its own name, here]
        #[arg(long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
}

pub(super) async fn run(agent: &AgentClient, command: ArtifactsCommand, out: Output) -> Result<(), Failure> {
    match command {
        ArtifactsCommand::List { run } => {
            let run_id = find(agent, run).await?;
            let artifacts = agent.manage(ShowRun::without_events(run_id)).await?.run.artifacts;
            out.result("artifacts/1", &serde_json::json!({ "artifacts": artifacts }), || {
                let none = "It handed out no files.";
                records::list(&artifacts, none, &["ARTIFACT", "NAME", "BYTES", "STATE"], |artifact| {
                    let Artifact { artifact_id, name, size, state, .. } = artifact;
                    vec![
                        artifact_id.to_string().into(),
                        visible::line(name).into(),
                        size.to_string().into(),
                        Cell::from(state.as_str()),
                    ]
                })
            });
        }
        ArtifactsCommand::Get { run, artifact, output } => {
            let run_id = find(agent, run).await?;
            let target = absolute("--output", output.unwrap_or_else(|| ".".into()))?;
            let saved = agent.request(GetArtifact { run_id, artifact, target }).await?;
            out.result("artifact/1", &saved, || {
                let SavedArtifact { artifact: Artifact { size, sha256, .. }, path } = &saved;
                format!("Saved: {}\n{size} bytes, sha256 {sha256}", visible::line(&path.display().to_string()))
            });
        }
    }
    Ok(())
}

/// Uploads files for a run of an application that the owner requests.
pub(super) async fn upload(
    agent: &AgentClient,
    app_id: ApplicationId,
    paths: Vec<PathBuf>,
) -> Result<Vec<File>, Failure> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let path = absolute("--file", path)?;
        files.push(agent.request(UploadFile { app_id, path, name: None }).await?);
    }
    Ok(files)
}

/// The agent has another working directory.
fn absolute(flag: &str, path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).map_err(|error| Failure::new(Exit::Usage, format!("{flag} {}: {error}", path.display())))
}
