//! A gateway and a desktop with one service, and the programs that call it like a backend.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use deskgate_tests::third_party::{install_dir, python_tools};
use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use tempfile::TempDir;
use tokio::process::Command;

/// The longest time for a calling program.
pub(crate) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(150);

/// Limits for a caller that sends more requests than a backend does.
const HIGH_RATE_SETTINGS: [&str; 2] = ["limits.requests_per_second=100000", "limits.burst=100000"];

/// The running system. It stops when this is dropped.
pub(crate) struct ContractFixture {
    pub(crate) backend: Backend,
    pub(crate) base_url: String,
    /// Of the device's key.
    fingerprint: String,
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
        let backend = device.publish(&gateway, "shop", &work, &["--takes-files", "yes"]).await;
        let base_url = format!("http://{}", gateway.http().get());
        let hook = webhook(&device, &base_url, backend.endpoint_id()).await;
        let identity = device.cli(&["identity", "show"]).await.ok();
        let fingerprint = identity["fingerprint"].as_str().expect("a text").to_owned();
        let folder = Self::new_folder().await;
        Self { backend, base_url, fingerprint, hook, folder, _running: (device, gateway, postgres, work) }
    }

    /// The folder of the callers' programs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a program with a backend's values in its environment. Returns its output; a program that fails, or takes
    /// too long, fails the test.
    pub(crate) async fn run(&self, program: &Path, arguments: &[&str]) -> String {
        self.run_within(PROGRAM_TIMEOUT, program, arguments).await
    }

    /// The same with another time.
    pub(crate) async fn run_within(&self, limit: Duration, program: &Path, arguments: &[&str]) -> String {
        let ended = self.run_to_end(limit, program, arguments, self.folder(), &self.base_url).await;
        assert!(ended.is_success, "{} {arguments:?} failed:\n{}{}", program.display(), ended.out, ended.err);
        ended.out
    }

    /// Runs a program in a folder of its own, with the gateway at another address, however it ends.
    pub(crate) async fn run_to_end(
        &self,
        limit: Duration,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
        base_url: &str,
    ) -> EndedProgram {
        let own = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{own}:{}", python_tools().display()))
            .env("HOME", folder)
            .env("LC_ALL", "C.UTF-8")
            .env("BASE_URL", base_url)
            .env("APP_KEY", self.backend.key())
            .env("ENDPOINT_ID", self.backend.endpoint_id())
            .env("SUBJECT", "customer-1")
            .env("DEVICE_FINGERPRINT", &self.fingerprint)
            .env("HOOK_URL", self.hook.0.replacen(&self.base_url, base_url, 1))
            .env("HOOK_SECRET", &self.hook.1)
            // So that Go compiles its own packages only once.
            .env("GOCACHE", python_tools().join("../../go"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(limit, command.output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{} {arguments:?} takes too long", program.display()));
        let output =
            output.unwrap_or_else(|error| panic!("{} does not start: {error}; run `make setup`", program.display()));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        EndedProgram { is_success: output.status.success(), out, err }
    }

    /// A new folder for a program, with the libraries that examples name.
    pub(crate) async fn new_folder() -> TempDir {
        let folder = TempDir::with_prefix("deskgate-caller-").expect("a temporary folder");
        if let Some(clients) = install_dir().await {
            let modules = folder.path().join("node_modules");
            std::os::unix::fs::symlink(clients.join("node_modules"), modules).expect("a link");
        }
        folder
    }
}

/// How a program ended.
pub(crate) struct EndedProgram {
    pub(crate) is_success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
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
