//! A gateway and a desktop with one service, and the programs that call it like a backend.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use deskgate_tests::third_party::python_tools;
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use tempfile::TempDir;
use tokio::process::Command;

/// The longest time for a calling program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(150);

/// Limits for a caller that sends more requests than a backend does.
const HIGH_RATE_SETTINGS: [&str; 2] = ["limits.requests_per_second=100000", "limits.burst=100000"];

/// The running system. It stops when this is dropped.
pub(crate) struct ContractFixture {
    pub(crate) backend: Backend,
    pub(crate) base_url: String,
    /// The address and the secret of a webhook.
    hook: (String, String),
    folder: TempDir,
    _running: (TestDevice, GatewayProcess, Postgres, Folder),
}

impl ContractFixture {
    pub(crate) async fn open() -> Self {
        let postgres = Postgres::shared().await;
        let gateway = GatewayProcess::start(&postgres, &HIGH_RATE_SETTINGS).await;
        let device = TestDevice::paired_with(&gateway).await;
        let work = Folder::new();
        let backend = device.publish(&gateway, "shop", &work, &[]).await;
        let base_url = format!("http://{}", gateway.http().get());
        let hook = webhook(&device, &base_url, backend.endpoint_id()).await;
        let folder = TempDir::with_prefix("deskgate-caller-").expect("a temporary folder");
        Self { backend, base_url, hook, folder, _running: (device, gateway, postgres, work) }
    }

    /// The folder of the callers' programs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a program with a backend's values in its environment. Returns its output; a program that fails, or takes
    /// too long, fails the test.
    pub(crate) async fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let own = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder())
            .env_clear()
            .env("PATH", format!("{own}:{}", python_tools().display()))
            .env("HOME", self.folder())
            .env("LC_ALL", "C.UTF-8")
            .env("BASE_URL", &self.base_url)
            .env("APP_KEY", self.backend.key())
            .env("ENDPOINT_ID", self.backend.endpoint_id())
            .env("SUBJECT", "customer-1")
            .env("HOOK_URL", &self.hook.0)
            .env("HOOK_SECRET", &self.hook.1)
            // So that Go compiles its own packages only once.
            .env("GOCACHE", python_tools().join("../../go"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(PROGRAM_TIMEOUT, command.output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{} {arguments:?} takes too long", program.display()));
        let output =
            output.unwrap_or_else(|error| panic!("{} does not start: {error}; run `make setup`", program.display()));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{} {arguments:?} ended with {}:\n{out}{err}",
            program.display(),
            output.status
        );
        out
    }
}

/// The shop's webhook: its address, and its secret.
async fn webhook(device: &TestDevice, base_url: &str, service: &str) -> (String, String) {
    let place = ["--app", "shop", "--service", service, "--scheme", "standard", "--event-type", "ticket.*"];
    let mapping = ["--text", "{{ $.ticket.title }}", "--subject", "customer-1", "--subject-path", "$.ticket.customer"];
    let made = device.cli(&[&["hook", "create", "tickets"][..], &place, &mapping].concat()).await.ok();
    let hook_id = made["webhook"]["hook_id"].as_str().expect("a text");
    (format!("{base_url}/api/v1/webhooks/{hook_id}"), made["secret"].as_str().expect("a text").to_owned())
}

/// A file beside the tests.
pub(crate) fn beside(name: &str) -> String {
    format!("{}/tests/contract/{name}", env!("CARGO_MANIFEST_DIR"))
}
