//! Tells the person at the desktop something while they look elsewhere: the desktop's own notifications.
//!
//! Without a service for them, and in a build without the feature, nothing is shown and nobody is told off.

#[cfg(feature = "notices")]
mod bus;
#[cfg(not(feature = "notices"))]
#[path = "without_bus.rs"]
mod bus;

use std::collections::BTreeMap;

use bus::NotificationBus;

/// What is shown, and what may be withdrawn. `K` says what a notification is about.
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
    /// Whether one about this was shown, and not withdrawn since.
    pub fn has(&self, about: K) -> bool {
        self.shown.contains_key(&about)
    }

    /// Shows one. Whether it could be shown is nobody's concern: what it tells of is on the pages too.
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

    /// Withdraws all but those about something that `stays`.
    pub async fn retain(&mut self, stays: impl Fn(K) -> bool) {
        let gone: Vec<K> = self.shown.keys().copied().filter(|about| !stays(*about)).collect();
        for number in gone.iter().filter_map(|about| self.shown.remove(about)).collect::<Vec<_>>() {
            if let Some(bus) = &self.bus {
                bus.close(number).await;
            }
        }
    }

    /// What the person clicked on. Waits for ever while there is nothing to click. Cancel-safe.
    pub async fn clicked(&mut self) -> K {
        loop {
            let Some(bus) = &mut self.bus else { return std::future::pending().await };
            let Some(number) = bus.clicked().await else {
                self.bus = None;
                continue;
            };
            // Everybody hears of every click, also of other programs' notifications.
            if let Some((about, _)) = self.shown.iter().find(|(_, shown)| **shown == number) {
                return *about;
            }
        }
    }
}
