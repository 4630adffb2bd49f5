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
use crate::services::differences::{self, Comparison, FieldDifference, VersionChoice};

/// A field that differs.
pub(super) struct FieldChange {
    pub(super) field: String,
    pub(super) difference: Difference,
}

/// What a definition has otherwise than an older one.
pub(super) fn changes(old: &Definition, new: &Definition) -> Vec<FieldChange> {
    shown(differences::between(old, new))
}

fn shown(fields: Vec<FieldDifference>) -> Vec<FieldChange> {
    let change = |found: FieldDifference| FieldChange {
        difference: Difference::read(&found.lines.join("\n")),
        field: found.field,
    };
    fields.into_iter().map(change).collect()
}

/// Which versions are compared; blank: by default.
#[derive(Deserialize)]
pub(super) struct ComparisonQuery {
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
}

#[derive(Template)]
#[template(path = "service-versions.html")]
struct VersionsPage {
    frame: Frame,
    service: Service,
    versions: Vec<Version>,
    from: VersionChoice,
    to: VersionChoice,
    changes: Vec<FieldChange>,
}

impl VersionsPage {
    /// What can be compared, and its name.
    fn choices(&self) -> Vec<(VersionChoice, String)> {
        let versions = self.versions.iter().map(|version| VersionChoice::Published(version.version));
        let all = std::iter::once(VersionChoice::Draft).chain(versions);
        all.map(|choice| match choice {
            VersionChoice::Draft => (choice, "The draft".to_owned()),
            VersionChoice::Published(number) => (choice, format!("Version {number}")),
        })
        .collect()
    }

    /// The heading of the comparison.
    fn title(&self) -> String {
        let name = |choice: VersionChoice| match choice {
            VersionChoice::Draft => "the draft".to_owned(),
            VersionChoice::Published(number) => format!("version {number}"),
        };
        format!("From {} to {}", name(self.from), name(self.to))
    }
}

/// `GET /services/{id}/versions`: what one version has otherwise than another; by default the draft and the newest one.
pub(super) async fn compare(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    Query(query): Query<ComparisonQuery>,
) -> Result<Response, PageError> {
    let handler = pages.handler();
    let (service, versions) =
        tokio::join!(handler.request(ShowService { draft_id }), handler.request(ListVersions { draft_id }));
    let (service, versions) = (service?, versions?);
    let unknown = |message: String| ErrorReply { code: ErrorReplyCode::NotFound, message };
    let chosen = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(unknown),
    };
    let Comparison { from, to, fields } =
        differences::compare(&service, &versions, chosen(&query.from)?, chosen(&query.to)?)
            .map_err(|version| unknown(format!("There is no version {version} of it.")))?;
    let title = format!("Versions of {}", service.draft.name);
    let frame = Frame::new(&pages, &visitor, Section::Services, title).await;
    Ok(html(StatusCode::OK, &VersionsPage { frame, service, versions, from, to, changes: shown(fields) }))
}
