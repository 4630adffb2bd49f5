//! The reference in a real browser, its programs as a reader runs them, and the document before the linters that others wrote.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use deskgate_tests::backend::client;
use deskgate_tests::browser::{Browser, WindowOptions};
use deskgate_tests::third_party::{install_dir, python_tool};
use deskgate_tests::{GatewayProcess, Postgres};
use futures_util::future::join_all;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::stand_in::{StandIn, StandInAnswer};

/// A phone, a tablet, and a desktop.
const WIDTHS_PX: [u32; 3] = [360, 800, 1400];

/// The longest time for a program, or for a linter.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// A gateway whose reference is looked at.
async fn gateway() -> (GatewayProcess, Postgres, String) {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let address = format!("http://{}", gateway.http().get());
    (gateway, postgres, address)
}

async fn document(address: &str) -> Value {
    let answer = client()
        .build()
        .expect("a client")
        .get(format!("{address}/api/v1/openapi.json"))
        .send()
        .await
        .expect("answered");
    answer.json().await.expect("JSON")
}

/// Each operation: its identifier, method, path, and its description.
fn operations(document: &Value) -> Vec<(String, String, String, Value)> {
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("an object") {
        for (method, call) in methods.as_object().expect("an object") {
            let id = call["operationId"].as_str().expect("a text").to_owned();
            found.push((id, method.to_uppercase(), path.clone(), call.clone()));
        }
    }
    assert!(found.len() >= 15, "only {} operations", found.len());
    found
}

/// The words of the page that stand on two lines, and whether the page is wider than its window. A line may end behind a hyphen
/// or a slash.
const BROKEN_WORDS: &str = r#"(() => {
  const broken = [];
  for (const closed of document.querySelectorAll("details")) closed.open = true;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (const { 0: word, index } of node.data.matchAll(/[^\s/-]+[/-]*/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top)));
      if (lines.size > 1) broken.push(word);
    }
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > root.clientWidth
      && !one.closest("pre"));
    broken.push(`too wide: ${wide.map((one) => one.outerHTML.slice(0, 80)).slice(0, 3)}`);
  }
  return broken;
})()"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_of_the_reference_is_broken_at_any_width() {
    let Some(browser) = Browser::start().await else { return };
    let (_gateway, _postgres, address) = gateway().await;
    let document = document(&address).await;
    let records = document["components"]["schemas"].as_object().expect("an object").keys().cloned();
    let names = operations(&document).into_iter().map(|(id, ..)| id).chain(records);
    let mut paths: Vec<_> = names.map(|name| format!("{address}/api/v1/docs/{name}")).collect();
    paths.extend(["/api/v1/docs", "/api/v1/docs/callbacks", "/problems"].map(|path| format!("{address}{path}")));
    let page = browser.window(WindowOptions::default()).await;
    for path in paths {
        assert_eq!(page.goto(&path).await, 200);
        for width in WIDTHS_PX {
            page.look("light", width).await;
            assert_eq!(page.evaluate(BROKEN_WORDS).await, Value::Array(Vec::new()), "{path} at {width} px");
        }
        assert_eq!(page.accessibility_findings(None).await, [""; 0], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_shows_one_operation_and_leads_to_all_others() {
    let Some(browser) = Browser::start().await else { return };
    let (_gateway, _postgres, address) = gateway().await;
    let page = browser.window(WindowOptions { width: Some(1400), ..WindowOptions::default() }).await;
    page.goto(&format!("{address}/api/v1/docs")).await;
    page.click("nav[aria-label=Reference] >> text=Submits a run").await;
    page.wait_for_visible("h1 >> text=Submits a run").await;
    assert_eq!(page.count("main h1").await, 1);
    assert_eq!(page.count(".samples pre:visible").await, 1, "one program at a time");
    page.click("label >> text=Python").await;
    assert!(page.text(".samples pre:visible").await.contains("urllib.request"));
    // The search: by a key, by words of what is meant, and by the code of a problem.
    page.press("/").await;
    page.types("cursor events").await;
    page.wait_for_visible("#search a >> text=Follows a run").await;
    page.fill("#query", "conversation_busy").await;
    page.wait_for_visible("#search a[href='/problems/conversation_busy']").await;
    page.fill("#query", "no such words").await;
    page.wait_for_visible("#search p >> text=0 found").await;
    page.fill("#query", "RunCallback").await;
    page.wait_for_visible("#search a[href='/api/v1/docs/RunCallback']").await;
    page.press("Enter").await;
    page.wait_for_visible("h1 >> text=RunCallback").await;
    // Without a script the list and the programs are there all the same.
    let plain = browser.window(WindowOptions { script: Some(false), ..WindowOptions::default() }).await;
    plain.goto(&format!("{address}/api/v1/docs/read_run")).await;
    plain.click("label >> text=TypeScript").await;
    plain.wait_for_visible(".samples pre:visible >> text=process.env").await;
    plain.click("nav[aria-label=Reference] >> text=Lists the services").await;
    plain.wait_for_visible("h1 >> text=Lists the services").await;
}

/// The program in one language on an operation's page.
fn sample(page: &str, language: &str) -> String {
    let from = page.split(&format!("<pre tabindex=\"0\" id=\"{language}\"")).nth(1).expect("it is there");
    let code = from.split("<code>").nth(1).and_then(|rest| rest.split("</code>").next()).expect("it has code");
    let mut text = String::new();
    for (place, part) in code.split("&#").enumerate() {
        match part.split_once(';').filter(|_| place > 0) {
            Some((number, rest)) => {
                text.push(number.parse().ok().and_then(char::from_u32).expect("a character"));
                text.push_str(rest);
            }
            None => text.push_str(part),
        }
    }
    text
}

/// The identifiers in programs' environments.
const IDENTIFIERS: [&str; 7] =
    ["ENDPOINT_ID", "FILE_ID", "ARTIFACT_ID", "RUN_ID", "CONVERSATION_ID", "OPERATION_ID", "HOOK_ID"];

/// The file that programs upload, by its name in their folder.
const UPLOADED: (&str, &str) = ("report.pdf", "%PDF-1.7");

/// Runs a program of the reference at a stand-in. Returns whether it succeeded.
async fn run(language: &str, code: &str, address: &str) -> bool {
    let (program, file) = match language {
        "curl" => ("bash".into(), "program.sh"),
        "python" => (python_tool("python3"), "program.py"),
        _ => ("node".into(), "program.mjs"),
    };
    let folder = TempDir::with_prefix("deskgate-reference-").expect("a temporary folder");
    std::fs::write(folder.path().join(file), code).expect("writable");
    std::fs::write(folder.path().join(UPLOADED.0), UPLOADED.1).expect("writable");
    let mut command = Command::new(program);
    command
        .arg(file)
        .current_dir(folder.path())
        .env("BASE_URL", address)
        .env("APP_KEY", "dgk_1")
        .env("SUBJECT", "customer-1");
    command
        .env("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .envs(IDENTIFIERS.map(|name| (name, name.to_lowercase())));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(PROGRAM_TIMEOUT, command.output()).await.expect("it ends").expect("it starts");
    ended.status.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_of_the_reference_send_what_the_document_says_and_stop_when_refused() {
    let (_gateway, _postgres, address) = gateway().await;
    let document = document(&address).await;
    let operations = operations(&document);
    let client = client().build().expect("a client");
    for (id, method, path, call) in &operations {
        let page = client.get(format!("{address}/api/v1/docs/{id}")).send().await.expect("answered");
        let page = page.text().await.expect("text");
        let body = call["requestBody"]["content"]["application/json"].get("example");
        let names = call["parameters"].as_array().into_iter().flatten();
        let creates_work = names.clone().any(|one| one["$ref"] == "#/components/parameters/IdempotencyKey");
        let is_upload = call["requestBody"]["content"].get("application/octet-stream").is_some();
        let is_signed = call["security"].as_array().is_none_or(Vec::is_empty);
        join_all(["curl", "python", "typescript"].map(async |language| {
            let place = format!("{id} in {language}");
            let code = sample(&page, language);
            let well = StandIn::start(StandInAnswer::Json(200)).await;
            assert!(run(language, &code, &well.address()).await, "{place}:\n{code}");
            let refusing = StandIn::start(StandInAnswer::Json(403)).await;
            assert!(!run(language, &code, &refusing.address()).await, "{place} does not stop:\n{code}");
            for seen in [well.seen(), refusing.seen()] {
                let [seen] = &seen[..] else { panic!("{place} sends {} requests", seen.len()) };
                let query = if is_upload { format!("?name={}", UPLOADED.0) } else { String::new() };
                let target = format!("{}{query}", path.replace(['{', '}'], ""));
                assert_eq!(seen.line.trim_end(), format!("{method} {target} HTTP/1.1"), "{place}");
                if is_upload {
                    assert_eq!(seen.body, UPLOADED.1.as_bytes(), "{place}");
                } else {
                    let sent =
                        (!seen.body.is_empty()).then(|| serde_json::from_slice::<Value>(&seen.body).expect("JSON"));
                    assert_eq!(sent.as_ref(), body, "{place}");
                }
                assert_eq!(seen.header("idempotency-key").is_some(), creates_work || is_upload, "{place}");
                if is_signed {
                    assert!(seen.header("webhook-signature").is_some_and(|one| one.starts_with("v1,")), "{place}");
                } else {
                    assert_eq!(seen.header("authorization"), Some("Bearer dgk_1"), "{place}");
                    assert_eq!(seen.header("x-gateway-subject"), Some("customer-1"), "{place}");
                }
            }
        }))
        .await;
    }
}

#[tokio::test]
async fn two_linters_find_nothing_in_the_document() {
    let Some(place) = install_dir().await else { return };
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let folder = TempDir::with_prefix("deskgate-linters-").expect("a temporary folder");
    std::fs::write(folder.path().join("spectral.yaml"), "extends: [\"spectral:oas\"]\n").expect("writable");
    let linters: [(&str, &[&str]); 2] = [
        ("spectral", &["lint", "--fail-severity", "warn", "--ruleset", "spectral.yaml"]),
        ("redocly", &["lint", "--extends", "recommended", "--max-problems", "50", "--format", "json"]),
    ];
    for (linter, arguments) in linters {
        let mut command = Command::new("node");
        let script = place.join("node_modules/.bin").join(linter);
        command.arg(script).args(arguments).arg(&document).current_dir(folder.path());
        command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true").kill_on_drop(true);
        let ended =
            tokio::time::timeout(PROGRAM_TIMEOUT, command.output()).await.expect("it ends").expect("node is there");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{linter}:\n{said}");
        if linter == "redocly" {
            let totals: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
            assert_eq!((&totals["totals"]["errors"], &totals["totals"]["warnings"]), (&0.into(), &0.into()), "{said}");
        }
    }
}
