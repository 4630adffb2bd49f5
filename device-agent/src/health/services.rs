//! Problems of the published services: folders, runs, sandboxes, providers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use deskgate_assistant::providers::Providers;
use deskgate_definition::{Definition, Provider, Service, ToolName, Version};
use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::EndpointId;
use deskgate_protocol::management::ListedRun;
use deskgate_protocol::run::{Run, RunErrorCode, RunState};
use deskgate_protocol::service::DRAFT_VERSION;

use super::{Finding, ProblemCode};
use crate::services::probe::{ModelTrouble, specs, try_provider, try_sandbox};
use crate::services::{has_another_folder, tool_pins};

/// The gateway accepts no run in the future: if the newest run is further ahead than this, in seconds, this computer's
/// clock is behind.
const MAX_CLOCK_LEAD_SECS: i64 = 120;

fn published(services: &[Service]) -> impl Iterator<Item = (&Service, &Version)> {
    services.iter().filter_map(|service| Some((service, service.published.as_ref()?)))
}

/// The problems that need no request. Reads the disk.
pub fn look(services: &[Service]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (service, version) in published(services) {
        let (name, folder) = (&version.definition.name, &version.definition.working_directory);
        if !folder.is_dir() {
            let text = format!("{name} works in {}, which is no folder any more.", folder.display());
            let next = "Bring the folder back, or give the service another one and publish it again.";
            findings.push(Finding::about(ProblemCode::FolderGone, name, text, next));
        } else if has_another_folder(version) {
            let text = format!(
                "{name} works in {}, which is another folder than the one that was checked and published.",
                folder.display()
            );
            let id = service.draft_id;
            let next = format!(
                "Look at what is in it. If it is the right one: deskgate service check {id} and deskgate service publish {id}"
            );
            findings.push(Finding::about(ProblemCode::FolderReplaced, name, text, next));
        }
        if let Some(why) = &version.paused {
            let next = format!("Look at it and publish it again: deskgate service check {}", service.draft_id);
            findings.push(Finding::about(
                ProblemCode::ServicePaused,
                name,
                format!("Nothing of {name} runs: {why}"),
                next,
            ));
        }
    }
    findings
}

/// The names of the model providers on this computer; `None`: they cannot be listed, so that none is called missing.
#[derive(Clone, Debug, Default)]
pub struct KnownProviders(pub Option<BTreeSet<String>>);

impl KnownProviders {
    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Their names, as far as they are known.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flatten()
    }
}

/// Model providers that published services name, and that are not on this computer. `there`: those that are.
pub fn missing_providers(services: &[Service], there: &KnownProviders) -> Vec<Finding> {
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, version) in published(services) {
        if let Provider::Account(name) = &version.definition.provider
            && !there.has(name)
        {
            missing.entry(name).or_default().push(&version.definition.name);
        }
    }
    let finding = |(name, services): (&str, Vec<&str>)| {
        let text = format!(
            "The provider {name} was removed from this computer, or never added. Runs of these services fail: {}.",
            services.join(", ")
        );
        let next = format!("Add it again: deskgate provider set {name} --profile PROFILE --key-file FILE");
        Finding::about(ProblemCode::ProviderMissing, name, text, next)
    };
    missing.into_iter().map(finding).collect()
}

/// When a provider was last known to be good: a run of a service that asks it succeeded, or its settings were changed. `runs`: the
/// newest first.
pub fn providers_good_at(
    services: &[Service],
    runs: &[ListedRun],
    changed: &BTreeMap<String, Timestamp>,
) -> BTreeMap<String, Timestamp> {
    let mut good = changed.clone();
    for run in runs.iter().filter(|run| run.state == RunState::Succeeded) {
        let asks = |(service, version): (&Service, &Version)| match &version.definition.provider {
            Provider::Account(name) if service.endpoint_id == Some(run.endpoint_id) => Some(name.clone()),
            _ => None,
        };
        if let (Some(name), Some(at)) = (published(services).find_map(asks), run.finished_at) {
            let known = good.entry(name).or_insert(at);
            *known = at.max(*known);
        }
    }
    good
}

/// The problems in the newest run of each service. `runs`: the newest first. Provider problems before a provider was
/// `good_at` are over, and those of one that is missing are told as that.
pub fn from_runs(
    services: &[Service],
    runs: &[ListedRun],
    good_at: &BTreeMap<String, Timestamp>,
    there: &KnownProviders,
    now: Timestamp,
) -> Vec<Finding> {
    let mut newest: BTreeMap<EndpointId, &Run> = BTreeMap::new();
    // What a draft does says nothing of what is published.
    for run in runs.iter().filter(|run| run.finished_at.is_some() && run.endpoint_version != DRAFT_VERSION) {
        newest.entry(run.endpoint_id).or_insert(run);
    }
    let mut findings = Vec::new();
    for (service, version) in published(services) {
        let last = service.endpoint_id.and_then(|endpoint_id| newest.get(&endpoint_id));
        let code =
            last.filter(|run| run.endpoint_version == version.version).and_then(|run| Some(run.error.as_ref()?.code));
        let text = |what: &str| format!("The last run of {} failed: {what}.", version.definition.name);
        match code {
            Some(RunErrorCode::ModelAuth) => {
                let over = match &version.definition.provider {
                    Provider::Account(name) => {
                        !there.has(name) || good_at.get(name).copied() >= last.and_then(|run| run.finished_at)
                    }
                    Provider::Scripted => false,
                };
                if !over {
                    findings.push(provider(version, text("its provider refused the key")));
                }
            }
            Some(RunErrorCode::SandboxUnavailable) => {
                findings.push(sandbox(version, text("no sandbox could be made for its commands"), ""));
            }
            _ => {}
        }
    }
    let ahead = runs.first().map(|run| run.created_at.0.as_second() - now.0.as_second());
    if let Some(ahead) = ahead.filter(|ahead| *ahead > MAX_CLOCK_LEAD_SECS) {
        let text = format!("The gateway accepted a run {ahead} s ahead of this computer's time.");
        findings.push(Finding::new(ProblemCode::ClockBehind, text, "Set the clock, or let the system set it."));
    }
    findings
}

/// Tests for each service with commands whether a sandbox confines them.
pub async fn try_sandboxes(services: &[Service], own: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, version) in published(services) {
        let definition = &version.definition;
        if definition.tools.contains(&ToolName::Bash)
            && let Err((cause, next)) = try_sandbox(definition, own).await
        {
            findings.push(sandbox(version, cause, &next));
        }
    }
    findings
}

/// Tries the model of every service, as its check does: each once where services ask it the same.
///
/// # Errors
/// The lists of tools that services are pinned to cannot be read.
pub async fn try_providers(
    services: &[Service],
    accounts: &Providers,
    there: &KnownProviders,
    store: &deskgate_store::Services,
    own: &Path,
) -> Result<Vec<Finding>, deskgate_store::Error> {
    let mut asked = Vec::new();
    let mut findings = Vec::new();
    for (_, version) in published(services) {
        let definition = &version.definition;
        match &definition.provider {
            Provider::Scripted => continue,
            // That is a problem of its own.
            Provider::Account(name) if !there.has(name) => continue,
            Provider::Account(_) => {}
        }
        let offered = [specs(definition, own).await, tool_pins::specs(store, definition).await?].concat();
        let Definition { provider: at, model: name, reasoning, limits, .. } = definition;
        let what = (at, name, reasoning, limits.max_output_tokens, offered.clone());
        if asked.contains(&what) {
            continue;
        }
        asked.push(what);
        if let Err(trouble) = try_provider(accounts, definition, offered).await {
            findings.push(match trouble {
                ModelTrouble::KeyRefused(cause) => provider(version, cause),
                other => model(definition, &other),
            });
        }
    }
    Ok(findings)
}

fn provider(version: &Version, text: String) -> Finding {
    let Provider::Account(name) = &version.definition.provider else {
        return Finding::about(
            ProblemCode::ProviderRefusesKey,
            &version.definition.name,
            text,
            "See: deskgate provider list",
        );
    };
    let next = format!("Correct its key or its address: deskgate provider set {name}");
    Finding::about(ProblemCode::ProviderRefusesKey, name, text, next)
}

/// The model of a service, or the provider that it is asked at, cannot be used.
fn model(definition: &Definition, trouble: &ModelTrouble) -> Finding {
    let Definition { name: service, model, provider, .. } = definition;
    let text = format!("{service} asks for {model}: {trouble}");
    let about = match trouble {
        // A key file or a keyring that cannot be read is a problem of its own, about the provider.
        ModelTrouble::NotOpened(_) => provider.to_string(),
        _ => format!("{provider}: {model}"),
    };
    let next = format!("Correct the provider, or choose a model that it has: deskgate provider models {provider}");
    Finding::about(ProblemCode::ModelUnusable, about, text, next)
}

fn sandbox(version: &Version, text: String, next: &str) -> Finding {
    let next = if next.is_empty() { "See what is missing: deskgate doctor --all" } else { next };
    Finding::about(ProblemCode::SandboxMissing, &version.definition.name, text, next)
}
