//! `pair`: pairs this device with a gateway by an invitation.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use clap::Args;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::{terminal, visible};

use super::ctrl_c::CtrlC;
use super::socket::AgentClient;
use crate::local::{CancelPairing, GetPairing, InvitationView, LeftBehind, Pair, PairingView, ReadInvitation};

/// How often the agent is asked how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// `deskgate pair`
#[derive(Debug, Args)]
pub(super) struct PairArgs {
    /// The line that the gateway's administrator gave you (dgi_…). Without it, it is asked for or read from standard input, and
    /// so stays out of the list of processes
    line: Option<String>,
    /// Leave the waiting to the agent; `deskgate pair --status` and the page Connection show how far it is
    #[arg(long)]
    no_wait: bool,
    /// Show how far the pairing is that the agent waits for, or how the last one went
    #[arg(long, conflicts_with_all = ["line", "no_wait", "cancel"])]
    status: bool,
    /// End the pairing that the agent waits for; the invitation is good until it ends
    #[arg(long, conflicts_with_all = ["line", "no_wait"])]
    cancel: bool,
    /// Accept what that does to runs in progress of the present gateway: abandon-runs
    #[arg(long, value_name = "RISK")]
    accept_risk: Option<String>,
    #[command(flatten)]
    confirmation: Confirmation,
}

pub(super) async fn run(agent: AgentClient, pair: PairArgs, out: Output) -> Result<(), Failure> {
    let PairArgs { line, no_wait, status, cancel, accept_risk, confirmation } = pair;
    if status || cancel {
        let view = match cancel {
            true => agent.request(CancelPairing {}).await?,
            false => agent.request(GetPairing {}).await?,
        };
        out.result("pairing/1", &view, || describe(&view));
        return Ok(());
    }
    let line = match line {
        Some(line) => line,
        None => ask_for_line()?,
    };
    let invitation = agent.request(ReadInvitation { line: line.clone() }).await?;
    confirmation.confirm(&question(&invitation))?;
    let abandon_runs = accept_risk.as_deref() == Some("abandon-runs");
    let mut view = agent.request(Pair { line, abandon_runs }).await?;
    if no_wait {
        out.result("pairing/1", &view, || describe(&view));
        return Ok(());
    }
    let mut told = String::new();
    let mut ctrl_c = CtrlC::answered()?;
    while view.is_under_way() {
        let text = describe(&view);
        if text != told && !out.json && !out.quiet {
            terminal::print(&text);
            told = text;
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = ctrl_c.pressed() => {
                agent.request(CancelPairing {}).await?;
                return Err(Failure::new(Exit::Interrupted, "This device was not paired. The invitation is good until it ends."));
            }
        }
        view = agent.request(GetPairing {}).await?;
    }
    match &view {
        PairingView::Paired { .. } => {
            out.result("pairing/1", &view, || describe(&view));
            Ok(())
        }
        PairingView::Failed { why, .. } => Err(Failure::new(Exit::NotAuthorised, why)),
        _ => Err(Failure::new(Exit::Refused, "the pairing was cancelled")),
    }
}

/// Reads the line where it is shown to nobody else.
fn ask_for_line() -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("the invitation cannot be read: {error}"));
    let input = std::io::stdin();
    let is_person = input.is_terminal();
    if is_person {
        terminal::prompt("The invitation, one line that begins with dgi_: ").map_err(failed)?;
    }
    let mut text = String::new();
    input.lock().read_line(&mut text).map_err(failed)?;
    match text.trim().is_empty() {
        true => Err(Failure::new(Exit::Usage, "no invitation was given; the gateway's administrator makes one")),
        false => Ok(text),
    }
}

fn question(invitation: &InvitationView) -> String {
    let InvitationView { ssh_address, host_key, ssh_user, control_socket, expires_at, changes_mode, leaves } =
        invitation;
    let mode = match changes_mode {
        true => "\n  This device leaves its present gateway, and access is paused until you enable it again.",
        false => "",
    };
    let left = leaves.filter(|left| !left.is_nothing());
    let left = left.map(|left| format!("\n  {} {}", left.words(), LeftBehind::AFTERWARDS)).unwrap_or_default();
    format!(
        "Pair this device with this gateway?\n  address     {}\n  host key    {host_key}\n  account     {}\n  socket      {}\n  good until  \
         {expires_at}{mode}{left}",
        visible::line(ssh_address),
        visible::line(ssh_user),
        visible::line(control_socket)
    )
}

fn describe(view: &PairingView) -> String {
    match view {
        PairingView::None => "No pairing is under way.".to_owned(),
        PairingView::Dialling { ssh_address, trouble: None, .. } => format!("Dialling {ssh_address} …"),
        PairingView::Dialling { ssh_address, trouble: Some(why), .. } => format!("Dialling {ssh_address} again: {why}"),
        PairingView::Waiting { ssh_address, short_code, expires_at } => format!(
            "The gateway at {ssh_address} waits for its administrator until {expires_at}.\nRead out this short code, which has to \
             be the one that is seen there:\n\n  {short_code}\n\nThe administrator confirms it: deskgate-gateway admin device confirm \
             {short_code}"
        ),
        PairingView::Paired { ssh_address } => {
            format!("Paired with the gateway at {ssh_address}, and connecting.\nNext: deskgate status")
        }
        PairingView::Failed { why, .. } => why.clone(),
    }
}
