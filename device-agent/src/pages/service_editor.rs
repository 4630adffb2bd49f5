//! The editor of a service: its form, its checks, and a run that it is tried with.

use std::path::{Path as FolderPath, PathBuf};

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_definition::{
    Check, CheckResult, Effort, FieldError, PROTECTED_NAMES, Service, ServiceStage, ServiceTemplate, ToolName, Version,
};
use deskgate_protocol::ids::{ApplicationId, RunId};
use deskgate_protocol::management::{Application, ShowApplication};

use super::auth::Visitor;
use super::availability::{self, Availability};
use super::fields::FormFields;
use super::folder_picker::{self, PickerStep};
use super::form_errors::FieldAttributes;
use super::frame::{Frame, Section};
use super::labels::{CountLabel, Shape, TimeLabel};
use super::model_choice::ModelChoice;
use super::service_form::{self, AskingChoice, TIME_UNITS};
use super::stages::{self, StageStep};
use super::trial::{self, Trial};
use super::versions::FieldChange;
use super::{PageError, Pages, service_gallery, service_life};
use crate::local::{
    ConfiguredServer, ListMcpServers, ListProviders, ListStandings, ListVersions, LookAtFolder, ProviderConfig,
    ServiceStanding, ShowToolName,
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
    /// Its name as a tool of MCP, as the gateway has it.
    tool_name: Option<String>,
    /// The folder in the form's field; absent while it is empty.
    folder: Option<Folder>,
    /// Its running check.
    checking: Option<RunningCheck>,
    fields: FormFields,
    wrong: Vec<FieldError>,
    /// The problem of the last step.
    problem: Option<String>,
    /// Why nothing was tried.
    untried: Option<String>,
    /// The run that it is tried with.
    trial: Option<Trial>,
    /// Its newest versions.
    versions: Vec<Version>,
    /// What its provider lists; absent until somebody asks.
    models: Option<ModelChoice>,
    /// The draft that the form is about, if it is another than the saved one.
    was: Option<String>,
    providers: Vec<ProviderConfig>,
    servers: Vec<ConfiguredServer>,
}

/// How many versions stand below the form; the page of the comparison has more.
const MAX_VERSIONS: usize = 5;

/// The tools with descriptions, for their check boxes.
const TOOL_DESCRIPTIONS: [(ToolName, &str); 5] = [
    (ToolName::Read, "reads text files"),
    (ToolName::Grep, "searches their contents"),
    (ToolName::Glob, "finds files by name"),
    (ToolName::Edit, "replaces text in files"),
    (ToolName::Write, "creates and replaces files"),
];

/// The fields of a definition in page order, with each error's control, and their names for people.
const FIELD_ANCHORS: [(&str, &str, &str); 14] = [
    ("name", "name", "Name"),
    ("working_directory", "working_directory", "Folder"),
    ("provider", "provider", "Provider"),
    ("model", "model", "Model"),
    ("instructions", "instructions", "Task"),
    ("tools", "tools", "What it may do"),
    ("network", "network", "Network of commands"),
    ("mcp", "mcp", "MCP servers"),
    ("freely_in", "freely_in", "Folder in which nothing asks"),
    ("approvals", "rules", "Approvals"),
    ("description", "description", "Description"),
    ("protected", "protected", "Protected files"),
    ("skills", "skills", "Skills"),
    ("limits", "max_turns", "Limits"),
];

impl ServicePage {
    /// The names that are protected without being named.
    fn always_protected(&self) -> String {
        PROTECTED_NAMES.join(", ")
    }

    fn step(&self) -> String {
        step(self.service.as_ref(), self.app.app_id)
    }

    /// The accessibility attributes of a control.
    fn marks(&self, field: &'static str) -> FieldAttributes {
        FieldAttributes { field, wrong: self.error(field).is_some(), first: self.is_first(field) }
    }

    /// Whether a field is the first with an error, to which focus goes.
    fn is_first(&self, field: &str) -> bool {
        let mut fields = FIELD_ANCHORS.iter().map(|(field, ..)| *field);
        fields.find(|known| self.error(known).is_some()) == Some(field)
    }

    /// The draft that the form is about.
    fn was(&self, service: &Service) -> String {
        self.was.clone().unwrap_or_else(|| service.draft.digest().to_string())
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

    fn changes(&self) -> Vec<FieldChange> {
        self.service.as_ref().map(stages::changes).unwrap_or_default()
    }

    /// The version that is published; `None` while none is.
    fn published(&self) -> Option<u32> {
        self.service.as_ref()?.published.as_ref().map(|version| version.version)
    }

    /// Whether the draft itself can be tried: it was checked, and is not what is published.
    fn draft_is_triable(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.stage() == ServiceStage::Checked)
    }

    /// Whether its input has data: by its schema, or because some was written.
    fn takes_data(&self) -> bool {
        let has_schema = self.service.as_ref().is_some_and(|service| service.draft.data.input_schema.is_some());
        has_schema || !self.fields.get("data").is_empty()
    }

    /// Whether it may be given files.
    fn takes_files(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.draft.data.takes_files)
    }

    /// Whether the draft has still to be checked.
    fn draft_is_unchecked(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.stage() == ServiceStage::Draft)
    }

    /// Which changes of files ask first.
    fn asks(&self) -> AskingChoice {
        self.fields.get("asks").parse().unwrap_or(AskingChoice::Changes)
    }

    /// Whether the draft is what is tried unless another choice is made.
    fn tries_draft(&self) -> bool {
        self.draft_is_triable() && self.fields.get("of") != trial::OF_PUBLISHED
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
        ["description", "data", "protected", "skills", "limits"].into_iter().any(|field| self.error(field).is_some())
    }

    /// Whether it begins as one of the templates.
    fn template_is_known(&self) -> bool {
        self.fields.get("template").parse::<ServiceTemplate>().is_ok()
    }

    /// Whether the rules are shown without being unfolded.
    fn rules_are_open(&self) -> bool {
        self.error("approvals").is_some() || self.fields.filled("rules").is_some()
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

/// Where the form of a service goes, or that of a new one.
fn step(service: Option<&Service>, app_id: ApplicationId) -> String {
    match service {
        Some(service) => format!("/services/{}", service.draft_id),
        None => format!("/applications/{app_id}/services/new"),
    }
}

/// The content of the editor, beside what it queries itself.
pub(super) struct ServiceEditor {
    pub(super) app_id: ApplicationId,
    pub(super) service: Option<Service>,
    pub(super) fields: FormFields,
    pub(super) wrong: Vec<FieldError>,
    pub(super) problem: Option<String>,
    /// Why nothing was tried.
    pub(super) untried: Option<String>,
    /// The run that it is tried with.
    pub(super) tried: Option<RunId>,
    /// What its provider lists.
    pub(super) models: Option<ModelChoice>,
}

impl ServiceEditor {
    /// A new service.
    pub(super) fn blank(app_id: ApplicationId, fields: FormFields) -> Self {
        let (untried, tried, models) = (None, None, None);
        Self { app_id, service: None, fields, wrong: Vec::new(), problem: None, untried, tried, models }
    }

    /// A saved service.
    pub(super) fn of(service: Service) -> Self {
        let fields = service_form::fields(&service.draft);
        Self { service: Some(service.clone()), ..Self::blank(service.app_id, fields) }
    }

    /// Where its form goes.
    fn step(&self) -> String {
        step(self.service.as_ref(), self.app_id)
    }

    /// The answer to a button of the form that saves nothing: what it shows, or the form with what was written. `Err` with
    /// the editor if it was none of those.
    pub(super) async fn take(mut self, pages: &Pages, visitor: &Visitor) -> Result<Result<Response, Self>, PageError> {
        let step = folder_picker::step(&mut self.fields);
        let lists = self.fields.get("then") == "models";
        if step.is_none() && !lists {
            return Ok(Err(self));
        }
        // What looks like a secret goes nowhere, as when the form is saved.
        self.wrong = service_form::take_out_secrets(&mut self.fields);
        if let Some(PickerStep::Look(look)) = step {
            return folder_picker::show(pages, visitor, self.step(), &self.fields, look).await.map(Ok);
        }
        if lists {
            self.models = Some(ModelChoice::of(pages, self.fields.get("provider")).await);
        }
        self.show(pages, visitor).await.map(Ok)
    }

    /// The page.
    pub(super) async fn show(self, pages: &Pages, visitor: &Visitor) -> Result<Response, PageError> {
        let Self { app_id, service, fields, wrong, problem, untried, tried, models } = self;
        let title = match &service {
            Some(service) => service.draft.name.clone(),
            None => service_gallery::title(&fields),
        };
        let handler = pages.handler();
        let app = handler.manage(ShowApplication { app_id }).await;
        if let Some(service) = &service
            && let Some(ending) = service_life::ended(&app)
        {
            return Ok(service_life::show_ended(pages, visitor, service, ending).await);
        }
        let endpoint_id = service.as_ref().and_then(|service| service.endpoint_id);
        let trial = async {
            let (run_id, endpoint_id) = tried.zip(endpoint_id)?;
            Trial::of(pages, visitor, run_id, endpoint_id).await
        };
        let versions = async {
            let draft_id = service.as_ref().filter(|service| service.endpoint_id.is_some())?.draft_id;
            handler.request(ListVersions { draft_id }).await.ok()
        };
        let tool_name = async {
            let draft_id = service.as_ref().filter(|service| service.endpoint_id.is_some())?.draft_id;
            handler.request(ShowToolName { draft_id }).await.ok().flatten()
        };
        let (frame, standings, providers, servers, trial, versions, tool_name) = tokio::join!(
            Frame::new(pages, visitor, Section::Services, title),
            handler.request(ListStandings {}),
            handler.request(ListProviders {}),
            handler.request(ListMcpServers {}),
            trial,
            versions,
            tool_name,
        );
        let folder = match fields.filled("working_directory").map(PathBuf::from) {
            Some(path) => handler.request(LookAtFolder { path }).await.ok(),
            None => None,
        };
        let status = match (wrong.is_empty(), problem.is_some() || untried.is_some()) {
            (true, false) => StatusCode::OK,
            (false, _) => StatusCode::UNPROCESSABLE_ENTITY,
            (true, true) => StatusCode::CONFLICT,
        };
        let (app, providers, servers) = (app?, providers?, servers?);
        let mut versions = versions.unwrap_or_default();
        versions.truncate(MAX_VERSIONS);
        let standing =
            service.as_ref().zip(standings.ok()).and_then(|(service, all)| all.get(&service.draft_id).copied());
        let checking = service.as_ref().and_then(|service| pages.handler().checking.of(service.draft_id));
        // After a conflict the next save is about the draft that is there now.
        let was = fields.filled("was").filter(|_| problem.is_none());
        Ok(super::html(
            status,
            &ServicePage {
                frame,
                app,
                service,
                standing,
                tool_name,
                folder,
                checking,
                fields,
                wrong,
                problem,
                untried,
                trial,
                versions,
                models,
                was,
                providers,
                servers,
            },
        ))
    }
}
