//! What cannot be undone asks on the command line, too, with what it affects.

use deskgate_protocol::secret::ControlToken;
use deskgate_tests::{Folder, TestDevice};

use crate::text;

#[tokio::test]
async fn removing_a_provider_or_a_server_and_revoking_a_key_ask_with_what_they_affect() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let path = folder.path();
    let path = path.to_str().expect("a plain name");
    let app = device.cli(&["app", "create", "shop"]).await.ok();
    let key_id = text(&app, "/key/key/key_id").to_owned();
    device.cli(&["provider", "set", "work", "--profile", "ollama", "--no-key"]).await.ok();
    device.cli(&["mcp", "set", "crm", "--url", "https://crm.invalid/mcp"]).await.ok();
    let create = ["service", "create", "Reader", "--app", "shop", "--dir", path, "--mcp", "crm"];
    device.cli(&[&create[..], &["--provider", "work", "--model", "m"]].concat()).await.ok();
    for (command, asks) in [
        (&["provider", "remove", "work"][..], "Runs of these services will fail: Reader"),
        (&["mcp", "remove", "crm"], "Runs of these services will fail: Reader"),
        (&["key", "revoke", &key_id], "Calls with it are refused within a second"),
    ] {
        let asked = device.cli(command).await;
        assert!(asked.exit == 1 && asked.stderr.contains(asks), "{command:?}: {}", asked.stderr);
        assert!(asked.stderr.contains("no changes made"), "{command:?}: {}", asked.stderr);
        device.cli(&[command, &["--yes"]].concat()).await.ok();
        let again = device.cli(&[command, &["--yes"]].concat()).await;
        assert_eq!(again.exit, if command[0] == "key" { 0 } else { 1 }, "{command:?}: {}", again.stderr);
    }
    let unknown = device.cli(&["key", "revoke", "key_00000000000000000000000000000001", "--yes"]).await;
    assert!(unknown.exit == 1 && unknown.stderr.contains("there is no key"), "{}", unknown.stderr);
}

#[tokio::test]
async fn another_mode_asks_with_what_belongs_to_the_present_gateway() {
    let device = TestDevice::built_in().await;
    let file = device.folder().join("token");
    std::fs::write(&file, ControlToken::generate().reveal()).expect("written");
    let pin = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let file = file.to_str().expect("a plain name");
    let set = ["connection", "set", "--mode", "remote", "--ssh-address", "127.0.0.1:9", "--host-key", pin];
    let set = [&set[..], &["--token-file", file]].concat();
    device.cli(&["app", "create", "shop"]).await.ok();
    let asked = device.cli(&set).await;
    assert!(asked.exit == 1, "{}", asked.stderr);
    for part in ["1 application and 1 key belong to the built-in gateway", "deskgate app copy", "no changes made"] {
        assert!(asked.stderr.contains(part), "{part}: {}", asked.stderr);
    }
    assert_eq!(device.status().await["mode"], "builtin");
    device.cli(&[&set[..], &["--yes"]].concat()).await.ok();
    assert_eq!(device.status().await["mode"], "remote");
    // Nothing is asked where nothing stays behind: back to where it all is.
    device.cli(&["connection", "set", "--mode", "builtin"]).await.ok();
}

#[tokio::test]
async fn one_of_our_own_secrets_is_named_where_a_key_of_others_belongs() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let token = ControlToken::generate();
    folder.write("key.txt", token.reveal());
    let file = folder.path().join("key.txt");
    let file = file.to_str().expect("a plain name");
    for command in [
        &["mcp", "set", "crm", "--url", "https://crm.invalid/mcp", "--key-file", file][..],
        &["provider", "set", "work", "--profile", "anthropic", "--key-file", file],
    ] {
        let refused = device.cli(command).await;
        assert_eq!(refused.exit, 2, "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("this is a private control token"), "{}", refused.stderr);
        assert!(!refused.stderr.contains(token.reveal()));
    }
}
