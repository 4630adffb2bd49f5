//! A third-party MCP server that wants a sign-in, with a third-party authorization server: both from npm, over HTTPS.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, Response, Url};
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::third_party;
use crate::wait::until;

/// At most this many steps of a browser until it is back.
const MAX_STEPS: usize = 20;

/// A running server. It has the tool `add_note`.
#[derive(Debug)]
pub struct ProtectedToolServer {
    folder: TempDir,
    process: Process,
    url: String,
}

impl ProtectedToolServer {
    /// Starts one whose access tokens last this long. `None` if it cannot be installed here; on a build server that
    /// fails the test.
    pub async fn start(tokens_last_s: u32) -> Option<Self> {
        let place = third_party::install_dir().await?;
        let folder = TempDir::with_prefix("deskgate-mcp-").expect("a temporary folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        for (name, text) in [("cert.pem", made.cert.pem()), ("key.pem", made.signing_key.serialize_pem())] {
            std::fs::write(folder.path().join(name), text).expect("writable");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/mcp-protected-server.mjs");
        let mut command = process::command(Path::new("node"), folder.path());
        command.arg(script).arg(folder.path()).arg(tokens_last_s.to_string()).arg(place);
        let process = Process::start(command, &folder.path().join("server.log"));
        let url = until("the MCP server to listen", async || {
            let log = process.log.own();
            let url = log.lines().find_map(|line| line.strip_prefix("listening on ")).map(str::to_owned);
            url.ok_or(log)
        })
        .await;
        Some(Self { folder, process, url })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate that a device has to trust.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// How often it said these words.
    pub fn count(&self, words: &str) -> usize {
        self.process.log.count(&[words])
    }

    /// Signs in on the authorization server's pages and agrees, as a browser does, until the answer is brought back.
    /// Returns what the person sees then.
    pub async fn agree(&self, address: &str) -> String {
        let certificate = std::fs::read(self.certificate()).expect("it is there");
        let certificate = reqwest::Certificate::from_pem(&certificate).expect("a certificate");
        let client = deskgate_outbound::builder().no_proxy().tls_certs_merge([certificate]).build().expect("a client");
        let mut browser = StepBrowser { client, cookies: BTreeMap::new() };
        let mut at = Url::parse(address).expect("a URL");
        let mut answered = browser.step(Method::GET, &at, "").await;
        for _ in 0..MAX_STEPS {
            if let Some(next) = answered.headers().get(LOCATION) {
                at = at.join(next.to_str().expect("a text")).expect("a URL");
                answered = browser.step(Method::GET, &at, "").await;
                continue;
            }
            let page = answered.text().await.expect("a page");
            let form = match () {
                () if at.scheme() == "http" => return page,
                () if page.contains("value=\"login\"") => "prompt=login&login=kim&password=any",
                () if page.contains("value=\"consent\"") => "prompt=consent",
                () => panic!("{at}: {page}"),
            };
            answered = browser.step(Method::POST, &at, form).await;
        }
        panic!("the browser never came back");
    }
}

/// A browser that follows one step at a time and keeps cookies.
struct StepBrowser {
    client: Client,
    cookies: BTreeMap<String, String>,
}

impl StepBrowser {
    async fn step(&mut self, method: Method, at: &Url, form: &'static str) -> Response {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.client.request(method, at.clone()).header(COOKIE, cookies.join("; "));
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        let answered = request.send().await.expect("it answers");
        for cookie in answered.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("a text").split(';').next().unwrap_or_default();
            if let Some((name, value)) = cookie.split_once('=') {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answered
    }
}
