//! Capability checks: whether a definition works on this machine, tested for real.

use std::path::{Path, PathBuf};

use deskgate_definition::approvals::{Rule, RuleAction};
use deskgate_definition::tool::ToolSpec;
use deskgate_definition::{Check, CheckReport, CheckResult, Definition, FolderIdentity, Provider, Skill, ToolName};
use deskgate_protocol::Timestamp;
use deskgate_tools::engine::identity::identity_of;

use super::CheckEnvironment;
use super::probe::{specs, try_fetch, try_provider, try_sandbox, try_tool};

/// Is called with each check as it ends.
pub type CheckObserver<'a> = dyn Fn(&Check) + Sync + 'a;

/// Collects the checks, and reports each one.
pub(super) struct Findings<'a> {
    pub(super) all: Vec<Check>,
    tell: &'a CheckObserver<'a>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(tell: &'a CheckObserver<'a>) -> Self {
        Self { all: Vec::new(), tell }
    }

    pub(super) fn push(&mut self, check: Check) {
        (self.tell)(&check);
        self.all.push(check);
    }

    pub(super) fn extend(&mut self, checks: impl IntoIterator<Item = Check>) {
        checks.into_iter().for_each(|check| self.push(check));
    }
}

/// The checks of the folder, in order.
const DIRECTORY_CHECKS: [&str; 4] =
    ["directory exists", "directory is a folder", "directory is narrow enough", "directory is readable"];
const MODEL_CHECK: &str = "provider and model";
const INSTRUCTIONS_CHECK: &str = "instructions";
const SANDBOX_CHECK: &str = "sandbox confines";
const WRITABLE_CHECK: &str = "directory is writable";

/// The names of the checks that [`check`] makes for a definition, in order.
pub(super) fn names(definition: &Definition) -> Vec<String> {
    let mut names = [&DIRECTORY_CHECKS[..], &[MODEL_CHECK, INSTRUCTIONS_CHECK]]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    names.extend(file_tools(definition).map(name_of_tool));
    names.extend(definition.tools.contains(&ToolName::Bash).then(|| SANDBOX_CHECK.to_owned()));
    names.extend(definition.tools.contains(&ToolName::Fetch).then(|| name_of_tool(ToolName::Fetch)));
    names.extend(definition.skills.iter().map(name_of_skill));
    names.push(WRITABLE_CHECK.to_owned());
    names
}

/// The tools that are tried on the files of the working directory.
fn file_tools(definition: &Definition) -> impl Iterator<Item = ToolName> {
    definition.tools.iter().copied().filter(|tool| ToolName::WORKSPACE_TOOLS.contains(tool))
}

fn name_of_tool(tool: ToolName) -> String {
    format!("tool {tool}")
}

fn name_of_skill(skill: &Skill) -> String {
    format!("skill {}", skill.name)
}

/// Makes every check of a definition. `tell` is called with each as it ends.
/// `others`: the names and folders of the other services. `of_servers`: the tools of MCP servers, with which the model is
/// asked beside the service's own.
pub async fn check(
    definition: &Definition,
    computer: &CheckEnvironment,
    others: &[(String, PathBuf)],
    of_servers: Vec<ToolSpec>,
    tell: &CheckObserver<'_>,
) -> CheckReport {
    let CheckEnvironment { home, own_folder: own, accounts, .. } = computer;
    let directory = definition.working_directory.clone();
    let (home, keys, others) = (home.clone(), own.clone(), others.to_vec());
    let mut checks = Findings::new(tell);
    // Before anything is tried in it.
    let looking = move || check_directory(&directory, home.as_deref(), &keys, &others);
    let looked = tokio::task::spawn_blocking(looking).await;
    let (found, folder) =
        looked.unwrap_or_else(|_| (vec![fail("directory", "the check itself failed", "run the check again")], None));
    checks.extend(found);
    let usable = checks.all.iter().all(|check| check.verdict == CheckResult::Pass);
    let offered = [specs(definition, own).await, of_servers].concat();
    let tried = try_provider(accounts, definition, offered).await;
    checks.push(match tried {
        Ok(found) => pass(MODEL_CHECK, &found),
        Err(trouble) => fail(MODEL_CHECK, &trouble.to_string(), next_for(&definition.provider)),
    });
    checks.push(match definition.instructions.trim().is_empty() {
        false => pass(INSTRUCTIONS_CHECK, "the service has a task"),
        true => fail(INSTRUCTIONS_CHECK, "they are empty", "write what the assistant is to do"),
    });
    for tool in file_tools(definition) {
        let name = name_of_tool(tool);
        checks.push(match usable {
            false => skip(&name, "the working directory cannot be used"),
            true => match try_tool(tool, &definition.working_directory, own).await {
                Ok(found) => pass(&name, &found),
                Err(cause) => fail(&name, &cause, "give this user access to the files, or leave the tool out"),
            },
        });
    }
    if definition.tools.contains(&ToolName::Bash) {
        checks.push(check_sandbox(definition, usable, own).await);
    }
    if definition.tools.contains(&ToolName::Fetch) {
        checks.push(check_fetch(definition).await);
    }
    let skills = definition.skills.clone();
    let read = tokio::task::spawn_blocking(move || skills.iter().map(check_skill).collect::<Vec<_>>()).await;
    checks.extend(read.unwrap_or_else(|_| vec![fail("skills", "the check itself failed", "run the check again")]));
    checks.push(check_writable(definition, usable, own).await);
    CheckReport { definition_sha256: definition.digest(), checked_at: Timestamp::now(), checks: checks.all, folder }
}

/// Writing is tested only where it is needed: a folder that is only read stays unchanged.
async fn check_writable(definition: &Definition, usable: bool, own: &Path) -> Check {
    let name = WRITABLE_CHECK;
    if !definition.tools.iter().any(|tool| tool.writes()) {
        return skip(name, "no writing tool is selected");
    }
    if !usable {
        return skip(name, "the working directory cannot be used");
    }
    match try_tool(ToolName::Write, &definition.working_directory, own).await {
        Ok(found) => pass(name, &found),
        Err(cause) => fail(name, &cause, "give this user the right to change it, or leave Edit and Write out"),
    }
}

/// Tests whether commands are confined, by a command that tries to escape.
async fn check_sandbox(definition: &Definition, usable: bool, own: &Path) -> Check {
    let name = SANDBOX_CHECK;
    if !usable {
        return skip(name, "the working directory cannot be used");
    }
    match try_sandbox(definition, own).await {
        Ok(found) => pass(name, &found),
        Err((cause, next)) => fail(name, &cause, &next),
    }
}

/// Tests whether a page could be fetched. None is: which hosts a run will ask is not known, and asking one tells it so.
async fn check_fetch(definition: &Definition) -> Check {
    let name = name_of_tool(ToolName::Fetch);
    let is_allowed =
        |rule: &Rule| rule.action == RuleAction::Allow && (rule.tool == "*" || rule.tool == ToolName::Fetch.as_str());
    match try_fetch().await {
        Ok(()) if definition.approvals.rules.iter().any(is_allowed) => pass(
            &name,
            "is ready; the check fetches no page, and of hosts that no rule allows each page asks you first",
        ),
        Ok(()) => {
            pass(&name, "is ready; the check fetches no page, and no rule allows a host, so each page asks you first")
        }
        Err(cause) => {
            fail(&name, &cause, "install certificates of authorities (ca-certificates), or leave the tool out")
        }
    }
}

/// The saved copy is published; a file with other content means that the copy is outdated.
fn check_skill(skill: &Skill) -> Check {
    let name = name_of_skill(skill);
    let source = skill.source.display();
    match Skill::read(&skill.source) {
        Ok(found) if found == *skill => pass(&name, &format!("{source} says what was saved")),
        Ok(_) => {
            let next = format!("take the new text over: deskgate service edit SERVICE --skill {source}");
            fail(&name, &format!("{source} says something else than what was saved"), &next)
        }
        Err(error) => fail(&name, &error.to_string(), "mend the file, or leave the skill out"),
    }
}

fn next_for(provider: &Provider) -> &'static str {
    match provider {
        Provider::Scripted => "correct the model, or the script file it names",
        Provider::Account(_) => "correct the model, or the provider and its key: deskgate provider list",
    }
}

/// The checks of the folder, up to the first failure: the rest would only repeat its cause. With the folder's identity, if
/// it is one.
fn check_directory(
    directory: &Path,
    home: Option<&Path>,
    own: &Path,
    others: &[(String, PathBuf)],
) -> (Vec<Check>, Option<FolderIdentity>) {
    let [exists, folder, ..] = DIRECTORY_CHECKS;
    let shown = directory.display();
    let mut checks = Vec::new();
    let real = match directory.canonicalize() {
        Ok(real) => real,
        Err(error) => {
            checks.push(fail(exists, &format!("{shown}: {error}"), "create the folder or name another"));
            return (checks, None);
        }
    };
    checks.push(pass(exists, &format!("{shown} is there")));
    if !real.is_dir() {
        checks.push(fail(folder, &format!("{shown} is a file"), "name the folder that holds it"));
        return (checks, None);
    }
    let identity = match identity_of(&real) {
        Ok(identity) if identity.real_path == real => identity,
        Ok(_) => {
            checks.push(fail(folder, "it was replaced during the check", "run the check again"));
            return (checks, None);
        }
        Err(error) => {
            checks.push(fail(folder, &error.to_string(), "remove the cause, and check again"));
            return (checks, None);
        }
    };
    checks.push(match real == directory {
        true => pass(folder, "it is"),
        false => pass(folder, &format!("it is, and stands for {}", real.display())),
    });
    checks.extend(check_extent(&real, home, own, others));
    (checks, Some(identity))
}

/// The checks of what the folder contains, by its real path, up to the first failure.
fn check_extent(real: &Path, home: Option<&Path>, own: &Path, others: &[(String, PathBuf)]) -> Vec<Check> {
    let [.., narrow, readable] = DIRECTORY_CHECKS;
    let mut checks = Vec::new();
    if let Some((cause, next)) = refusal(real, home, own) {
        checks.push(fail(narrow, &cause, next));
        return checks;
    }
    let mut cause = "it is neither the root nor the home directory, nor the agent's own".to_owned();
    cause.extend(others.iter().filter_map(|(name, other)| shared_with(name, other, real)));
    checks.push(pass(narrow, &cause));
    checks.push(match std::fs::read_dir(real) {
        Ok(_) => pass(readable, "its list of files can be read"),
        Err(error) => fail(readable, &error.to_string(), "give this user the right to read it"),
    });
    checks
}

/// Why no service may have a folder, by its real path, and what to do instead.
pub(super) fn refusal(real: &Path, home: Option<&Path>, own: &Path) -> Option<(String, &'static str)> {
    let shown = real.display();
    let home = home.and_then(|home| home.canonicalize().ok());
    if real.parent().is_none() || home.is_some_and(|home| home.starts_with(real)) {
        let cause = format!("{shown} is the root or home directory, or contains your home directory");
        return Some((cause, "choose a folder that holds only what the service needs"));
    }
    let is_own = own.canonicalize().is_ok_and(|own| real.starts_with(own));
    is_own.then(|| {
        let cause = format!("{shown} is the agent's own folder, or lies in it");
        (cause, "choose a folder outside of it: what the agent keeps there is for no assistant")
    })
}

/// What it means that the folder of another service lies around this one, or inside.
fn shared_with(name: &str, other: &Path, real: &Path) -> Option<String> {
    let other = other.canonicalize().ok()?;
    Some(match () {
        () if other == real => format!("; the service {name} works in the same folder"),
        () if real.starts_with(&other) => {
            format!("; it lies in the folder of the service {name}, which can change what is here")
        }
        () if other.starts_with(real) => {
            format!("; the folder of the service {name} lies in it, and this service can change what is there")
        }
        () => return None,
    })
}

pub(super) fn pass(name: &str, cause: &str) -> Check {
    Check { name: name.to_owned(), verdict: CheckResult::Pass, cause: cause.to_owned(), next: None }
}

pub(super) fn skip(name: &str, cause: &str) -> Check {
    Check { name: name.to_owned(), verdict: CheckResult::Skip, cause: cause.to_owned(), next: None }
}

pub(super) fn fail(name: &str, cause: &str, next: &str) -> Check {
    Check { name: name.to_owned(), verdict: CheckResult::Fail, cause: cause.to_owned(), next: Some(next.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_assistant::mcp::McpServers;
    use deskgate_assistant::mcp::connections::Connections;
    use deskgate_assistant::providers::Providers;
    use deskgate_definition::{ApprovalPolicy, Network, RunLimits};

    fn computer(home: Option<&Path>) -> CheckEnvironment {
        let nowhere = Path::new("/nonexistent");
        let (accounts, servers) = (Providers::new(nowhere.into()), McpServers::new(Connections::new(nowhere.into())));
        CheckEnvironment { home: home.map(Path::to_owned), own_folder: nowhere.into(), accounts, servers }
    }

    fn definition(folder: &Path) -> Definition {
        Definition {
            name: "Reader".to_owned(),
            description: String::new(),
            working_directory: folder.to_owned(),
            provider: Provider::Scripted,
            model: "folder".to_owned(),
            reasoning: Default::default(),
            model_reads: None,
            cost_shown_to: Default::default(),
            data: Default::default(),
            instructions: "Answer.".to_owned(),
            tools: ToolName::WORKSPACE_TOOLS.to_vec(),
            skills: Vec::new(),
            mcp: Vec::new(),
            approvals: ApprovalPolicy::default(),
            protected: Vec::new(),
            network: Network::None,
            limits: RunLimits::default(),
        }
    }

    /// Makes the report, and checks that each check's name was known before.
    async fn made(definition: &Definition, computer: &CheckEnvironment) -> CheckReport {
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |check: &Check| told.lock().expect("no panic").push(check.clone());
        let report = check(definition, computer, &[], Vec::new(), &tell).await;
        assert_eq!(told.into_inner().expect("no panic"), report.checks);
        let names = names(definition);
        assert!(report.checks.iter().all(|check| names.contains(&check.name)), "{report:?}");
        report
    }

    fn failed(report: &CheckReport) -> Vec<&str> {
        let failed = report.checks.iter().filter(|check| check.verdict == CheckResult::Fail);
        assert!(failed.clone().all(|check| check.next.is_some()), "each failure says what to do next");
        failed.map(|check| check.name.as_str()).collect()
    }

    #[tokio::test]
    async fn a_sound_definition_passes_and_each_selected_tool_was_tried() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let report = made(&definition(folder.path()), &computer(None)).await;
        assert!(report.passed(), "{report:?}");
        let passed = |name: &str| report.checks.iter().any(|c| c.name == name && c.verdict == CheckResult::Pass);
        let tools = ["tool Read", "tool Grep", "tool Glob", "tool Edit", "tool Write"];
        assert!(tools.into_iter().chain(["directory is writable"]).all(passed));
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "nothing is left of the trial");
    }

    #[tokio::test]
    async fn fetch_is_made_ready_and_the_check_says_what_asks_first() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (rule, words) in
            [(None, "no rule allows a host"), (Some("allow Fetch:*.example.com"), "of hosts that no rule")]
        {
            let rules = rule.map(|rule| rule.parse().expect("a rule")).into_iter().collect();
            let approvals = ApprovalPolicy { rules, ..ApprovalPolicy::default() };
            let online = Definition { tools: vec![ToolName::Fetch], approvals, ..definition(folder.path()) };
            let report = made(&online, &computer(None)).await;
            let fetch = report.checks.iter().find(|check| check.name == "tool Fetch").expect("it was tried");
            assert!(fetch.verdict == CheckResult::Pass && fetch.cause.contains(words), "{fetch:?}");
            assert!(report.passed(), "no network setting is needed, and no file is tried: {report:?}");
        }
    }

    #[tokio::test]
    async fn the_home_directory_what_contains_it_and_the_root_are_too_wide() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let home = folder.path().join("home/me");
        std::fs::create_dir_all(&home).expect("created");
        for wide in [home.as_path(), &folder.path().join("home"), Path::new("/")] {
            let report = made(&definition(wide), &computer(Some(&home))).await;
            assert_eq!(failed(&report), ["directory is narrow enough"], "{}", wide.display());
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&home, &link).expect("linked");
        assert_eq!(failed(&made(&definition(&link), &computer(Some(&home))).await), ["directory is narrow enough"]);
        let inside = home.join("project");
        std::fs::create_dir(&inside).expect("created");
        assert!(made(&definition(&inside), &computer(Some(&home))).await.passed());
    }

    #[tokio::test]
    async fn the_agents_own_folder_and_what_lies_in_it_fail_once_with_what_to_do() {
        let own = tempfile::tempdir().expect("temporary folder");
        let inside = own.path().join("invoices");
        std::fs::create_dir(&inside).expect("created");
        let computer = CheckEnvironment { own_folder: own.path().to_owned(), ..computer(None) };
        for folder in [own.path(), &inside] {
            let report = made(&definition(folder), &computer).await;
            assert_eq!(failed(&report), ["directory is narrow enough"], "{}", folder.display());
        }
    }

    #[tokio::test]
    async fn what_is_missing_fails_with_its_own_check() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let gone = folder.path().join("gone");
        assert_eq!(failed(&made(&definition(&gone), &computer(None)).await), ["directory exists"]);
        let mut mute = definition(folder.path());
        mute.instructions = " \n".to_owned();
        mute.model = format!("script:{}", gone.display());
        assert_eq!(failed(&made(&mute, &computer(None)).await), ["provider and model", "instructions"]);
    }
}
