//! Bash: runs a command in the working directory, in a sandbox.
//!
//! Every call starts a fresh shell in the working directory: the folder and variables of earlier shells are gone. Every
//! process that a command has started ends with it, so there is no background mode.

mod words;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::tool::{Plan, PlanPreview, Tool, ToolFailure, ToolOutput, ToolResult, ToolSpec};
use deskgate_definition::{Network, ToolName};
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::sandbox::{CommandEnd, KillReason, Sandbox, SandboxError};

/// The timeout of a command that the call does not set, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// The longest timeout that a call may set, in milliseconds.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// The size limit of a command, in bytes: half of what the system accepts as one argument.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

pub(super) struct BashTool {
    sandbox: Arc<Sandbox>,
    network: Network,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BashArguments {
    command: String,
    timeout: Option<u64>,
    // For people; without effect.
    #[serde(rename = "description")]
    _description: Option<String>,
}

impl BashArguments {
    fn check(&self) -> Result<Duration, String> {
        if self.command.trim().is_empty() {
            return Err("The command is empty.".to_owned());
        }
        if self.command.contains('\0') {
            return Err("The command contains a NUL character, which no shell takes.".to_owned());
        }
        if self.command.len() > MAX_COMMAND_BYTES {
            return Err(format!(
                "The command has more than {MAX_COMMAND_BYTES} bytes. Write it into a file and run that."
            ));
        }
        match self.timeout.unwrap_or(DEFAULT_TIMEOUT_MS) {
            timeout @ 1..=MAX_TIMEOUT_MS => Ok(Duration::from_millis(timeout)),
            other => Err(format!("A timeout is from 1 to {MAX_TIMEOUT_MS} milliseconds; this one is {other}.")),
        }
    }
}

impl BashTool {
    pub(super) fn new(sandbox: Sandbox, network: Network) -> Self {
        Self { sandbox: Arc::new(sandbox), network }
    }
}

impl Tool for BashTool {
    fn spec(&self) -> ToolSpec {
        spec(self.network)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let plan =
            crate::blocking::parse(ToolName::Bash.as_str(), arguments.clone()).and_then(|arguments: BashArguments| {
                arguments.check()?;
                let words = words::split(&arguments.command);
                // It may reach any file, so no single path would be true: no rule with a path allows it, and "for the
                // rest of the run" means every command.
                Ok(Plan { place: None, shown: PlanPreview::Command { command: arguments.command, words } })
            });
        std::future::ready(plan.map_err(ToolOutput::error)).boxed()
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let sandbox = Arc::clone(&self.sandbox);
        crate::blocking::blocking(ToolName::Bash, arguments, &stop, move |arguments: BashArguments, stop| {
            let time = match arguments.check() {
                Ok(time) => time,
                Err(complaint) => return Ok(ToolOutput::error(complaint)),
            };
            match sandbox.run(&arguments.command, time, stop) {
                Ok((output, ending)) => Ok(told(output.text(), ending, time)),
                // The run may continue with its other tools, free space, or try again.
                Err(not_now @ (SandboxError::DiskFull | SandboxError::Busy)) => {
                    Ok(ToolOutput::error(format!("Nothing was run: {not_now}.")))
                }
                Err(error) => {
                    tracing::warn!(%error, to_do = error.next(), "a command could not be run");
                    Err(ToolFailure::SandboxUnavailable)
                }
            }
        })
    }
}

/// What the model is told of it. Needs no sandbox.
pub fn spec(network: Network) -> ToolSpec {
    let network = match network {
        Network::None => "There is no network.",
        Network::Host => "The network can be used.",
    };
    ToolSpec {
        name: ToolName::Bash.to_string(),
        description: format!(
            "Runs a shell command in the working directory, in a sandbox. Only the working directory and /tmp can be \
                 written; version control's own folders and the empty read-only files and folders with names such as .envrc and .vscode \
                 cannot: they stand for what is protected. Home folders are not visible. {network} Every call is a \
                 fresh shell in the working directory; /tmp stays from call to call. What a command started ends with \
                 it: there is no background mode. Standard input is empty. Long output is cut in its middle."
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "description": "The command." },
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_TIMEOUT_MS,
                    "description": format!("Milliseconds it may take. Default: {DEFAULT_TIMEOUT_MS}.")
                },
                "description": { "type": "string", "description": "What the command does, in a few words." }
            },
            "required": ["command"],
            "additionalProperties": false
        }),
    }
}

/// The output of the command, and how it ended where that matters. Never a tool error: the command has begun, and
/// whatever its status, it may have changed something.
fn told(mut text: String, ending: CommandEnd, time: Duration) -> ToolOutput {
    text.truncate(text.trim_end_matches('\n').len());
    let notice = match ending {
        CommandEnd::Finished(status) if status.success() => None,
        CommandEnd::Finished(status) => Some(status_in_words(status)),
        CommandEnd::Ended(KillReason::Stopped) => Some("the command was stopped with its run".to_owned()),
        CommandEnd::Ended(KillReason::Time) => {
            Some(format!("the command was ended because it took longer than {} ms", time.as_millis()))
        }
        CommandEnd::Ended(KillReason::Memory) => {
            Some("the command was ended because it used too much memory".to_owned())
        }
        CommandEnd::Ended(KillReason::Disk) => Some("the command was ended because a disk was nearly full".to_owned()),
    };
    match notice {
        Some(notice) if text.is_empty() => text = format!("({notice})"),
        Some(notice) => text += &format!("\n\n({notice})"),
        None if text.is_empty() => text = "(no output)".to_owned(),
        None => {}
    }
    ToolOutput::ok(text)
}

/// A shell reports a signal as a status above 128.
fn status_in_words(status: ExitStatus) -> String {
    let signal = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128));
    let name = match signal {
        Some(1) => "SIGHUP",
        Some(2) => "SIGINT",
        Some(3) => "SIGQUIT",
        Some(4) => "SIGILL",
        Some(6) => "SIGABRT",
        Some(7) => "SIGBUS",
        Some(8) => "SIGFPE",
        Some(9) => "SIGKILL",
        Some(11) => "SIGSEGV",
        Some(13) => "SIGPIPE",
        Some(15) => "SIGTERM",
        Some(24) => "SIGXCPU",
        Some(25) => "SIGXFSZ: a file grew beyond its limit",
        Some(31) => "SIGSYS",
        _ => "",
    };
    match status.code() {
        Some(code) if name.is_empty() => format!("exit status {code}"),
        Some(code) => format!("exit status {code}, as after {name}"),
        None => format!("ended by signal {} {name}", signal.unwrap_or_default()).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_and_silence_is_not_taken_for_failure() {
        let finished = |wait_status| CommandEnd::Finished(ExitStatus::from_raw(wait_status));
        let told = |text: &str, ending| told(text.to_owned(), ending, Duration::from_millis(5));
        assert_eq!(told("", finished(0)), ToolOutput::ok("(no output)"));
        assert_eq!(told("out\n", finished(0)), ToolOutput::ok("out"));
        assert_eq!(told("out\n", finished(3 << 8)), ToolOutput::ok("out\n\n(exit status 3)"));
        assert_eq!(told("", finished(137 << 8)), ToolOutput::ok("(exit status 137, as after SIGKILL)"));
        assert!(told("", CommandEnd::Ended(KillReason::Time)).text.contains("5 ms"));
    }
}
