//! `doctor`: the checks of `check`, then the running gateway's state, and its public address as seen from outside.

use std::path::Path;

use serde_json::json;

use super::check::{self, CheckStatus, Finding};
use super::client::{send_request, unexpected};
use super::status::fetch_status;
use super::{AdminReply, AdminRequest, GatewayStatus, public_probe};
use crate::config::Config;
use crate::descriptors::DescriptorLimit;
use crate::domain::health::Severity;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;

/// Runs every check, prints the findings, and ends with 10 if one fails. `url`: the address to call from here;
/// otherwise the one that the gateway names.
///
/// # Errors
/// `Exit::CheckFailed`: at least one check failed; a gateway that does not answer is one of them. `Exit::Usage`: the
/// address to call is not a URL; then no findings are printed.
pub async fn run(
    socket: &Path,
    config: &Config,
    url: Option<&str>,
    descriptors: DescriptorLimit,
    out: Output,
) -> Result<(), Failure> {
    let mut findings = check::run(config, descriptors).await;
    match fetch_status(socket).await {
        Ok(status) => {
            findings.extend(live(&status));
            let address = url.unwrap_or(status.address.trim_end_matches("/api/v1"));
            match address.parse() {
                Ok(address) => match ticket(socket).await {
                    Ok(ticket) => findings.extend(public_probe::look(&address, &ticket).await),
                    Err(failure) => findings.push(Finding::new("public address", CheckStatus::Fail, failure.message)),
                },
                Err(error) => return Err(Failure::new(Exit::Usage, format!("{address:?} is no address: {error}"))),
            }
        }
        Err(failure) => {
            findings.push(Finding::new("gateway", CheckStatus::Fail, failure.message));
            let detail = "only a running gateway gives the ticket for a look from outside";
            findings.push(Finding::new("public address", CheckStatus::Skip, detail));
        }
    }
    out.result("doctor/1", &json!({ "findings": findings }), || check::show(&findings));
    check::verdict(&findings)
}

async fn ticket(socket: &Path) -> Result<String, Failure> {
    match send_request(socket, AdminRequest::TrialTicket).await? {
        AdminReply::TrialTicket { ticket } => Ok(ticket),
        other => Err(unexpected(&other)),
    }
}

fn live(status: &GatewayStatus) -> Vec<Finding> {
    let [running, asking, unsettled, cancelling] = status.runs_started;
    let mut findings = vec![
        Finding::new("gateway", CheckStatus::Pass, format!("{} answers", status.version)),
        Finding::new(
            "devices",
            CheckStatus::Pass,
            format!("{} connected of {}", status.devices_connected, status.devices_paired),
        ),
        Finding::new(
            "queue",
            CheckStatus::Pass,
            format!(
                "{} queued, {running} running, {asking} awaiting approval, {unsettled} awaiting reconciliation, \
                 {cancelling} being stopped",
                status.runs_waiting
            ),
        ),
        Finding::new("callbacks", CheckStatus::Pass, format!("{} pending", status.callbacks.0)),
    ];
    findings.extend(status.problems.iter().map(|problem| {
        let verdict = if problem.severity == Severity::Fail { CheckStatus::Fail } else { CheckStatus::Warn };
        let detail = format!("{}: {} {} ({})", problem.title, problem.text, problem.next, problem.code.as_str());
        Finding::new("health", verdict, detail)
    }));
    findings
}
