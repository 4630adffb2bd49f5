//! An application's history as a file, the same as from `deskgate app export`.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::ids::ApplicationId;
use deskgate_protocol::management::ShowApplication;
use futures_util::stream::try_unfold;

use super::auth::Visitor;
use super::{PageError, Pages};
use crate::local::export::Export;

/// `GET /applications/{id}/export.jsonl`
pub(super) async fn download(
    State(pages): State<Pages>,
    _: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    pages.handler().manage(ShowApplication { app_id }).await?;
    let mut export = Export::new(pages.handler().clone(), app_id);
    // An error at the start is shown as a page. Later the file breaks off, and the browser reports it.
    let first = export.more().await?.unwrap_or_default();
    let text = try_unfold((Some(first), export), move |(first, mut export)| async move {
        let text = match first {
            Some(first) => Some(first),
            None => export.more().await.map_err(|no| {
                tracing::warn!(%app_id, error = no.message, "an export broke off");
                std::io::Error::other(no.message)
            })?,
        };
        Ok::<_, std::io::Error>(text.map(|text| (text, (None, export))))
    });
    let name = format!("attachment; filename=\"deskgate-{app_id}.jsonl\"");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_str(&name).expect("an identifier is plain text")),
    ];
    Ok((headers, Body::from_stream(text)).into_response())
}
