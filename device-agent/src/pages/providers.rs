//! The pages of model providers: vendor, address, and whether a key is saved. Keys are never shown.

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
    Api, ErrorReply, ErrorReplyCode, GetSettings, ListModels, ListProviders, ListServices, ListedModel, Need, NewKey,
    Profile, ProviderConfig, RemoveProvider, SetProvider, travels_openly,
};

#[derive(Template)]
#[template(path = "providers.html")]
struct ProvidersPage {
    frame: Frame,
    providers: Vec<ProviderConfig>,
}

impl ProvidersPage {
    fn title(&self, provider: &ProviderConfig) -> String {
        Profile::named(&provider.profile).map_or_else(|| provider.profile.clone(), |profile| profile.title.clone())
    }

    fn is_open(&self, provider: &ProviderConfig) -> bool {
        travels_openly(&provider.base_url)
    }

    fn key(&self, provider: &ProviderConfig) -> String {
        provider.key_place.map_or("none".to_owned(), |place| format!("saved {}", place.words()))
    }
}

/// `GET /providers`
pub(super) async fn list(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let frame = Frame::new(&pages, &visitor, Section::Settings, "Model providers").await;
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
    fn profiles(&self) -> &'static [Profile] {
        Profile::all()
    }

    /// Whether this is the chosen value of a field.
    fn chosen(&self, field: &str, value: &str) -> bool {
        self.fields.get(field) == value
    }

    /// Whether any profile names a version of its API.
    fn names_version(&self, profile: &Profile) -> bool {
        profile.api_version != Need::None
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
    let frame = Frame::new(pages, visitor, Section::Settings, title).await;
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
    let is_default = Profile::named(&saved.profile).is_some_and(|profile| profile.apis.first() == Some(&saved.api));
    let pairs = [
        ("profile", saved.profile.as_str()),
        ("api", if is_default { "" } else { saved.api.as_str() }),
        ("base_url", &saved.base_url),
        ("api_version", saved.api_version.as_deref().unwrap_or_default()),
        ("plain_http", if saved.plain_http { "yes" } else { "" }),
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
    let request = match request(name, &fields, saved.as_ref()) {
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
        _ if message.contains("API base URL") => "base_url",
        _ if message.contains("version of the API") => "api_version",
        _ if message.contains("is not asked in this format") => "api",
        _ if message.contains("keyring") => "key_place",
        _ if message.starts_with("a provider's name") => "name",
        _ => "key",
    }
}

fn request(name: String, fields: &FormFields, saved: Option<&ProviderConfig>) -> Result<SetProvider, FormProblem> {
    for place in ["name", "base_url", "api_version"] {
        if let Some(kind) = SecretKind::of(fields.get(place).trim()) {
            let message = format!("this is {kind}, which does not belong here. It was taken out of the field");
            return Err(FormProblem { place, message });
        }
    }
    let missing = || FormProblem { place: "profile", message: "choose whose models they are".to_owned() };
    let profile = Profile::named(fields.get("profile")).ok_or_else(missing)?;
    // The fields of a form are all there: an empty one means the profile's own value. What still stands there from another
    // vendor means nothing for this one.
    let other = saved.filter(|saved| saved.profile != profile.name);
    let typed = |field: &str, before: Option<&str>| fields.filled(field).filter(|text| before != Some(text.as_str()));
    let base_url = typed("base_url", other.filter(|_| profile.base_url.is_some()).map(|saved| saved.base_url.as_str()));
    let api_version = typed("api_version", other.and_then(|saved| saved.api_version.as_deref()));
    let api = fields.get("api").parse().ok().filter(|api| other.is_none() || profile.apis.contains(api));
    let api = api.unwrap_or(profile.apis[0]);
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
    Ok(SetProvider {
        name,
        profile: Some(profile.name.to_owned()),
        api: Some(api),
        base_url: base_url.or_else(|| profile.base_url.clone()),
        api_version: Some(api_version.unwrap_or_default()),
        plain_http: Some(fields.get("plain_http") == "yes"),
        key,
        key_place,
    })
}

#[derive(Template)]
#[template(path = "provider-models.html")]
struct ModelsPage {
    frame: Frame,
    models: Vec<ListedModel>,
    problem: Option<String>,
}

impl ModelsPage {
    fn count(&self, count: &Option<u64>) -> String {
        count.map_or_else(String::new, |count| count.to_string())
    }

    fn price(&self, model: &ListedModel) -> String {
        model.usd_per_million_tokens.map_or_else(String::new, |(read, written)| format!("{read} / {written}"))
    }
}

/// `GET /providers/{name}/models`: what its key can use. A provider that does not list them says why.
pub(super) async fn models(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let provider = find(&pages, &name).await?.name;
    let frame = Frame::new(&pages, &visitor, Section::Settings, format!("Models of {provider}")).await;
    let (models, problem) = match pages.handler().request(ListModels { name: provider.clone() }).await {
        Ok(models) => (models, None),
        Err(no) => (Vec::new(), Some(no.message)),
    };
    Ok(super::html(StatusCode::OK, &ModelsPage { frame, models, problem }))
}

/// `GET /providers/{name}/remove`: the question before it.
pub(super) async fn ask_remove(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PageError> {
    let name = find(&pages, &name).await?.name;
    let provider = Provider::Account(name.clone());
    let services = pages.handler().request(ListServices {}).await?.into_iter();
    let services = services.filter(|service| service.uses(&provider)).map(|service| service.draft.name).collect();
    Ok(RemovalQuestion::ask(&pages, &visitor, ("provider", "/providers"), name, services).await)
}

/// `POST /providers/{name}/remove`
pub(super) async fn remove(State(pages): State<Pages>, Path(name): Path<String>) -> Result<Redirect, PageError> {
    pages.handler().request(RemoveProvider { name }).await?;
    Ok(Redirect::to("/providers"))
}
