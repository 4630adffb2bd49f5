//! A D-Bus of a device's own, and calls to its services.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::device::{self, TestDevice};
use crate::process::{self, Process};
use crate::wait::until;

/// Debian's own interpreter, which has the package.
pub(crate) const PYTHON_PATH: &str = "/usr/bin/python3";

/// A running bus, and the home of the programs on it.
#[derive(Debug)]
pub(crate) struct TestBus {
    path: PathBuf,
    pub(crate) home: PathBuf,
    /// The environment variable by which programs find it.
    variable: &'static str,
    daemon: Process,
}

impl TestBus {
    /// The bus of the device's session.
    pub(crate) async fn session(device: &TestDevice) -> Self {
        Self::start(device.session_bus(), device, "DBUS_SESSION_BUS_ADDRESS").await
    }

    /// The bus of the device's system.
    pub(crate) async fn system(device: &TestDevice) -> Self {
        Self::start(device.system_bus(), device, "DBUS_SYSTEM_BUS_ADDRESS").await
    }

    /// Every call is allowed on it. Unlike a desktop's bus, it starts no services on demand: only those exist that a
    /// test started.
    async fn start(path: PathBuf, device: &TestDevice, variable: &'static str) -> Self {
        let (config, home) = (path.with_extension("conf"), device.folder().to_owned());
        let text = format!(
            "<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/>\
             </policy></busconfig>\n",
            address(&path)
        );
        std::fs::write(&config, text).expect("writable");
        let mut command = process::command(Path::new("/usr/bin/dbus-daemon"), &home);
        command.args(["--nofork", "--nopidfile"]).arg("--config-file").arg(&config);
        let mut daemon = Process::start(command, &path.with_extension("log"));
        until("the bus to listen", async || {
            if let Some(status) = daemon.has_ended() {
                panic!("dbus-daemon ended with {status}:\n{}", daemon.log.tail(10));
            }
            tokio::net::UnixStream::connect(&path).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        Self { path, home, variable, daemon }
    }

    /// A command that finds this bus.
    pub(crate) fn command(&self, program: &Path) -> std::process::Command {
        let mut command = process::command(program, &self.home);
        command.env(self.variable, address(&self.path));
        command
    }

    /// Starts a mock of python3-dbusmock on this bus, with a log of that name.
    pub(crate) fn mock(&self, arguments: &[&str], log: &str) -> Process {
        let mut command = self.command(Path::new(PYTHON_PATH));
        command.args(["-m", "dbusmock"]).args(arguments);
        Process::start(command, &self.home.join(log))
    }

    /// The value of a Python expression as JSON, after the lines that connect it.
    pub(crate) async fn ask(&self, connect: &str, expression: &str) -> Result<Value, String> {
        let mut command = self.command(Path::new(PYTHON_PATH));
        command.args(["-c", &format!("import dbus, json\n{connect}print(json.dumps({expression}, default=str))")]);
        let said = device::run(command).await;
        if said.exit == 0 { Ok(said.value) } else { Err(said.stderr) }
    }

    /// Ends it.
    pub(crate) fn kill_9(self) {
        self.daemon.kill_9();
    }
}

/// The address of a bus at this path.
pub(crate) fn address(bus: &Path) -> String {
    format!("unix:path={}", bus.display())
}
