//! `service versions` and `service diff`: the published versions of a service, and what one has otherwise than another.

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_program::visible;

use super::service::find;
use super::socket::AgentClient;
use crate::local::ListVersions;
use crate::services::differences::{self, Comparison, FieldDifference, VersionChoice};

pub(super) async fn list(agent: &AgentClient, service: &str, out: Output) -> Result<(), Failure> {
    let service = find(agent, service).await?;
    let versions = agent.request(ListVersions { draft_id: service.draft_id }).await?;
    out.result("service-versions/1", &serde_json::json!({ "versions": versions }), || {
        records::list(
            &versions,
            &format!("It was never published. Publish it with: deskgate service publish {}", service.draft_id),
            &["VERSION", "STATE", "PUBLISHED"],
            |version| {
                let state = if service.publishes(version) { "published" } else { "" };
                let at = Cell::Time(version.published_at);
                vec![version.version.to_string().into(), state.into(), at]
            },
        )
    });
    Ok(())
}

pub(super) async fn compare(
    agent: &AgentClient,
    service: &str,
    from: Option<VersionChoice>,
    to: Option<VersionChoice>,
    out: Output,
) -> Result<(), Failure> {
    let service = find(agent, service).await?;
    let versions = agent.request(ListVersions { draft_id: service.draft_id }).await?;
    let Comparison { from, to, fields } = differences::compare(&service, &versions, from, to).map_err(|unknown| {
        let next = format!("deskgate service versions {}", service.draft_id);
        let name = &service.draft.name;
        Failure::new(Exit::Failed, format!("there is no version {unknown} of {name}; list them with: {next}"))
    })?;
    let record = serde_json::json!({ "from": from.to_string(), "to": to.to_string(), "fields": fields });
    out.result("service-diff/1", &record, || match fields.is_empty() {
        true => "Nothing differs.".to_owned(),
        false => fields.iter().map(show).collect::<Vec<_>>().join("\n"),
    });
    Ok(())
}

fn show(difference: &FieldDifference) -> String {
    format!("{}\n{}", difference.field, visible::block(&difference.lines.join("\n"), "  ").trim_end())
}
