//! A third-party issuer of accounts: the certified OpenID provider `oidc-provider`, from npm, with its own pages.

use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::browser::{Browser, WindowOptions};
use crate::gateway::GatewayProcess;
use crate::postgres::Postgres;
use crate::process::{self, Process};
use crate::third_party;
use crate::wait::until;

/// The client identifier of desktops at the issuer.
pub const CLIENT_ID: &str = "deskgate-desktop";

/// The setting of a gateway whose issuer is on this machine.
pub const ALLOW_THIS_MACHINE: &str = "hosted.allowed_networks=127.0.0.0/8,::1";

/// A running provider.
#[derive(Debug)]
pub struct Issuer {
    process: Process,
    url: String,
    _folder: TempDir,
}

impl Issuer {
    /// Starts one whose access tokens last this long. `None` if it cannot be installed here; on a build server that
    /// fails the test.
    pub async fn start(tokens_last_s: u32) -> Option<Self> {
        let place = third_party::install_dir().await?;
        let folder = TempDir::with_prefix("deskgate-issuer-").expect("a temporary folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/issuer.mjs");
        let mut command = process::command(Path::new("node"), folder.path());
        command.arg(script).arg(place).arg(tokens_last_s.to_string());
        let process = Process::start(command, &folder.path().join("issuer.log"));
        let url = until("the issuer to listen", async || {
            let log = process.log.own();
            let url = log.lines().find_map(|line| line.strip_prefix("listening on ")).map(str::to_owned);
            url.ok_or(log)
        })
        .await;
        Some(Self { process, url, _folder: folder })
    }

    /// Its issuer URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A gateway that accepts its accounts.
    pub async fn gateway(&self, postgres: &Postgres) -> GatewayProcess {
        let (issuer, client) = (format!("hosted.issuer={}", self.url), format!("hosted.client_id={CLIENT_ID}"));
        GatewayProcess::start(postgres, &[&issuer, &client, ALLOW_THIS_MACHINE]).await
    }

    /// How often it issued tokens for a refresh token.
    pub fn refresh_count(&self) -> usize {
        self.process.log.count(&["tokens by refresh_token"])
    }

    /// How often a grant was revoked.
    pub fn revocation_count(&self) -> usize {
        self.process.log.count(&["a grant was revoked"])
    }

    /// Makes it stop listening, or listen again. Returns when that is done.
    pub async fn set_unavailable(&self, away: bool) {
        self.process.signal(Signal::USR2);
        self.process.log.line(&[if away { "away" } else { "back" }]).await;
    }

    /// Signs in as this person on its pages, from the address with the code to the end. The pages load a font from
    /// elsewhere and have no icon, so the browser tolerates those errors from then on.
    pub async fn accept(&self, browser: &Browser, address: &str, name: &str) {
        browser.tolerate(Some("Failed to load resource")).await;
        let page = browser.window(WindowOptions::default()).await;
        page.goto(address).await;
        page.wait_for_visible("h1 >> text=Confirm Device").await;
        page.click("button >> text=Continue").await;
        page.fill("input[name=login]", name).await;
        page.fill("input[name=password]", "any").await;
        page.click("button >> text=Sign-in").await;
        page.wait_for_visible("h1 >> text=Authorize").await;
        page.click("button >> text=Continue").await;
        page.wait_for_visible("h1 >> text=Sign-in Success").await;
    }
}
