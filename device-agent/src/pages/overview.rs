//! The overview: a request's path, what waits for the owner, and the newest runs.

use std::collections::{BTreeMap, HashMap};

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_definition::Service;
use deskgate_program::visible;
use deskgate_protocol::ids::{ApplicationId, DraftId, EndpointId, RunId};
use deskgate_protocol::management::{
    Application, ApplicationState, Day, DurationStats, GetOverview, ListApplications, ListRuns, ListedRun,
    MESSAGE_TEXT_CHARS, Overview as Numbers,
};
use deskgate_protocol::run::{Phase, Run, RunState};
use serde::Deserialize;

use super::approvals::ApprovalCard;
use super::auth::Visitor;
use super::budget_bar::BudgetBar;
use super::frame::{Frame, Section};
use super::hops::{self, Hop};
use super::labels::{self, CountLabel, DurationText, RunStateLabel, Shape, SpanLabel, TimeLabel};
use super::plot::Plot;
use super::tiles::Tile;
use super::{PageError, Pages, markdown};
use crate::local::{
    BudgetScope, ListApprovals, ListQueueReasons, ListServices, ListStandings, MonthSpending, QueueReason,
    ServiceStanding, ShowSpending, ShownFile,
};

/// Characters of an input that name its run.
const MAX_NAME_CHARS: usize = 90;
/// Characters of an identifier that people see in lists.
pub(super) const SHORT_ID_CHARS: usize = 4;
/// How many runs are shown.
const RUNS_SHOWN: u32 = 8;
/// How many waiting tool calls are shown.
const REQUESTS_SHOWN: usize = 5;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    hops: Vec<Hop>,
    steps: Vec<SetupStep>,
    /// Whether nothing happened here yet: then the first steps stand alone.
    first_visit: bool,
    rows: Option<Vec<RunRow>>,
    unsettled: usize,
    /// The tool calls that wait, the first to expire first.
    requests: Vec<ApprovalCard>,
    numbers: Option<Numbers>,
    /// What models used up this month; `None`: none was called.
    spending: Option<MonthSpending>,
    /// How much of each budget is spent, with what it holds for.
    budgets: Vec<(String, BudgetBar)>,
}

impl OverviewPage {
    /// How many decisions wait for the owner.
    fn waiting(&self) -> usize {
        self.frame.approvals + self.unsettled
    }

    /// Whether a step is the first that is still open.
    fn is_next(steps: &[SetupStep], place: &usize) -> bool {
        steps.iter().position(|step| !step.done) == Some(*place)
    }

    /// The numbers that are seen first.
    fn tiles(&self, numbers: &Numbers) -> Vec<Tile> {
        Tile::all(numbers, self.spending.as_ref())
    }

    /// How runs of the last week ended.
    fn outcomes(numbers: &Numbers) -> Plot {
        let of = |count: fn(&Day) -> u32| numbers.days.iter().map(count).sum::<u32>();
        let sentence = format!(
            "Runs that ended in the last 7 days: {} succeeded, {} failed, {} cancelled, {} expired",
            of(|day| day.succeeded),
            of(|day| day.failed),
            of(|day| day.cancelled),
            of(|day| day.expired),
        );
        let column = |day: &Day| {
            vec![
                (Shape::Good, day.succeeded),
                (Shape::Bad, day.failed),
                (Shape::Over, day.cancelled),
                (Shape::Paused, day.expired),
            ]
        };
        let columns: Vec<_> = numbers.days.iter().map(column).collect();
        Plot::new(sentence, &columns)
    }

    /// How long runs of the last week took, day by day: the lower part is the median, the whole the 95th percentile.
    fn times(numbers: &Numbers) -> Plot {
        let of = |took: &DurationStats| format!(": {}", Self::took(took).trim_end_matches('.'));
        let sentence = format!(
            "Run time on each of the last 7 days{}",
            numbers.took.as_ref().map(of).unwrap_or_else(|| ": no run".to_owned())
        );
        let part = |ms: u64| u32::try_from(ms).unwrap_or(u32::MAX);
        let column = |day: &Day| {
            day.took.as_ref().map_or(Vec::new(), |took| {
                let (half, most) = (part(took.p50_ms).max(1), part(took.p95_ms));
                vec![(Shape::Waiting, half), (Shape::Over, most.saturating_sub(half))]
            })
        };
        Plot::new(sentence, &numbers.days.iter().map(column).collect::<Vec<_>>())
    }

    fn took(took: &DurationStats) -> String {
        let (half, most) = (SpanLabel(took.p50_ms), SpanLabel(took.p95_ms));
        format!("Median {half}, p95 {most}.")
    }

    /// How many health problems are open, if known.
    fn problems(&self) -> Option<u32> {
        self.frame.status.as_ref().map(|status| u32::try_from(status.problems.len()).unwrap_or(u32::MAX))
    }

    fn calls_today(numbers: &Numbers) -> u32 {
        numbers.hours.iter().map(|hour| hour.accepted).sum()
    }
}

/// One step to the first success.
struct SetupStep {
    text: &'static str,
    done: bool,
    command: &'static str,
    /// The button to its page, as soon as there is one.
    button: Option<(&'static str, String)>,
}

/// A run in the table.
pub(super) struct RunRow {
    pub(super) run: Run,
    asked: Option<String>,
    answered: Option<String>,
    pub(super) state: RunStateLabel,
    pub(super) service: String,
    pub(super) application: String,
    /// What it waits for on this computer.
    pub(super) waits_for: Option<QueueReason>,
}

impl RunRow {
    /// Whether it has its outcome.
    pub(super) fn ended(&self) -> bool {
        self.run.phase == Phase::Final
    }

    /// What was asked, whole.
    pub(super) fn input(&self) -> Option<&str> {
        self.run.input.as_ref().map(|input| input.text.as_str())
    }

    /// The members of its input beside text and files, as JSON.
    pub(super) fn input_details(&self) -> Option<String> {
        let mut more = self.run.input.as_ref()?.more.clone();
        if !self.given().is_empty() {
            more.remove("files");
        }
        (!more.is_empty()).then(|| format!("{:#}", serde_json::Value::Object(more)))
    }

    /// The answer, as HTML. What was said beside data stands among the messages.
    pub(super) fn result(&self) -> Option<String> {
        let result = self.run.result.as_ref().filter(|result| result.data.is_none())?;
        Some(markdown::html(&result.text))
    }

    /// The answer's data, as JSON.
    pub(super) fn data(&self) -> Option<String> {
        let data = self.run.result.as_ref()?.data.as_ref()?;
        Some(format!("{data:#}"))
    }

    /// The files that it was given.
    pub(super) fn given(&self) -> Vec<ShownFile> {
        ShownFile::given(&self.run)
    }

    /// The files that it handed out.
    pub(super) fn handed_out(&self) -> Vec<ShownFile> {
        ShownFile::handed_out(&self.run)
    }

    /// What its caller is told about its failure.
    pub(super) fn error(&self) -> Option<&str> {
        self.run.error.as_ref().map(|error| error.message.as_str())
    }

    /// The runs that it waits for, if they are of its own service.
    pub(super) fn ahead(&self) -> &[RunId] {
        match &self.waits_for {
            Some(QueueReason::Service { ahead, .. }) => ahead,
            _ => &[],
        }
    }

    /// What a list calls it: the first words of its input.
    pub(super) fn name(&self) -> String {
        match self.asked.as_deref().filter(|text| !text.trim().is_empty()) {
            Some(text) => visible::first_words(text, MAX_NAME_CHARS),
            None if self.run.content_deleted_at.is_some() => "Deleted by its caller".to_owned(),
            None => "Run without a text".to_owned(),
        }
    }

    /// The identifier for people: its end.
    pub(super) fn short_id(&self) -> String {
        let id = self.run.run_id.to_string();
        id[id.len().saturating_sub(SHORT_ID_CHARS)..].to_owned()
    }

    /// As a message of a conversation: how what was asked begins.
    pub(super) fn asked(&self) -> Option<String> {
        self.asked.as_deref().map(beginning)
    }

    /// The same of the answer.
    pub(super) fn answered(&self) -> Option<String> {
        self.answered.as_deref().map(beginning)
    }

    /// The day on which it was accepted.
    pub(super) fn day(&self) -> String {
        labels::day(self.run.created_at)
    }

    /// Whether another one was accepted on the same day.
    pub(super) fn is_of_the_same_day(&self, other: &Self) -> bool {
        self.day() == other.day()
    }

    /// How long it took, or has taken so far.
    pub(super) fn took(&self) -> Option<DurationText> {
        let end = self.run.finished_at.unwrap_or_else(deskgate_protocol::Timestamp::now);
        Some(DurationText(end.0.as_second() - self.run.started_at?.0.as_second()))
    }
}

/// A text of which a list has the beginning, as it is shown.
fn beginning(text: &str) -> String {
    let left_out = text.chars().count() >= MESSAGE_TEXT_CHARS;
    visible::text(text) + if left_out { "…" } else { "" }
}

/// The names of applications and services, for the identifiers in runs.
#[derive(Default)]
pub(super) struct Names {
    services: HashMap<EndpointId, (String, ApplicationId)>,
    drafts: HashMap<EndpointId, DraftId>,
    /// Those of removed services, of which runs are left.
    removed: HashMap<EndpointId, (String, ApplicationId)>,
    applications: HashMap<ApplicationId, String>,
    /// What the next run of a service waits for here.
    queueing: BTreeMap<EndpointId, QueueReason>,
}

impl Names {
    /// The current names; those that cannot be queried are missing.
    pub(super) async fn new(pages: &Pages) -> Self {
        let removed = pages.handler().store.services();
        let (services, removed, applications, queueing) = tokio::join!(
            pages.handler().request(ListServices {}),
            removed.removed(),
            pages.handler().glance(ListApplications {}),
            pages.handler().request(ListQueueReasons {}),
        );
        let removed = removed.unwrap_or_default().into_iter();
        let removed = removed.map(|(endpoint_id, name, app_id)| (endpoint_id, (format!("{name} (removed)"), app_id)));
        Self {
            removed: removed.collect(),
            queueing: queueing.unwrap_or_default(),
            ..Self::of(&services.unwrap_or_default(), &applications.unwrap_or_default())
        }
    }

    /// The names of these.
    pub(super) fn of(services: &[Service], applications: &[Application]) -> Self {
        let named = |service: &Service| Some((service.endpoint_id?, (service.draft.name.clone(), service.app_id)));
        Self {
            queueing: BTreeMap::new(),
            services: services.iter().filter_map(named).collect(),
            drafts: services.iter().filter_map(|service| Some((service.endpoint_id?, service.draft_id))).collect(),
            removed: HashMap::new(),
            applications: applications.iter().map(|app| (app.app_id, app.name.clone())).collect(),
        }
    }

    /// Every application, by name.
    pub(super) fn applications(&self) -> Vec<(ApplicationId, &str)> {
        let mut all: Vec<_> = self.applications.iter().map(|(app_id, name)| (*app_id, name.as_str())).collect();
        all.sort_by_key(|(_, name)| *name);
        all
    }

    /// Every service that can be called, by name.
    pub(super) fn services(&self) -> Vec<(EndpointId, &str)> {
        let mut all: Vec<_> = self.services.iter().map(|(endpoint, (name, _))| (*endpoint, name.as_str())).collect();
        all.sort_by_key(|(_, name)| *name);
        all
    }

    /// The name of an application.
    pub(super) fn application(&self, app_id: ApplicationId) -> String {
        self.applications.get(&app_id).cloned().unwrap_or_else(|| app_id.to_string())
    }

    /// The page of a service, if it is still here.
    pub(super) fn service_page(&self, endpoint_id: EndpointId) -> Option<String> {
        self.drafts.get(&endpoint_id).map(|draft_id| format!("/services/{draft_id}"))
    }

    /// The name of what a budget holds for.
    pub(super) fn of_scope(&self, scope: BudgetScope) -> String {
        match scope {
            BudgetScope::Device => "All services".to_owned(),
            BudgetScope::Application(app_id) => self.application(app_id),
            BudgetScope::Service(endpoint_id) => {
                let service = self.services.get(&endpoint_id).or_else(|| self.removed.get(&endpoint_id));
                service.map_or_else(|| endpoint_id.to_string(), |(name, _)| name.clone())
            }
        }
    }

    /// The same within a sentence.
    pub(super) fn whose(&self, scope: BudgetScope) -> String {
        let name = visible::line(&self.of_scope(scope));
        match scope {
            BudgetScope::Device => "all services".to_owned(),
            BudgetScope::Application(_) => format!("the application {name}"),
            BudgetScope::Service(_) => format!("the service {name}"),
        }
    }

    /// A whole run with its names.
    pub(super) fn row(&self, run: Run) -> RunRow {
        let asked = run.input.as_ref().map(|input| input.text.clone());
        self.listed(ListedRun { run, asked, answered: None })
    }

    /// A run of a list with its names.
    pub(super) fn listed(&self, listed: ListedRun) -> RunRow {
        let ListedRun { run, asked, answered } = listed;
        let (service, application) =
            match self.services.get(&run.endpoint_id).or_else(|| self.removed.get(&run.endpoint_id)) {
                Some((service, app_id)) => (service.clone(), self.application(*app_id)),
                None => (run.endpoint_id.to_string(), String::new()),
            };
        let queued = run.state == RunState::Queued;
        let waits_for = self.queueing.get(&run.endpoint_id).filter(|_| queued).cloned();
        RunRow { state: RunStateLabel::of(&run), asked, answered, service, application, waits_for, run }
    }
}

/// The query of the page.
#[derive(Debug, Default, Deserialize)]
pub(super) struct OverviewQuery {
    /// Whether to show the first steps although they are done.
    #[serde(default)]
    steps: bool,
}

/// `GET /`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(place): Query<OverviewQuery>,
) -> Result<Response, PageError> {
    let handler = pages.handler();
    let (frame, names, services, listed, applications, numbers, spending, waiting) = tokio::join!(
        Frame::new(&pages, &visitor, Section::Overview, "Overview"),
        Names::new(&pages),
        handler.request(ListServices {}),
        handler.glance(ListRuns { limit: RUNS_SHOWN, ..ListRuns::default() }),
        handler.glance(ListApplications {}),
        handler.glance(GetOverview {}),
        handler.request(ShowSpending { month: None }),
        handler.request(ListApprovals { all: false, run_id: None }),
    );
    let requests = waiting.unwrap_or_default().into_iter().take(REQUESTS_SHOWN);
    let requests = requests.map(|view| ApprovalCard::new(view, &names)).collect();
    let spending = spending.ok().filter(|month| !month.services.is_empty() || !month.budgets.is_empty());
    let budgets = spending.iter().flat_map(|month| &month.budgets);
    let budgets = budgets.map(|status| (names.whose(status.scope), BudgetBar::of(status))).collect();
    let services = services.unwrap_or_default();
    let rows: Option<Vec<_>> = listed.ok().map(|page| page.runs.into_iter().map(|run| names.listed(run)).collect());
    let any_run = rows.as_ref().is_some_and(|rows| !rows.is_empty());
    // Without the gateway it is unknown which steps are done. What nobody can call any more is none.
    let standings = handler.request(ListStandings {}).await.unwrap_or_default();
    let standing = |service: &Service| standings.get(&service.draft_id).copied();
    let mut current = services.clone();
    current.retain(|service| !standing(service).is_some_and(ServiceStanding::is_out_of_reach));
    let published = current
        .iter()
        .find(|service| service.published.is_some() && !standing(service).is_some_and(ServiceStanding::has_ended));
    let mut steps =
        applications.map(|applications| steps(&applications, &current, published, any_run)).unwrap_or_default();
    if !place.steps && steps.iter().all(|step| step.done) {
        steps.clear();
    }
    let hops = hops::of(&frame, &services);
    let unsettled = frame.unsettled();
    let first_visit = !steps.is_empty() && !any_run && frame.approvals + unsettled == 0 && !place.steps;
    let numbers = numbers.ok();
    Ok(super::html(
        StatusCode::OK,
        &OverviewPage { frame, hops, steps, first_visit, rows, unsettled, requests, numbers, spending, budgets },
    ))
}

/// The first steps, until all are done. Each open step that can be done leads to its page.
fn steps(
    applications: &[Application],
    services: &[Service],
    published: Option<&Service>,
    any_run: bool,
) -> Vec<SetupStep> {
    let active = applications.iter().find(|app| app.state == ApplicationState::Active);
    vec![
        SetupStep {
            text: "Name an application and store its key",
            done: active.is_some(),
            command: "deskgate app create Billing",
            button: Some(("New application", "/applications/new".to_owned())),
        },
        SetupStep {
            text: "Describe a service",
            done: !services.is_empty(),
            command: "deskgate service create \"Summarise\" --app Billing --dir ~/project",
            button: active.map(|app| ("New service", format!("/applications/{}/services/new", app.app_id))),
        },
        SetupStep {
            text: "Check and publish it",
            done: published.is_some(),
            command: "deskgate service check \"Summarise\" && deskgate service publish \"Summarise\"",
            button: services.first().map(|service| ("Check and publish", format!("/services/{}", service.draft_id))),
        },
        SetupStep {
            text: "Enable access and send a test run",
            done: any_run,
            command: "deskgate access enable && deskgate service try \"Summarise\" --input \"What is in the folder?\"",
            button: published.map(|service| ("Try it", format!("/services/{}#try", service.draft_id))),
        },
    ]
}
