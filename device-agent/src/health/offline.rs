//! Health without an agent: problems found on the disk, in the database, and by tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use deskgate_definition::{Provider, Service};
use deskgate_protocol::Timestamp;
use deskgate_store::{Error, Store};

use super::{Finding, HealthReport, IgnoredProblem, IgnoredProblems, ProblemCode, ProblemTracker, computer, services};
use crate::config::Home;
use crate::settings::{ConnectionSettings, Mode};

/// Problems that only a running agent can detect.
const UNCHECKED_CODES: [ProblemCode; 18] = [
    ProblemCode::HostKeyNotTrusted,
    ProblemCode::VersionMismatch,
    ProblemCode::DeviceNotAccepted,
    ProblemCode::ControlTokenRefused,
    ProblemCode::GatewayUnreachable,
    ProblemCode::CertificateNotTrusted,
    ProblemCode::ProviderMissing,
    ProblemCode::ProviderRefusesKey,
    ProblemCode::ModelUnusable,
    ProblemCode::KeyringShut,
    ProblemCode::PagesDown,
    ProblemCode::RunsUnsettled,
    ProblemCode::ApprovalExpires,
    ProblemCode::AccessPaused,
    ProblemCode::CallbackOff,
    ProblemCode::SleepNotPrevented,
    ProblemCode::ClockBehind,
    ProblemCode::JournalUnwritable,
];

/// The data that the agent would start with.
#[derive(Default)]
struct OfflineState {
    services: Option<Vec<Service>>,
    ignored: Vec<IgnoredProblem>,
    /// `None` if it cannot be read.
    mode: Option<Mode>,
}

/// Makes one check. `gateway` reports why a gateway with its state in this folder could not start; it is called in
/// built-in mode.
pub async fn look(home: &Home, gateway: impl FnOnce(&Path) -> Result<(), String>) -> HealthReport {
    let (mut findings, mut not_asked) = (Vec::new(), BTreeSet::from(UNCHECKED_CODES));
    let mut kept = OfflineState::default();
    if home.path().exists() {
        findings.extend(home.check().err().map(|error| {
            Finding::about(
                ProblemCode::FileLoose,
                "home",
                error.to_string(),
                format!("Run: chmod 700 {}", home.path().display()),
            )
        }));
        findings.extend(computer::look(home.path()));
    }
    let agent = match read(home).await {
        Ok(read) => {
            kept = read;
            down("Nobody answers for this folder.", "Start it: deskgate start")
        }
        // The process that holds the database is an agent that does not answer.
        Err(Error::InUse { .. }) => down(
            "Another process works in this folder and does not answer. It is starting, stopping, or hangs.",
            &format!("Try again in a moment. If it stays so, its log may say why: {}", home.log().display()),
        ),
        // This is no problem: the next start migrates the schema.
        Err(Error::OlderSchema) => down(
            "Nobody answers for this folder. Its database is of an earlier version, so services were not looked at.",
            "Start it, which brings the database up to date: deskgate start",
        ),
        Err(error) => {
            findings.push(Finding::new(
                ProblemCode::JournalUnwritable,
                error.to_string(),
                "Mend that; the agent cannot start without.",
            ));
            down("Nobody answers for this folder, and an agent could not start in it.", "See the problem below.")
        }
    };
    findings.push(agent);
    match &kept.services {
        Some(published) => {
            findings.extend(services::look(published));
            findings.extend(services::try_sandboxes(published, home.path()).await);
        }
        None => not_asked.extend([
            ProblemCode::ServiceUnreadable,
            ProblemCode::FolderGone,
            ProblemCode::FolderReplaced,
            ProblemCode::SandboxMissing,
            ProblemCode::ServicePaused,
        ]),
    }
    if kept.mode == Some(Mode::BuiltIn)
        && let Err(why) = gateway(&home.gateway())
    {
        let next = "Do that, and start the agent: deskgate start";
        findings.push(Finding::new(
            ProblemCode::GatewayUnreachable,
            format!("The built-in gateway cannot start. {why}"),
            next,
        ));
    }
    not_asked.retain(|code| findings.iter().all(|finding| finding.code != *code));
    if !asks_models(&kept) {
        not_asked.remove(&ProblemCode::ProviderMissing);
        not_asked.remove(&ProblemCode::ProviderRefusesKey);
        not_asked.remove(&ProblemCode::ModelUnusable);
    }
    if ![home.providers(), home.mcp_servers(), home.accounts()].iter().any(|folder| has_files(folder)) {
        not_asked.remove(&ProblemCode::KeyringShut);
    }
    report(findings, &not_asked, &kept.ignored)
}

fn down(text: &str, next: &str) -> Finding {
    Finding::new(ProblemCode::AgentDown, text, next)
}

/// Reads without creating missing files.
async fn read(home: &Home) -> Result<OfflineState, Error> {
    if !home.database().exists() {
        return Ok(OfflineState { services: Some(Vec::new()), mode: Some(Mode::default()), ..OfflineState::default() });
    }
    let store = Store::look(home.database()).await?;
    let settings = store.settings();
    Ok(OfflineState {
        services: Some(store.services().list().await?),
        ignored: settings.get::<IgnoredProblems>().await?.0,
        mode: Some(settings.get::<ConnectionSettings>().await?.mode),
    })
}

fn asks_models(kept: &OfflineState) -> bool {
    let published = kept.services.iter().flatten().filter_map(|service| service.published.as_ref());
    published.into_iter().any(|version| version.definition.provider != Provider::Scripted)
}

/// Whether the folder holds configuration files, which may have keys.
fn has_files(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some())
}

/// The report of a single check, so temporary findings are not waited for.
fn report(findings: Vec<Finding>, not_asked: &BTreeSet<ProblemCode>, ignored: &[IgnoredProblem]) -> HealthReport {
    let (mut board, now, at) = (ProblemTracker::default(), Instant::now(), Timestamp::now());
    board.report(findings.clone(), not_asked, ignored, now, at);
    let longest = ProblemCode::ENTRIES.iter().map(|entry| entry.delay).max().unwrap_or(Duration::ZERO);
    board.report(findings, not_asked, ignored, now + longest, at)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn codes(report: &HealthReport) -> Vec<ProblemCode> {
        report.problems.iter().map(|problem| problem.code).collect()
    }

    #[tokio::test]
    async fn what_can_be_told_without_an_agent_is_told_and_nothing_is_made_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        let report = look(&home, |_| Ok(())).await;
        assert_eq!(codes(&report), [ProblemCode::AgentDown]);
        assert!(report.fails() && !home.path().exists(), "a look makes nothing");
        let without = look(&home, |_| Err("no programs".to_owned())).await;
        assert_eq!(codes(&without), [ProblemCode::AgentDown, ProblemCode::GatewayUnreachable]);
        assert!(!without.not_asked.iter().any(|title| without.fine.contains(title)));

        home.prepare().expect("made");
        std::fs::write(home.control_token(), "x").expect("written");
        std::fs::set_permissions(home.control_token(), std::fs::Permissions::from_mode(0o644)).expect("ours");
        let store = Store::open(home.database()).await.expect("opened");
        let held = look(&home, |_| Err("it was asked, and nobody knows whether there is one".to_owned())).await;
        assert_eq!(codes(&held), [ProblemCode::AgentDown, ProblemCode::FileLoose]);
        assert!(held.problems[0].text.contains("Another process"), "{held:?}");
        assert!(held.not_asked.iter().any(|title| title == ProblemCode::FolderGone.entry().fine));
        drop(store);
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(codes(&look(&home, |_| Ok(())).await).contains(&ProblemCode::FileLoose));
    }
}
