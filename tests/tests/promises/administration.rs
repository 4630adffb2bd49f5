//! What the server's administrator does to applications, runs and devices, by the real command line.

use std::path::Path;

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::text;

#[tokio::test]
async fn the_administrator_lists_all_applications_and_runs_in_pages_and_ends_one_by_its_accepted_risk() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (one, other) = (TestDevice::paired_with(&gateway).await, TestDevice::paired_with(&gateway).await);
    let (folder, device_id) = (Folder::new(), one.device_id().await);
    let slow = folder.slow_answer(600_000, "never");
    let shop = one.publish(&gateway, "shop", &folder, &["--model", &slow, "--concurrency", "1"]).await;
    other.publish(&gateway, "desk", &folder, &[]).await;
    let started = shop.submit("Take your time.").await;
    shop.wait_for_state(&started, "running").await;
    let queued = shop.submit("And then this.").await;

    let mut names = Vec::new();
    let mut before = Vec::new();
    loop {
        let page = gateway.admin(&[&["app", "list", "--limit", "1"], &before[..]].concat()).await.ok();
        assert_eq!(page["schema"], "applications/1");
        names.extend(page["applications"].as_array().expect("a list").iter().map(|app| text(app, "/name").to_owned()));
        match page["next"].as_str() {
            Some(next) => before = vec!["--before", Box::leak(next.to_owned().into_boxed_str())],
            None => break,
        }
    }
    assert_eq!(names, ["desk", "shop"], "newest first, each once");
    let first = gateway.admin(&["device", "list", "--limit", "1"]).await.ok();
    let second = gateway.admin(&["device", "list", "--limit", "1", "--before", text(&first, "/next")]).await.ok();
    assert_eq!((text(&second, "/devices/0/device_id"), &second["next"]), (device_id.as_str(), &json!(null)));
    let of_one = gateway.admin(&["app", "list", "--device", &device_id]).await.ok();
    assert_eq!(of_one["applications"].as_array().map(Vec::len), Some(1), "{of_one}");
    let runs = gateway.admin(&["run", "list"]).await.ok();
    let ids: Vec<_> = runs["runs"].as_array().expect("a list").iter().map(|run| text(run, "/run_id")).collect();
    assert_eq!((text(&runs, "/schema"), ids), ("runs/1", vec![queued.as_str(), &started]));
    let running = gateway.admin(&["run", "list", "--state", "running", "--app", "shop"]).await.ok();
    assert_eq!(text(&running, "/runs/0/run_id"), started);
    assert!(!runs.to_string().contains("Take your time"), "what callers send is none of the administrator's");

    // One run: a queued one is cancelled at once, a started one only by its accepted risk.
    gateway.admin(&["run", "stop", &queued]).await.ok();
    assert_eq!(text(&shop.wait_for_end(&queued).await, "/stop/requested_by"), "administrator");
    let refused = gateway.admin(&["run", "stop", &started]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    let wrong = gateway.admin(&["run", "stop", &started, "--accept-risk", "anything"]).await;
    assert_eq!(wrong.exit, 2, "{}", wrong.stderr);
    assert_eq!(text(&shop.run(&started).await, "/state"), "running");
    gateway.admin(&["run", "stop", &started, "--accept-risk", "interrupt-runs", "--wait", "30s"]).await.ok();
    let story = gateway.admin(&["run", "show", &started]).await.ok();
    assert_eq!((text(&story, "/schema"), text(&story, "/run/state")), ("run/1", "cancelled"));

    let refused = gateway.admin(&["app", "disable", "shop"]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("1 key, revoked for good") && refused.stderr.contains("--accept-risk=interrupt-runs")
    );
    assert_eq!(shop.endpoints().await.status.as_u16(), 200, "no changes were made");
    let disabled = gateway.admin(&["app", "disable", "shop", "--accept-risk", "interrupt-runs"]).await.ok();
    assert_eq!(text(&disabled, "/state"), "disabled", "{disabled}");
    let refused = shop.try_submit("late", "More.").await.expect("answered");
    assert_ne!(refused.status.as_u16(), 202, "{}", refused.body);
    gateway.admin(&["app", "remove", "shop"]).await.ok();
    // Its owner reads who did that.
    let done = one.cli(&["app", "activity"]).await.ok();
    let by: Vec<_> = done["entries"].as_array().expect("a list").iter().map(|entry| text(entry, "/by")).collect();
    assert!(by.iter().take(3).all(|by| *by == "administrator"), "{done}");
    assert_eq!(one.cli(&["app", "list"]).await.ok()["applications"], json!([]));
    assert_eq!(gateway.admin(&["app", "show", "nobody"]).await.exit, 1);
}

#[tokio::test]
async fn disabling_waits_for_a_desktop_that_is_away_and_is_completed_when_it_was_there() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let (folder, device_id) = (Folder::new(), device.device_id().await);
    let slow = folder.slow_answer(600_000, "never");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    device.log().line(&["execution began", &run_id]).await;
    device.proxy().freeze();
    let disabling = gateway.admin(&["app", "disable", "shop", "--accept-risk", "interrupt-runs"]).await.ok();
    assert_eq!((text(&disabling, "/state"), &disabling["outstanding"]["runs_to_stop"]), ("disabling", &json!(1)));
    let early = gateway.admin(&["app", "complete-disabling", "shop"]).await;
    assert_eq!(early.exit, 6, "{}", early.stderr);
    assert_eq!(gateway.admin(&["app", "remove", "shop"]).await.exit, 6);
    let pending = gateway.admin(&["app", "complete-disabling", "shop", "--wait", "1500ms"]).await;
    assert_eq!(pending.exit, 8, "as long as it is away nothing is complete: {}", pending.stderr);

    // The desktop never comes back: one command ends all its work.
    device.kill_9();
    let ended = gateway
        .admin(&["device", "revoke", &device_id, "--disable-applications", "--accept-risk", "interrupt-runs"])
        .await
        .ok();
    assert_eq!(ended["applications"], json!([{ "name": "shop", "state": "disabled" }]), "{ended}");
    let run: Value = gateway.admin(&["run", "show", &run_id]).await.ok();
    assert_eq!(text(&run, "/run/state"), "failed", "{run}");
}

#[tokio::test]
async fn a_file_without_an_end_is_no_identity_and_the_command_ends() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let refused = gateway.admin(&["device", "add", "/dev/zero"]).await;
    assert!(refused.exit != 0 && refused.stderr.contains("larger than 4 MiB"), "{refused:?}");
}

/// The commands of docs/server.md that make the account of the way in through OpenSSH, in a tree of their own.
#[test]
fn the_documented_account_of_the_tunnel_is_not_locked_where_sshd_asks_no_pam() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("it is there");
    let tree = tempfile::TempDir::with_prefix("deskgate-accounts-").expect("a temporary folder");
    std::fs::create_dir(tree.path().join("etc")).expect("a fresh folder");
    for (file, text) in [
        ("passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("shadow", "root:*:19000::::::\n"),
        ("group", "root:x:0:\n"),
        ("gshadow", ""),
    ] {
        std::fs::write(tree.path().join("etc").join(file), text).expect("written");
    }
    let page = read("docs/server.md");
    let accounts = ["groupadd ", "useradd ", "usermod "];
    let lines: Vec<_> = page.lines().filter(|line| accounts.iter().any(|name| line.starts_with(name))).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let script: String = lines
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| format!("/usr/sbin/{name} --prefix \"$TREE\" {rest} || exit 1\n"))
        .collect();
    let mut shell = std::process::Command::new("unshare");
    shell.args(["--user", "--map-root-user", "sh", "-c", &script]).env("TREE", tree.path());
    if rustix::process::geteuid().is_root() {
        shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).env("TREE", tree.path());
    }
    let made = shell.output().expect("a shell is there");
    assert!(made.status.success(), "{made:?}");
    let shadow = std::fs::read_to_string(tree.path().join("etc/shadow")).expect("written");
    let entry = shadow.lines().find(|line| line.starts_with("deskgate-tunnel:")).expect("the account is made");
    // sshd without PAM takes a password that begins with "!" for a lock (auth.c, LOCKED_PASSWD_PREFIX).
    let password = entry.split(':').nth(1).expect("a password");
    assert!(!password.is_empty() && !password.starts_with('!'), "{entry}");
    assert!(read("deploy/debian/gateway/postinst").contains(lines[2]), "the package does the same");
}

#[tokio::test]
async fn a_command_about_a_device_that_names_none_says_what_to_give_and_which_there_are() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let empty = gateway.admin(&["device", "show"]).await;
    assert!(empty.exit == 2 && empty.stderr.contains("There are no devices"), "{empty:?}");
    let device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    gateway.admin(&["device", "rename", &device_id, "front desk"]).await.ok();
    for command in
        [&["show"][..], &["revoke"], &["revoke", "--accept-risk=interrupt-runs"], &["rename"], &["rename", "x"]]
    {
        let asked = gateway.admin(&[&["device"], command].concat()).await;
        let typed = format!("deskgate-gateway admin device {} DEVICE", command[0]);
        assert!(
            asked.exit == 2 && asked.stderr.contains("which device?") && asked.stderr.contains(&typed),
            "{asked:?}"
        );
        assert!(asked.stderr.contains(&format!("front desk  {device_id}")), "{asked:?}");
    }
    assert_eq!(text(&gateway.device(&device_id).await, "/name"), "front desk", "nothing was done");
}
