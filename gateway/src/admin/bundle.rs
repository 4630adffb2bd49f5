//! `bundle`: one text file for support; its contents are listed before it is written.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;

use super::check;
use super::client::devices;
use super::status::fetch_status;
use crate::config::Config;
use crate::descriptors::DescriptorLimit;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::support::Bundle;

/// `deskgate-gateway bundle`
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// Where to; nothing may be there yet
    #[arg(long, value_name = "FILE", default_value = "deskgate-gateway-support.txt")]
    output: PathBuf,
    /// A file with the gateway's log; otherwise the journal of the unit deskgate-gateway is asked
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// Lines of the log that are included.
const MAX_LOG_LINES: usize = 2000;

/// Collects the parts, asks for confirmation, and writes the file. `metrics` is what the operations listener answered,
/// if it did.
///
/// # Errors
/// The person declines or cannot be asked, or the file exists or cannot be written. A part that cannot be collected is
/// no failure: the file says so.
pub async fn run(
    make: BundleArgs,
    socket: &Path,
    config: &Config,
    descriptors: DescriptorLimit,
    metrics: Option<String>,
    out: Output,
) -> Result<(), Failure> {
    let bundle = gather(&make, socket, config, descriptors, metrics).await;
    let withheld = "No keys, tokens or passwords, and no inputs, results or files of callers.";
    bundle.write("Deskgate gateway", withheld, &make.output, make.confirmation, out)
}

async fn gather(
    make: &BundleArgs,
    socket: &Path,
    config: &Config,
    descriptors: DescriptorLimit,
    metrics: Option<String>,
) -> Bundle {
    let mut bundle = Bundle::default();
    let settings = config.show().into_iter().map(|(key, value, from)| format!("{key} = {value:?}  # {from}"));
    bundle.add("settings", "Every setting and where it came from, passwords left out", lines(settings));
    let findings = check::run(config, descriptors).await;
    bundle.add("checks", "What deskgate-gateway check says", check::show(&findings));
    let status = fetch_status(socket).await.map(|status| pretty(&status)).unwrap_or_else(|failure| failure.message);
    bundle.add("status", "How the running gateway is, and what it says is wrong", status);
    let known = devices(socket).await.map(|devices| pretty(&devices)).unwrap_or_else(|failure| failure.message);
    bundle.add("devices", "Paired devices: names, versions, fingerprints, when they were last seen", known);
    bundle.add("metrics", "What the gateway counts", metrics.unwrap_or_else(|| "nobody answers".to_owned()));
    bundle.add(
        "files",
        "Names, sizes and modes of the files in its folders, nothing of what is in them",
        files(config),
    );
    let log = match &make.log {
        Some(path) => std::fs::read_to_string(path).unwrap_or_else(|error| format!("{}: {error}", path.display())),
        None => journal().unwrap_or_else(|| "the journal has none; name a file with --log".to_owned()),
    };
    let last: Vec<_> = log.lines().rev().take(MAX_LOG_LINES).collect();
    let log = lines(last.into_iter().rev().map(str::to_owned));
    bundle.add("log", "The last 2000 lines of its log, which name devices, applications and runs by identifiers", log);
    bundle
}

fn journal() -> Option<String> {
    let mut command = Command::new("journalctl");
    command.args(["--unit=deskgate-gateway", "--output=short-iso", "--no-pager", "--quiet"]);
    command.arg(format!("--lines={MAX_LOG_LINES}")).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned()).filter(|text| !text.is_empty())
}

fn files(config: &Config) -> String {
    let mut found = Vec::new();
    for folder in [config.state_dir(), config.run_dir()] {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let (mode, owner, group) = (metadata.mode(), metadata.uid(), metadata.gid());
            found.push(format!("{mode:06o} {owner}:{group} {:>12} {}", metadata.len(), entry.path().display()));
        }
    }
    found.sort();
    lines(found)
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
