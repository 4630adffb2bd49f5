//! Desktop notifications for the person at the desktop.
//!
//! Without a notification service, and in a build without the feature, showing does nothing and is no error.

#[cfg(feature = "notices")]
mod bus;
#[cfg(not(feature = "notices"))]
#[path = "without_bus.rs"]
mod bus;

use std::collections::BTreeMap;

use bus::NotificationBus;

/// The shown notifications. `K` identifies what a notification is about.
#[derive(Debug)]
pub struct DesktopNotifications<K> {
    bus: Option<NotificationBus>,
    shown: BTreeMap<K, u32>,
}

impl<K> Default for DesktopNotifications<K> {
    fn default() -> Self {
        Self { bus: None, shown: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> DesktopNotifications<K> {
    /// Whether a notification about this is shown.
    pub fn has(&self, about: K) -> bool {
        self.shown.contains_key(&about)
    }

    /// Shows a notification. A failure is ignored: the same information is on the pages.
    pub async fn show(&mut self, about: K, body: &str) {
        if self.bus.is_none() {
            self.bus = match NotificationBus::connect().await {
                Ok(bus) => Some(bus),
                Err(why) => return tracing::debug!(why, "no notification can be shown"),
            };
        }
        let Some(bus) = &self.bus else { return };
        match bus.show(body).await {
            Ok(number) => drop(self.shown.insert(about, number)),
            Err(why) => {
                tracing::debug!(why, "a notification was not shown");
                self.bus = None;
            }
        }
    }

    /// Withdraws all notifications except those about something that `stays`.
    pub async fn retain(&mut self, stays: impl Fn(K) -> bool) {
        let gone: Vec<K> = self.shown.keys().copied().filter(|about| !stays(*about)).collect();
        for number in gone.iter().filter_map(|about| self.shown.remove(about)).collect::<Vec<_>>() {
            if let Some(bus) = &self.bus {
                bus.close(number).await;
            }
        }
    }

    /// The next clicked notification. Waits forever while none is shown. Cancel-safe.
    pub async fn clicked(&mut self) -> K {
        loop {
            let Some(bus) = &mut self.bus else { return std::future::pending().await };
            let Some(number) = bus.clicked().await else {
                self.bus = None;
                continue;
            };
            // Every client receives every click, also on other programs' notifications.
            if let Some((about, _)) = self.shown.iter().find(|(_, shown)| **shown == number) {
                return *about;
            }
        }
    }
}
