//! Client for `org.freedesktop.Notifications` on the session bus: the Desktop Notifications Specification 1.2.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;
use zbus::zvariant::Value;

/// The timeout for the local service, which answers at once unless it is broken.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const NOTIFICATION_TITLE: &str = "Deskgate";
/// A click on the notification itself, the only action: decisions are made on the pages.
const DEFAULT_ACTION: &str = "default";
/// The service decides how long it is shown.
const SERVER_DEFAULT_EXPIRY: i32 = -1;

#[zbus::proxy(
    interface = "org.freedesktop.Notifications",
    default_service = "org.freedesktop.Notifications",
    default_path = "/org/freedesktop/Notifications",
    gen_blocking = false
)]
trait Notifications {
    #[allow(clippy::too_many_arguments, reason = "the specification's")]
    fn notify(
        &self,
        app_name: &str,
        replaces_id: u32,
        app_icon: &str,
        summary: &str,
        body: &str,
        actions: &[&str],
        hints: HashMap<&str, Value<'_>>,
        expire_timeout: i32,
    ) -> zbus::Result<u32>;

    fn close_notification(&self, id: u32) -> zbus::Result<()>;

    fn get_capabilities(&self) -> zbus::Result<Vec<String>>;

    #[zbus(signal)]
    fn action_invoked(&self, id: u32, action_key: String) -> zbus::Result<()>;
}

/// The connection to the service.
#[derive(Debug)]
pub(super) struct NotificationBus {
    service: NotificationsProxy<'static>,
    clicks: ActionInvokedStream,
    markup: bool,
}

impl NotificationBus {
    /// Connects. The error is for a person.
    pub(super) async fn connect() -> Result<Self, String> {
        let connected = async {
            let bus = zbus::Connection::session().await?;
            let service = NotificationsProxy::new(&bus).await?;
            let clicks = service.receive_action_invoked().await?;
            let markup = service.get_capabilities().await?.iter().any(|can| can == "body-markup");
            Ok(Self { service, clicks, markup })
        };
        in_time(connected).await
    }

    /// Shows a notification, and returns its number.
    pub(super) async fn show(&self, body: &str) -> Result<u32, String> {
        let escaped = || body.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let body = if self.markup { escaped() } else { body.to_owned() };
        let actions = [DEFAULT_ACTION, "Open"];
        let hints = HashMap::from([("urgency", Value::U8(1)), ("desktop-entry", Value::from("deskgate"))]);
        in_time(self.service.notify(
            NOTIFICATION_TITLE,
            0,
            "",
            NOTIFICATION_TITLE,
            &body,
            &actions,
            hints,
            SERVER_DEFAULT_EXPIRY,
        ))
        .await
    }

    /// Withdraws a notification, unless it is gone already.
    pub(super) async fn close(&self, number: u32) {
        if let Err(why) = in_time(self.service.close_notification(number)).await {
            tracing::debug!(why, "a notification was not withdrawn");
        }
    }

    /// The next click; `None` when the bus is gone. Cancel-safe.
    pub(super) async fn clicked(&mut self) -> Option<u32> {
        loop {
            let signal = self.clicks.next().await?;
            if let Ok(arguments) = signal.args()
                && arguments.action_key == DEFAULT_ACTION
            {
                return Some(arguments.id);
            }
        }
    }
}

async fn in_time<T>(work: impl Future<Output = zbus::Result<T>>) -> Result<T, String> {
    match timeout(REPLY_TIMEOUT, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the service for notifications does not answer".to_owned()),
    }
}
