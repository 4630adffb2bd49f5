//! The gateway's own secrets appear in no output, log or child process.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, process};
use tempfile::TempDir;

use crate::text;

/// Everything that the kernel shows of a process and its children.
fn shown_of(number: u32) -> String {
    let mut all = vec![number];
    let mut at = 0;
    while at < all.len() {
        all.extend(process::children(all[at]));
        at += 1;
    }
    let read = |number: u32, file: &str| std::fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
    let mut text = String::new();
    for one in all {
        text += &String::from_utf8_lossy(&read(one, "cmdline"));
        // A process may have its own environment; its children must not inherit it.
        if one != number {
            text += &String::from_utf8_lossy(&read(one, "environ"));
        }
    }
    text
}

fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
}

#[tokio::test]
async fn no_planted_secret_is_in_ps_the_log_the_environment_of_children_the_settings_a_backup_or_the_bundle() {
    let (postgres, folder) = (Postgres::shared().await, TempDir::with_prefix("deskgate-secrets-").expect("a folder"));
    let password = "hunter2-hunter2-hunter2";
    // The kernel authenticates the client: the password is not requested, but passed on all the same.
    let url = postgres.url().replacen("deskgate@", &format!("deskgate:{password}@"), 1);
    assert_ne!(url, postgres.url());
    secret(&folder.path().join("url"), &url);
    let setting = format!("database.url_file={}", folder.path().join("url").display());
    let gateway = GatewayProcess::by_credentials(&[&setting], &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let work = Folder::new();
    let created = device.cli(&["app", "create", "shop"]).await.ok();
    let key = text(&created, "/key/text").to_owned();
    let _ = (work, key.clone());

    let token = std::fs::read_to_string(gateway.control_token_file()).expect("made");
    let seal = std::fs::read_to_string(gateway.state_dir().join("seal")).expect("made");
    let host_key = std::fs::read_to_string(gateway.state_dir().join("ssh_host_ed25519_key")).expect("made");
    let host_key = host_key.lines().nth(2).expect("a key's third line").to_owned();
    let planted = [password, token.trim(), seal.trim(), &host_key, &key];
    let clean = |what: &str, text: &str| {
        for (place, secret) in planted.iter().enumerate() {
            assert!(!text.contains(secret), "secret {place} is in {what}:\n{text}");
        }
    };
    clean("ps", &shown_of(gateway.process().id()));
    clean("the settings", &gateway.command_line(&["config", "show", "--origin"]).await.stdout);
    clean("the checks", &gateway.command_line(&["doctor"]).await.stdout);

    let log = folder.path().join("gateway.log");
    // As if a part of the program had been careless.
    let careless = format!("{}\nconnecting to {url} with Bearer {}\nkey {key}\n", gateway.log().all(), token.trim());
    clean("the log", &gateway.log().all());
    std::fs::write(&log, careless).expect("written");
    let file = folder.path().join("bundle.txt");
    let (file_name, log) = (file.to_str().expect("plain"), log.to_str().expect("plain"));
    let asked = gateway.command_line(&["bundle", "--output", file_name, "--log", log]).await;
    assert!(asked.exit == 1 && asked.stderr.contains("The last 2000 lines"), "{}", asked.stderr);
    assert!(!file.exists(), "nothing is written before somebody said yes");
    gateway.command_line(&["bundle", "--output", file_name, "--log", log, "--yes"]).await.ok();
    let bundle = std::fs::read_to_string(&file).expect("written");
    clean("the bundle", &bundle);
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    for part in ["======== settings", "======== checks", "======== status", "======== metrics", "======== log"] {
        assert!(bundle.contains(part), "no {part}");
    }
    assert!(bundle.contains("deskgate_build_info") && bundle.contains("device connected"), "{bundle}");

    let backup = folder.path().join("backup");
    let taken = gateway.command_line(&["backup", "create", backup.to_str().expect("plain")]).await;
    clean("what a backup says", &(taken.stdout.clone() + &taken.stderr));
    taken.ok();
    for entry in std::fs::read_dir(&backup).expect("made") {
        let path = entry.expect("readable").path();
        clean("a backup", &String::from_utf8_lossy(&std::fs::read(&path).expect("readable")));
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }
}
