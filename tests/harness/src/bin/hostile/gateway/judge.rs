//! What a behaviour changed, by witnesses beside the product: folders, the model's journal, the ledger, the kernel, and
//! what people are shown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use deskgate_tests::device::CommandOutput;

use super::siege::{LEDGER, SECRET, Siege};
use crate::behaviour::Allowed;
use crate::witnesses::{Levels, changes, hidden_in, tree};

/// How much memory and how many files a hostile gateway may cost the agent.
const MAX_GROWTH_MIB: f64 = 64.0;
const MAX_GROWTH_FILES: usize = 64;
/// How long the command line may take: two seconds for the gateway, and the start of a program.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(3);

/// How long a command may run before what stands in its folder counts as changed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3);

/// One look of all witnesses.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// How often the model was asked, and how often with the secret.
    pub(super) questions: usize,
    pub(super) told_secrets: usize,
    pub(super) ledger: Vec<String>,
    /// The folders without the ledger.
    pub(super) folders: [BTreeMap<String, String>; 3],
    /// `None`: the agent's process has ended.
    pub(super) levels: Option<Levels>,
    /// What was shown or logged since the last look, by where.
    pub(super) shown: Vec<(&'static str, String)>,
    /// How long each command took, and its exit code.
    pub(super) commands: Vec<(&'static str, Duration, i32)>,
}

/// Looks. `logged`: how much of the agent's log was seen before.
pub(super) async fn look(siege: &Siege, logged: &mut usize) -> Look {
    let asked: Vec<_> = siege.model.asked().iter().chain(&siege.model.refused()).map(ToString::to_string).collect();
    let mut folders = folders_at_rest(siege).await;
    folders[0].remove(LEDGER);
    let log = siege.device.log().all();
    let mut shown = vec![("the log", log.get(*logged..).unwrap_or_default().to_owned())];
    *logged = log.len();
    // Each waits for two seconds if the gateway answers nothing.
    let answers = tokio::join!(timed(siege, &["status"]), timed(siege, &["approval", "list"]));
    let mut commands = Vec::new();
    for (name, (took, said)) in [("status", answers.0), ("approvals list", answers.1)] {
        commands.push((name, took, said.exit));
        shown.push((name, said.stdout + &said.stderr));
    }
    Look {
        questions: asked.len(),
        told_secrets: asked.iter().filter(|body| body.contains(SECRET)).count(),
        ledger: Siege::ledger(&siege.folders[0]),
        folders,
        levels: Levels::of(siege.device.process().id()),
        shown,
        commands,
    }
}

/// What a command of the desktop's owner says, and how long it takes.
async fn timed(siege: &Siege, arguments: &[&str]) -> (Duration, CommandOutput) {
    let began = Instant::now();
    let said = siege.device.plain_cli(arguments).await;
    (began.elapsed(), said)
}

/// The folders once no command runs: while one does, empty files stand for protected names that are missing.
async fn folders_at_rest(siege: &Siege) -> [BTreeMap<String, String>; 3] {
    let began = Instant::now();
    loop {
        let folders = siege.folders.clone().map(|folder| tree(&folder));
        let at_rest = folders.iter().all(|folder| folder.keys().all(|name| !name.starts_with('.')));
        if at_rest || began.elapsed() > COMMAND_TIMEOUT {
            return folders;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What changed between two looks that must not. `first`: the levels before anything hostile.
pub(super) fn effects(before: &Look, after: &Look, first: Levels, allowed: Allowed) -> Vec<String> {
    let mut effects = Vec::new();
    let asked = after.questions.saturating_sub(before.questions);
    if asked > allowed.questions {
        effects.push(format!("the model was asked {asked} times; {} were allowed", allowed.questions));
    }
    if after.told_secrets > before.told_secrets {
        effects.push("the model was told what another conversation holds".to_owned());
    }
    let lines = after.ledger.len().saturating_sub(before.ledger.len());
    if lines > allowed.ledger_lines || !after.ledger.starts_with(&before.ledger) {
        effects.push(format!("the ledger got {lines} lines; {} were allowed", allowed.ledger_lines));
    }
    for (name, (was, is)) in ["the service's folder", "another service's folder", "the victim's folder"]
        .iter()
        .zip(before.folders.iter().zip(&after.folders))
    {
        let changed = changes(was, is);
        if !changed.is_empty() {
            effects.push(format!("{name} changed: {}", changed.join(", ")));
        }
    }
    match after.levels {
        None => effects.push("the agent's process has ended".to_owned()),
        Some(levels) => effects.extend(levels.growth_since(first, MAX_GROWTH_MIB, MAX_GROWTH_FILES)),
    }
    for (place, text) in &after.shown {
        if let Some(hidden) = hidden_in(text) {
            effects.push(format!("{place} shows {hidden}"));
        }
    }
    for (command, took, exit) in &after.commands {
        if *took > MAX_ANSWER_TIME || *exit != 0 {
            effects.push(format!("`deskgate {command}` ended with {exit} after {} ms", took.as_millis()));
        }
    }
    effects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviour::NOTHING;

    const LEVELS: Levels = Levels { resident_mib: 50.0, files: 20 };

    fn quiet() -> Look {
        Look {
            levels: Some(LEVELS),
            commands: vec![("status", Duration::from_millis(90), 0)],
            shown: vec![("status", "connected\n".to_owned())],
            ..Look::default()
        }
    }

    #[test]
    fn a_behaviour_that_changed_nothing_has_no_effect_and_an_allowed_run_is_none() {
        assert!(effects(&quiet(), &quiet(), LEVELS, NOTHING).is_empty());
        let after = Look { questions: 2, ledger: vec!["t".to_owned()], ..quiet() };
        assert!(effects(&quiet(), &after, LEVELS, Allowed { questions: 2, ledger_lines: 1 }).is_empty());
    }

    #[test]
    fn each_witness_alone_shows_an_effect() {
        let mut folders: [BTreeMap<String, String>; 3] = Default::default();
        folders[2].insert("x".to_owned(), "1".to_owned());
        let looks = [
            Look { questions: 1, ..quiet() },
            Look { told_secrets: 1, ..quiet() },
            Look { ledger: vec!["t".to_owned()], ..quiet() },
            Look { folders, ..quiet() },
            Look { levels: None, ..quiet() },
            Look { levels: Some(Levels { resident_mib: 150.0, ..LEVELS }), ..quiet() },
            Look { shown: vec![("the log", "\u{1b}[2J".to_owned())], ..quiet() },
            Look { commands: vec![("status", Duration::from_secs(30), 0)], ..quiet() },
            Look { commands: vec![("status", Duration::ZERO, 5)], ..quiet() },
        ];
        for look in looks {
            assert_eq!(effects(&quiet(), &look, LEVELS, NOTHING).len(), 1, "{look:?}");
        }
    }
}
