//! A server with another host key than the pinned one is blocked, and both fingerprints are shown side by side.

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::json;

use crate::text;

const OTHER_FINGERPRINT: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn an_unknown_or_changed_host_key_is_shown_beside_the_pinned_one_and_blocked_until_a_person_pins_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::built_in().await;
    let paired = device.pair(&gateway, &[]).await;
    let shown = text(&paired, "/invitation/host_key_fingerprint").to_owned();
    let own = device.cli(&["identity", "show"]).await.ok();
    assert_eq!(text(&paired, "/device/short_code"), text(&own, "/short_code"), "the code is the same on both sides");
    let (address, token) = (gateway.ssh().get().to_string(), gateway.control_token_file());
    let socket = text(&paired, "/invitation/control_socket").to_owned();
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
    assert_eq!(status["announced_host_keys"], json!([old, new]), "{status}");

    let refused = gateway.admin(&["host-key", "rotate"]).await;
    assert!(refused.exit == 6 && refused.stderr.starts_with("absent would refuse this gateway"), "{refused:?}");
    let rotated = gateway.admin(&["host-key", "rotate", "--accept-risk=block-devices"]).await.ok();
    assert_eq!((text(&rotated, "/fingerprint"), &rotated["next"]), (new.as_str(), &json!(null)));

    present.proxy().cut();
    present.proxy().heal();
    until("it has followed", async || {
        let status = present.status().await;
        if status["announced_host_keys"] == json!([new]) && status["line"]["state"] == "connected" {
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
