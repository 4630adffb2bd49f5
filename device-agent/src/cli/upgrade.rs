//! `upgrade-check`: run with the new program before it replaces the old one.

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_protocol::VERSION;
use serde_json::json;

use super::socket::{AgentClient, home};
use crate::gateway_version;
use crate::local::{GetStatus, LineView};

pub(super) async fn check(agent: AgentClient, out: Output) -> Result<(), Failure> {
    // This program may not understand the answers of an agent of another version; the recorded version is plain text.
    let line = agent.request(GetStatus {}).await.ok().map(|status| status.line);
    let gateway = match line {
        Some(LineView::Connected { gateway_version, .. }) => Some(gateway_version),
        Some(LineView::Refused { refused, .. }) => Some(refused.gateway_version),
        _ => gateway_version::last_seen(&home()?.gateway_version()),
    };
    let mismatch = gateway.as_deref().and_then(gateway_version::mismatch);
    let value =
        json!({ "version": VERSION, "gateway_version": gateway, "fits": gateway.as_ref().map(|_| mismatch.is_none()) });
    out.result("upgrade-check/1", &value, || match (&gateway, &mismatch) {
        (None, _) => format!("This is {VERSION}. No remote gateway was met yet; one that is built in always fits."),
        (Some(gateway), None) => format!("This is {VERSION}, the gateway {gateway}: they fit."),
        (Some(gateway), Some(_)) => format!("This is {VERSION}, the gateway {gateway}."),
    });
    mismatch.map_or(Ok(()), |why| Err(Failure::new(Exit::VersionMismatch, why)))
}
