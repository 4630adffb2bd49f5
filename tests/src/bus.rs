//! A D-Bus of a device's own, and questions to who is on it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::device::{self, TestDevice};
use crate::process::{self, Process};
use crate::wait::until;

/// Debian's own interpreter: it is the one that has the package.
pub(crate) const PYTHON_PATH: &str = "/usr/bin/python3";

/// A running bus, and the home of whoever is started on it.
#[derive(Debug)]
pub(crate) struct TestBus {
    path: PathBuf,
    pub(crate) home: PathBuf,
    /// By which programs find it.
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

    /// Everybody may everything on it. Unlike on a desktop's, nobody is started because somebody asks for them: who is there is
    /// what a test started.
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

    /// A mock of python3-dbusmock's on this bus, with a log of that name.
    pub(crate) fn mock(&self, arguments: &[&str], log: &str) -> Process {
        let mut command = self.command(Path::new(PYTHON_PATH));
        command.args(["-m", "dbusmock"]).args(arguments);
        Process::start(command, &self.home.join(log))
    }

    /// What a Python expression comes to, as JSON, after the lines that connect it.
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
