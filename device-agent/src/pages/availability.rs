//! Which skills and MCP servers a draft can use, and why not the others, from its checks.

use deskgate_definition::{Check, CheckResult, Service};

use super::labels::Shape;

/// A skill or an MCP server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Availability {
    pub(super) name: String,
    pub(super) works: bool,
    /// The check's finding, or why it cannot be used.
    pub(super) found: String,
}

impl Availability {
    pub(super) fn shape(&self) -> Shape {
        if self.works { Shape::Good } else { Shape::Bad }
    }

    pub(super) fn word(&self) -> &'static str {
        if self.works { "usable" } else { "not usable" }
    }
}

/// The skills of a service; empty until exactly this draft was checked.
pub(super) fn skills(service: &Service) -> Vec<Availability> {
    let skill = |check: &Check| Some(usable(check.name.strip_prefix("skill ")?, check));
    checks(service).iter().filter_map(skill).collect()
}

/// The servers of a service, likewise, and those that its folder's own file names.
pub(super) fn servers(service: &Service) -> Vec<Availability> {
    let mut servers: Vec<Availability> = Vec::new();
    for check in checks(service) {
        if let Some(name) = check.name.strip_prefix(".mcp.json: ") {
            servers.push(usable(name, check));
        }
        let Some((name, _)) = check.name.strip_prefix("mcp ").and_then(|name| name.split_once(": ")) else { continue };
        match servers.iter_mut().find(|server| server.name == name) {
            // The first failure is the reason; without one, the last finding is shown.
            Some(server) if server.works => *server = usable(name, check),
            Some(_) => {}
            None => servers.push(usable(name, check)),
        }
    }
    servers
}

fn checks(service: &Service) -> &[Check] {
    let report = service.checks.as_ref().filter(|report| report.definition_sha256 == service.draft.digest());
    report.map_or(&[], |report| &report.checks)
}

fn usable(name: &str, check: &Check) -> Availability {
    let next = check.next.as_ref().map(|next| format!(". Next: {next}")).unwrap_or_default();
    let found = format!("{}{next}", check.cause);
    Availability { name: name.to_owned(), works: check.verdict == CheckResult::Pass, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_definition::CheckReport;
    use deskgate_protocol::Timestamp;
    use deskgate_protocol::ids::{ApplicationId, DraftId};

    fn service(checks: &[(&str, CheckResult, &str)]) -> Service {
        let check = |(name, verdict, cause): &(&str, CheckResult, &str)| Check {
            name: (*name).to_owned(),
            verdict: *verdict,
            cause: (*cause).to_owned(),
            next: (*verdict == CheckResult::Fail).then(|| "mend it".to_owned()),
        };
        let draft = deskgate_definition::Definition::blank();
        let (at, checks) = (Timestamp::now(), checks.iter().map(check).collect());
        Service {
            draft_id: DraftId::new(),
            app_id: ApplicationId::new(),
            endpoint_id: None,
            checks: Some(CheckReport { definition_sha256: draft.digest(), checked_at: at, checks, folder: None }),
            draft,
            created_at: at,
            changed_at: at,
            published: None,
        }
    }

    #[test]
    fn each_server_is_named_once_with_the_first_thing_that_is_wrong() {
        use CheckResult::{Fail, Pass, Skip};
        let service = service(&[
            ("tool Read", Fail, "no"),
            ("mcp crm: https", Pass, "https://crm.example/"),
            ("mcp crm: answers", Pass, "it lists 2 tools"),
            ("mcp crm: tools are pinned", Pass, "add, find"),
            ("mcp lab: https", Pass, "https://lab.example/"),
            ("mcp lab: answers", Fail, "it refused the key"),
            ("mcp lab: tools are pinned", Skip, "it gave no list of tools"),
            (".mcp.json: local", Skip, "it is a program (stdio)"),
            ("skill tone", Fail, "it is gone"),
        ]);
        let told =
            |list: Vec<Availability>| list.into_iter().map(|one| (one.name, one.works, one.found)).collect::<Vec<_>>();
        let one = |name: &str, works, found: &str| (name.to_owned(), works, found.to_owned());
        assert_eq!(
            told(servers(&service)),
            [
                one("crm", true, "add, find"),
                one("lab", false, "it refused the key. Next: mend it"),
                one("local", false, "it is a program (stdio)"),
            ]
        );
        assert_eq!(told(skills(&service)), [one("tone", false, "it is gone. Next: mend it")]);
        let mut edited = service;
        edited.draft.name = "Another".to_owned();
        assert!(servers(&edited).is_empty(), "the checks are of an older draft");
    }
}
