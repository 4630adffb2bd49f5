//! A server with another host key than the pinned one is blocked, and both fingerprints are shown side by side.

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::text;

const OTHER_FINGERPRINT: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn an_unknown_or_changed_host_key_is_shown_beside_the_pinned_one_and_blocked_until_a_person_pins_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::built_in().await;
    let paired = device.pair(&gateway, &[]).await;
    let shown = text(&paired, "/details/host_key_fingerprint").to_owned();
    let own = device.cli(&["identity", "show"]).await.ok();
    assert_eq!(text(&paired, "/device/short_code"), text(&own, "/short_code"), "the code is the same on both sides");
    let (address, token) = (gateway.ssh().get().to_string(), gateway.control_token_file());
    let socket = text(&paired, "/details/control_socket").to_owned();
    let token = token.to_str().expect("a plain name");
    let fields = ["--ssh-address", &address, "--control-socket", &socket, "--token-file", token];

    for (pin, pinned) in [("", json!([])), (OTHER_FINGERPRINT, json!([OTHER_FINGERPRINT]))] {
        let pin: &[&str] = if pin.is_empty() { &["--draft"] } else { &["--draft", "--host-key", pin] };
        device.save(&[&fields, pin].concat()).await.ok();
        let tested = device.cli(&["connection", "test", "--mode", "remote"]).await;
        assert_eq!(tested.exit, 4, "{}", tested.stderr);
        assert_eq!(tested.value["host_keys"], json!({ "pinned": pinned, "presented": shown }), "{}", tested.stdout);
        assert!(tested.stderr.contains(&shown) && tested.stderr.contains("deskgate-gateway admin host-key"));
    }
    let visitor = Visitor::of(&device).await;
    let form = |host_key| {
        let given = [("ssh-address", address.as_str()), ("control-socket", &socket), ("host-key", host_key)];
        [&[("mode", "remote"), ("do", "test"), ("ssh-user", "gate")], given.as_slice()].concat()
    };
    let unknown = visitor.send("/connection", &form("")).await.text;
    assert!(unknown.contains(&shown) && unknown.contains("nothing yet") && !unknown.contains("Blocked."), "{unknown}");
    let changed = visitor.send("/connection", &form(OTHER_FINGERPRINT)).await.text;
    let says = |page: &str| {
        [OTHER_FINGERPRINT, &shown, "Blocked.", "deskgate-gateway admin host-key"].iter().all(|it| page.contains(it))
    };
    assert!(says(&changed) && !changed.contains(">Trust"), "{changed}");

    device.save(&["--host-key", OTHER_FINGERPRINT]).await.ok();
    let status = device.wait_for_line_state("disconnected").await;
    assert_eq!(status["line"]["host_keys"], json!({ "pinned": [OTHER_FINGERPRINT], "presented": shown }), "{status}");
    let page = visitor.page("/connection").await.text;
    assert!(says(&page), "{page}");
    device.save(&["--host-key", &shown]).await.ok();
    device.wait_until_connected().await;
    assert!(!visitor.page("/connection").await.text.contains("Shown by the server"));
}

#[tokio::test]
async fn an_announced_host_key_takes_over_without_a_persons_work_and_blocks_only_whom_the_administrator_knew_of() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let (present, mut absent) = tokio::join!(TestDevice::paired_with(&gateway), TestDevice::paired_with(&gateway));
    for (device, name) in [(&present, "present"), (&absent, "absent")] {
        gateway.admin(&["device", "rename", &device.device_id().await, name]).await.ok();
    }
    absent.stop(Signal::TERM).await;
    let early = gateway.admin(&["host-key", "rotate"]).await;
    assert!(early.exit == 6 && early.stderr.contains("host-key announce"), "{early:?}");

    let old = text(&gateway.admin(&["host-key"]).await.ok(), "/fingerprint").to_owned();
    let announced = gateway.admin(&["host-key", "announce"]).await.ok();
    let new = text(&announced, "/next/fingerprint").to_owned();
    assert_eq!(announced["next"]["not_told"], json!(["absent", "present"]), "{announced}");
    present.proxy().cut();
    present.proxy().heal();
    until("the next session tells it", async || {
        let told = gateway.admin(&["host-key"]).await.ok()["next"]["told"].clone();
        if told == json!(["present"]) { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    let status = present.wait_until_connected().await;
    assert_eq!(followed(&status), [old.as_str(), &new], "{status}");

    let refused = gateway.admin(&["host-key", "rotate"]).await;
    assert!(refused.exit == 6 && refused.stderr.starts_with("absent would refuse this gateway"), "{refused:?}");
    let rotated = gateway.admin(&["host-key", "rotate", "--accept-risk=block-devices"]).await.ok();
    assert_eq!((text(&rotated, "/fingerprint"), &rotated["next"]), (new.as_str(), &json!(null)));

    present.proxy().cut();
    present.proxy().heal();
    until("it has followed", async || {
        let status = present.status().await;
        if followed(&status) == [new.as_str()] && status["line"]["state"] == "connected" {
            return Ok(());
        }
        Err(status.to_string())
    })
    .await;
    absent.start().await;
    let status = absent.wait_for_line_state("disconnected").await;
    assert_eq!(status["line"]["host_keys"], json!({ "pinned": [old], "presented": new }), "{status}");
    absent.save(&["--host-key", &new]).await.ok();
    absent.wait_until_connected().await;
}

/// The fingerprints of the followed keys.
fn followed(status: &Value) -> Vec<&str> {
    let keys = status["followed_host_keys"].as_array();
    keys.into_iter().flatten().map(|key| text(key, "/fingerprint")).collect()
}

/// Announces the gateway's next key, and waits until the device follows both.
async fn announce(gateway: &GatewayProcess, device: &TestDevice) -> String {
    let announced = gateway.admin(&["host-key", "announce"]).await.ok();
    let next = text(&announced, "/next/fingerprint").to_owned();
    device.proxy().cut();
    device.proxy().heal();
    until("the device to follow", async || {
        let status = device.status().await;
        if followed(&status).contains(&next.as_str()) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    next
}

/// Exchanges the gateway's key and the announced one, as nothing but a person with the files could.
fn exchange_keys(gateway: &GatewayProcess) {
    let key = |name: &str| gateway.state_dir().join(format!("ssh_host_ed25519_key{name}"));
    std::fs::rename(key(""), key(".kept")).expect("there");
    std::fs::rename(key(".next"), key("")).expect("announced");
}

fn put_back_key(gateway: &GatewayProcess) {
    let key = |name: &str| gateway.state_dir().join(format!("ssh_host_ed25519_key{name}"));
    std::fs::rename(key(".kept"), key("")).expect("kept");
}

#[tokio::test]
async fn a_fingerprint_that_the_owner_pins_again_counts_alone_and_a_forgotten_key_that_he_pins_lets_its_server_in() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let pinned = text(&gateway.admin(&["host-key"]).await.ok(), "/fingerprint").to_owned();
    let next = announce(&gateway, &device).await;
    let shown = device.cli(&["connection", "show"]).await.ok();
    for (index, key) in [&pinned, &next].into_iter().enumerate() {
        let key_shown = &shown["host_keys"]["followed"][index];
        assert_eq!((text(key_shown, "/fingerprint"), text(key_shown, "/announced_by")), (key.as_str(), &*pinned));
        assert!(text(key_shown, "/announced_at").ends_with('Z'), "{shown}");
    }
    let shown = device.plain_cli(&["connection", "show"]).await.stdout;
    assert!(shown.contains(&format!("followed key  {next}, announced by {pinned} at 20")), "{shown}");

    // A server with the announced key stands in for one whose attacker announced it.
    gateway.stop(Signal::TERM).await;
    device.save(&["--host-key", &pinned]).await.ok();
    exchange_keys(&gateway);
    gateway.restart().await;
    let status = device.wait_for_line_state("disconnected").await;
    let blocked = until("the pinned key alone to be trusted", async || {
        let status = device.status().await;
        if status["line"]["host_keys"].is_object() { Ok(status) } else { Err(status.to_string()) }
    })
    .await;
    assert_eq!(blocked["line"]["host_keys"], json!({ "pinned": [pinned], "presented": next }), "{status}");
    assert_eq!(followed(&blocked), [""; 0]);

    // The device follows until the pinned key is forgotten; then the old server is back, and its key is pinned again.
    gateway.stop(Signal::TERM).await;
    put_back_key(&gateway);
    gateway.restart().await;
    device.cli(&["connection", "test", "--mode", "remote"]).await.ok();
    let next = announce(&gateway, &device).await;
    gateway.stop(Signal::TERM).await;
    exchange_keys(&gateway);
    gateway.restart().await;
    until("the device to forget the pinned key", async || {
        let status = device.status().await;
        if followed(&status) == [next.as_str()] { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    gateway.stop(Signal::TERM).await;
    put_back_key(&gateway);
    gateway.restart().await;
    until("the old server to be refused", async || {
        let status = device.status().await;
        let keys = &status["line"]["host_keys"];
        if *keys == json!({ "pinned": [next], "presented": pinned }) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    device.save(&["--host-key", &pinned]).await.ok();
    device.wait_until_connected().await;
}

#[tokio::test]
async fn announced_host_keys_are_dropped_by_a_command_or_a_button_and_not_by_a_test_or_another_field() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let pinned = text(&gateway.admin(&["host-key"]).await.ok(), "/fingerprint").to_owned();
    let none = device.cli(&["connection", "drop-host-keys"]).await.ok();
    assert_eq!((text(&none, "/pinned"), &none["followed"]), (pinned.as_str(), &json!([])));

    let new = announce(&gateway, &device).await;
    gateway.admin(&["host-key", "rotate"]).await.ok();
    device.proxy().cut();
    device.proxy().heal();
    let follows_new = async |what: &str| {
        until(what, async || {
            let status = device.status().await;
            let connected = status["line"]["state"] == "connected";
            if connected && followed(&status) == [new.as_str()] { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    };
    follows_new("the device to follow").await;
    // A form sends all its fields.
    let visitor = Visitor::of(&device).await;
    let saved = device.cli(&["connection", "show"]).await.ok();
    let field = |name: &str| text(&saved, &format!("/saved/remote/{name}")).to_owned();
    let (address, socket) = (field("ssh_address"), field("control_socket"));
    let form = |press| {
        [
            ("mode", "remote"),
            ("do", press),
            ("ssh-address", address.as_str()),
            ("ssh-user", "another"),
            ("control-socket", &socket),
            ("host-key", &pinned),
            ("known-hosts", ""),
        ]
    };
    assert!(visitor.send("/connection", &form("test")).await.text.contains("Save them instead"));
    follows_new("a test to change nothing").await;
    visitor.send("/connection", &form("save")).await;
    follows_new("another user to change nothing").await;
    let page = visitor.page("/connection").await.text;
    assert!(
        page.contains("Announced host keys") && page.contains(&new) && page.contains("Drop the announced"),
        "{page}"
    );

    let asked = device.cli(&["connection", "drop-host-keys", "--no-input"]).await;
    assert!(asked.exit == 1 && asked.stderr.contains(&new) && asked.stderr.contains("--host-key SHA256:"), "{asked:?}");
    follows_new("a question to change nothing").await;
    device.cli(&["connection", "drop-host-keys", "--yes"]).await.ok();
    until("the pinned key alone to be trusted", async || {
        let status = device.status().await;
        let keys = &status["line"]["host_keys"];
        if *keys == json!({ "pinned": [pinned], "presented": new }) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    device.save(&["--host-key", &new]).await.ok();
    device.wait_until_connected().await;

    let next = announce(&gateway, &device).await;
    gateway.admin(&["host-key", "rotate"]).await.ok();
    device.proxy().cut();
    device.proxy().heal();
    until("the device to follow", async || {
        let status = device.status().await;
        if followed(&status) == [next.as_str()] { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let dropped = visitor.send("/connection", &form("drop-host-keys")).await;
    assert!(dropped.leads_to.contains("said=host-keys-dropped"), "{}", dropped.text);
    let status = device.wait_for_line_state("disconnected").await;
    assert_eq!(followed(&status), [""; 0]);
}
