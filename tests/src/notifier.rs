//! The desktop's service for notifications: python3-dbusmock's, on a session bus of the device's own.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::device::{self, Device};
use crate::logind::{PYTHON, address, start_bus};
use crate::process::{self, Process};
use crate::wait::until;

/// A running mock of the service. The agent looks for it when it has something to show.
#[derive(Debug)]
pub struct Notifier {
    bus: PathBuf,
    home: PathBuf,
    _daemon: Process,
    _service: Process,
}

const CONNECT: &str = "import dbus, json
service = dbus.SessionBus().get_object('org.freedesktop.Notifications', '/org/freedesktop/Notifications')
mock = dbus.Interface(service, 'org.freedesktop.DBus.Mock')
";

impl Notifier {
    /// Starts it on the device's bus.
    pub async fn start(device: &Device) -> Self {
        let (bus, home) = (device.session_bus(), device.folder().to_owned());
        let daemon = start_bus(&bus, &home).await;
        let mut command = process::command(Path::new(PYTHON), &home);
        command.args(["-m", "dbusmock", "--session", "--template", "notification_daemon"]);
        command.env("DBUS_SESSION_BUS_ADDRESS", address(&bus));
        let service = Process::start(command, &home.join("notifier.log"));
        let notifier = Self { bus, home, _daemon: daemon, _service: service };
        until("the notifier to answer", async || notifier.ask("mock.GetCalls()").await).await;
        notifier
    }

    /// Every notification so far: application, summary, body, and the names of its actions.
    pub async fn shown(&self) -> Value {
        let calls = "[[str(c[1][0]), str(c[1][3]), str(c[1][4]), [str(a) for a in c[1][5]]] \
                     for c in mock.GetMethodCalls('Notify')]";
        self.ask(calls).await.unwrap_or_else(|said| panic!("the notifier does not answer: {said}"))
    }

    /// The numbers of those that were withdrawn.
    pub async fn withdrawn(&self) -> Value {
        let calls = "[int(c[1][0]) for c in mock.GetMethodCalls('CloseNotification')]";
        self.ask(calls).await.unwrap_or_else(|said| panic!("the notifier does not answer: {said}"))
    }

    /// The person clicks on the notification of this number.
    pub async fn is_clicked(&self, number: u32) {
        let emit = format!(
            "mock.EmitSignal('org.freedesktop.Notifications', 'ActionInvoked', 'us', [dbus.UInt32({number}), 'default'])"
        );
        self.ask(&emit).await.unwrap_or_else(|said| panic!("no signal was sent: {said}"));
    }

    async fn ask(&self, expression: &str) -> Result<Value, String> {
        let mut command = process::command(Path::new(PYTHON), &self.home);
        command.env("DBUS_SESSION_BUS_ADDRESS", address(&self.bus));
        command.args(["-c", &format!("{CONNECT}print(json.dumps({expression}, default=str))")]);
        let said = device::run(command).await;
        if said.exit == 0 { Ok(said.value) } else { Err(said.stderr) }
    }
}
