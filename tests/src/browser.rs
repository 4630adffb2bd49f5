//! A real browser for the management pages: Chromium, driven through `tests/browser/driver.mjs`.
//!
//! Each command waits for what it needs: a click for its button, [`BrowserPage::wait_for_visible`] for its element. Any
//! console error of a page, including policy reports and script errors, fails the test with the next command.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::wait::WAIT_TIMEOUT;
use crate::{TestDevice, process, third_party};

/// The most Tab presses in a search: once around the longest page.
const MAX_TAB_PRESSES: u32 = 100;

/// A running browser. It ends when the last of its pages is dropped too.
#[derive(Clone, Debug)]
pub struct Browser(Arc<Mutex<Driver>>);

#[derive(Debug)]
struct Driver {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _child: Child,
    /// Its profile and all its other files.
    _folder: TempDir,
}

/// A page in a window. Windows share nothing, like the browsers of two people.
#[derive(Clone, Debug)]
pub struct BrowserPage {
    browser: Browser,
    page: u64,
    window: u64,
}

/// Settings of a window.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WindowOptions {
    /// `light` or `dark`; light if absent.
    #[serde(rename = "colorScheme")]
    pub theme: Option<&'static str>,
    /// In pixels; a desktop's width if absent.
    pub width: Option<u32>,
    /// Whether scripts run; true if absent.
    pub script: Option<bool>,
}

impl Browser {
    /// Starts it. `None` if it cannot be installed here; on a build server that fails the test.
    pub async fn start() -> Option<Self> {
        let place = third_party::install_dir().await?;
        let Some(chromium) = find("chromium") else {
            assert!(std::env::var_os("CI").is_none(), "chromium is missing: scripts/setup test");
            println!("SKIPPED: chromium is missing: scripts/setup test");
            return None;
        };
        let folder = TempDir::with_prefix("deskgate-browser-").expect("a temporary folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/driver.mjs");
        let mut command = process::command(Path::new("node"), folder.path());
        command.arg(script).arg(place).arg(chromium).env("TMPDIR", folder.path());
        let mut command = tokio::process::Command::from(command);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("node is there");
        let commands = child.stdin.take().expect("it is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Some(Self(Arc::new(Mutex::new(Driver { commands, answers, _child: child, _folder: folder }))))
    }

    /// A window with an empty page.
    pub async fn window(&self, look: WindowOptions) -> BrowserPage {
        let made = self.ask("window", json!(look)).await;
        self.page(&made)
    }

    /// A window that is signed in to a device's pages, and shows the overview.
    pub async fn signed_in(&self, device: &TestDevice) -> BrowserPage {
        let page = self.window(WindowOptions::default()).await;
        page.enter(device).await;
        page
    }

    /// Allows console messages with this text, until another text is given.
    pub async fn tolerate(&self, text: Option<&str>) {
        self.ask("tolerate", json!({ "text": text })).await;
    }

    fn page(&self, made: &Value) -> BrowserPage {
        let number = |name: &str| made[name].as_u64().expect("a number");
        BrowserPage { browser: self.clone(), page: number("page"), window: number("window") }
    }

    async fn ask(&self, what: &str, mut arguments: Value) -> Value {
        arguments["do"] = json!(what);
        let mut driver = self.0.lock().await;
        let line = format!("{arguments}\n");
        driver.commands.write_all(line.as_bytes()).await.expect("the browser runs");
        let answer = timeout(WAIT_TIMEOUT, driver.answers.next_line()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer to {arguments}")).expect("the browser runs");
        let answer: Value = serde_json::from_str(&answer.expect("the browser runs")).expect("an answer");
        assert!(answer["error"].is_null(), "{arguments}: {}", answer["error"].as_str().unwrap_or_default());
        assert_eq!(answer["complaints"], json!([]), "the page complained, at or before {arguments}");
        answer["value"].clone()
    }
}

impl BrowserPage {
    async fn ask(&self, what: &str, mut arguments: Value) -> Value {
        arguments["page"] = json!(self.page);
        arguments["window"] = json!(self.window);
        self.browser.ask(what, arguments).await
    }

    /// One more page in the same window: the same cookies.
    pub async fn tab(&self) -> Self {
        let made = self.ask("tab", json!({})).await;
        self.browser.page(&made)
    }

    /// Signs in to a device's pages by a fresh link.
    pub async fn enter(&self, device: &TestDevice) {
        self.goto(&device.page_link().await).await;
        self.wait_for_visible(".side [aria-current] >> text=Overview").await;
    }

    /// Opens an address, or a path within the path of the pages that are shown. Returns the status.
    pub async fn goto(&self, address: &str) -> u64 {
        let address = if address.starts_with('/') { self.mount().await + address } else { address.to_owned() };
        self.ask("goto", json!({ "url": address })).await.as_u64().expect("a status")
    }

    /// Reloads the page.
    pub async fn reload(&self) {
        self.ask("reload", json!({})).await;
    }

    /// The page's address.
    pub async fn url(&self) -> String {
        self.ask("url", json!({})).await.as_str().expect("text").to_owned()
    }

    /// The page's origin.
    pub async fn origin(&self) -> String {
        self.url().await.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
    }

    /// The address below which the pages that are shown lie, without a slash at its end.
    pub async fn mount(&self) -> String {
        self.url().await.splitn(5, '/').take(4).collect::<Vec<_>>().join("/")
    }

    /// Clicks on the one element that a Playwright selector finds, as `text=Cancel`.
    pub async fn click(&self, at: &str) {
        self.ask("click", json!({ "at": at })).await;
    }

    /// Chooses files of this computer in a field for files.
    pub async fn give(&self, at: &str, paths: &[&Path]) {
        self.ask("give", json!({ "at": at, "paths": paths })).await;
    }

    /// Writes a text into a field.
    pub async fn fill(&self, at: &str, text: &str) {
        self.ask("fill", json!({ "at": at, "text": text })).await;
    }

    /// Ticks or unticks a box.
    pub async fn tick(&self, at: &str, on: bool) {
        self.ask("check", json!({ "at": at, "on": on })).await;
    }

    /// Chooses the option with this value in a list.
    pub async fn choose(&self, at: &str, value: &str) {
        self.ask("choose", json!({ "at": at, "value": value })).await;
    }

    /// Presses a key.
    pub async fn press(&self, key: &str) {
        self.ask("press", json!({ "key": key })).await;
    }

    /// Types a text where the focus is.
    pub async fn types(&self, text: &str) {
        self.ask("type", json!({ "text": text })).await;
    }

    /// Presses Tab until the element with this role and name prefix has focus, as `button "Save`. Every focused element
    /// on the way must be visible. Returns the number of presses.
    pub async fn tab_to(&self, role: &str, name: &str) -> u64 {
        let to = format!("{role} \"{name}");
        self.ask("tab_to", json!({ "to": to, "most": MAX_TAB_PRESSES })).await.as_u64().expect("a number")
    }

    /// Waits until the element with this role and name prefix has focus. It must be visible.
    pub async fn has_focus(&self, role: &str, name: &str) {
        self.ask("has_focus", json!({ "wanted": format!("{role} \"{name}") })).await;
    }

    /// Waits until an element is visible. Returns when it became visible, in milliseconds since 1970.
    pub async fn wait_for_visible(&self, at: &str) -> i64 {
        self.ask("sees", json!({ "at": at })).await.as_i64().expect("a time")
    }

    /// Waits until an element is gone.
    pub async fn wait_for_hidden(&self, at: &str) {
        self.ask("gone", json!({ "at": at })).await;
    }

    /// How many elements match now.
    pub async fn count(&self, at: &str) -> u64 {
        self.ask("count", json!({ "at": at })).await.as_u64().expect("a number")
    }

    /// The text of the one element that matches.
    pub async fn text(&self, at: &str) -> String {
        self.ask("text", json!({ "at": at })).await.as_str().expect("text").to_owned()
    }

    /// The value of an expression, or of its promise, in the page.
    pub async fn evaluate(&self, script: &str) -> Value {
        self.ask("evaluate", json!({ "script": script })).await
    }

    /// Changes theme and width from now on.
    pub async fn look(&self, theme: &str, width: u32) {
        self.ask("look", json!({ "colorScheme": theme, "width": width })).await;
    }

    /// Takes a screenshot of the whole page.
    pub async fn picture(&self, path: &Path) {
        self.ask("picture", json!({ "path": path })).await;
    }

    /// The cookies of its window.
    pub async fn cookies(&self) -> Vec<Value> {
        self.ask("cookies", json!({})).await.as_array().expect("a list").clone()
    }

    /// The serious and critical findings of axe-core; with `rules`, only by those rules.
    pub async fn accessibility_findings(&self, rules: Option<&[&str]>) -> Vec<String> {
        let found = self.ask("judge", json!({ "rules": rules })).await;
        serde_json::from_value(found).expect("a list of texts")
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
