//! `status`: the running gateway's state and its problems.

use std::path::Path;

use super::client::{send_request, unexpected};
use super::{AdminReply, AdminRequest, GatewayStatus};
use crate::domain::health::GatewayProblem;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;

/// `deskgate-gateway status`
///
/// # Errors
/// `Exit::CannotReach`: the gateway is not running, or its database does not answer. `Exit::NotAuthorised`: the user
/// may not use the administrator's socket. `Exit::Failed`: the connection breaks, or the answer is of another kind.
pub async fn status(socket: &Path, out: Output) -> Result<(), Failure> {
    let status = fetch_status(socket).await?;
    out.result("status/1", &status, || show_status(&status));
    if status.database { Ok(()) } else { Err(Failure::new(Exit::CannotReach, "the database does not answer")) }
}

/// Asks the running gateway for its status.
pub(super) async fn fetch_status(socket: &Path) -> Result<GatewayStatus, Failure> {
    match send_request(socket, AdminRequest::Status).await? {
        AdminReply::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}

fn show_status(status: &GatewayStatus) -> String {
    let [running, asking, unsettled, cancelling] = status.runs_started;
    let mut text = format!(
        "Deskgate gateway {}\naddress    {}\nTLS        {}\nSSH        {}\ndatabase   {}\ndevices    {} connected of {}\n\
         runs       {} queued, {running} running, {asking} awaiting approval, {unsettled} awaiting reconciliation, \
         {cancelling} being stopped\ncallbacks  {} pending{}\n",
        status.version,
        status.address,
        status.certificate.as_deref().unwrap_or("none (plain HTTP)"),
        status.ssh.as_deref().unwrap_or("none (devices come in through this server's sshd)"),
        match (status.migration, status.private_cluster) {
            (None, _) => "does not answer".to_owned(),
            (Some(migration), true) => format!("answers (a private cluster), migration {migration}"),
            (Some(migration), false) => format!("answers, migration {migration}"),
        },
        status.devices_connected,
        status.devices_paired,
        status.runs_waiting,
        status.callbacks.0,
        if status.callbacks.0 > 0 { format!(", the oldest for {:.0} s", status.callbacks.1) } else { String::new() },
    );
    for problem in &status.problems {
        let GatewayProblem { severity, title, text: seen, next, .. } = problem;
        text += &format!("{}  {title}: {seen}\n      Next: {next}\n", severity.as_str().to_uppercase());
    }
    text
}
