//! The system's login service as a device sees it: python3-dbusmock's, on a system bus of the device's own.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::device::{self, Device};
use crate::process::{self, Process};
use crate::wait::until;

/// A running mock of logind. The agent looks for it when it starts.
#[derive(Debug)]
pub struct Logind {
    bus: PathBuf,
    home: PathBuf,
    daemon: Process,
    service: Process,
}

/// Debian's own interpreter: it is the one that has the package.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
const CONNECT: &str = "import dbus, json
logind = dbus.SystemBus().get_object('org.freedesktop.login1', '/org/freedesktop/login1')
";

/// What says that the stalling one was asked, and that it may answer.
const ASKED: &str = "inhibitor.asked";
const ANSWERS: &str = "inhibitor.answers";

impl Logind {
    /// Starts it on the device's bus. The agent must not be running yet.
    pub async fn start(device: &Device) -> Self {
        let (bus, home) = (device.system_bus(), device.folder().to_owned());
        let daemon = start_bus(&bus, &home).await;
        let mut command = process::command(Path::new(PYTHON), &home);
        command.args(["-m", "dbusmock", "--system", "--template", "logind"]);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", address(&bus));
        let service = Process::start(command, &home.join("logind.log"));
        let logind = Self { bus, home, daemon, service };
        until("logind to answer", async || match logind.ask("logind.ListInhibitors()").await {
            Ok(_) => Ok(()),
            Err(said) => Err(said),
        })
        .await;
        logind
    }

    /// Says that the computer is about to sleep.
    pub async fn says_sleep(&self) {
        self.says(true).await;
    }

    /// Says that the computer woke.
    pub async fn says_wake(&self) {
        self.says(false).await;
    }

    /// Waits until the device's inhibitors are these: pairs of what and mode, sorted.
    pub async fn inhibitors_are(&self, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(what, mode)| format!("{what} {mode}")).collect();
        until(&format!("the inhibitors {wanted:?}"), async || {
            let held = self.ask("sorted(f'{i[0]} {i[3]}' for i in logind.ListInhibitors())").await?;
            if held == serde_json::json!(wanted) { Ok(()) } else { Err(held.to_string()) }
        })
        .await;
    }

    /// Says from now on whether the computer is on mains. Before that it does not know.
    pub async fn is_on_mains(&self, mains: bool) {
        let mains = if mains { "True" } else { "False" };
        let mock = "dbus_interface='org.freedesktop.DBus.Mock'";
        let manager = "'org.freedesktop.login1.Manager'";
        let add = format!("logind.AddProperty({manager}, 'OnExternalPower', dbus.Boolean({mains}), {mock})");
        let change =
            format!("logind.UpdateProperties({manager}, {{'OnExternalPower': dbus.Boolean({mains})}}, {mock})");
        let said = match self.ask(&add).await {
            Err(said) if said.contains("already exists") => self.ask(&change).await,
            said => said,
        };
        said.unwrap_or_else(|said| panic!("it was not set: {said}"));
    }

    /// From now on whoever asks it for an inhibitor waits until it [answers](Self::answers_again), and so does
    /// whoever asks for anything after that.
    pub async fn stalls_at_inhibitors(&self) {
        let [asked, answers] = [ASKED, ANSWERS].map(|name| self.home.join(name).display().to_string());
        let code = format!(
            "import os, time\nfrom dbusmock.templates import logind\nopen({asked:?}, 'w').close()\n\
             while not os.path.exists({answers:?}): time.sleep(0.01)\n\
             ret = logind.Inhibit(self, *args)"
        );
        let replace = format!(
            "logind.AddMethod('org.freedesktop.login1.Manager', 'Inhibit', 'ssss', 'h', {code:?}, \
             dbus_interface='org.freedesktop.DBus.Mock')"
        );
        self.ask(&replace).await.unwrap_or_else(|said| panic!("no method was replaced: {said}"));
    }

    /// Waits until it stalls.
    pub async fn is_asked_for_an_inhibitor(&self) {
        until("an inhibitor to be asked for", async || {
            if self.home.join(ASKED).exists() { Ok(()) } else { Err("nobody asked".to_owned()) }
        })
        .await;
    }

    /// Stalls no more.
    pub fn answers_again(&self) {
        std::fs::write(self.home.join(ANSWERS), "").expect("writable");
    }

    /// Ends it and its bus, as when the bus is restarted.
    pub fn kill_9(self) {
        self.service.kill_9();
        self.daemon.kill_9();
    }

    async fn says(&self, sleep: bool) {
        let sleep = if sleep { "True" } else { "False" };
        let emit = format!(
            "logind.EmitSignal('org.freedesktop.login1.Manager', 'PrepareForSleep', 'b', [{sleep}], \
             dbus_interface='org.freedesktop.DBus.Mock')"
        );
        self.ask(&emit).await.unwrap_or_else(|said| panic!("no signal was sent: {said}"));
    }

    async fn ask(&self, expression: &str) -> Result<Value, String> {
        let mut command = process::command(Path::new(PYTHON), &self.home);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", address(&self.bus));
        command.args(["-c", &format!("{CONNECT}print(json.dumps({expression}))")]);
        let said = device::run(command).await;
        if said.exit == 0 { Ok(said.value) } else { Err(said.stderr) }
    }
}

/// A bus at this path, on which everybody may everything. Unlike on a desktop's, nobody is started because somebody asks
/// for them: who is there is what a test started.
pub(crate) async fn start_bus(bus: &Path, home: &Path) -> Process {
    let config = bus.with_extension("conf");
    let text = format!(
        "<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
         <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/>\
         </policy></busconfig>\n",
        address(bus)
    );
    std::fs::write(&config, text).expect("writable");
    let mut command = process::command(Path::new("/usr/bin/dbus-daemon"), home);
    command.args(["--nofork", "--nopidfile"]).arg("--config-file").arg(&config);
    let mut daemon = Process::start(command, &bus.with_extension("log"));
    until("the bus to listen", async || {
        if let Some(status) = daemon.has_ended() {
            panic!("dbus-daemon ended with {status}:\n{}", daemon.log.tail(10));
        }
        tokio::net::UnixStream::connect(bus).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    daemon
}

/// The address of a bus at this path.
pub(crate) fn address(bus: &Path) -> String {
    format!("unix:path={}", bus.display())
}
