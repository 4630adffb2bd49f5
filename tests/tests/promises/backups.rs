//! Backups: made while the gateway works, verified, and restored without silently executing a run twice.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use deskgate_protocol::JournalId;
use deskgate_protocol::control::{ByeCode, DeviceFrame, GatewayFrame};
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::frames::{publish, run_id};
use crate::text;

fn place(gateway: &GatewayProcess, name: &str) -> String {
    gateway.folder().join(name).to_str().expect("a plain name").to_owned()
}

#[tokio::test]
async fn a_restored_gateway_executes_nothing_again_that_ran_since_and_says_of_what_it_does_not_know_the_end() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(4000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow, "--concurrency", "1"]).await;
    let ended = backend.submit("Before.").await;
    backend.wait_for_end(&ended).await;
    let running = backend.submit("Now.").await;
    backend.wait_for_state(&running, "running").await;
    let queued = backend.submit("Then.").await;

    let backup = place(&gateway, "backup");
    let taken = gateway.command_line(&["backup", "create", &backup]).await.ok();
    assert_eq!((&taken["backup"]["open_runs"], &taken["backup"]["at_rest"]), (&json!(2), &json!(false)), "{taken}");
    let not_included = taken["backup"]["not_included"].to_string();
    assert!(not_included.contains(&place(&gateway, "state/seal")), "{not_included}");
    let mode = std::fs::metadata(&backup).expect("made").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);

    // Work goes on: runs that are queued and running in the backup are executed.
    for run_id in [&running, &queued] {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), "succeeded");
    }
    let later = backend.submit("After the backup.").await;
    backend.wait_for_end(&later).await;

    let restore = ["backup", "restore", &backup];
    let busy = gateway.command_line(&restore).await;
    assert!(busy.exit == 6 && busy.stderr.contains("The gateway runs"), "{}", busy.stderr);
    gateway.stop(Signal::TERM).await;
    let full = gateway.command_line(&restore).await;
    assert!(full.exit == 6 && full.stderr.contains("--accept-risk=replace-database"), "{}", full.stderr);
    let risky = [&restore[..], &["--accept-risk", "replace-database"]].concat();
    let lie = gateway.command_line(&[&risky[..], &["--nothing-ran-since"]].concat()).await;
    assert_eq!(lie.exit, 6, "a gateway was at work: {}", lie.stderr);
    // A killed restore leaves the old state aside. A gateway does not start on that, and the next restore goes on from
    // it.
    postgres.change("ALTER SCHEMA public RENAME TO deskgate_replaced").await;
    postgres.change("CREATE SCHEMA public").await;
    for words in [&["check"][..], &["migrate", "run"]] {
        let said = gateway.command_line(words).await;
        let said = format!("{} {}{}", said.exit, said.stdout, said.stderr);
        assert!(!said.starts_with('0') && said.contains("backup restore FOLDER` again"), "{said}");
    }
    let restored = gateway.command_line(&risky).await.ok();
    assert_eq!(restored["runs_in_doubt"], 2, "{restored}");

    gateway.restart().await;
    device.wait_until_connected().await;
    assert_eq!(text(&backend.run(&ended).await, "/state"), "succeeded", "what had ended is as it was");
    // A newly accepted run is executed, and earlier ones are not, although there are free slots.
    let fresh = backend.submit("And now.").await;
    assert_eq!(text(&backend.wait_for_end(&fresh).await, "/state"), "succeeded");
    for run_id in [&running, &queued] {
        let run = backend.run(run_id).await;
        assert_eq!(text(&run, "/state"), "awaiting_reconciliation", "{run}");
        assert_eq!(device.executions(run_id), 1, "nothing ran twice");
    }
    assert_eq!(backend.read(&later, 0).await.expect("answered").status.as_u16(), 404, "it is not known any more");
    let events = device.events(&running).await;
    assert_eq!(events.last().map(String::as_str), Some("run.awaiting_reconciliation"), "{events:?}");
    // The administrator ends one by an accepted risk; its effects stay possible.
    gateway.admin(&["run", "stop", &queued, "--accept-risk", "interrupt-runs", "--wait", "30s"]).await.ok();
    assert_eq!(text(&backend.wait_for_end(&queued).await, "/state"), "cancelled");
}

#[tokio::test]
async fn a_run_that_its_desktop_never_had_goes_back_to_its_place_in_the_queue_after_a_restore_and_runs_once() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &["--concurrency", "1"]).await;
    device.stop(Signal::TERM).await;
    let waiting = [backend.submit("Whenever you are there.").await, backend.submit("And then this.").await];
    let backup = place(&gateway, "backup");
    let taken = gateway.command_line(&["backup", "create", &backup]).await.ok();
    assert_eq!(taken["backup"]["open_runs"], 2, "{taken}");
    gateway.stop(Signal::TERM).await;
    let risky = ["backup", "restore", backup.as_str(), "--accept-risk", "replace-database"];
    assert_eq!(gateway.command_line(&risky).await.ok()["runs_in_doubt"], 2);
    gateway.restart().await;
    let run = backend.run(&waiting[0]).await;
    assert_eq!((text(&run, "/phase"), text(&run, "/state")), ("accepted", "awaiting_reconciliation"), "{run}");

    device.start().await;
    for run_id in &waiting {
        let run = backend.wait_for_end(run_id).await;
        assert_eq!((text(&run, "/state"), &run["attempt"]), ("succeeded", &json!(1)), "{run}");
        assert_eq!(device.executions(run_id), 1);
    }
    let [first, second] = [backend.run(&waiting[0]).await, backend.run(&waiting[1]).await];
    assert!(text(&first, "/finished_at") <= text(&second, "/started_at"), "in their old order: {first} {second}");
    let events = device.events(&waiting[0]).await;
    assert_eq!(
        events[..4],
        ["run.accepted", "run.awaiting_reconciliation", "run.reconciled", "run.started"],
        "{events:?}"
    );
}

#[tokio::test]
async fn what_only_the_owner_can_decide_after_a_restore_is_listed_on_the_desktop_and_ended_all_at_once() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.stop(Signal::TERM).await;
    let had = [backend.submit("One.").await, backend.submit("Two.").await];
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    // Executed since, as the journal knows and the backup does not.
    device.start().await;
    for run_id in &had {
        assert_eq!(text(&backend.wait_for_end(run_id).await, "/state"), "succeeded");
    }
    gateway.stop(Signal::TERM).await;
    gateway.command_line(&["backup", "restore", &backup, "--accept-risk", "replace-database"]).await.ok();
    gateway.restart().await;
    device.wait_until_connected().await;
    device.log().line(&["the gateway was restored", "asked=2", "never_had=0"]).await;
    let listed = device.cli(&["run", "settle"]).await.ok();
    let ids: Vec<_> = listed["unknown"].as_array().expect("a list").iter().map(|run| text(run, "/run_id")).collect();
    assert_eq!((ids, &listed["held"]), (vec![had[1].as_str(), had[0].as_str()], &json!([])), "{listed}");
    let ended = device.cli(&["run", "settle", "--end-unknown"]).await.ok();
    assert_eq!(ended["ended"].as_array().map(Vec::len), Some(2), "{ended}");
    for run_id in &had {
        let run = backend.wait_for_end(run_id).await;
        assert_eq!((text(&run, "/state"), device.executions(run_id)), ("cancelled", 1), "{run}");
        assert_eq!(run["attempt"], 0, "as far as the restored gateway knows it never began: {run}");
    }
    assert_eq!(device.cli(&["run", "settle"]).await.ok()["unknown"], json!([]));
}

#[tokio::test]
async fn a_desktop_whose_journal_is_another_one_has_no_say_in_what_became_of_a_run() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = RawIdentity { journal_id: Some(JournalId::new()), ..RawIdentity::new(41) };
    device.pair(&gateway, "desk").await.ok();
    let (mut line, _) = device.connect(&gateway, Vec::new()).await;
    let backend = publish(&mut line, &gateway).await;
    let id = backend.submit("Whenever there is room.").await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    gateway.stop(Signal::TERM).await;
    gateway.command_line(&["backup", "restore", &backup, "--accept-risk", "replace-database"]).await.ok();
    gateway.restart().await;

    // A new one, and then, as if it had been there all the time, the old one.
    let never_had = || DeviceFrame::Recalled { never_had: vec![run_id(&id)] };
    for other in [RawIdentity { journal_id: Some(JournalId::new()), ..device.clone() }, device.clone()] {
        let (mut line, _) = other.connect(&gateway, Vec::new()).await;
        line.send(&never_had()).await;
        let said = line.next_answering_pings().await;
        assert!(matches!(said, Some(GatewayFrame::Bye { code: ByeCode::ProtocolViolation, .. })), "{said:?}");
        assert_eq!(text(&backend.run(&id).await, "/state"), "awaiting_reconciliation");
    }
}

#[tokio::test]
async fn a_device_that_still_holds_a_run_of_the_backup_does_not_go_on_with_it_behind_the_gateways_back() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(600_000, "never");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    device.log().line(&["execution began", &run_id]).await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    gateway.stop(Signal::TERM).await;
    gateway.command_line(&["backup", "restore", &backup, "--accept-risk", "replace-database"]).await.ok();
    gateway.restart().await;
    device.wait_until_connected().await;
    until("the device to let go of it", async || {
        let runs = device.status().await["work"]["runs"].clone();
        if runs == json!([]) { Ok(()) } else { Err(runs.to_string()) }
    })
    .await;
    let run = backend.run(&run_id).await;
    assert_eq!((text(&run, "/state"), device.executions(&run_id)), ("awaiting_reconciliation", 1), "{run}");
}

#[tokio::test]
async fn a_backup_of_a_private_cluster_is_made_while_it_works_verified_and_a_damaged_one_is_found_out() {
    let mut gateway = GatewayProcess::on_private_cluster(&[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    let again = gateway.command_line(&["backup", "create", &backup]).await;
    assert!(again.exit == 1 && again.stderr.contains("is there already"), "{}", again.stderr);
    let verified: Value = gateway.command_line(&["backup", "verify", &backup]).await.ok();
    assert_eq!(verified["differences"], json!([]), "{verified}");
    assert_eq!(verified["backup"]["tables"]["runs"], 1, "{verified}");

    // A move to another server: backed up while stopped, restored into an empty database, and continued.
    let queued = {
        drop(device);
        backend.submit("Later.").await
    };
    gateway.stop(Signal::TERM).await;
    let at_rest = place(&gateway, "at-rest");
    let taken = gateway.command_line(&["backup", "create", &at_rest]).await.ok();
    assert_eq!(taken["backup"]["at_rest"], json!(true), "{taken}");
    let moved = ["backup", "restore", at_rest.as_str(), "--nothing-ran-since", "--accept-risk", "replace-database"];
    assert_eq!(gateway.command_line(&moved).await.ok()["runs_in_doubt"], 0);
    gateway.restart().await;
    assert_eq!(text(&backend.run(&queued).await, "/state"), "waiting_for_device");

    let dump = std::path::Path::new(&at_rest).join("database.dump");
    let mut bytes = std::fs::read(&dump).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&dump, bytes).expect("writable");
    let damaged = gateway.command_line(&["backup", "verify", &at_rest]).await;
    assert!(damaged.exit == 1 && damaged.stderr.contains("damaged"), "{}", damaged.stderr);
}

#[tokio::test]
async fn a_backup_is_verified_beside_the_gateways_own_database_which_is_left_as_it_was() {
    let postgres = Postgres::start_exclusive().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    let databases = "SELECT datname FROM pg_database ORDER BY datname";
    let before = postgres.rows(databases).await;
    let verified = gateway.command_line(&["backup", "verify", "--on-database-server", &backup]).await.ok();
    assert_eq!(verified["differences"], json!([]), "{verified}");
    assert_eq!(postgres.rows(databases).await, before, "what was made for it is gone");

    let page = std::path::Path::new(&backup).join("backup.json");
    let text = std::fs::read_to_string(&page).expect("readable");
    std::fs::write(&page, text.replace("\"devices\": 0", "\"devices\": 1")).expect("writable");
    let altered = gateway.command_line(&["backup", "verify", "--on-database-server", &backup]).await;
    assert!(altered.exit == 1 && altered.stderr.contains("backup.json is not what was written"), "{}", altered.stderr);
    std::fs::remove_file(std::path::Path::new(&backup).join("backup.hmac")).expect("removed");
    let unproven = ["backup", "verify", "--on-database-server", "--unproven-origin", &backup];
    let differs = gateway.command_line(&unproven).await;
    assert_eq!(differs.exit, 10, "{}", differs.stderr);
    assert!(differs.stdout.contains("devices: 0 rows, 1 in the backup"), "{}", differs.stdout);
    assert_eq!(postgres.rows(databases).await, before, "also when something is missing");
}

#[tokio::test]
async fn an_account_that_may_not_make_databases_is_told_so_and_what_to_do() {
    let postgres = Postgres::start_exclusive().await.as_owner_only().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    let refused = gateway.command_line(&["backup", "verify", "--on-database-server", &backup]).await;
    assert_eq!(refused.exit, 3, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("may not create databases") && refused.stderr.contains("CREATEDB"),
        "{}",
        refused.stderr
    );
    gateway.command_line(&["backup", "verify", &backup]).await.ok();
}

/// A session as a gateway's, which ends when the task does.
async fn session(postgres: &Postgres) -> AbortOnDropHandle<()> {
    let url = format!("{}?application_name=deskgate-gateway", postgres.url());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
    AbortOnDropHandle::new(tokio::spawn(async move {
        let _ = connection.await;
        drop(client);
    }))
}

#[tokio::test]
async fn a_restore_waits_a_moment_for_the_sessions_of_a_gateway_that_has_just_ended() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let backup = place(&gateway, "backup");
    gateway.command_line(&["backup", "create", &backup]).await.ok();
    gateway.stop(Signal::TERM).await;
    let restore = ["backup", "restore", &backup, "--accept-risk", "replace-database"];
    let ending = session(&postgres).await;
    let (restored, ()) = tokio::join!(gateway.command_line(&restore), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(ending);
    });
    restored.ok();
    let _staying = session(&postgres).await;
    let refused = gateway.command_line(&restore).await;
    assert!(refused.exit == 6 && refused.stderr.contains("Stop every replica first"), "{refused:?}");
}
