//! `service versions` and `service diff`: the published versions of a service, and what one has otherwise than another.

use std::fmt;
use std::str::FromStr;

use deskgate_definition::{Definition, Service, Version};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_program::visible;

use super::service::find;
use super::socket::AgentClient;
use crate::local::ListVersions;
use crate::services::differences::{self, FieldDifference};

/// A published version, or the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionChoice {
    Draft,
    Published(u32),
}

impl FromStr for VersionChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "draft" => Ok(Self::Draft),
            number => number
                .trim_start_matches('v')
                .parse()
                .map(Self::Published)
                .map_err(|_| format!("{text:?} is neither a version's number nor \"draft\"")),
        }
    }
}

impl fmt::Display for VersionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draft => f.write_str("draft"),
            Self::Published(number) => write!(f, "{number}"),
        }
    }
}

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
    let newest = versions.first().map_or(VersionChoice::Draft, |version| VersionChoice::Published(version.version));
    let (from, to) = (from.unwrap_or(newest), to.unwrap_or(VersionChoice::Draft));
    let old = definition(&versions, &service, from)?;
    let new = definition(&versions, &service, to)?;
    let found = differences::between(old, new);
    let record = serde_json::json!({ "from": from.to_string(), "to": to.to_string(), "fields": found });
    out.result("service-diff/1", &record, || match found.is_empty() {
        true => "Nothing differs.".to_owned(),
        false => found.iter().map(show).collect::<Vec<_>>().join("\n"),
    });
    Ok(())
}

fn definition<'a>(
    versions: &'a [Version],
    service: &'a Service,
    chosen: VersionChoice,
) -> Result<&'a Definition, Failure> {
    let number = match chosen {
        VersionChoice::Draft => return Ok(&service.draft),
        VersionChoice::Published(number) => number,
    };
    let known = versions.iter().find(|version| version.version == number);
    known.map(|version| &version.definition).ok_or_else(|| {
        let next = format!("deskgate service versions {}", service.draft_id);
        Failure::new(
            Exit::Failed,
            format!("there is no version {number} of {}; list them with: {next}", service.draft.name),
        )
    })
}

fn show(difference: &FieldDifference) -> String {
    format!("{}\n{}", difference.field, visible::block(&difference.lines.join("\n"), "  ").trim_end())
}
