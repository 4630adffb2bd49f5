//! A device that cannot execute a run reports why.

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use rustix::process::Signal;

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn a_device_that_lost_its_published_version_fails_the_run_with_definition_mismatch() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.stop(Signal::TERM).await;

    let mut fresh = device.with_the_same_key().await;
    let invitation = fresh.pair(&gateway, &[]).await;
    fresh.connect(gateway.ssh(), &invitation, &gateway.control_token_file()).await.ok();
    fresh.wait_until_connected().await;
    // Its first connection to a gateway paused access, as after every change of the mode.
    fresh.cli(&["access", "enable"]).await.ok();
    let run = backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("failed", "definition_mismatch"), "{run}");
    assert_eq!(text(&run, "/error/effects"), "none", "{run}");
    for run_id in backend.accepted() {
        assert_eq!(fresh.executions(&run_id), 0, "nothing was executed");
    }
}

#[tokio::test]
async fn a_run_in_a_folder_that_vanished_fails_with_tool_error_and_the_check_says_so() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    folder.vanish();
    let run = backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("failed", "tool_error"), "{run}");
    assert_eq!(text(&run, "/error/effects"), "none", "{run}");
    let path = folder.path().display().to_string();
    assert!(!run.to_string().contains(&path), "callers do not learn of paths: {run}");

    let checked = device.plain_cli(&["service", "check", "shop"]).await;
    assert_eq!(checked.exit, 10, "{}{}", checked.stdout, checked.stderr);
    assert!(checked.stdout.lines().any(|line| line.starts_with("FAIL")), "{}", checked.stdout);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_arrives_cut_and_says_so() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    // Two bytes a character: a limit in bytes falls into the middle of one.
    let long = folder.script("long", serde_json::json!([{ "text": format!("x{}", "é".repeat(1_500_000)) }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &long]).await;
    let run = backend.wait_for_end(&backend.submit("Tell me everything.").await).await;
    assert_eq!((text(&run, "/state"), text(&run, "/result/finish_reason")), ("succeeded", "length"), "the state");
    let answer = text(&run, "/result/text");
    assert!(answer.starts_with("xé") && answer.len() > 100_000, "{} bytes arrived", answer.len());
    everything_accepted_ended_once(&backend, &device).await;
}
