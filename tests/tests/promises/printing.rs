//! What commands, pages and logs show: foreign text steers nothing, and a reader that has seen enough ends a command quietly.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, binaries};
use serde_json::{Value, json};

use crate::text;

/// Clears the screen, sets the window's title, turns what follows round.
const STEERING: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1m\u{202e}";

fn is_visible(printed: &str) -> bool {
    printed.chars().all(|c| c == '\n' || c == '\t' || (!c.is_control() && c != '\u{202e}'))
}

/// What is left on stderr, and the exit code, when nobody reads what the command prints.
fn run_without_reader(program: PathBuf, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

#[test]
fn a_reader_that_has_gone_ends_a_command_quietly() {
    for arguments in [&["openapi"][..], &["exit-codes"], &["config", "example"], &["completions", "bash"], &["version"]]
    {
        let ended = run_without_reader(binaries::gateway(), arguments);
        assert_eq!(ended, (String::new(), Some(0)), "deskgate-gateway {arguments:?}");
    }
    for arguments in [&["exit-codes"][..], &["completions", "bash"]] {
        let ended = run_without_reader(binaries::agent(), arguments);
        assert_eq!(ended, (String::new(), Some(0)), "deskgate {arguments:?}");
    }
}

#[tokio::test]
async fn text_of_callers_and_assistants_steers_no_terminal_page_or_log_and_stays_whole_for_programs() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let answer = format!("Two lines.\nThe second{STEERING} ends.");
    let model = folder.script("steering", json!([{ "text": answer }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/result/text"), answer);

    let shown = device.plain_cli(&["run", "show", &run_id]).await;
    assert!(is_visible(&shown.stdout) && shown.stdout.contains("The second<U+001B>[2J"), "{}", shown.stdout);
    let tried = device.plain_cli(&["service", "try", "shop", "--input", "Try this.", "--wait", "60s"]).await;
    assert!(is_visible(&tried.stdout) && tried.stdout.contains("<U+001B>[2J"), "{}{}", tried.stdout, tried.stderr);
    let refused = device.plain_cli(&["service", "show", &format!("no{STEERING}such")]).await;
    // What a person typed is quoted in the message, and so visible already.
    assert!(refused.exit != 0 && is_visible(&refused.stderr) && refused.stderr.contains("such"), "{}", refused.stderr);

    let shown = device.cli(&["run", "show", &run_id]).await;
    assert!(is_visible(&shown.stdout), "{}", shown.stdout);
    let value: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert!(value.to_string().contains(&serde_json::to_string(&answer).expect("JSON")), "{value}");

    let visitor = Visitor::of(&device).await;
    for path in [format!("/runs/{run_id}"), "/runs".to_owned(), "/".to_owned()] {
        let page = visitor.page(&path).await.text;
        assert!(is_visible(&page) && !page.contains("&#60;time"), "{path}: {page}");
    }
    let page = visitor.page(&format!("/runs/{run_id}")).await.text;
    assert!(page.contains("The second&#60;U+001B&#62;[2J"), "{page}");
    // What a form holds goes back as it is: a joiner belongs to Persian words.
    let joined = "\u{646}\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}";
    device.cli(&["service", "edit", "shop", "--instructions", joined]).await.ok();
    let draft_id = text(&device.cli(&["service", "show", "shop"]).await.ok(), "/draft_id").to_owned();
    assert!(visitor.page(&format!("/services/{draft_id}")).await.text.contains(joined));
    assert!(is_visible(&gateway.log().all()) && is_visible(&device.log().all()));
}
