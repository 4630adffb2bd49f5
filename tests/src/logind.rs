//! The system's login service for a device: python3-dbusmock's mock, on a system bus of the device's own.

use serde_json::Value;

use crate::bus::TestBus;
use crate::device::TestDevice;
use crate::process::Process;
use crate::wait::until;

/// A running mock of logind. The agent looks for it when it starts.
#[derive(Debug)]
pub struct Logind {
    bus: TestBus,
    service: Process,
}

const CONNECT_SCRIPT: &str = "logind = dbus.SystemBus().get_object('org.freedesktop.login1', '/org/freedesktop/login1')
";

/// The files by which the stalling mock reports a request, and is told to answer.
const REQUESTED_FILE: &str = "inhibitor.asked";
const RELEASE_FILE: &str = "inhibitor.answers";

impl Logind {
    /// Starts it on the device's bus. The agent must not be running yet.
    pub async fn start(device: &TestDevice) -> Self {
        let bus = TestBus::system(device).await;
        let service = bus.mock(&["--system", "--template", "logind"], "logind.log");
        let logind = Self { bus, service };
        until("logind to answer", async || match logind.ask("logind.ListInhibitors()").await {
            Ok(_) => Ok(()),
            Err(said) => Err(said),
        })
        .await;
        logind
    }

    /// Announces that the computer is about to sleep.
    pub async fn announce_sleep(&self) {
        self.says(true).await;
    }

    /// Announces that the computer woke.
    pub async fn announce_wake(&self) {
        self.says(false).await;
    }

    /// Waits until the device's inhibitors are these: pairs of what and mode, sorted.
    pub async fn wait_for_inhibitors(&self, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(what, mode)| format!("{what} {mode}")).collect();
        until(&format!("the inhibitors {wanted:?}"), async || {
            let held = self.ask("sorted(f'{i[0]} {i[3]}' for i in logind.ListInhibitors())").await?;
            if held == serde_json::json!(wanted) { Ok(()) } else { Err(held.to_string()) }
        })
        .await;
    }

    /// Reports from now on whether the computer is on mains power. Before that it does not know.
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

    /// From now on a request for an inhibitor waits until it [answers](Self::answers_again), and so does every request
    /// after it.
    pub async fn stalls_at_inhibitors(&self) {
        let [asked, answers] =
            [REQUESTED_FILE, RELEASE_FILE].map(|name| self.bus.home.join(name).display().to_string());
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
    pub async fn wait_for_inhibitor_request(&self) {
        until("an inhibitor to be asked for", async || {
            if self.bus.home.join(REQUESTED_FILE).exists() { Ok(()) } else { Err("nobody asked".to_owned()) }
        })
        .await;
    }

    /// Answers requests again.
    pub fn answers_again(&self) {
        std::fs::write(self.bus.home.join(RELEASE_FILE), "").expect("writable");
    }

    /// Ends it and its bus, as when the bus is restarted.
    pub fn kill_9(self) {
        self.service.kill_9();
        self.bus.kill_9();
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
        self.bus.ask(CONNECT_SCRIPT, expression).await
    }
}
