//! The page of model providers: kind, address, and whether a key is saved. Keys are never shown.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::Provider;
use deskgate_protocol::secret::SecretKind;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::removal::RemovalQuestion;
use super::{PageError, Pages};
use crate::local::{
    ErrorReply, ErrorReplyCode, GetSettings, ListProviders, ListServices, NewKey, ProviderConfig, ProviderKind,
    RemoveProvider, SetProvider,
};

/// The kinds with their names.
const PROVIDER_KINDS: [(ProviderKind, &str, &str); 2] = [
    (ProviderKind::Anthropic, "anthropic", "Anthropic's Messages API"),
    (ProviderKind::Openai, "openai", "OpenAI's Chat Completions API, which most other servers speak too"),
];

fn name_of(kind: ProviderKind) -> &'static str {
    PROVIDER_KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(_, name, _)| name)
}

#[derive(Template)]
#[template(path = "providers.html")]
struct ProvidersPage {
    frame: Frame,
    providers: Vec<ProviderConfig>,
}

impl ProvidersPage {
    fn kind(&self, provider: &ProviderConfig) -> &'static str {
        name_of(provider.kind)
    }

    fn key(&self, provider: &ProviderConfig) -> String {
        provider.key_place.map_or("none".to_owned(), |place| format!("saved {}", place.words()))
    }
}

/// `GET /providers`
pub(super) async fn list(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let frame = Frame::new(&pages, &visitor, Section::Applications, "Model providers").await;
    let providers = pages.handler().request(ListProviders {}).await?;
    Ok(super::html(StatusCode::OK, &ProvidersPage { frame, providers }))
}

#[derive(Template)]
#[template(path = "provider.html")]
struct ProviderPage {
    frame: Frame,
    /// `None` for a new one.
    saved: Option<ProviderConfig>,
    fields: FormFields,
    problem: Option<FormProblem>,
}

/// An error, and the control it leads to.
struct FormProblem {
    place: &'static str,
    message: String,
}

impl ProviderPage {
    /// Whether an API is the chosen one.
    fn is_kind(&self, name: &str) -> bool {
        self.fields.get("kind") == name
    }

    /// Whether this control has an error.
    fn wrong(&self, place: &str) -> bool {
        self.problem.as_ref().is_some_and(|problem| problem.place == place)
    }
}

async fn form(
    pages: &Pages,
    visitor: &Visitor,
    saved: Option<ProviderConfig>,
    fields: FormFields,
    problem: Option<FormProblem>,
) -> Response {
    let title = saved.as_ref().map_or_else(|| "New provider".to_owned(), |saved| format!("Provider {}", saved.name));
    let frame = Frame::new(pages, visitor, Section::Applications, title).await;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    super::html(status, &ProviderPage { frame, saved, fields, problem })
}

async fn find(pages: &Pages, name: &str) -> Result<ProviderConfig, PageError> {
    let missing = || ErrorReply {
        code: ErrorReplyCode::NotFound,
        message: format!("There is no provider {name:?} on this computer."),
    };
    let providers = pages.handler().request(ListProviders {}).await?;
    providers.into_iter().find(|provider| provider.name == name).ok_or_else(|| PageError(missing()))
}

/// `GET /providers/new`
pub(super) async fn ask_new(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let place = pages.handler().request(GetSettings {}).await?.key_place;
    let fields = FormFields(vec![("key_place".to_owned(), place.as_str().to_owned())]);
    Ok(form(&pages, &visitor, None, fields, None).await)
}

/// `GET /providers/{name}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let saved = find(&pages, &name).await?;
    let place = match saved.key_place {
        Some(place) => place,
        None => pages.handler().request(GetSettings {}).await?.key_place,
    };
    let pairs = [
        ("kind", name_of(saved.kind)),
        ("base_url", &saved.base_url),
        ("key_is", "keep"),
        ("key_place", place.as_str()),
    ];
    let fields = FormFields(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    Ok(form(&pages, &visitor, Some(saved), fields, None).await)
}

/// `POST /providers/new`
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    fields: FormFields,
) -> Result<Response, PageError> {
    let name = fields.get("name").trim().to_owned();
    let known = pages.handler().request(ListProviders {}).await?;
    if known.iter().any(|provider| provider.name == name) {
        let problem = FormProblem { place: "name", message: format!("there is a provider {name} already") };
        return Ok(refuse(&pages, &visitor, None, fields, problem).await);
    }
    set(&pages, &visitor, None, name, fields).await
}

/// `POST /providers/{name}`
pub(super) async fn change(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let saved = find(&pages, &name).await?;
    set(&pages, &visitor, Some(saved), name, fields).await
}

async fn set(
    pages: &Pages,
    visitor: &Visitor,
    saved: Option<ProviderConfig>,
    name: String,
    fields: FormFields,
) -> Result<Response, PageError> {
    let request = match request(name, &fields) {
        Ok(request) => request,
        Err(problem) => return Ok(refuse(pages, visitor, saved, fields, problem).await),
    };
    match pages.handler().request(request).await {
        Ok(_) => Ok(Redirect::to("/providers").into_response()),
        Err(no) if matches!(no.code, ErrorReplyCode::Invalid | ErrorReplyCode::Refused) => {
            let problem = FormProblem { place: place_of(&no.message), message: no.message };
            Ok(refuse(pages, visitor, saved, fields, problem).await)
        }
        Err(no) => Err(no.into()),
    }
}

/// The form again, with the submitted values except the key and other possible secrets.
async fn refuse(
    pages: &Pages,
    visitor: &Visitor,
    saved: Option<ProviderConfig>,
    mut fields: FormFields,
    problem: FormProblem,
) -> Response {
    fields.0.retain(|(name, value)| name != "key" && SecretKind::of(value.trim()).is_none());
    form(pages, visitor, saved, fields, Some(problem)).await
}

/// The control that an agent's error is about.
fn place_of(message: &str) -> &'static str {
    match message {
        _ if message.starts_with("the API base URL") => "base_url",
        _ if message.contains("keyring") => "key_place",
        _ if message.starts_with("a provider's name") => "name",
        _ => "key",
    }
}

fn request(name: String, fields: &FormFields) -> Result<SetProvider, FormProblem> {
    for place in ["name", "base_url"] {
        if let Some(kind) = SecretKind::of(fields.get(place).trim()) {
            let message = format!("this is {kind}, which does not belong here. It was taken out of the field");
            return Err(FormProblem { place, message });
        }
    }
    let kind = PROVIDER_KINDS.into_iter().find(|(_, name, _)| *name == fields.get("kind")).map(|(kind, ..)| kind);
    let kind = kind.ok_or_else(|| FormProblem { place: "kind", message: "choose which API it speaks".to_owned() })?;
    let key = match fields.filled("key") {
        Some(text) => match SecretKind::of(&text).filter(|kind| *kind != SecretKind::ModelProviderKey) {
            Some(other) => {
                let message = format!("this is {other}, not a model provider's key");
                return Err(FormProblem { place: "key", message });
            }
            None => NewKey::Replace(text),
        },
        None if fields.get("key_is") == "none" => NewKey::Forget,
        None => NewKey::Keep,
    };
    let key_place = fields.get("key_place").parse().ok();
    Ok(SetProvider { name, kind: Some(kind), base_url: fields.filled("base_url"), key, key_place })
}

/// `GET /providers/{name}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let name = find(&pages, &name).await?.name;
    let provider = Provider::Account(name.clone());
    let mut services = pages.handler().request(ListServices {}).await?;
    services.retain(|service| {
        let published = service.published.as_ref().map(|version| &version.definition);
        [Some(&service.draft), published].into_iter().flatten().any(|definition| definition.provider == provider)
    });
    let services = services.into_iter().map(|service| service.draft.name).collect();
    Ok(RemovalQuestion::ask(&pages, &visitor, ("provider", "/providers"), name, services).await)
}

/// `POST /providers/{name}/remove`
pub(super) async fn remove(State(pages): State<Pages>, Path(name): Path<String>) -> Result<Redirect, PageError> {
    pages.handler().request(RemoveProvider { name }).await?;
    Ok(Redirect::to("/providers"))
}
