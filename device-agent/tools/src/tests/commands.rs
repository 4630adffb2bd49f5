//! Bash as a model sees it.

use deskgate_definition::approvals::{ApprovalPolicy, GrantScope, Rule, RuleAction, RuleVerdict};
use deskgate_definition::tool::{Plan, PlanPreview};
use serde_json::json;

use super::*;

fn with_bash(place: &Path) -> Toolbox {
    let (directory, own) = (place.join("in"), place.join("out"));
    let options = WorkspaceOptions::of(&directory, &own);
    Toolbox::open(&[ToolName::Bash], &[], options).expect("bubblewrap is installed and user namespaces are allowed")
}

async fn bash(toolbox: &Toolbox, arguments: Value) -> ToolOutput {
    toolbox.call("Bash", arguments, CancellationToken::new()).await.expect("a sandbox stands")
}

#[tokio::test]
async fn a_command_says_what_it_said_and_how_it_ended() {
    let place = place();
    let toolbox = with_bash(place.path());
    let cases = [
        ("echo out; echo err >&2", "out\nerr"),
        ("true", "(no output)"),
        ("echo before; exit 3", "before\n\n(exit status 3)"),
        ("kill -SEGV $$", "(exit status 139, as after SIGSEGV)"),
        ("printf 'a\\0b\\033[31m\\377'", "a?b?[31m?"),
        ("cat ../out/secret.txt 2>/dev/null", "(exit status 1)"),
    ];
    for (command, text) in cases {
        let told = bash(&toolbox, json!({ "command": command, "description": "tries" })).await;
        assert_eq!((told.text.as_str(), told.is_error), (text, false), "{command}");
    }
    let told = bash(&toolbox, json!({ "command": "echo begun; sleep 60", "timeout": 300 })).await;
    assert_eq!(told, ToolOutput::ok("begun\n\n(the command was ended because it took longer than 300 ms)"));
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_in_the_plan_and_in_the_call() {
    let place = place();
    let toolbox = with_bash(place.path());
    let wrong = [
        json!({ "command": " \n" }),
        json!({ "command": "true\u{0}" }),
        json!({ "command": "x".repeat(70_000) }),
        json!({ "command": "true", "timeout": 0 }),
        json!({ "command": "true", "timeout": 600_001 }),
        json!({ "command": "true", "run_in_background": true }),
        json!({}),
    ];
    for arguments in wrong {
        let told = bash(&toolbox, arguments.clone()).await;
        assert!(told.is_error);
        assert_eq!(toolbox.plan("Bash", &arguments).expect("there").await, Err(told), "{arguments}");
    }
}

#[tokio::test]
async fn a_plan_shows_the_command_and_its_words_and_runs_nothing() {
    let place = place();
    let toolbox = with_bash(place.path());
    let command = "touch 'a file' && rm -rf $(pwd)";
    let plan = toolbox.plan("Bash", &json!({ "command": command })).expect("there").await.expect("fits");
    let words = ["touch", "a file", "&&", "rm", "-rf", "$(pwd)"].map(str::to_owned).to_vec();
    let shown = PlanPreview::Command { command: command.to_owned(), words };
    assert_eq!(plan, Plan { place: None, shown });
    assert_eq!(tree(&place.path().join("in")), []);
}

#[tokio::test]
async fn a_rule_about_paths_lets_no_command_run_and_a_yes_for_the_run_says_that_it_is_about_every_command() {
    let place = place();
    let plan = with_bash(place.path()).plan("Bash", &json!({ "command": "ls" })).expect("there").await.expect("fits");
    let place = plan.place.as_deref();
    assert_eq!(GrantScope::of("Bash", place).to_string(), "every further call of Bash, whatever its arguments");
    let verdict = |tool: &str, path: Option<&str>| {
        let rule = Rule { action: RuleAction::Allow, tool: tool.to_owned(), path: path.map(str::to_owned) };
        let rules = ApprovalPolicy { rules: vec![rule], ..ApprovalPolicy::default() }.rulebook().expect("readable");
        rules.verdict("Bash", place, true)
    };
    assert_eq!(verdict("*", Some("**")), RuleVerdict::Ask);
    assert_eq!(verdict("Bash", None), RuleVerdict::Allow, "which is how an owner allows commands");
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_ends() {
    let place = place();
    let toolbox = with_bash(place.path());
    let call = toolbox.call("Bash", json!({ "command": "exec sleep 1414213" }), CancellationToken::new());
    let runs = || {
        let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
        let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        entries.filter_map(line).any(|line| line == b"sleep\x001414213\0")
    };
    let is = async |running: bool| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while runs() != running {
            assert!(std::time::Instant::now() < until, "the command runs: {}", !running);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = call => panic!("it was to sleep: {ended:?}"),
        () = is(true) => {}
    }
    is(false).await;
}
