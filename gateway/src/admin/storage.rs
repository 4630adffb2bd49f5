//! `admin storage check`: whether the bytes of files and artifacts and the database agree.

use std::path::Path;

use clap::Subcommand;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use serde::{Deserialize, Serialize};

use super::client::{send_request, unexpected};
use super::state::AdminService;
use super::{AdminErrorCode, AdminReply, AdminRequest, no};
use crate::domain::storage_check::{self, StorageReport};

/// `deskgate-gateway admin storage …`
#[derive(Debug, Subcommand)]
pub enum StorageCommand {
    /// Whether all bytes of files and artifacts are there, and whether something is there that nothing knows, as after a restore
    Check {
        /// Delete what nothing knows and is at least a day old. No other gateway may keep files in the same place
        #[arg(long)]
        delete_unknown: bool,
    },
}

/// A request about the place where bytes are kept.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckStorage {
    /// Whether what nothing knows is deleted.
    pub delete_unknown: bool,
}

/// Answers inside the running gateway.
pub(super) async fn answer(service: &AdminService, ask: CheckStorage) -> Result<AdminReply, AdminReply> {
    let found = storage_check::check(&service.store, &service.storage, ask.delete_unknown).await;
    found.map(AdminReply::Storage).map_err(|error| no(AdminErrorCode::Unavailable, error.to_string()))
}

pub(super) async fn run(socket: &Path, command: StorageCommand, out: Output) -> Result<(), Failure> {
    let StorageCommand::Check { delete_unknown } = command;
    let found = match send_request(socket, AdminRequest::Storage(CheckStorage { delete_unknown })).await? {
        AdminReply::Storage(found) => found,
        other => return Err(unexpected(&other)),
    };
    out.result("storage/1", &found, || shown(&found));
    match found.missing {
        0 => Ok(()),
        missing => Err(Failure::new(Exit::CheckFailed, format!("bytes of {missing} files and artifacts are missing"))),
    }
}

fn shown(found: &StorageReport) -> String {
    let StorageReport { place, whole, whole_bytes, missing, unknown, unknown_bytes, deleted } = found;
    let mut text = format!("{place}\n  whole    {whole} files and artifacts, {whole_bytes} bytes\n");
    if *missing > 0 {
        text += &format!(
            "  missing  bytes of {missing} files and artifacts: their runs end as file_unavailable, and downloads are answered \
             with artifact_missing\n"
        );
    }
    if *unknown > 0 {
        text += &format!("  unknown  {unknown} objects, {unknown_bytes} bytes; deleted: {deleted}\n");
    }
    if unknown > deleted {
        text += "Delete those that are at least a day old: deskgate-gateway admin storage check --delete-unknown\n";
    }
    text
}
