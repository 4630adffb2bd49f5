//! A problem is reported once, in the same words everywhere, and a support report has no secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use deskgate_tests::backend::client;
use deskgate_tests::{Folder, TestDevice, until};
use serde_json::{Value, json};

use crate::approvals::waiting;
use crate::text;

/// A browser that is signed in.
pub(crate) struct SignedInClient {
    client: reqwest::Client,
    /// With the path below which the pages lie.
    address: String,
    cookie: String,
}

impl SignedInClient {
    pub(crate) async fn of(device: &TestDevice) -> Self {
        let link = device.plain_cli(&["open", "--print"]).await.stdout.trim().to_owned();
        let (address, code) = link.split_once("/sign-in?code=").expect("a link");
        let redirect = reqwest::redirect::Policy::none();
        let client = client().no_proxy().redirect(redirect).build().expect("a client without TLS");
        let sent = client.post(format!("{address}/sign-in")).header("sec-fetch-site", "same-origin");
        let answer = form(sent, &[("code", code)]).send().await.expect("the pages are up");
        let mount = answer.headers()["location"].to_str().expect("plain").trim_end_matches('/');
        let address = format!("{address}{mount}");
        let cookie = answer.headers()["set-cookie"].to_str().expect("plain").split(';').next().expect("one").to_owned();
        Self { client, address, cookie }
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        let sent = self.client.get(format!("{}{path}", self.address)).header("cookie", &self.cookie);
        sent.send().await.expect("answered").text().await.expect("text")
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        let sent = self.client.post(format!("{}{path}", self.address)).header("cookie", &self.cookie);
        form(sent.header("sec-fetch-site", "same-origin"), fields).send().await.expect("answered")
    }

    async fn token(&self) -> String {
        let page = self.page("/health").await;
        let (_, rest) = page.split_once("name=\"token\" value=\"").expect("a form");
        rest.split('"').next().expect("a value").to_owned()
    }
}

/// A form of plain values that need no escaping.
fn form(sent: reqwest::RequestBuilder, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    sent.header("content-type", "application/x-www-form-urlencoded").body(pairs.join("&"))
}

fn codes(report: &Value) -> Vec<&str> {
    report["problems"].as_array().expect("a list").iter().map(|problem| text(problem, "/code")).collect()
}

#[tokio::test]
async fn doctor_status_and_the_page_name_the_same_problem_until_the_owner_leaves_it_out() {
    let device = TestDevice::built_in().await;
    let sound = device.cli(&["doctor"]).await;
    assert_eq!((sound.exit, codes(&sound.value)), (0, vec![]), "{}", sound.stdout);
    assert!(sound.value["fine"].as_array().expect("a list").len() > 10);

    let key = device.folder().join("key");
    std::fs::write(&key, "sk-canary-0123456789").expect("writable");
    let key = key.to_str().expect("a plain name");
    device.cli(&["provider", "set", "work", "--profile", "anthropic", "--key-file", key]).await.ok();
    let file = device.home().join("providers/work.json");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("ours");
    let said = device.cli(&["doctor"]).await;
    assert_eq!((said.exit, codes(&said.value)), (10, vec!["file_loose"]), "{}", said.stdout);
    let problem = &said.value["problems"][0];
    assert_eq!((text(problem, "/severity"), text(problem, "/about")), ("FAIL", "work"));
    assert!(text(problem, "/next").contains("chmod 600") && !said.stdout.contains("canary"), "{problem}");
    let status = device.plain_cli(&["status"]).await.stdout;
    assert!(status.contains("A private file is open to others"), "{status}");

    let browser = SignedInClient::of(&device).await;
    for (path, banner) in [("/health", false), ("/", true)] {
        let page = browser.page(path).await;
        assert!(page.contains("A private file is open to others") && !page.contains("canary"), "{page}");
        assert_eq!(page.contains("role=\"alert\""), banner, "{page}");
        assert!(page.contains("<span class=\"count\">1"), "the side bar counts it: {page}");
    }
    let refused = browser.post("/health/attention", &[("code", "file_loose"), ("ignore", "yes")]).await;
    assert_eq!(refused.status(), 403, "without the session's token nothing is changed");
    assert_eq!(device.cli(&["doctor"]).await.exit, 10);
    let token = browser.token().await;
    let wrong = browser.post("/health/attention", &[("token", &token), ("code", "nonsense"), ("ignore", "yes")]).await;
    assert_eq!(wrong.status(), 422);
    let left = browser.post("/health/attention", &[("token", &token), ("code", "file_loose"), ("ignore", "day")]).await;
    assert_eq!(left.status(), 303);
    let quiet = device.cli(&["doctor"]).await;
    assert_eq!((quiet.exit, &quiet.value["problems"][0]["ignored"]), (0, &json!(true)));
    assert!(!browser.page("/").await.contains("A private file"));
    assert!(browser.page("/health").await.contains("Snoozed or ignored"));
    assert_eq!(device.cli(&["doctor", "--mention", "file_loose"]).await.exit, 10);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("ours");
    assert_eq!(device.cli(&["doctor"]).await.exit, 0);
    assert_eq!(browser.post("/health", &[("token", &token)]).await.status(), 303, "all checks");
}

#[tokio::test]
async fn runs_that_access_keeps_waiting_are_told_of_and_an_unknown_code_is_no_problem() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let script = folder.slow_answer(30_000, "late");
    let backend = device.publish_here("shop", &folder, &["--model", &script]).await;
    for _ in 0..5 {
        backend.submit("one more than there is room for").await;
    }
    device.cli(&["access", "pause"]).await.ok();
    until("the problem to last", async || {
        let said = device.cli(&["doctor"]).await;
        let warned = codes(&said.value).contains(&"access_paused");
        if warned && said.exit == 0 { Ok(()) } else { Err(said.stdout) }
    })
    .await;
    assert_eq!(device.cli(&["doctor", "--ignore", "nonsense"]).await.exit, 2);
}

#[tokio::test]
async fn a_support_bundle_lists_what_it_holds_asks_first_and_holds_nothing_secret() {
    let (mut device, folder) = (TestDevice::built_in().await, Folder::new());
    folder.write("canary-file-name.txt", "canary-file-content");
    let key = device.folder().join("key");
    std::fs::write(&key, "sk-canary-0123456789").expect("writable");
    let key = key.to_str().expect("a plain name").to_owned();
    device.cli(&["provider", "set", "work", "--profile", "anthropic", "--key-file", &key]).await.ok();
    let write = json!({ "file_path": "new.txt", "content": "canary-argument" });
    let script = folder.script(
        "writer",
        json!([{ "text": "canary-words" }, { "tool": "Write", "arguments": write }, { "text": "canary-result" }]),
    );
    let service = ["--model", &script, "--tools", "Read,Write", "--instructions", "canary-instructions"];
    let backend = device.publish_here("shop", &folder, &service).await;
    backend.submit("canary-input").await;
    waiting(&device).await;
    // Content that the agent would never write.
    let planted =
        "INFO key dgk_canary0123456789 refused\nINFO Authorization: Bearer canary-bearer\nINFO a plain line\n";
    let log = device.home().join("agent.log");
    std::fs::write(&log, planted).expect("writable");
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o600)).expect("ours");

    let file = device.folder().join("support.txt");
    let to = ["bundle", "--output", file.to_str().expect("a plain name")];
    let asked = device.plain_cli(&to).await;
    assert_eq!(asked.exit, 1, "nobody said yes");
    assert!(asked.stderr.contains("health") && asked.stderr.contains("log"), "{}", asked.stderr);
    assert!(!file.exists());
    let with_agent = written(&device, &to, &file).await;
    assert!(with_agent.contains("a plain line") && with_agent.contains("Write") && with_agent.contains("problems"));
    let browser = SignedInClient::of(&device).await;
    assert!(!browser.page("/health").await.contains("canary"), "the log on the page neither");
    let token = browser.token().await;
    let sent = browser.post("/health/bundle", &[("token", &token)]).await;
    assert!(sent.headers()["content-disposition"].to_str().expect("plain").starts_with("attachment"));
    let sent = sent.text().await.expect("text");
    assert!(sent.contains("support bundle") && !sent.contains("canary"), "{sent}");

    std::fs::remove_file(&file).expect("ours");
    device.kill_9();
    let without = written(&device, &to, &file).await;
    assert!(without.contains("a plain line") && without.contains("deskgate.db"));
}

async fn written(device: &TestDevice, to: &[&str], file: &Path) -> String {
    device.cli(&[to, &["--yes"]].concat()).await.ok();
    assert_eq!(file.metadata().expect("written").permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(file).expect("text");
    let token = std::fs::read_to_string(device.home().join("gateway/control.token")).unwrap_or_default();
    assert!(token.is_empty() || !text.contains(token.trim()));
    for secret in ["canary", "Order 4711", "BEGIN"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    text
}

#[tokio::test]
async fn each_command_has_its_manual_page() {
    let device = TestDevice::new();
    let folder = device.folder().join("man");
    device.cli(&["man", folder.to_str().expect("a plain name")]).await.ok();
    let page = std::fs::read_to_string(folder.join("deskgate-approval-approve.1")).expect("a page");
    assert!(page.contains(".TH"), "{page}");
    assert!(folder.join("deskgate.1").exists() && folder.join("deskgate-doctor.1").exists());
}

#[tokio::test]
async fn without_an_agent_doctor_says_so_first_and_looks_at_what_it_can() {
    let mut device = TestDevice::built_in().await;
    let folder = Folder::new();
    device.publish_here("shop", &folder, &[]).await;
    device.stop(rustix::process::Signal::TERM).await;
    let stopped = device.cli(&["doctor"]).await;
    assert_eq!((stopped.exit, codes(&stopped.value)), (10, vec!["agent_down"]), "{}", stopped.stderr);
    folder.vanish();
    let gone = device.cli(&["doctor"]).await;
    assert_eq!((gone.exit, codes(&gone.value)), (10, vec!["agent_down", "folder_gone"]), "{}", gone.stderr);
    let said = device.plain_cli(&["doctor"]).await.stdout;
    assert!(said.starts_with("FAIL  The agent does not run") && said.contains("deskgate start"), "{said}");
    assert!(said.contains("SKIP"), "what only an agent knows is not called fine: {said}");

    device.start().await;
    device.wait_until_connected().await;
    let running = device.cli(&["doctor"]).await;
    assert!(!codes(&running.value).contains(&"agent_down"), "{}", running.stdout);
}
