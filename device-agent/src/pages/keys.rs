//! Application keys: shown once, created with narrower rights, rolled and revoked.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::Service;
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::{ApplicationId, EndpointId, KeyId};
use deskgate_protocol::management::{
    CreateKey, CreatedKey, GetAccess, KeyRecord, ListKeys, RevokeKey, RollKey, Scope, ShowApplication,
};

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::Shape;
use super::{PageError, Pages};
use crate::local::{ErrorReply, ErrorReplyCode, GetIdentity, ListServices};

/// A key with its state.
pub(super) struct KeyRow {
    pub(super) key: KeyRecord,
}

impl KeyRow {
    pub(super) fn new(key: KeyRecord) -> Self {
        Self { key }
    }

    pub(super) fn live(&self) -> bool {
        self.key.revoked_at.is_none() && self.key.expires_at.is_none_or(|end| end > Timestamp::now())
    }

    pub(super) fn state(&self) -> (Shape, &'static str) {
        match (self.key.revoked_at.is_some(), self.live()) {
            (true, _) => (Shape::Over, "Revoked"),
            (false, false) => (Shape::Over, "Expired"),
            (false, true) => (Shape::Good, "Active"),
        }
    }

    /// What it may do, in words; one word for all of it.
    pub(super) fn scopes(&self) -> Vec<&'static str> {
        let all = self.key.scopes.len() == Scope::ALL.len();
        if all { vec!["everything"] } else { self.key.scopes.iter().map(|scope| scope.as_str()).collect() }
    }
}

#[derive(Template)]
#[template(path = "key-created.html")]
struct KeyCreatedPage {
    frame: Frame,
    application: String,
    created: CreatedKey,
    /// The API's address; unknown while the gateway cannot be queried.
    address: Option<String>,
    /// Of this device's key.
    fingerprint: Option<String>,
}

/// `POST /applications/{id}/keys/stored`: leaves the page with the key's text, which has no address of its own.
pub(super) async fn stored(Path(app_id): Path<ApplicationId>) -> Redirect {
    Redirect::to(&format!("/applications/{app_id}"))
}

/// The page with the key's text. It is the answer to a form and has no address: it cannot be opened again.
pub(super) async fn shown_once(pages: &Pages, visitor: &Visitor, application: &str, created: CreatedKey) -> Response {
    let frame = Frame::new(pages, visitor, Section::Applications, "Key created").await;
    let address = pages.handler().manage(GetAccess {}).await.ok().map(|access| access.address);
    let fingerprint = pages.handler().request(GetIdentity {}).await.map(|identity| identity.fingerprint).ok();
    let application = application.to_owned();
    super::html(StatusCode::OK, &KeyCreatedPage { frame, application, created, address, fingerprint })
}

#[derive(Template)]
#[template(path = "key-new.html")]
struct NewKeyPage {
    frame: Frame,
    app_id: ApplicationId,
    application: String,
    services: Vec<(EndpointId, String, bool)>,
    scopes: Vec<(Scope, &'static str, bool)>,
    fields: FormFields,
    problem: Option<String>,
}

/// The permission of each scope, in a sentence.
fn allows(scope: Scope) -> &'static str {
    match scope {
        Scope::EndpointsRead => "list the services it may use",
        Scope::RunsWrite => "submit runs",
        Scope::RunsRead => "read runs, their events and results",
        Scope::RunsControl => "stop runs",
        Scope::FilesWrite => "give files to runs",
        Scope::ConversationsWrite => "create conversations, and send messages together with runs:write",
        Scope::ConversationsRead => "read conversations",
        Scope::ConversationsControl => "reset conversations",
        Scope::DeliveriesRead => "read deliveries",
    }
}

/// `GET /applications/{id}/keys/new`
pub(super) async fn ask_new(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let every = Scope::ALL.iter().map(|scope| ("scope".to_owned(), scope.to_string())).collect();
    new(&pages, &visitor, app_id, FormFields(every), None).await
}

async fn new(
    pages: &Pages,
    visitor: &Visitor,
    app_id: ApplicationId,
    fields: FormFields,
    problem: Option<String>,
) -> Result<Response, PageError> {
    let application = pages.handler().manage(ShowApplication { app_id }).await?.name;
    let chosen = |name, value: &str| fields.all(name).any(|chosen| chosen == value);
    let services = pages.handler().request(ListServices {}).await?.into_iter().filter_map(|service: Service| {
        let is_one = service.app_id == app_id && service.published.is_some();
        let endpoint = service.endpoint_id.filter(|_| is_one)?;
        Some((endpoint, service.draft.name, chosen("endpoint", &endpoint.to_string())))
    });
    let services = services.collect();
    let scopes = Scope::ALL.iter().map(|scope| (*scope, allows(*scope), chosen("scope", scope.as_str()))).collect();
    let frame = Frame::new(pages, visitor, Section::Applications, "New key").await;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(super::html(status, &NewKeyPage { frame, app_id, application, services, scopes, fields, problem }))
}

/// The request in the form, or its errors.
fn request(app_id: ApplicationId, fields: &FormFields) -> Result<CreateKey, String> {
    let scopes = fields.all("scope").map(str::parse).collect::<Result<_, _>>().map_err(|error| format!("{error}"))?;
    let endpoints = fields.all("endpoint").map(str::parse).collect::<Result<_, _>>();
    let expires_at = match fields.filled("expires") {
        // A day ends at its end, in UTC.
        Some(day) => Some(format!("{day}T23:59:59Z").parse().map_err(|_| format!("Ends: {day:?} is no day."))?),
        None => None,
    };
    Ok(CreateKey {
        app_id,
        name: fields.get("name").trim().to_owned(),
        scopes,
        endpoints: endpoints.map_err(|_| "One of the services is none of this application's.".to_owned())?,
        fixed_subject: fields.filled("subject"),
        expires_at,
        allowed_cidrs: fields
            .get("networks")
            .split([',', ' ', '\n'])
            .map(str::trim)
            .filter(|range| !range.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// `POST /applications/{id}/keys/new`: shows the key, once.
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let request = match request(app_id, &fields) {
        Ok(request) => request,
        Err(problem) => return new(&pages, &visitor, app_id, fields, Some(problem)).await,
    };
    let application = pages.handler().manage(ShowApplication { app_id }).await?.name;
    match pages.handler().manage(request).await {
        Ok(created) => Ok(shown_once(&pages, &visitor, &application, created).await),
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            new(&pages, &visitor, app_id, fields, Some(no.message)).await
        }
        Err(no) => Err(no.into()),
    }
}

#[derive(Template)]
#[template(path = "key-roll.html")]
struct RollQuestion {
    frame: Frame,
    app_id: ApplicationId,
    key: KeyRecord,
}

#[derive(Template)]
#[template(path = "key-revoke.html")]
struct RevokeQuestion {
    frame: Frame,
    app_id: ApplicationId,
    key: KeyRecord,
    problem: Option<String>,
}

type KeyPath = Path<(ApplicationId, KeyId)>;

async fn find(pages: &Pages, app_id: ApplicationId, key_id: KeyId) -> Result<KeyRecord, PageError> {
    let keys = pages.handler().manage(ListKeys { app_id }).await?;
    let missing =
        || ErrorReply { code: ErrorReplyCode::NotFound, message: "The application has no such key.".to_owned() };
    keys.into_iter().find(|key| key.key_id == key_id).ok_or_else(|| PageError(missing()))
}

/// `GET /applications/{id}/keys/{key}/roll`: the question before it.
pub(super) async fn ask_roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((app_id, key_id)): KeyPath,
) -> Result<Response, PageError> {
    let key = find(&pages, app_id, key_id).await?;
    let frame = Frame::new(&pages, &visitor, Section::Applications, "Roll this key?").await;
    Ok(super::html(StatusCode::OK, &RollQuestion { frame, app_id, key }))
}

/// `POST /applications/{id}/keys/{key}/roll`: shows the new key, once.
pub(super) async fn roll(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((app_id, key_id)): KeyPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let wrong =
        || ErrorReply { code: ErrorReplyCode::Invalid, message: "Choose until when the old key works.".to_owned() };
    let overlap_s = overlap(&fields).ok_or_else(wrong)?;
    let application = pages.handler().manage(ShowApplication { app_id }).await?.name;
    let created = pages.handler().manage(RollKey { key_id, overlap_s }).await?;
    Ok(shown_once(&pages, &visitor, &application, created).await)
}

/// For how many seconds the old key or secret stays valid beside the new one.
pub(super) fn overlap(fields: &FormFields) -> Option<u32> {
    match fields.get("overlap") {
        "now" => Some(0),
        "hour" => Some(3600),
        "day" => Some(24 * 3600),
        "week" => Some(7 * 24 * 3600),
        _ => None,
    }
}

/// `GET /applications/{id}/keys/{key}/revoke`: the question before it.
pub(super) async fn ask_revoke(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((app_id, key_id)): KeyPath,
) -> Result<Response, PageError> {
    let key = find(&pages, app_id, key_id).await?;
    let frame = Frame::new(&pages, &visitor, Section::Applications, "Revoke this key?").await;
    Ok(super::html(StatusCode::OK, &RevokeQuestion { frame, app_id, key, problem: None }))
}

/// `POST /applications/{id}/keys/{key}/revoke`: requires the key's last characters, because it cannot be undone.
pub(super) async fn revoke(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path((app_id, key_id)): KeyPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let key = find(&pages, app_id, key_id).await?;
    if fields.get("last4").trim() != key.last4 {
        let problem = Some(format!("Type {}, the end of the key, to confirm. Nothing was changed.", key.last4));
        let frame = Frame::new(&pages, &visitor, Section::Applications, "Revoke this key?").await;
        return Ok(super::html(StatusCode::UNPROCESSABLE_ENTITY, &RevokeQuestion { frame, app_id, key, problem }));
    }
    pages.handler().manage(RevokeKey { key_id }).await?;
    Ok(Redirect::to(&format!("/applications/{app_id}")).into_response())
}
