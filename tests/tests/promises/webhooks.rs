//! Webhooks through the real programs: events signed by senders' own libraries become runs of the desktop.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, third_party};
use serde_json::{Value, json};

/// A desktop with one service, and a folder for input files of commands.
struct WebhookFixture {
    device: TestDevice,
    gateway: GatewayProcess,
    backend: Backend,
    folder: Folder,
    _postgres: Postgres,
}

impl WebhookFixture {
    async fn open() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &[]).await;
        let device = TestDevice::paired_with(&gateway).await;
        let folder = Folder::new();
        let backend = device.publish(&gateway, "shop", &folder, &[]).await;
        Self { device, gateway, backend, folder, _postgres: postgres }
    }

    async fn create(&self, scheme: &str, more: &[&str]) -> Value {
        let own = ["hook", "create", scheme, "--app", "shop", "--service", "shop", "--scheme", scheme];
        let mapping = ["--text", "{{ $.title }}", "--subject", "customer-1", "--condition", "payload.urgent"];
        self.device.cli(&[&own[..], &mapping, more].concat()).await.ok()
    }

    /// A file beside the service's folder.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().with_file_name(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    }

    /// Sends a body with headers to a webhook.
    async fn send(&self, hook: &Value, headers: &Value, body: &str) -> (u16, Value) {
        let hook_id = hook["hook_id"].as_str().expect("a text");
        let url = format!("http://{}/api/v1/webhooks/{hook_id}", self.gateway.http().get());
        let client = deskgate_tests::backend::client().build().expect("a client");
        let mut request = client.post(url).header("Content-Type", "application/json").body(body.to_owned());
        for (name, value) in headers.as_object().expect("headers") {
            request = request.header(name, value.as_str().expect("a text"));
        }
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    }
}

/// The headers that a sender's library makes for a body.
fn signed(mut command: Command, secret: &str, body: &str) -> Value {
    command.env("SECRET", secret).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(body.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("headers")
}

#[tokio::test]
async fn what_the_libraries_of_senders_sign_becomes_a_run_once_and_nothing_that_was_changed_does() {
    let Some(place) = third_party::install_dir().await else { return };
    let site = WebhookFixture::open().await;
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let npm = |scheme: &str| {
        let mut command = Command::new("node");
        command.arg(clients.join("sign.mjs")).arg(scheme).arg(&place);
        command
    };
    let pypi = || {
        let mut command = Command::new(place.join("python/bin/python"));
        command.arg(clients.join("sign.py"));
        command
    };
    let given = "whsec_c2VjcmV0IG9mIHRoZSBvdGhlciBzaWRl";
    let file = site.file("secret", &format!("{given}\n"));
    let body = json!({ "id": "evt_1", "type": "ticket", "title": "Grüße ☺", "urgent": true }).to_string();
    for (scheme, secret_of) in
        [("standard", None), ("github", None), ("stripe", Some(given)), ("standard", Some(given))]
    {
        let more = if secret_of.is_some() { &["--secret-file", &file][..] } else { &[] };
        let made = site.create(scheme, more).await;
        assert_eq!(made["secret"].is_string(), secret_of.is_none(), "only a new secret is shown");
        let secret = secret_of.unwrap_or_else(|| made["secret"].as_str().expect("a text"));
        let hook = &made["webhook"];
        let mut ways = vec![npm(scheme)];
        if scheme == "standard" {
            ways.push(pypi());
        }
        for way in ways {
            let headers = signed(way, secret, &body);
            let (status, accepted) = site.send(hook, &headers, &body).await;
            assert_eq!(status, 202, "{scheme}: {accepted}");
            let run_id = accepted["run_id"].as_str().expect("a text");
            let run = site.backend.wait_for_end(run_id).await;
            assert_eq!((&run["state"], &run["input"]["text"]), (&json!("succeeded"), &json!("Grüße ☺")));
            assert_eq!(site.send(hook, &headers, &body).await, (202, accepted.clone()), "a redelivery is the same run");
            let (status, refused) = site.send(hook, &headers, &body.replace("ticket", "tickeT")).await;
            assert_eq!((status, &refused["code"]), (401, &json!("signature_invalid")), "{scheme}");
        }
    }
}

#[tokio::test]
async fn a_webhook_of_stripe_is_there_before_the_secret_that_stripe_makes_for_its_address() {
    let Some(place) = third_party::install_dir().await else { return };
    let site = WebhookFixture::open().await;
    let made = site.create("stripe", &[]).await;
    assert_eq!(made.get("secret"), None, "the secret is Stripe's to make");
    let sign = |secret: &str, body: &str| {
        let mut command = Command::new("node");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/sign.mjs")).arg("stripe").arg(&place);
        signed(command, secret, body)
    };
    let body = json!({ "id": "evt_1", "type": "invoice.paid", "title": "Paid", "urgent": true }).to_string();
    let secret = "whsec_c2VjcmV0IG9mIFN0cmlwZQ";
    assert_eq!(site.send(&made["webhook"], &sign(secret, &body), &body).await.0, 401, "nobody can sign yet");
    let file = site.file("stripe", secret);
    site.device.cli(&["hook", "roll-secret", "stripe", "--overlap", "0", "--secret-file", &file]).await.ok();
    let sent = async || match site.send(&made["webhook"], &sign(secret, &body), &body).await {
        (202, _) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    deskgate_tests::until("the secret to count", sent).await;
}

#[tokio::test]
async fn an_owner_makes_watches_changes_and_removes_a_webhook_by_command() {
    let site = WebhookFixture::open().await;
    let cli = async |arguments: &[&str]| site.device.cli(arguments).await;
    let said = site.device.plain_cli(&["hook", "list"]).await;
    assert!(said.stdout.contains("Create one: deskgate hook create"), "{}", said.stdout);
    let made = site
        .create(
            "hmac",
            &["--signature-header", "X-Sign", "--prefix", "sha256=", "--event-id-from", "$.id", "--keep-bodies", "on"],
        )
        .await;
    let (hook, hook_id) = (&made["webhook"], made["webhook"]["hook_id"].as_str().expect("a text"));
    assert!(hook["address"].as_str().expect("a text").ends_with(hook_id));
    let listed = cli(&["hook", "list", "--app", "shop"]).await;
    assert!(!listed.stdout.contains("whsec_"), "no secret is ever shown again");
    assert_eq!(listed.ok()["webhooks"][0]["hook_id"], *hook_id);

    let unsigned = json!({ "x-sign": "sha256=00" });
    assert_eq!(site.send(hook, &unsigned, "{}").await.0, 401);
    let shown = async || {
        let detail = cli(&["hook", "show", "hmac"]).await.ok();
        detail["receipts"].as_array().expect("a list").clone()
    };
    let received = async || shown().await.first().cloned().ok_or("nothing was received".to_owned());
    let receipt = deskgate_tests::until("it is shown", received).await;
    assert_eq!(receipt["reason"], "the signature does not fit");

    let body = site.file("event", r#"{ "id": 7, "title": "It breaks", "who": "berta", "urgent": false }"#);
    let test = ["hook", "test", hook_id, "--body", &body];
    assert_eq!(
        cli(&test).await.ok()["outcome"],
        json!({ "outcome": "ignored", "reason": "the condition does not hold" })
    );
    let tried =
        cli(&[&test[..], &["--condition", "", "--subject-path", "$.who", "--label", "n=$.id"]].concat()).await.ok();
    let mapped = json!({ "outcome": "submitted", "text": "It breaks", "subject": "berta", "metadata": { "n": "7" } });
    assert_eq!((&tried["outcome"], &tried["event_id"]), (&mapped, &json!("7")));
    let refused = cli(&[&test[..], &["--condition", "", "--text", "{{ $.missing }}"]].concat()).await;
    assert_eq!((refused.exit, &refused.value["outcome"]["outcome"]), (10, &json!("refused")));
    assert_eq!(cli(&[&test[..], &["--condition", "payload."]].concat()).await.exit, 2);
    let unmade = ["hook", "test", "--scheme", "stripe", "--body", &body, "--text", "{{ $.title }}!", "--subject", "x"];
    assert_eq!(cli(&unmade).await.ok()["outcome"]["text"], "It breaks!", "one that is not there yet");

    let set = cli(&["hook", "set", "hmac", "--condition", "", "--rate", "3"]).await.ok();
    assert_eq!((&set["requests_per_second"], set["filter"].get("condition")), (&json!(3), None));
    assert_eq!(cli(&["hook", "disable", "hmac"]).await.ok()["enabled"], false);
    assert_eq!(cli(&["hook", "enable", "hmac"]).await.ok()["enabled"], true);
    let rolled = cli(&["hook", "roll-secret", "hmac", "--overlap", "1"]).await.ok();
    assert!(rolled["webhook"]["old_secret_until"].is_string() && rolled["secret"] != made["secret"]);
    let pasted = cli(&["hook", "show", rolled["secret"].as_str().expect("a text")]).await;
    assert!(pasted.exit == 2 && !pasted.stderr.contains("whsec_"), "{}", pasted.stderr);
    assert_eq!(cli(&["hook", "remove", "hmac", "--no-input"]).await.exit, 1);
    cli(&["hook", "remove", "hmac", "--yes"]).await.ok();
    assert_eq!(cli(&["hook", "show", hook_id]).await.exit, 1);
}
