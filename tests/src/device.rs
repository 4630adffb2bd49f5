//! A `deskgate` agent with a home of its own, driven through its command line.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::UNIX_EPOCH;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::backend::Backend;
use crate::binaries;
use crate::bus;
use crate::folder::Folder;
use crate::gateway::{Address, GatewayProcess};
use crate::process::{self, Log, Process};
use crate::proxy::Proxy;
use crate::template;
use crate::wait::until;

/// A device: its home outlives its process.
#[derive(Debug)]
pub struct TestDevice {
    folder: TempDir,
    process: Option<Process>,
    program: PathBuf,
    /// The command that its agent is started through.
    through: Vec<String>,
    /// Further variables in its agent's environment.
    environment: Vec<(String, String)>,
    /// The proxy between it and its gateway, once it is paired.
    line: Option<Proxy>,
}

/// What a command printed, and how it ended.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit code.
    pub exit: i32,
    /// Standard output; null if it is not JSON.
    pub value: Value,
    /// Standard output unchanged.
    pub stdout: String,
    /// Standard error; of an error for programs its message.
    pub stderr: String,
}

impl CommandOutput {
    /// The output of a command that must have succeeded.
    pub fn ok(self) -> Value {
        assert_eq!(self.exit, 0, "{}{}", self.stdout, self.stderr);
        self.value
    }
}

/// Runs a command to its end.
pub async fn run(command: Command) -> CommandOutput {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(crate::wait::WAIT_TIMEOUT, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} does not end")).expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stdout = text(&output.stdout);
    CommandOutput {
        exit: output.status.code().unwrap_or(-1),
        value: serde_json::from_str(&stdout).unwrap_or_default(),
        stdout,
        stderr: messages(&text(&output.stderr)),
    }
}

/// What stderr says: of an error for programs its message.
fn messages(stderr: &str) -> String {
    let message = |line: &str| {
        let error: Value = serde_json::from_str(line).ok()?;
        (error["schema"] == "error/1").then(|| error["message"].as_str().map(str::to_owned))?
    };
    stderr.lines().map(|line| message(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

impl TestDevice {
    /// An empty home without a running agent.
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("deskgate-dev-").expect("a temporary folder");
        std::fs::create_dir(folder.path().join("person")).expect("a fresh folder");
        Self {
            folder,
            process: None,
            program: binaries::agent(),
            through: Vec::new(),
            environment: Vec::new(),
            line: None,
        }
    }

    /// A device in built-in mode, with its gateway up.
    pub async fn built_in() -> Self {
        let mut device = Self::new();
        let state_dir = device.home().join("gateway");
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&state_dir).expect("a fresh folder");
        template::lay_out(&state_dir).await;
        device.start().await;
        device.wait_until_connected().await;
        device
    }

    /// A device that was paired with a gateway through both command lines, and is connected over SSH through a
    /// [`Proxy`].
    pub async fn paired_with(gateway: &GatewayProcess) -> Self {
        let mut device = Self::for_remote().await;
        let invitation = device.pair(gateway, &[]).await;
        device.connect(gateway.ssh(), &invitation, &gateway.control_token_file()).await;
        device.wait_until_connected().await;
        device
    }

    /// A running agent in remote mode without a gateway. Remote mode was chosen once for all devices of one program: a
    /// fresh agent begins in built-in mode, which starts slowly.
    pub async fn for_remote() -> Self {
        let built = std::fs::metadata(binaries::agent()).and_then(|file| file.modified()).expect("it is there");
        let built = built.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        let chosen = template::once(&format!("remote-{built}"), choose_remote).await;
        let mut device = Self::new();
        std::fs::DirBuilder::new().mode(0o700).create(device.home()).expect("a fresh folder");
        for file in files(&chosen) {
            std::fs::copy(&file, device.home().join(file.file_name().expect("a file"))).expect("copied");
        }
        device.start().await;
        device
    }

    /// A second home with only the same key and the connection: the state of a person who copied the key, or lost
    /// everything but the key.
    pub async fn with_the_same_key(&self) -> Self {
        let mut twin = Self::for_remote().await;
        twin.stop(Signal::TERM).await;
        for name in ["identity_ed25519", "control_token"] {
            std::fs::copy(self.home().join(name), twin.home().join(name)).expect("copied");
        }
        twin.start().await;
        twin
    }

    /// Starts its agent through a command from now on. The command, like `nsenter`, runs its last arguments in a
    /// network of its own.
    pub fn start_through(&mut self, command: &[String]) {
        self.through = command.to_vec();
    }

    /// Starts its agent with these environment variables from now on, in place of earlier ones.
    pub fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.environment = environment;
    }

    /// Replaces its program by one of another version from the next start on.
    pub fn install(&mut self, version: &str) {
        self.program = binaries::of_version(&binaries::agent(), version);
    }

    /// `DESKGATE_HOME`.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The socket of its system bus; it exists only if a test starts a [`Logind`](crate::logind::Logind).
    pub fn system_bus(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    /// The socket of its desktop's bus; it exists only if a test starts a [`Notifier`](crate::notifier::Notifier).
    pub fn session_bus(&self) -> PathBuf {
        self.folder.path().join("session-bus")
    }

    /// The folder of programs that are found before those of the computer, such as a browser.
    pub fn programs(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// The folder with all files of this device.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes its computer trust only this certificate from now on.
    pub fn trust_certificate(&self, certificate: &Path) {
        std::fs::copy(certificate, self.folder.path().join("trusted.pem")).expect("a file");
    }

    /// Starts the agent and returns when it answers its command line.
    pub async fn start(&mut self) {
        assert!(self.process.is_none(), "the agent runs");
        let mut command = self.agent();
        command.args(["start", "--foreground"]);
        let mut process = Process::start(command, &self.folder.path().join("agent.log"));
        until("the agent to answer", async || {
            if let Some(status) = process.has_ended() {
                panic!("the agent ended with {status}:\n{}", process.log.tail(20));
            }
            let said = self.cli(&["status"]).await;
            if said.exit == 0 { Ok(()) } else { Err(said.stderr) }
        })
        .await;
        self.process = Some(process);
    }

    fn command(&self) -> Command {
        self.in_its_environment(process::command(&self.program, &self.folder.path().join("person")))
    }

    fn agent(&self) -> Command {
        let mut command = match self.through.split_first() {
            None => self.command(),
            Some((first, arguments)) => {
                let mut command = process::command(Path::new(first), &self.folder.path().join("person"));
                command.args(arguments).arg(&self.program);
                self.in_its_environment(command)
            }
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn in_its_environment(&self, mut command: Command) -> Command {
        command.env("DESKGATE_HOME", self.home());
        // A proxy that does not exist: a call to this computer that uses a proxy fails.
        command.env("HTTP_PROXY", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
        let trusted = self.folder.path().join("trusted.pem");
        if trusted.exists() {
            command.env("SSL_CERT_FILE", trusted);
        }
        // The real bus of the computer that runs the tests is not used.
        command.env("DBUS_SYSTEM_BUS_ADDRESS", bus::address(&self.system_bus()));
        command.env("DBUS_SESSION_BUS_ADDRESS", bus::address(&self.session_bus()));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs().display()));
        command
    }

    /// Runs a command of the desktop's command line with `--json`.
    pub async fn cli(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command();
        command.arg("--json").args(arguments);
        run(command).await
    }

    /// Runs a command with output for people.
    pub async fn plain_cli(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command();
        command.args(arguments);
        run(command).await
    }

    /// The same with a text on standard input.
    pub async fn cli_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let file = self.folder.path().join("input");
        std::fs::write(&file, input).expect("written");
        let mut shell = process::command(Path::new("sh"), &self.folder.path().join("person"));
        shell.args(["-c", "exec \"$@\" <\"$0\""]).arg(&file).arg(&self.program).arg("--json").args(arguments);
        run(self.in_its_environment(shell)).await
    }

    /// The same with stderr as it is.
    pub async fn raw_cli(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = tokio::process::Command::from(self.command());
        let output =
            command.arg("--json").args(arguments).stdin(Stdio::null()).output().await.expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        CommandOutput { exit: output.status.code().unwrap_or(-1), value: Value::Null, stdout, stderr }
    }

    /// Runs a command at a terminal of its own.
    pub async fn terminal_cli(&self, arguments: &[&str]) -> CommandOutput {
        let words = arguments.iter().map(|word| format!(" '{word}'")).collect::<String>();
        let mut command =
            self.in_its_environment(process::command(Path::new("script"), &self.folder.path().join("person")));
        command.env("TERM", "xterm").args(["--quiet", "--return", "--command"]);
        command.arg(format!("'{}'{words}", self.program.display())).arg("/dev/null");
        run(command).await
    }

    /// Starts a command with output for people, which can be read while it runs.
    pub fn begin_cli(&self, arguments: &[&str]) -> Process {
        let mut command = self.command();
        command.args(arguments);
        Process::start(command, &self.folder().join(format!("{}.out", arguments.join("-").replace('/', "_"))))
    }

    /// `deskgate status`.
    pub async fn status(&self) -> Value {
        self.cli(&["status"]).await.ok()
    }

    /// A link that opens its pages, once.
    pub async fn page_link(&self) -> String {
        let said = self.plain_cli(&["open", "--print"]).await;
        assert_eq!(said.exit, 0, "{}", said.stderr);
        said.stdout.trim().to_owned()
    }

    /// Waits until the connection is in this state, and returns the whole status.
    pub async fn wait_for_line_state(&self, state: &str) -> Value {
        until(&format!("the line to be {state}"), async || {
            let said = self.cli(&["status"]).await;
            if said.value["line"]["state"] == state { Ok(said.value) } else { Err(said.stdout + &said.stderr) }
        })
        .await
    }

    /// Waits until it is connected to its gateway.
    pub async fn wait_until_connected(&self) -> Value {
        self.wait_for_line_state("connected").await
    }

    /// Exports the identity and has the gateway's administrator add it. Returns the administrator's output, with the
    /// invitation for the desktop.
    pub async fn pair(&self, gateway: &GatewayProcess, arguments: &[&str]) -> Value {
        let file = self.folder.path().join("identity.json");
        // The command refuses to overwrite, so the name is unique.
        let _ = std::fs::remove_file(&file);
        let file = file.to_str().expect("a plain name");
        self.cli(&["identity", "export", file]).await.ok();
        gateway.admin(&[&["device", "add", file], arguments].concat()).await.ok()
    }

    /// Saves the connection that an invitation describes, with a [`Proxy`] to `target` as the address.
    pub async fn connect(&mut self, target: Address, paired: &Value, token_file: &Path) -> CommandOutput {
        self.connect_to_one_of(vec![target], paired, token_file).await
    }

    /// As [`TestDevice::connect`], with one of these gateways for each connection.
    pub async fn connect_to_one_of(
        &mut self,
        targets: Vec<Address>,
        paired: &Value,
        token_file: &Path,
    ) -> CommandOutput {
        let line = Proxy::to_one_of(targets).await;
        let address = line.address();
        self.line = Some(line);
        self.connect_straight(address, paired, token_file).await
    }

    /// As [`TestDevice::connect`], without a proxy.
    pub async fn connect_straight(&self, target: SocketAddr, paired: &Value, token_file: &Path) -> CommandOutput {
        let address = target.to_string();
        let text = |name: &str| paired["details"][name].as_str().expect("the invitation is complete");
        self.save(&[
            "--ssh-address",
            &address,
            "--host-key",
            text("host_key_fingerprint"),
            "--control-socket",
            text("control_socket"),
            "--token-file",
            token_file.to_str().expect("a plain name"),
        ])
        .await
    }

    /// `connection set --mode remote`.
    pub async fn save(&self, arguments: &[&str]) -> CommandOutput {
        let fixed: &[&str] = &["connection", "set", "--mode", "remote", "--accept-risk", "abandon-runs"];
        self.cli(&[fixed, arguments].concat()).await
    }

    /// Its identifier at the gateway it is connected to.
    pub async fn device_id(&self) -> String {
        self.wait_until_connected().await["line"]["device_id"].as_str().expect("it is connected").to_owned()
    }

    /// The network between it and its gateway.
    pub fn proxy(&self) -> &Proxy {
        self.line.as_ref().expect("it was paired")
    }

    /// Creates an application and a service in a folder, checks and publishes it, enables access, and returns a caller.
    /// `arguments` are added to `service create`.
    pub async fn publish(&self, gateway: &GatewayProcess, app: &str, folder: &Folder, arguments: &[&str]) -> Backend {
        let (key, endpoint_id) = self.publish_service(app, folder, arguments).await;
        Backend::new(gateway.http(), &key, &endpoint_id)
    }

    /// As [`TestDevice::publish`], for the gateway that is built in.
    pub async fn publish_here(&self, app: &str, folder: &Folder, arguments: &[&str]) -> Backend {
        let (key, endpoint_id) = self.publish_service(app, folder, arguments).await;
        self.caller_here(&key, &endpoint_id).await
    }

    /// A caller of a published service, at the gateway that is built in.
    pub async fn caller_here(&self, key: &str, endpoint_id: &str) -> Backend {
        let address = self.status().await["access"]["address"].as_str().expect("connected").to_owned();
        let address = address.trim_start_matches("http://").trim_end_matches("/api/v1").parse();
        Backend::new(Address::new(address.expect("an address on loopback")), key, endpoint_id)
    }

    async fn publish_service(&self, app: &str, folder: &Folder, arguments: &[&str]) -> (String, String) {
        let created = self.cli(&["app", "create", app]).await.ok();
        let endpoint_id = self.add_service(app, app, folder, arguments).await;
        self.cli(&["access", "enable"]).await.ok();
        (created["key"]["text"].as_str().expect("the key is shown once").to_owned(), endpoint_id)
    }

    /// Creates, checks and publishes one more service of an application. Returns its endpoint.
    pub async fn add_service(&self, app: &str, name: &str, folder: &Folder, arguments: &[&str]) -> String {
        let path = folder.path();
        let fixed: &[&str] = &["service", "create", name, "--app", app, "--dir", path.to_str().expect("a plain name")];
        let service = self.cli(&[fixed, arguments].concat()).await.ok();
        let draft_id = service["draft_id"].as_str().expect("a draft").to_owned();
        self.cli(&["service", "check", &draft_id]).await.ok();
        let published = self.cli(&["service", "publish", &draft_id]).await.ok();
        published["endpoint_id"].as_str().expect("published").to_owned()
    }

    /// The types of a run's stored events.
    pub async fn events(&self, run_id: &str) -> Vec<String> {
        let detail = self.cli(&["run", "show", run_id]).await.ok();
        let events = detail["events"].as_array().expect("a list");
        events.iter().map(|event| event["type"].as_str().expect("named").to_owned()).collect()
    }

    /// How often the agent began to execute a run, over all its processes.
    pub fn executions(&self, run_id: &str) -> usize {
        self.any_log().count(&["execution began", run_id])
    }

    /// Waits until the agent shows a run in a state.
    pub async fn wait_for_standing(&self, run_id: &str, standing: &str) {
        until(&format!("{run_id} to be {standing} on the device"), async || {
            let runs = self.status().await["work"]["runs"].clone();
            let found = runs.as_array().into_iter().flatten().find(|run| run["run_id"] == run_id);
            if found.is_some_and(|run| run["standing"] == standing) { Ok(()) } else { Err(runs.to_string()) }
        })
        .await;
    }

    /// The log of an agent in the background.
    pub fn log_of_background(&self) -> String {
        Log::of(&self.home().join("agent.log")).all()
    }

    /// Its log. The agent must be running.
    pub fn log(&self) -> &Log {
        &self.process.as_ref().expect("the agent runs").log
    }

    fn any_log(&self) -> Log {
        Log::of(&self.folder.path().join("agent.log"))
    }

    /// Its process, which must be running.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the agent runs")
    }

    /// Kills the agent with SIGKILL. Returns how it ended.
    pub fn kill_9(&mut self) -> ExitStatus {
        self.process.take().expect("the agent runs").kill_9()
    }

    /// Waits until the agent has ended after a stop that was requested elsewhere.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.take().expect("the agent runs").ended().await
    }

    /// Stops the agent by a signal and waits until it has ended.
    pub async fn stop(&mut self, signal: Signal) -> ExitStatus {
        let process = self.process.take().expect("the agent runs");
        process.signal(signal);
        process.ended().await
    }
}

impl Default for TestDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestDevice {
    fn drop(&mut self) {
        drop(self.process.take());
        let state_dir = self.home().join("gateway");
        process::kill_cluster(&state_dir);
        process::remove_socket_folder(&state_dir);
    }
}

/// Writes the files of an agent in remote mode, without its key, to a folder.
async fn choose_remote(place: &Path) {
    let mut device = TestDevice::new();
    device.start().await;
    let token = device.folder.path().join("token");
    std::fs::write(&token, deskgate_protocol::secret::ControlToken::generate().reveal()).expect("writable");
    let pin = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";
    let token = token.to_str().expect("a plain name");
    device.save(&["--ssh-address", "127.0.0.1:9", "--host-key", pin, "--token-file", token]).await.ok();
    device.wait_for_line_state("disconnected").await;
    device.stop(Signal::TERM).await;
    std::fs::create_dir(place).expect("a fresh folder");
    for file in files(&device.home()) {
        let name = file.file_name().expect("a file");
        if name.to_string_lossy().starts_with("deskgate.db") || name == "control_token" {
            std::fs::copy(&file, place.join(name)).expect("copied");
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).expect("it was made").map(|entry| entry.expect("it is there").path()).collect()
}
