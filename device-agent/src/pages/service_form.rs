//! The form of a service: conversion between a definition and form fields.
//!
//! A field has its name in the definition where there is one, so that a definition's errors lead to their fields. An
//! unreadable form is kept as it was sent, except for secrets, which are never shown.

use std::path::{Path, PathBuf};

use deskgate_definition::approvals::{OnDenial, Rule, RuleAction};
use deskgate_definition::{
    ApprovalPolicy, Budget, Definition, FieldError, InvalidDefinition, McpServer, MicroUsd, Network, Provider,
    Reasoning, RunLimits, Skill, ToolName, TypedData,
};
use deskgate_protocol::secret::SecretKind;
use serde_json::Value;

use super::fields::FormFields;
use crate::local::ConfiguredServer;

/// The text fields into which a person may have pasted a secret.
const TEXT_FIELDS: [&str; 10] = [
    "name",
    "description",
    "working_directory",
    "model",
    "instructions",
    "rules",
    "protected",
    "skills",
    "input_schema",
    "output_schema",
];
/// Units of time that the form offers, with their seconds.
pub(super) const TIME_UNITS: [(&str, u32); 4] = [("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)];
/// The tools that change files; their calls ask first unless a rule says otherwise.
const CHANGING_TOOLS: [ToolName; 2] = [ToolName::Edit, ToolName::Write];

deskgate_protocol::words! {
    /// Which changes of files ask first.
    pub(super) enum AskingChoice {
        /// Every change.
        Changes = "changes",
        /// Changes outside of one folder.
        Outside = "outside",
        /// None.
        Never = "never",
    }
}

/// A definition as form fields.
pub(super) fn fields(definition: &Definition) -> FormFields {
    let mut fields = Vec::new();
    let mut set = |name: &str, value: String| fields.push((name.to_owned(), value));
    set("name", definition.name.clone());
    set("description", definition.description.clone());
    set("working_directory", definition.working_directory.display().to_string());
    set("provider", definition.provider.to_string());
    set("model", definition.model.clone());
    set("effort", definition.reasoning.effort.map(|effort| effort.to_string()).unwrap_or_default());
    set("summaries", definition.reasoning.summaries.to_string());
    set("cost_shown_to", definition.cost_shown_to.to_string());
    set("model_reads", definition.model_reads.map(|reads| reads.to_string()).unwrap_or_default());
    set("instructions", definition.instructions.clone());
    set("kind", if definition.tools.is_empty() { "conversation" } else { "workspace" }.to_owned());
    definition.tools.iter().for_each(|tool| set("tool", tool.to_string()));
    set("network", definition.network.as_str().to_owned());
    let (asks, freely_in) = asking_choice(&definition.approvals.rules);
    let unasked = unasked_rules(asks, freely_in.as_deref().unwrap_or_default());
    let commands = runs_unasked(ToolName::Bash, None);
    let rules = &definition.approvals.rules;
    set("asks", asks.to_string());
    set("freely_in", freely_in.unwrap_or_default());
    if rules.contains(&commands) {
        set("commands_unasked", "yes".to_owned());
    }
    set("rules", lines(&rules.iter().filter(|rule| **rule != commands && !unasked.contains(rule)).collect::<Vec<_>>()));
    let (unit, seconds) = unit_of(definition.approvals.expiry_s);
    set("expiry", (definition.approvals.expiry_s / seconds).to_string());
    set("expiry_unit", unit.to_owned());
    let ends = definition.approvals.on_denial == OnDenial::EndRun;
    set("on_denial", if ends { "end" } else { "tell" }.to_owned());
    set("protected", lines(&definition.protected));
    set(
        "skills",
        definition.skills.iter().map(|skill| skill.source.display().to_string()).collect::<Vec<_>>().join("\n"),
    );
    definition.mcp.iter().for_each(|server| set("mcp", server.name.clone()));
    let schema = |schema: &Option<Value>| schema.as_ref().map(|schema| format!("{schema:#}")).unwrap_or_default();
    set("input_schema", schema(&definition.data.input_schema));
    set("output_schema", schema(&definition.data.output_schema));
    set("caller_schema", if definition.data.caller_schema { "yes" } else { "no" }.to_owned());
    set("takes_files", if definition.data.takes_files { "yes" } else { "no" }.to_owned());
    set("tool_name", definition.data.tool_name.clone().unwrap_or_default());
    let limits = &definition.limits;
    set("max_turns", limits.max_turns.to_string());
    set("max_duration_s", limits.max_duration_s.to_string());
    let usual = RunLimits::default_for(&definition.tools, &definition.mcp).concurrency;
    set("concurrency", if limits.concurrency == usual { String::new() } else { limits.concurrency.to_string() });
    set("max_output_tokens", limits.max_output_tokens.map(|tokens| tokens.to_string()).unwrap_or_default());
    set("context_tokens", limits.context_tokens.map(|tokens| tokens.to_string()).unwrap_or_default());
    set("run_tokens", limits.budget.tokens.map(|tokens| tokens.to_string()).unwrap_or_default());
    set("run_usd", limits.budget.cost.map(|cost| cost.dollars().to_string()).unwrap_or_default());
    FormFields(fields)
}

/// The definition in a form, or all of its errors. `before` is the old draft.
pub(super) async fn definition(
    fields: &FormFields,
    before: &Definition,
    servers: &[ConfiguredServer],
) -> Result<Definition, Vec<FieldError>> {
    let (fields, before, servers) = (fields.clone(), before.clone(), servers.to_vec());
    let read = move || FormReader { fields: &fields, before: &before, wrong: Vec::new() }.read(&servers);
    // Folders and skills are read from the disk.
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|_| Err(vec![wrong("name", "the form could not be read; send it again")]))
}

/// Removes secrets from the submitted fields, and returns where they were.
pub(super) fn take_out_secrets(fields: &mut FormFields) -> Vec<FieldError> {
    let mut found = Vec::new();
    for (name, value) in &mut fields.0 {
        let Some(name) = TEXT_FIELDS.into_iter().find(|text| text == name) else { continue };
        if let Some(kind) = SecretKind::of(value.trim()) {
            let message =
                format!("this is {kind}. It was taken out of the field: nothing of a service may hold a secret");
            found.push(wrong(name, message));
            value.clear();
        }
    }
    found
}

fn wrong(field: &'static str, message: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), message: message.into() }
}

fn runs_unasked(tool: ToolName, path: Option<&str>) -> Rule {
    Rule { action: RuleAction::Allow, tool: tool.to_string(), path: path.map(Into::into) }
}

/// The rules that a choice stands for.
fn unasked_rules(choice: AskingChoice, freely_in: &str) -> Vec<Rule> {
    let path = match choice {
        AskingChoice::Changes => return Vec::new(),
        AskingChoice::Outside => Some(freely_in),
        AskingChoice::Never => None,
    };
    CHANGING_TOOLS.map(|tool| runs_unasked(tool, path)).to_vec()
}

/// The choice that rules contain, and its folder. What they say beside it stays among the rules.
fn asking_choice(rules: &[Rule]) -> (AskingChoice, Option<String>) {
    let contain = |choice, path: &str| unasked_rules(choice, path).iter().all(|rule| rules.contains(rule));
    if contain(AskingChoice::Never, "") {
        return (AskingChoice::Never, None);
    }
    let mut paths = rules.iter().filter_map(|rule| rule.path.as_ref().map(ToString::to_string));
    match paths.find(|path| contain(AskingChoice::Outside, path)) {
        Some(path) => (AskingChoice::Outside, Some(path)),
        None => (AskingChoice::Changes, None),
    }
}

fn lines<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("\n")
}

/// The largest unit that divides a time evenly.
fn unit_of(seconds: u32) -> (&'static str, u32) {
    TIME_UNITS.into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit)).unwrap_or(("seconds", 1))
}

/// The same elements in their old order: a different order without meaning must not make another definition.
fn in_order_of<T: PartialEq + Clone>(before: &[T], now: Vec<T>) -> Vec<T> {
    let same = before.len() == now.len() && before.iter().all(|item| now.contains(item));
    if same { before.to_vec() } else { now }
}

struct FormReader<'a> {
    fields: &'a FormFields,
    before: &'a Definition,
    wrong: Vec<FieldError>,
}

impl FormReader<'_> {
    fn read(mut self, servers: &[ConfiguredServer]) -> Result<Definition, Vec<FieldError>> {
        let tools = self.tools();
        let mcp = self.servers(servers);
        let definition = Definition {
            name: self.fields.get("name").trim().to_owned(),
            description: self.text("description").trim().to_owned(),
            working_directory: PathBuf::from(self.fields.get("working_directory").trim()),
            provider: Provider::from(self.fields.get("provider").to_owned()),
            model: self.fields.get("model").trim().to_owned(),
            reasoning: Reasoning {
                effort: self.fields.get("effort").parse().ok(),
                summaries: self.fields.get("summaries").parse().unwrap_or_default(),
            },
            model_reads: self.fields.get("model_reads").parse().ok(),
            cost_shown_to: self.fields.get("cost_shown_to").parse().unwrap_or_default(),
            instructions: self.text("instructions"),
            network: if self.fields.get("network") == "host" { Network::Host } else { Network::None },
            skills: self.skills(),
            approvals: self.approvals(),
            protected: self.lines("protected"),
            data: self.data(),
            limits: self.limits(&tools, &mcp),
            tools,
            mcp,
        };
        if let Err(InvalidDefinition(found)) = definition.validate() {
            // Unreadable fields were reported already.
            let new = |error: &FieldError| !self.wrong.iter().any(|known| known.field == error.field);
            let found: Vec<_> = found.into_iter().filter(new).collect();
            self.wrong.extend(found);
        }
        if self.wrong.is_empty() { Ok(definition) } else { Err(self.wrong) }
    }

    /// Browsers send every line break as two characters.
    fn text(&self, name: &str) -> String {
        self.fields.get(name).replace("\r\n", "\n")
    }

    fn lines(&self, name: &str) -> Vec<String> {
        self.text(name).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn tools(&mut self) -> Vec<ToolName> {
        if self.fields.get("kind") == "conversation" {
            return Vec::new();
        }
        let chosen = |tool: &ToolName| self.fields.all("tool").any(|name| name == tool.as_str());
        let tools: Vec<_> = ToolName::ALL.into_iter().filter(chosen).collect();
        if tools.is_empty() {
            self.wrong.push(wrong("tools", "choose one at least, or \"Conversation only\""));
        }
        in_order_of(&self.before.tools, tools)
    }

    fn servers(&mut self, configured: &[ConfiguredServer]) -> Vec<McpServer> {
        let mut servers = Vec::new();
        for name in self.fields.all("mcp") {
            let found = configured.iter().find(|server| server.name == *name);
            match found.map(|server| server.in_definition(&self.before.mcp)) {
                Some(server) => servers.push(server),
                None => {
                    self.wrong.push(wrong("mcp", format!("there is no MCP server {name:?} on this device any more")))
                }
            }
        }
        in_order_of(&self.before.mcp, servers)
    }

    /// An existing skill keeps its copied text, unless it is to be read again.
    fn skills(&mut self) -> Vec<Skill> {
        let again = self.fields.get("skills_again") == "yes";
        let mut skills = Vec::new();
        for place in self.lines("skills") {
            let kept = self.before.skills.iter().find(|skill| !again && skill.source == Path::new(&place));
            let read = || match Path::new(&place).is_absolute() {
                true => Skill::read(Path::new(&place)).map_err(|error| error.to_string()),
                false => Err(format!("{place:?} is no absolute path; write the whole path")),
            };
            match kept.cloned().map_or_else(read, Ok) {
                Ok(skill) => skills.push(skill),
                Err(problem) => self.wrong.push(wrong("skills", problem)),
            }
        }
        skills
    }

    fn approvals(&mut self) -> ApprovalPolicy {
        let mut rules = Vec::new();
        for line in self.lines("rules") {
            match line.parse() {
                Ok(rule) => rules.push(rule),
                Err(problem) => self.wrong.push(wrong("approvals", format!("{line}: {problem}"))),
            }
        }
        let choice = self.fields.get("asks").parse().unwrap_or(AskingChoice::Changes);
        let freely_in = self.fields.get("freely_in").trim().trim_end_matches('/').to_owned();
        let unasked = unasked_rules(choice, &freely_in);
        let problem = match choice {
            AskingChoice::Outside if freely_in.is_empty() => Some("name a folder, as drafts".to_owned()),
            AskingChoice::Outside => unasked.iter().find_map(|rule| rule.check().err()),
            AskingChoice::Changes | AskingChoice::Never => None,
        };
        match problem {
            Some(problem) => self.wrong.push(wrong("freely_in", problem)),
            None => rules.extend(unasked),
        }
        if self.fields.get("commands_unasked") == "yes" {
            rules.push(runs_unasked(ToolName::Bash, None));
        }
        let unit = TIME_UNITS
            .into_iter()
            .find(|(unit, _)| *unit == self.fields.get("expiry_unit"))
            .map_or(1, |(_, unit)| unit);
        let expiry_s = self.number("approvals", "the time a request waits", "expiry").saturating_mul(unit);
        let on_denial = match self.fields.get("on_denial") {
            "end" => OnDenial::EndRun,
            _ => OnDenial::TellAssistant,
        };
        ApprovalPolicy { rules: in_order_of(&self.before.approvals.rules, rules), expiry_s, on_denial }
    }

    fn data(&mut self) -> TypedData {
        TypedData {
            input_schema: self.schema("input_schema"),
            output_schema: self.schema("output_schema"),
            caller_schema: self.fields.get("caller_schema") != "no",
            takes_files: self.fields.get("takes_files") == "yes",
            tool_name: self.fields.filled("tool_name"),
        }
    }

    fn schema(&mut self, name: &str) -> Option<Value> {
        match serde_json::from_str(&self.fields.filled(name)?) {
            Ok(schema) => Some(schema),
            Err(error) => {
                self.wrong.push(wrong("data", format!("{name}: it is not JSON: {error}")));
                None
            }
        }
    }

    fn limits(&mut self, tools: &[ToolName], mcp: &[McpServer]) -> RunLimits {
        RunLimits {
            max_turns: self.number("limits", "model calls in one run", "max_turns"),
            max_duration_s: self.number("limits", "seconds in one run", "max_duration_s"),
            concurrency: match self.fields.filled("concurrency") {
                Some(_) => self.number("limits", "runs at the same time", "concurrency"),
                None => RunLimits::default_for(tools, mcp).concurrency,
            },
            max_output_tokens: self.tokens("tokens written in one run", "max_output_tokens"),
            context_tokens: self.tokens("tokens in one model call", "context_tokens"),
            budget: Budget {
                tokens: self.tokens("tokens read and written in one run", "run_tokens"),
                cost: self.cost(),
            },
        }
    }

    fn cost(&mut self) -> Option<MicroUsd> {
        match self.fields.filled("run_usd")?.parse() {
            Ok(cost) => Some(cost),
            Err(problem) => {
                self.wrong.push(wrong("limits", format!("what one run may cost: {problem}")));
                None
            }
        }
    }

    fn tokens(&mut self, what: &str, name: &str) -> Option<u64> {
        self.fields.filled(name).map(|_| self.number("limits", what, name).into())
    }

    /// A number; 0, which no limit may be, if it cannot be parsed.
    fn number(&mut self, field: &'static str, what: &str, name: &str) -> u32 {
        let text = self.fields.get(name).trim();
        text.parse().unwrap_or_else(|_| {
            self.wrong.push(wrong(field, format!("{what}: {text:?} is no whole number")));
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elaborate(folder: &Path) -> Definition {
        let rule = |text: &str| text.parse().expect("a rule");
        let skill = Skill {
            name: "tone".to_owned(),
            description: "For letters.".to_owned(),
            instructions: "Be kind.".to_owned(),
            source: folder.join("gone"),
        };
        Definition {
            name: "Letters".to_owned(),
            description: "Writes\nletters.".to_owned(),
            working_directory: folder.to_owned(),
            provider: Provider::Account("work".to_owned()),
            model: "model-1".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "One.\n\nTwo.\n".to_owned(),
            tools: vec![ToolName::Bash, ToolName::Fetch, ToolName::Read, ToolName::Write],
            skills: vec![skill],
            mcp: vec![McpServer {
                name: "shop".to_owned(),
                url: "https://shop.example/".to_owned(),
                tools_sha256: None,
            }],
            approvals: ApprovalPolicy {
                rules: vec![
                    rule("allow Write"),
                    rule("deny Read:keys"),
                    rule("allow Write:docs"),
                    rule("allow Fetch:*.example.com"),
                ],
                expiry_s: 5400,
                on_denial: OnDenial::EndRun,
            },
            protected: vec!["*.lock".to_owned()],
            network: Network::Host,
            limits: RunLimits { concurrency: 3, context_tokens: Some(4096), ..RunLimits::default() },
        }
    }

    fn shop() -> ConfiguredServer {
        ConfiguredServer {
            name: "shop".to_owned(),
            url: "https://shop.example/".to_owned(),
            header: None,
            key_place: None,
            sign_in: None,
        }
    }

    #[tokio::test]
    async fn a_form_that_is_sent_as_it_was_shown_changes_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for before in [
            elaborate(folder.path()),
            Definition { tools: Vec::new(), network: Network::None, ..elaborate(folder.path()) },
        ] {
            let mut sent = fields(&before);
            sent.0.iter_mut().for_each(|(_, value)| *value = value.replace('\n', "\r\n"));
            let read = definition(&sent, &before, &[shop()]).await.expect("nothing is wrong");
            assert_eq!((read.digest(), &read), (before.digest(), &before));
        }
    }

    #[tokio::test]
    async fn a_choice_of_when_to_ask_is_rules_and_rules_are_the_choice() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let before = Definition {
            name: "Letters".to_owned(),
            working_directory: folder.path().to_owned(),
            tools: ToolName::WORKSPACE_TOOLS.to_vec(),
            ..Definition::blank()
        };
        for (choice, freely_in, rules) in [
            ("changes", "", &[][..]),
            ("outside", "drafts/", &["allow Edit:drafts", "allow Write:drafts"]),
            ("never", "drafts", &["allow Edit", "allow Write"]),
        ] {
            let mut sent = fields(&before);
            sent.0.retain(|(name, _)| !["asks", "freely_in"].contains(&name.as_str()));
            sent.0
                .extend([("asks", choice), ("freely_in", freely_in)].map(|(name, value)| (name.into(), value.into())));
            let read = definition(&sent, &before, &[]).await.expect("valid");
            assert_eq!(read.approvals.rules.iter().map(ToString::to_string).collect::<Vec<_>>(), rules);
            let shown = fields(&read);
            assert_eq!((shown.get("asks"), shown.get("rules")), (choice, ""), "nothing is said twice");
        }
        for (freely_in, said) in [("", "name a folder"), ("../letters", "..")] {
            let mut sent = fields(&before);
            sent.0.retain(|(name, _)| !["asks", "freely_in"].contains(&name.as_str()));
            sent.0.extend(
                [("asks", "outside"), ("freely_in", freely_in)].map(|(name, value)| (name.into(), value.into())),
            );
            let wrong = definition(&sent, &before, &[]).await.expect_err("no folder of the service");
            assert!(wrong.len() == 1 && wrong[0].field == "freely_in" && wrong[0].message.contains(said), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn whatever_cannot_be_read_is_named_with_its_field() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let before = elaborate(folder.path());
        let mut sent = fields(&before);
        for (name, value) in &mut sent.0 {
            match name.as_str() {
                "name" => value.clear(),
                "rules" => *value = "perhaps Write".to_owned(),
                "skills" => *value = "relative".to_owned(),
                "max_turns" => *value = "many".to_owned(),
                _ => {}
            }
        }
        sent.0.retain(|(name, _)| name != "tool");
        let wrong = definition(&sent, &before, &[]).await.expect_err("much is wrong");
        let mut fields: Vec<_> = wrong.iter().map(|error| error.field.as_ref()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["approvals", "limits", "mcp", "name", "network", "skills", "tools"], "{wrong:?}");
    }

    #[tokio::test]
    async fn the_usual_number_of_runs_goes_with_the_tools() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let before = Definition {
            name: "Reader".to_owned(),
            working_directory: folder.path().to_owned(),
            ..Definition::blank()
        };
        let mut sent = fields(&before);
        sent.0.retain(|(name, value)| name != "tool" || value == "Read");
        assert_eq!(definition(&sent, &before, &[]).await.expect("valid").limits.concurrency, 4);
    }

    #[test]
    fn a_secret_in_a_field_is_named_and_does_not_come_back() {
        let mut sent = fields(&Definition { instructions: "dgk_canary".to_owned(), ..Definition::blank() });
        let found = take_out_secrets(&mut sent);
        assert!(found.len() == 1 && found[0].field == "instructions" && found[0].message.contains("application key"));
        assert!(sent.0.iter().all(|(_, value)| !value.contains("canary")));
    }
}
