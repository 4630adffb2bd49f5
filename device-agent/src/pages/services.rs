//! The service editor: a new draft, its fields, and its checks.

use std::collections::HashMap;
use std::path::{Path as FolderPath, PathBuf};

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_definition::{Check, CheckResult, Definition, Effort, FieldError, PROTECTED_NAMES, Service, ToolName};
use deskgate_protocol::ids::{ApplicationId, DraftId};
use deskgate_protocol::management::{Application, ApplicationState, ListApplications, ShowApplication};

use super::auth::Visitor;
use super::availability::{self, Availability};
use super::fields::FormFields;
use super::form_errors::FieldAttributes;
use super::frame::{Frame, Section};
use super::labels::{CountLabel, Shape, TimeLabel};
use super::live::Topic;
use super::service_form::{self, TIME_UNITS};
use super::stages::{self, Difference, StageStep};
use super::{PageError, Pages, service_life};
use crate::local::{
    CheckService, ConfiguredServer, CreateService, EditService, ListMcpServers, ListProviders, ListServices,
    ListStandings, LookAtFolder, ProviderConfig, ServiceStanding, ShowService,
};
use crate::services::{Folder, RunningCheck};

#[derive(Template)]
#[template(path = "service.html")]
struct ServicePage {
    frame: Frame,
    app: Application,
    /// `None` until it is saved for the first time.
    service: Option<Service>,
    /// What the gateway says of it.
    standing: Option<ServiceStanding>,
    /// The folder in the form's field; absent while it is empty.
    folder: Option<Folder>,
    /// Its running check.
    checking: Option<RunningCheck>,
    fields: FormFields,
    wrong: Vec<FieldError>,
    /// The problem of the last step.
    problem: Option<String>,
    providers: Vec<ProviderConfig>,
    servers: Vec<ConfiguredServer>,
}

/// The tools with descriptions, for their check boxes.
const TOOL_DESCRIPTIONS: [(ToolName, &str); 5] = [
    (ToolName::Read, "reads text files"),
    (ToolName::Grep, "searches their contents"),
    (ToolName::Glob, "finds files by name"),
    (ToolName::Edit, "replaces text in files"),
    (ToolName::Write, "creates and replaces files"),
];

/// The fields of a definition in page order, with each error's control, and their names for people.
const FIELD_ANCHORS: [(&str, &str, &str); 13] = [
    ("name", "name", "Name"),
    ("description", "description", "Description"),
    ("working_directory", "working_directory", "Folder"),
    ("provider", "provider", "Provider"),
    ("model", "model", "Model"),
    ("instructions", "instructions", "Task"),
    ("tools", "tools", "What it may do"),
    ("network", "network", "Network of commands"),
    ("approvals", "rules", "Approvals"),
    ("protected", "protected", "Protected files"),
    ("skills", "skills", "Skills"),
    ("mcp", "mcp", "MCP servers"),
    ("limits", "max_turns", "Limits"),
];

impl ServicePage {
    /// The names that are protected without being named.
    fn always_protected(&self) -> String {
        PROTECTED_NAMES.join(", ")
    }

    fn step(&self) -> String {
        match &self.service {
            Some(service) => format!("/services/{}", service.draft_id),
            None => format!("/applications/{}/services/new", self.app.app_id),
        }
    }

    /// The accessibility attributes of a control.
    fn marks(&self, field: &'static str) -> FieldAttributes {
        FieldAttributes { field, wrong: self.error(field).is_some() }
    }

    fn unpublishable(&self) -> Option<String> {
        self.service.as_ref().and_then(stages::unpublishable)
    }

    fn bar(&self) -> Vec<StageStep> {
        self.service
            .as_ref()
            .map(|service| stages::bar(service, self.standing, self.frame.access()))
            .unwrap_or_default()
    }

    fn differences(&self) -> Vec<Difference> {
        self.service.as_ref().map(stages::differences).unwrap_or_default()
    }

    /// Whether a check box or an item of a list is chosen.
    fn chosen(&self, name: &str, value: &str) -> bool {
        self.fields.all(name).any(|chosen| chosen == value)
    }

    /// A provider or server that the draft names and this computer no longer has.
    fn missing(&self, name: &'static str) -> Vec<&str> {
        let known = |value: &str| match name {
            "provider" => value == "scripted" || self.providers.iter().any(|provider| provider.name == value),
            _ => self.servers.iter().any(|server| server.name == value),
        };
        self.fields.all(name).filter(|value| !value.is_empty() && !known(value)).collect()
    }

    /// The state of the folder, as shape and words.
    fn folder(&self) -> Option<(Shape, String)> {
        let folder = self.folder.as_ref()?;
        let shape = if matches!(folder, Folder::There { .. }) { Shape::Good } else { Shape::Bad };
        Some((shape, folder.words(FolderPath::new(self.fields.get("working_directory").trim()))))
    }

    fn usable_skills(&self) -> Vec<Availability> {
        self.service.as_ref().map(availability::skills).unwrap_or_default()
    }

    fn usable_servers(&self) -> Vec<Availability> {
        self.service.as_ref().map(availability::servers).unwrap_or_default()
    }

    /// Whether the draft was changed since its checks, which are then outdated.
    fn outdated(&self) -> bool {
        let service = self.service.as_ref().filter(|_| self.checking.is_none());
        let report = service.and_then(|service| Some((service, service.checks.as_ref()?)));
        report.is_some_and(|(service, report)| report.definition_sha256 != service.draft.digest())
    }

    /// How many checks of exactly this draft failed.
    fn failures(&self) -> u32 {
        let failures = self.service.as_ref().filter(|_| self.checking.is_none()).map_or(0, stages::failures);
        u32::try_from(failures).unwrap_or(u32::MAX)
    }

    /// Whether what is folded away has an error.
    fn advanced_is_open(&self) -> bool {
        ["protected", "skills", "mcp", "limits"].into_iter().any(|field| self.error(field).is_some())
    }

    /// The result of a check, as shape and word.
    fn verdict(&self, check: &Check) -> (Shape, &'static str) {
        match check.verdict {
            CheckResult::Pass if self.outdated() => (Shape::Unknown, "was PASS"),
            CheckResult::Fail if self.outdated() => (Shape::Unknown, "was FAIL"),
            CheckResult::Pass => (Shape::Good, "PASS"),
            CheckResult::Fail => (Shape::Bad, "FAIL"),
            CheckResult::Skip => (Shape::Over, "SKIP"),
        }
    }

    /// The error of a field.
    fn error(&self, field: &str) -> Option<&str> {
        self.wrong.iter().find(|error| error.field == field).map(|error| error.message.as_str())
    }

    /// Each error with its control and the name of that.
    fn errors(&self) -> Vec<(&'static str, &'static str, &str)> {
        let place = |error: &FieldError| FIELD_ANCHORS.iter().position(|(field, ..)| *field == error.field);
        let mut errors: Vec<_> = self.wrong.iter().collect();
        errors.sort_by_key(|error| place(error));
        let shown = |error: &FieldError| {
            place(error).map_or(("name", "Service"), |at| (FIELD_ANCHORS[at].1, FIELD_ANCHORS[at].2))
        };
        errors.into_iter().map(|error| (shown(error).0, shown(error).1, error.message.as_str())).collect()
    }
}

/// The content of the editor, beside what it queries itself.
pub(super) struct ServiceEditor {
    pub(super) app_id: ApplicationId,
    pub(super) service: Option<Service>,
    pub(super) fields: FormFields,
    pub(super) wrong: Vec<FieldError>,
    pub(super) problem: Option<String>,
}

impl ServiceEditor {
    /// A saved service.
    pub(super) fn of(service: Service) -> Self {
        let fields = service_form::fields(&service.draft);
        Self { app_id: service.app_id, service: Some(service), fields, wrong: Vec::new(), problem: None }
    }

    /// The page.
    pub(super) async fn show(self, pages: &Pages, visitor: &Visitor) -> Result<Response, PageError> {
        let Self { app_id, service, fields, wrong, problem } = self;
        let title = service.as_ref().map_or_else(|| "New service".to_owned(), |service| service.draft.name.clone());
        let handler = pages.handler();
        let app = handler.manage(ShowApplication { app_id }).await;
        if let Some(service) = &service
            && let Some(ending) = service_life::ended(&app)
        {
            return Ok(service_life::show_ended(pages, visitor, service, ending).await);
        }
        let (frame, standings, providers, servers) = tokio::join!(
            Frame::new(pages, visitor, Section::Services, title),
            handler.request(ListStandings {}),
            handler.request(ListProviders {}),
            handler.request(ListMcpServers {}),
        );
        let folder = match fields.filled("working_directory").map(PathBuf::from) {
            Some(path) => handler.request(LookAtFolder { path }).await.ok(),
            None => None,
        };
        let status = match (wrong.is_empty(), &problem) {
            (true, None) => StatusCode::OK,
            (false, _) => StatusCode::UNPROCESSABLE_ENTITY,
            (true, Some(_)) => StatusCode::CONFLICT,
        };
        let (app, providers, servers) = (app?, providers?, servers?);
        let standing =
            service.as_ref().zip(standings.ok()).and_then(|(service, all)| all.get(&service.draft_id).copied());
        let checking = service.as_ref().and_then(|service| pages.handler().checking.of(service.draft_id));
        Ok(super::html(
            status,
            &ServicePage {
                frame,
                app,
                service,
                standing,
                folder,
                checking,
                fields,
                wrong,
                problem,
                providers,
                servers,
            },
        ))
    }
}

#[derive(Template)]
#[template(path = "services.html")]
struct ServicesPage {
    frame: Frame,
    groups: Vec<ServiceGroup>,
    /// Those whose application has ended, or is not known at this gateway.
    left: Vec<Service>,
    standings: HashMap<DraftId, ServiceStanding>,
}

/// The services of one application.
struct ServiceGroup {
    app_id: ApplicationId,
    application: String,
    services: Vec<Service>,
}

impl ServicesPage {
    fn standing(&self, service: &Service) -> (Shape, &'static str) {
        stages::standing(service, self.standings.get(&service.draft_id).copied(), self.frame.access())
    }
}

/// `GET /services`
pub(super) async fn list(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let handler = pages.handler();
    let (frame, services, standings, applications) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Services, "Services"),
        handler.request(ListServices {}),
        handler.request(ListStandings {}),
        handler.glance(ListApplications {}),
    );
    let services = services?;
    let of = |app_id| services.iter().filter(|service| service.app_id == app_id).cloned().collect();
    let groups: Vec<_> = match applications {
        Ok(applications) => applications
            .into_iter()
            .filter(|app| app.state == ApplicationState::Active)
            .map(|app| ServiceGroup { app_id: app.app_id, services: of(app.app_id), application: app.name })
            .collect(),
        // Without the gateway their names are not known.
        Err(_) => {
            let mut owners: Vec<_> = services.iter().map(|service| service.app_id).collect();
            owners.sort();
            owners.dedup();
            let group =
                |app_id: ApplicationId| ServiceGroup { app_id, services: of(app_id), application: app_id.to_string() };
            owners.into_iter().map(group).collect()
        }
    };
    let is_shown = |app_id| groups.iter().any(|group: &ServiceGroup| group.app_id == app_id);
    let left = services.iter().filter(|service| !is_shown(service.app_id)).cloned().collect();
    let standings = standings.unwrap_or_default();
    Ok(super::html(StatusCode::OK, &ServicesPage { frame, groups, left, standings }))
}

/// `GET /applications/{id}/services/new`
pub(super) async fn ask_new(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
) -> Result<Response, PageError> {
    let fields = service_form::fields(&Definition::blank());
    ServiceEditor { app_id, service: None, fields, wrong: Vec::new(), problem: None }.show(&pages, &visitor).await
}

/// `POST /applications/{id}/services/new`
pub(super) async fn create(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(app_id): Path<ApplicationId>,
    mut fields: FormFields,
) -> Result<Response, PageError> {
    let definition = match read(&pages, &mut fields, &Definition::blank()).await? {
        Ok(definition) => definition,
        Err(wrong) => {
            return ServiceEditor { app_id, service: None, fields, wrong, problem: None }.show(&pages, &visitor).await;
        }
    };
    // Without an application it could never be published.
    pages.handler().manage(ShowApplication { app_id }).await?;
    let service = pages.handler().request(CreateService { app_id, definition }).await?;
    saved(&pages, service.draft_id, &fields).await
}

/// `GET /services/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    ServiceEditor::of(service).show(&pages, &visitor).await
}

/// `POST /services/{id}`: saves the draft, and checks it if that was the button.
pub(super) async fn edit(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(draft_id): Path<DraftId>,
    mut fields: FormFields,
) -> Result<Response, PageError> {
    let service = pages.handler().request(ShowService { draft_id }).await?;
    let definition = match read(&pages, &mut fields, &service.draft).await? {
        Ok(definition) if fields.get("was") == service.draft.digest().to_string() => definition,
        Ok(_) => {
            let problem = "The draft was changed elsewhere after you opened it. Nothing was saved; what you wrote stands \
                           below. Save again to replace that change.";
            let problem = Some(problem.to_owned());
            return ServiceEditor { fields, problem, ..ServiceEditor::of(service) }.show(&pages, &visitor).await;
        }
        Err(wrong) => {
            return ServiceEditor { fields, wrong, ..ServiceEditor::of(service) }.show(&pages, &visitor).await;
        }
    };
    if definition != service.draft {
        pages.handler().request(EditService { draft_id, definition }).await?;
    }
    saved(&pages, draft_id, &fields).await
}

async fn read(
    pages: &Pages,
    fields: &mut FormFields,
    before: &Definition,
) -> Result<Result<Definition, Vec<FieldError>>, PageError> {
    let secrets = service_form::take_out_secrets(fields);
    if !secrets.is_empty() {
        return Ok(Err(secrets));
    }
    let servers = pages.handler().request(ListMcpServers {}).await?;
    Ok(service_form::definition(fields, before, &servers).await)
}

async fn saved(pages: &Pages, draft_id: DraftId, fields: &FormFields) -> Result<Response, PageError> {
    pages.live().changed(Topic::Status);
    if fields.get("then") == "check" {
        pages.handler().request(CheckService { draft_id, follower: None }).await?;
        return Ok(Redirect::to(&format!("/services/{draft_id}#checks")).into_response());
    }
    Ok(Redirect::to(&format!("/services/{draft_id}")).into_response())
}

/// `POST /services/{id}/check`: checks the saved draft. Returns when the checks are done.
pub(super) async fn check(State(pages): State<Pages>, Path(draft_id): Path<DraftId>) -> Result<Redirect, PageError> {
    pages.handler().request(CheckService { draft_id, follower: None }).await?;
    pages.live().changed(Topic::Status);
    Ok(Redirect::to(&format!("/services/{draft_id}#checks")))
}
