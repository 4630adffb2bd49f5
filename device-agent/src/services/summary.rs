//! What publishing a definition allows, in plain words, for whoever decides about it.

use deskgate_definition::approvals::RuleAction;
use deskgate_definition::{Definition, Network, Provider, ToolName};

/// What publishing allows, in plain words, for the person who decides about it.
pub fn summary(definition: &Definition, application: &str) -> Vec<String> {
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
    if has(ToolName::Deliver) {
        let line =
            "It may hand files of that folder out to the application, each with your approval unless a rule allows it.";
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

#[cfg(test)]
mod tests {
    use deskgate_definition::ApprovalPolicy;

    use super::*;

    fn plain() -> Definition {
        Definition { working_directory: "/home/a/tickets".into(), ..Definition::blank() }
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
