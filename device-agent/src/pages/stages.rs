//! The parts of a service's page beside its form: its stage, what it may do once published, and what a new draft
//! changes.

use deskgate_definition::approvals::RuleAction;
use deskgate_definition::{CheckResult, Definition, Network, Provider, Service, ServiceStage, ToolName};
use serde_json::Value;

use super::labels::Shape;

/// One stage of the bar.
pub(super) struct StageStep {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// A note about it; empty when it is reached.
    pub(super) about: String,
}

/// The bar: Draft, Checked, Published, Enabled. `access` is unknown while the gateway cannot be queried.
pub(super) fn bar(service: &Service, access: Option<bool>) -> Vec<StageStep> {
    let step = |name, shape, about: &str| StageStep { name, shape, about: about.to_owned() };
    let checked = match (service.stage(), failures(service)) {
        (ServiceStage::Checked | ServiceStage::Published, _) => step("Checked", Shape::Good, ""),
        (ServiceStage::Draft, 0) => step("Checked", Shape::Waiting, "not yet, or changed since"),
        (ServiceStage::Draft, failed) => step("Checked", Shape::Bad, &format!("{failed} failed")),
    };
    let published = match (service.stage(), &service.published) {
        (ServiceStage::Published, _) => step("Published", Shape::Good, ""),
        (_, Some(version)) => {
            step("Published", Shape::Waiting, &format!("version {} is, this draft not", version.version))
        }
        (_, None) => step("Published", Shape::Waiting, "not yet"),
    };
    let enabled = match (&service.published, access) {
        (None, _) => step("Enabled", Shape::Waiting, "after publishing"),
        (Some(version), _) if version.paused.is_some() => step("Enabled", Shape::Bad, "nothing of it runs"),
        (Some(_), Some(true)) => step("Enabled", Shape::Good, ""),
        (Some(_), Some(false)) => step("Enabled", Shape::Paused, "access is paused"),
        (Some(_), None) => step("Enabled", Shape::Unknown, "not known"),
    };
    vec![step("Draft", Shape::Good, ""), checked, published, enabled]
}

/// How far a service is, in one state. `access` is unknown while the gateway cannot be queried.
pub(super) fn standing(service: &Service, access: Option<bool>) -> (Shape, &'static str) {
    match (&service.published, service.stage()) {
        (None, ServiceStage::Draft) if failures(service) > 0 => (Shape::Bad, "Draft, a check failed"),
        (None, ServiceStage::Draft) => (Shape::Waiting, "Draft"),
        (None, _) => (Shape::Waiting, "Checked, not published"),
        (Some(version), _) if version.paused.is_some() => (Shape::Bad, "Nothing of it runs"),
        (Some(_), _) => match access {
            Some(true) => (Shape::Good, "Enabled"),
            Some(false) => (Shape::Paused, "Published, access is paused"),
            None => (Shape::Unknown, "Published"),
        },
    }
}

/// How many checks of exactly this draft failed.
pub(super) fn failures(service: &Service) -> usize {
    let report = service.checks.as_ref().filter(|report| report.definition_sha256 == service.draft.digest());
    report.map_or(0, |report| report.checks.iter().filter(|check| check.verdict == CheckResult::Fail).count())
}

/// Why the draft cannot be published now; `None` if it can.
pub(super) fn unpublishable(service: &Service) -> Option<String> {
    let paused = service.published.as_ref().is_some_and(|version| version.paused.is_some());
    match (service.stage(), failures(service)) {
        // Publishing again ends a pause.
        (ServiceStage::Published, _) if paused => None,
        (ServiceStage::Published, _) => Some("This draft is what is published.".to_owned()),
        (ServiceStage::Checked, _) => None,
        (ServiceStage::Draft, 0) => Some("Inactive until this draft has been checked.".to_owned()),
        (ServiceStage::Draft, 1) => Some("Inactive: 1 check failed.".to_owned()),
        (ServiceStage::Draft, failed) => Some(format!("Inactive: {failed} checks failed.")),
    }
}

/// What publishing allows, in plain words, for the person who decides about it.
pub(super) fn summary(definition: &Definition, application: &str) -> Vec<String> {
    let folder = definition.working_directory.display();
    let has = |tool| definition.tools.contains(&tool);
    let may = match (definition.tools.is_empty(), definition.tools.iter().any(|tool| tool.writes())) {
        (true, _) => "which is conversation only: it reads and changes no file".to_owned(),
        (false, false) if definition.tools == [ToolName::Fetch] => "which reads and changes no file".to_owned(),
        (false, false) => format!("which may read files in {folder}"),
        (false, true) if has(ToolName::Edit) || has(ToolName::Write) => {
            format!("which may read and change files in {folder}")
        }
        (false, true) => format!("which may run commands in {folder}"),
    };
    let mut lines = vec![format!("Anyone with a key of {application} can start this, {may}.")];
    if has(ToolName::Bash) {
        lines.push(match definition.network {
            Network::None => "It may run shell commands, in a sandbox without a network.".to_owned(),
            Network::Host => {
                "It may run shell commands, in a sandbox that has this computer's whole network.".to_owned()
            }
        });
    }
    if has(ToolName::Fetch) {
        let line = "It may get pages of public hosts on the Internet. Each URL tells its host something.";
        lines.push(line.to_owned());
    }
    if let Some(servers) = names(definition.mcp.iter().map(|server| server.name.as_str())) {
        lines.push(format!("It may call the tools of {servers}, which are elsewhere."));
    }
    if !definition.tools.is_empty() || !definition.mcp.is_empty() {
        lines.push(rules(definition));
    }
    let at_once = definition.limits.concurrency_in_words(&definition.tools, &definition.mcp);
    lines.push(format!("It executes {at_once}."));
    lines.push(match &definition.provider {
        Provider::Scripted => "The scripted assistant answers: no text leaves this computer for a model.".to_owned(),
        Provider::Account(name) => {
            format!("What callers write and what it reads goes to {} of the provider {name}.", definition.model)
        }
    });
    lines
}

fn rules(definition: &Definition) -> String {
    let of =
        |action| definition.approvals.rules.iter().filter(move |rule| rule.action == action).map(ToString::to_string);
    let rules: Vec<_> = RuleAction::ALL.into_iter().flat_map(of).collect();
    match rules.is_empty() {
        true => "Reading runs by itself; whatever else it wants to do asks you first.".to_owned(),
        false => format!(
            "Your rules: {}. Otherwise reading runs by itself, and everything else asks you first.",
            rules.join(", ")
        ),
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    Some(names.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// A field that a draft changes.
pub(super) struct Difference {
    pub(super) field: String,
    pub(super) old: String,
    pub(super) new: String,
}

/// What publishing the draft would change for callers, field by field.
pub(super) fn differences(service: &Service) -> Vec<Difference> {
    let Some(version) = &service.published else { return Vec::new() };
    let of = |definition: &Definition| serde_json::to_value(definition).unwrap_or_default();
    let (old, new) = (of(&version.definition), of(&service.draft));
    let fields = old.as_object().into_iter().chain(new.as_object()).flat_map(serde_json::Map::keys);
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable();
    fields.dedup();
    let changed = fields.into_iter().filter(|field| old.get(*field) != new.get(*field));
    let difference = |field: &String| Difference {
        field: field.replace('_', " "),
        old: shown(old.get(field)),
        new: shown(new.get(field)),
    };
    changed.map(difference).collect()
}

/// The value of a definition's member, for people.
fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_definition::ApprovalPolicy;

    fn plain() -> Definition {
        let mut definition = super::super::service_form::blank();
        definition.working_directory = "/home/a/tickets".into();
        definition
    }

    #[test]
    fn the_summary_says_no_less_than_what_the_definition_allows() {
        let text = |definition: &Definition| summary(definition, "Billing").join("\n");
        assert!(
            text(&plain())
                .contains("key of Billing can start this, which may read and change files in /home/a/tickets.")
        );
        let reads = Definition { tools: vec![ToolName::Read], ..plain() };
        assert!(text(&reads).contains("may read files") && !text(&reads).contains("change files"));
        assert!(text(&Definition { tools: Vec::new(), ..plain() }).contains("reads and changes no file"));
        let runs = Definition { tools: vec![ToolName::Bash], network: Network::Host, ..plain() };
        assert!(text(&runs).contains("may run commands in") && text(&runs).contains("whole network"));
        let online = Definition { tools: vec![ToolName::Fetch], ..plain() };
        assert!(text(&online).contains("changes no file") && text(&online).contains("pages of public hosts"));
        let online = Definition { tools: vec![ToolName::Read, ToolName::Fetch], ..plain() };
        assert!(text(&online).contains("may read files") && text(&online).contains("pages of public hosts"));
        let rule = "allow Bash".parse().expect("a rule");
        let unasked =
            Definition { approvals: ApprovalPolicy { rules: vec![rule], ..ApprovalPolicy::default() }, ..runs };
        assert!(text(&unasked).contains("Your rules: allow Bash."));
        let model = Definition { provider: Provider::Account("work".to_owned()), model: "m-1".to_owned(), ..plain() };
        assert!(text(&model).contains("goes to m-1 of the provider work"));
    }
}
