//! The versions of a service, and what one has otherwise than another.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_definition::{Definition, Service, Version};
use deskgate_protocol::ids::DraftId;
use serde::Deserialize;

use super::auth::Visitor;
use super::diff::Difference;
use super::frame::{Frame, Section};
use super::labels::TimeLabel;
use super::{PageError, Pages, html};
use crate::local::{ErrorReply, ErrorReplyCode, ListVersions, ShowService};
use crate::services::differences;

/// A field that differs.
pub(super) struct FieldChange {
    pub(super) field: String,
    pub(super) difference: Difference,
}

/// What a definition has otherwise than an older one.
pub(super) fn changes(old: &Definition, new: &Definition) -> Vec<FieldChange> {
    let differing = differences::between(old, new).into_iter();
    differing
        .map(|found| FieldChange { field: found.field, difference: Difference::read(&found.lines.join("\n")) })
        .collect()
}

/// Which versions are compared: a number, or [`DRAFT`].
#[derive(Deserialize)]
pub(super) struct Comparison {
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
}

/// The draft's place among the versions.
const DRAFT: &str = "draft";

#[derive(Template)]
#[template(path = "service-versions.html")]
struct VersionsPage {
    frame: Frame,
    service: Service,
    versions: Vec<Version>,
    from: String,
    to: String,
    changes: Vec<FieldChange>,
}

impl VersionsPage {
    /// What can be compared: its value, and its name.
    fn choices(&self) -> Vec<(String, String)> {
        let draft = (DRAFT.to_owned(), "The draft".to_owned());
        let versions = self.versions.iter().map(|version| version.version);
        std::iter::once(draft).chain(versions.map(|number| (number.to_string(), format!("Version {number}")))).collect()
    }

    /// The heading of the comparison.
    fn title(&self) -> String {
        let name = |chosen: &String| if chosen == DRAFT { "the draft".to_owned() } else { format!("version {chosen}") };
        format!("From {} to {}", name(&self.from), name(&self.to))
    }
}

/// `GET /services/{id}/versions`: what one version has otherwise than another; by default the draft and the newest one.
pub(super) async fn compare(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    Query(Comparison { from, to }): Query<Comparison>,
) -> Result<Response, PageError> {
    let handler = pages.handler();
    let (service, versions) =
        tokio::join!(handler.request(ShowService { draft_id }), handler.request(ListVersions { draft_id }));
    let (service, versions) = (service?, versions?);
    let newest = versions.first().map_or(DRAFT.to_owned(), |version| version.version.to_string());
    let or = |chosen: String, default: &str| if chosen.is_empty() { default.to_owned() } else { chosen };
    let (from, to) = (or(from, &newest), or(to, DRAFT));
    let definition = |chosen: &str| {
        let known = versions.iter().find(|version| version.version.to_string() == chosen);
        known.map(|version| &version.definition).or((chosen == DRAFT).then_some(&service.draft)).ok_or_else(|| {
            ErrorReply { code: ErrorReplyCode::NotFound, message: format!("There is no version {chosen} of it.") }
        })
    };
    let changes = changes(definition(&from)?, definition(&to)?);
    let title = format!("Versions of {}", service.draft.name);
    let frame = Frame::new(&pages, &visitor, Section::Services, title).await;
    Ok(html(StatusCode::OK, &VersionsPage { frame, service, versions, from, to, changes }))
}
