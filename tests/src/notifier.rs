//! The desktop's notification service: python3-dbusmock's mock, on a session bus of the device's own.

use serde_json::Value;

use crate::bus::TestBus;
use crate::device::TestDevice;
use crate::process::Process;
use crate::wait::until;

/// A running mock of the service. The agent looks for it when it has a notification.
#[derive(Debug)]
pub struct Notifier {
    bus: TestBus,
    _service: Process,
}

const CONNECT_SCRIPT: &str =
    "service = dbus.SessionBus().get_object('org.freedesktop.Notifications', '/org/freedesktop/Notifications')
mock = dbus.Interface(service, 'org.freedesktop.DBus.Mock')
";

impl Notifier {
    /// Starts it on the device's bus.
    pub async fn start(device: &TestDevice) -> Self {
        let bus = TestBus::session(device).await;
        let service = bus.mock(&["--session", "--template", "notification_daemon"], "notifier.log");
        let notifier = Self { bus, _service: service };
        until("the notifier to answer", async || notifier.ask("mock.GetCalls()").await).await;
        notifier
    }

    /// Every notification so far: application, summary, body, and the names of its actions.
    pub async fn shown(&self) -> Value {
        let calls = "[[str(c[1][0]), str(c[1][3]), str(c[1][4]), [str(a) for a in c[1][5]]] \
                     for c in mock.GetMethodCalls('Notify')]";
        self.ask(calls).await.unwrap_or_else(|said| panic!("the notifier does not answer: {said}"))
    }

    /// The numbers of the withdrawn notifications.
    pub async fn withdrawn(&self) -> Value {
        let calls = "[int(c[1][0]) for c in mock.GetMethodCalls('CloseNotification')]";
        self.ask(calls).await.unwrap_or_else(|said| panic!("the notifier does not answer: {said}"))
    }

    /// Clicks on the notification with this number.
    pub async fn is_clicked(&self, number: u32) {
        let emit = format!(
            "mock.EmitSignal('org.freedesktop.Notifications', 'ActionInvoked', 'us', [dbus.UInt32({number}), 'default'])"
        );
        self.ask(&emit).await.unwrap_or_else(|said| panic!("no signal was sent: {said}"));
    }

    async fn ask(&self, expression: &str) -> Result<Value, String> {
        self.bus.ask(CONNECT_SCRIPT, expression).await
    }
}
