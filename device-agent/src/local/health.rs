//! Health checks: every few seconds, and on request.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use deskgate_assistant::providers::Providers;
use deskgate_definition::{Provider, Service, ToolName};
use deskgate_protocol::Timestamp;
use deskgate_protocol::management::{GetAccess, ListApplications, ListCallbacks, ListEndpoints, ListRuns};
use deskgate_protocol::run::RunState;
use deskgate_store::spending::this_month;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::account::in_force;
use super::error_reply::failed;
use super::handler::RequestHandler;
use super::health_memory::{HealthCache, is_about};
use super::optional_watch::changed;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;
use crate::config::Home;
use crate::health::bundle::{Bundle, of_disk};
use crate::health::services::KnownProviders;
use crate::health::{
    Finding, HealthReport, IgnoredProblem, IgnoredProblems, ProblemCode, account, budgets, computer, line, log,
    services, work,
};
use crate::link::LinkStatus;

/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The largest age of the gateway's data in periodic checks.
const GATEWAY_MAX_AGE: Duration = Duration::from_secs(60);
/// The largest age of a sandbox test.
const SANDBOX_MAX_AGE: Duration = Duration::from_secs(600);
/// How many ended runs are checked.
const MAX_RUNS_CHECKED: u32 = 50;
/// At most this many lines of the log are shown.
const MAX_LOG_LINES: u32 = 2000;

/// Gets the health report.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GetHealth {
    /// Whether to test sandboxes and models too, which takes seconds and costs a few tokens.
    pub all: bool,
}

impl TypedRequest for GetHealth {
    type Response = HealthReport;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<HealthReport, ErrorReply> {
        handler.health(self).await
    }
}

/// Sets whether the owner ignores a problem.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IgnoreProblem {
    /// The kind of problem.
    pub code: ProblemCode,
    /// Whether to ignore it, and for how long.
    pub ignore: IgnoreDuration,
}

impl TypedRequest for IgnoreProblem {
    type Response = HealthReport;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<HealthReport, ErrorReply> {
        handler.ignore(self).await
    }
}

/// How long a problem is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoreDuration {
    /// It is shown again.
    No,
    /// For 24 hours.
    Day,
    /// Until the owner decides otherwise.
    Yes,
}

/// Gets the end of the agent's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetLog {
    /// How many lines.
    pub lines: u32,
    /// Only lines that contain this; empty: all.
    pub filter: String,
}

impl TypedRequest for GetLog {
    type Response = Vec<String>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<String>, ErrorReply> {
        handler.log(self).await
    }
}

/// Gets the support bundle.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MakeBundle {}

impl TypedRequest for MakeBundle {
    type Response = Bundle;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Bundle, ErrorReply> {
        handler.bundle().await
    }
}

/// Checks until the agent ends.
pub async fn follow(handler: RequestHandler) {
    let mut active_connections = handler.active_connection.clone();
    let mut requests = handler.store.request_changes();
    let mut accounts = handler.token_manager.watch();
    let mut looks = tokio::time::interval(CHECK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut line = active_connections.borrow_and_update().as_ref().map(|active| active.link.status());
        loop {
            handler.try_sandboxes(SANDBOX_MAX_AGE).await;
            handler.check_again().await;
            tokio::select! {
                changed = active_connections.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = changed(&mut line) => {}
                _ = requests.changed() => {}
                _ = accounts.changed() => {}
                _ = looks.tick() => {}
            }
        }
    }
}

impl RequestHandler {
    pub(super) async fn health(&self, ask: GetHealth) -> Result<HealthReport, ErrorReply> {
        if ask.all {
            self.try_sandboxes(Duration::ZERO).await;
            let services = self.store.services();
            let published = services.list().await?;
            let there = self.providers_there().await;
            let tried = services::try_providers(&published, &self.providers, &there, &services, &self.own_folder);
            let found = tried.await?;
            self.health.memory.lock().await.providers = Some((Timestamp::now(), found));
        }
        self.look(Duration::ZERO).await
    }

    pub(super) async fn ignore(&self, ask: IgnoreProblem) -> Result<HealthReport, ErrorReply> {
        let settings = self.store.settings();
        let IgnoredProblems(mut ignored) = settings.get().await?;
        ignored.retain(|other| other.code != ask.code);
        match ask.ignore {
            IgnoreDuration::No => {}
            IgnoreDuration::Yes => ignored.push(IgnoredProblem { code: ask.code, until: None }),
            IgnoreDuration::Day => {
                let now = Timestamp::now();
                let tomorrow = now.0.checked_add(Duration::from_secs(24 * 3600)).map_or(now, Timestamp::from);
                ignored.push(IgnoredProblem { code: ask.code, until: Some(tomorrow) });
            }
        }
        settings.set(&IgnoredProblems(ignored)).await?;
        self.look(GATEWAY_MAX_AGE).await
    }

    pub(super) async fn log(&self, ask: GetLog) -> Result<Vec<String>, ErrorReply> {
        let (path, lines) = (Home::at(self.own_folder.clone()).log(), ask.lines.min(MAX_LOG_LINES) as usize);
        let read = tokio::task::spawn_blocking(move || log::tail(&path, lines, &ask.filter)).await;
        read.map_err(|_| failed("the agent failed while it read its log".to_owned()))
    }

    pub(super) async fn bundle(&self) -> Result<Bundle, ErrorReply> {
        let (mut report, services) = (self.look(GATEWAY_MAX_AGE).await?, self.store.services().list().await?);
        for problem in &mut report.problems {
            // It has the words of the provider, which are the owner's alone.
            if let ProblemCode::ProviderRefusesKey | ProblemCode::ModelUnusable = problem.code {
                problem.text = "What the provider said is left out here.".to_owned();
            }
        }
        let mut bundle = Bundle::default();
        bundle.add("health", "What deskgate doctor says: problems, with names of services and paths", pretty(&report));
        if let Ok(mut status) = self.status().await {
            status.problems.clear();
            let what = "What deskgate status says: versions, this device's name, the connection, identifiers of runs";
            bundle.add("status", what, pretty(&status));
        }
        let what = "Each service by number: its stage, its tools, whether it uses a model. No name and no instructions";
        bundle.add("services", what, services.iter().map(described).collect::<Vec<_>>().join("\n"));
        let home = Home::at(self.own_folder.clone());
        let rest = tokio::task::spawn_blocking(move || of_disk(&home)).await;
        let rest = rest.map_err(|_| failed("the agent failed while it looked at its files".to_owned()))?;
        bundle.parts.extend(rest.parts);
        Ok(bundle)
    }

    /// Checks at once what just changed, instead of within seconds.
    pub(super) async fn check_again(&self) {
        if let Err(no) = self.look(GATEWAY_MAX_AGE).await {
            tracing::debug!(error = no.message, "the agent's health cannot be told");
        }
    }

    /// One check and its report. Data of the gateway and the keyring may be as old as `age`.
    async fn look(&self, age: Duration) -> Result<HealthReport, ErrorReply> {
        let active = self.active_connection.borrow().clone();
        let mut services = self.store.services().list().await?;
        let there = self.providers_there().await;
        let connected = active
            .as_ref()
            .is_some_and(|active| matches!(*active.link.status().borrow(), LinkStatus::Connected { .. }));
        self.refresh_gateway(&services, &there, connected, age).await;
        // What nobody can call any more is no problem.
        let standings = self.health.memory.lock().await.standings.clone();
        services.retain(|service| !standings.get(&service.draft_id).is_some_and(|standing| standing.has_ended()));
        let waiting = self.store.approvals().list(false).await?;
        let IgnoredProblems(ignored) = self.store.settings().get().await?;
        let (own, looked_at) = (self.own_folder.clone(), services.clone());
        let on_disk = move || [computer::look(&own), services::look(&looked_at)].concat();
        let mut findings = tokio::task::spawn_blocking(on_disk).await.unwrap_or_default();
        self.ask_keyring(age).await;
        findings.extend(services::missing_providers(&services, &there));
        findings.extend(work::expiring(&waiting, Timestamp::now()));
        findings.extend(budgets::look(&services, &self.store.budgets(this_month()).await?));
        if self.launch.address().is_none() {
            findings.push(work::missing_pages());
        }
        let signed_in = match in_force(&self.connection().await?) {
            Some(gateway) => account::look(gateway.as_str(), &self.token_manager.standing(&gateway).await),
            None => None,
        };
        let mut memory = self.health.memory.lock().await;
        if let Some(active) = &active {
            findings.extend(work::look(&active.dispatcher.status(), &active.kept_awake.borrow()));
            memory.line = line::look(&active.link.status().borrow(), memory.line.take());
        }
        findings.extend(signed_in);
        findings.extend(memory.line.clone());
        findings.extend(memory.gateway.iter().flat_map(|(_, found)| found.clone()));
        findings.extend(memory.sandboxes.iter().flat_map(|(_, found)| found.clone()));
        findings.extend(memory.providers.iter().flat_map(|(_, found)| found.clone()));
        findings.extend(memory.keyring.iter().filter_map(|(_, found)| found.clone()));
        let not_asked = not_asked(&memory, &services);
        let report = memory.board.report(findings, &not_asked, &ignored, Instant::now(), Timestamp::now());
        let open: Vec<_> = report.open().cloned().collect();
        self.health.shown.send_if_modified(|shown| std::mem::replace(shown, open.clone()) != open);
        Ok(report)
    }

    /// Asks the gateway again if what it said is older than `age`.
    async fn refresh_gateway(&self, services: &[Service], there: &KnownProviders, connected: bool, age: Duration) {
        let mut memory = self.health.memory.lock().await;
        // What was found may be over with the next run.
        let is_open = memory.gateway.iter().any(|(_, found)| !found.is_empty())
            || memory.providers.iter().any(|(_, found)| !found.is_empty());
        let age = if is_open { age.min(CHECK_INTERVAL) } else { age };
        let young = |at: &Instant| at.elapsed() < age;
        if !connected {
            memory.gateway = None;
        } else if !memory.gateway.as_ref().is_some_and(|(at, _)| young(at)) {
            memory.gateway = self.ask_gateway(services, there, &mut memory).await.map(|found| (Instant::now(), found));
        }
    }

    /// The gateway's data; `None` when it does not answer.
    async fn ask_gateway(
        &self,
        services: &[Service],
        there: &KnownProviders,
        memory: &mut HealthCache,
    ) -> Option<Vec<Finding>> {
        let newest = self.manage(ListRuns { limit: MAX_RUNS_CHECKED, ..ListRuns::default() }).await.ok()?;
        let mut good_at = services::providers_good_at(services, &newest.runs, &memory.providers_changed);
        if let Some((tried_at, found)) = &mut memory.providers {
            found.retain(|finding| !good_at.iter().any(|(name, at)| at > tried_at && is_about(finding, name)));
            // A test that found nothing has the last word about all that there are.
            for name in there.names().filter(|name| !found.iter().any(|finding| is_about(finding, name))) {
                let known = good_at.entry(name.clone()).or_insert(*tried_at);
                *known = (*tried_at).max(*known);
            }
        }
        let mut findings = services::from_runs(services, &newest.runs, &good_at, there, Timestamp::now());
        findings.extend(work::disabled_callbacks(&self.manage(ListCallbacks {}).await.ok()?));
        if !self.manage(GetAccess {}).await.ok()?.enabled {
            let states = vec![RunState::Queued, RunState::WaitingForDevice];
            let held = self.manage(ListRuns { limit: 1, states, ..ListRuns::default() }).await.ok()?;
            findings.extend((!held.runs.is_empty()).then(work::held_back));
        }
        let endpoints = self.manage(ListEndpoints {}).await.ok()?;
        let applications = self.manage(ListApplications {}).await.ok()?;
        memory.standings = self.standings(services, Some((&applications, &endpoints))).await.ok()?;
        Some(findings)
    }

    /// The model providers on this computer.
    async fn providers_there(&self) -> KnownProviders {
        let listed = self.with_accounts(Providers::list).await.ok();
        KnownProviders(listed.map(|listed| listed.into_iter().map(|provider| provider.name).collect()))
    }

    /// Queries the keyring, unless its last answer is younger than `age`.
    pub(super) async fn ask_keyring(&self, age: Duration) {
        let last = self.health.memory.lock().await.keyring.as_ref().map(|(at, _)| *at);
        if last.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        let found = self.keyring_problem().await;
        self.health.memory.lock().await.keyring = Some((Instant::now(), found));
    }

    /// Tests sandboxes, unless the last test is younger than `age`.
    async fn try_sandboxes(&self, age: Duration) {
        let last = self.health.memory.lock().await.sandboxes.as_ref().map(|(at, _)| *at);
        if last.is_some_and(|at| at.elapsed() < age) {
            return;
        }
        let Ok(services) = self.store.services().list().await else { return };
        let found = services::try_sandboxes(&services, &self.own_folder).await;
        self.health.memory.lock().await.sandboxes = Some((Instant::now(), found));
    }
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The skipped checks for which there would be something to check.
fn not_asked(memory: &HealthCache, services: &[Service]) -> BTreeSet<ProblemCode> {
    let definitions = || services.iter().filter_map(|service| Some(&service.published.as_ref()?.definition));
    let mut codes = BTreeSet::new();
    if memory.gateway.is_none() {
        codes.extend([ProblemCode::AccessPaused, ProblemCode::CallbackOff, ProblemCode::ClockBehind]);
    }
    if memory.sandboxes.is_none() && definitions().any(|definition| definition.tools.contains(&ToolName::Bash)) {
        codes.insert(ProblemCode::SandboxMissing);
    }
    if memory.providers.is_none() && definitions().any(|definition| definition.provider != Provider::Scripted) {
        codes.extend([ProblemCode::ProviderRefusesKey, ProblemCode::ModelUnusable]);
    }
    codes
}

/// A service without its owner's texts.
fn described(service: &Service) -> String {
    let definition = &service.draft;
    let tools: Vec<_> = definition.tools.iter().map(ToString::to_string).collect();
    format!(
        "{} {:?}: version {}, tools {}, {} MCP servers, {} skills, {}",
        service.draft_id,
        service.stage(),
        service.published.as_ref().map_or(0, |version| version.version),
        if tools.is_empty() { "none".to_owned() } else { tools.join(" ") },
        definition.mcp.len(),
        definition.skills.len(),
        if definition.provider == Provider::Scripted { "scripted" } else { "asks a model" },
    )
}
