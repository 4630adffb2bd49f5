//! `open`: the management pages, in the person's own browser.
//!
//! The browser is given a file that only this user can read, and the file leads on: a link on a command line would show
//! its code to everybody who lists processes.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use clap::Args;
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::Output;

use super::socket::Agent;
use crate::config::Home;
use crate::local::OpenPages;

/// `deskgate open`
#[derive(Debug, Args)]
pub(super) struct Open {
    /// Print the link instead; it is good once, for a minute
    #[arg(long)]
    print: bool,
}

pub(super) async fn run(agent: Agent, open: Open, out: Output) -> Result<(), Failure> {
    let opened = agent.ask(OpenPages {}).await?;
    if open.print || out.json {
        out.result("open/1", &opened, || opened.link.clone());
        return Ok(());
    }
    let home = Home::find().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))?;
    let file = home.opener();
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("{}: {error}", file.display()));
    // Anew each time, so that the mode is the one that is asked for here.
    let _ = std::fs::remove_file(&file);
    let mut page = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
    page.write_all(leading_to(&opened.link).as_bytes()).map_err(failed)?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = std::process::Command::new(program)
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => {
            out.result("open/1", &serde_json::json!({}), || "Opened in your browser.".to_owned());
            Ok(())
        }
        _ => {
            let _ = std::fs::remove_file(&file);
            let message = "no browser could be opened from here. Print a link with: deskgate open --print";
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// The link is made of an address and base64, so nothing in it has to be escaped.
fn leading_to(link: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>Deskgate</title><a href=\"{link}\">Continue</a>\n"
    )
}
