//! A server that is not the pinned one is blocked, and both fingerprints stand side by side wherever it is told.

use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Device, GatewayProcess, Postgres};
use serde_json::json;

use crate::text;

const OTHER: &str = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";

#[tokio::test]
async fn an_unknown_or_changed_host_key_is_shown_beside_the_pinned_one_and_blocked_until_a_person_pins_it() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = Device::built_in().await;
    let paired = device.pair(&gateway, &[]).await;
    let shown = text(&paired, "/invitation/host_key_fingerprint").to_owned();
    let own = device.cli(&["identity", "show"]).await.ok();
    assert_eq!(text(&paired, "/device/short_code"), text(&own, "/short_code"), "the code is the same on both sides");
    let (address, token) = (gateway.ssh().get().to_string(), gateway.control_token_file());
    let socket = text(&paired, "/invitation/control_socket").to_owned();
    let token = token.to_str().expect("a plain name");
    let fields = ["--ssh-address", &address, "--control-socket", &socket, "--token-file", token];

    for (pin, pinned) in [("", json!([])), (OTHER, json!([OTHER]))] {
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
    let changed = visitor.send("/connection", &form(OTHER)).await.text;
    let says =
        |page: &str| [OTHER, &shown, "Blocked.", "deskgate-gateway admin host-key"].iter().all(|it| page.contains(it));
    assert!(says(&changed) && !changed.contains(">Trust"), "{changed}");

    device.save(&["--host-key", OTHER]).await.ok();
    let status = device.line_is("disconnected").await;
    assert_eq!(status["line"]["host_keys"], json!({ "pinned": [OTHER], "presented": shown }), "{status}");
    let page = visitor.page("/connection").await.text;
    assert!(says(&page), "{page}");
    device.save(&["--host-key", &shown]).await.ok();
    device.connected().await;
    assert!(!visitor.page("/connection").await.text.contains("Shown by the server"));
}
