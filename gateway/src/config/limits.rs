//! The settings of callers' limits, and of the control channel's timings.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Config, ConfigError};
use crate::domain::body_quota::MAX_BODY_BYTES;
use crate::domain::devices::SessionTimings;
use crate::domain::quotas::{QuotaKind, Quotas};
use crate::domain::rates::Rate;
use crate::domain::{CallerLimits, MAX_CONCURRENT_COMMITS, StorageQuotas};

/// More than one machine can answer in a second.
const MAX_RATE_PER_SECOND: u32 = 1_000_000;
/// More than anybody looks after.
const MAX_QUOTA: u32 = 1_000_000;
/// The settings of the quotas, in their order.
const QUOTA_KEYS: [&str; QuotaKind::ALL.len()] = [
    "limits.applications_per_device",
    "limits.applications_per_account",
    "limits.keys_per_application",
    "limits.services_per_application",
    "limits.services_per_device",
    "limits.services_per_account",
    "limits.webhooks_per_application",
    "limits.listeners_per_application",
];
/// An hour. A longer loss should have been noticed.
const MAX_INTERVAL_MS: u64 = 3_600_000;

impl Config {
    /// The limits of callers.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: a limit is not a whole number, or is outside its range.
    pub fn limits(&self) -> Result<CallerLimits, ConfigError> {
        let days: u32 = self.parse("limits.retention_days", "a whole number of days")?;
        Ok(CallerLimits {
            waiting_runs_per_application: self.parse("limits.waiting_runs_per_application", "a whole number")?,
            rate: Rate { per_second: self.rate("limits.requests_per_second")?, burst: self.rate("limits.burst")? },
            failed_authentications_per_minute: self.rate("limits.failed_authentications_per_minute")?,
            retention: Duration::from_secs(u64::from(days) * 24 * 3600),
            streams_per_application: self.parse("limits.streams_per_application", "a whole number")?,
            waits_per_application: self.parse("limits.waits_per_application", "a whole number")?,
            bodies_per_key: self.at_least("limits.bodies_per_key", 1)?,
            body_bytes_per_key: self.at_least("limits.body_bytes_per_key", MAX_BODY_BYTES)?,
            concurrent_commits: self.concurrent_commits()?,
            quotas: self.quotas()?,
            uploads_per_key: self.at_least("limits.uploads_per_key", 1)?,
            storage: StorageQuotas {
                bytes_per_application: self.parse("limits.stored_bytes_per_application", "a whole number of bytes")?,
                bytes_per_device: self.parse("limits.artifact_bytes_per_device", "a whole number of bytes")?,
            },
        })
    }

    fn concurrent_commits(&self) -> Result<Option<usize>, ConfigError> {
        let key = "limits.concurrent_commits";
        let wanted = format!("auto, or a whole number from 1 to {MAX_CONCURRENT_COMMITS}");
        match self.text(key) {
            "auto" => Ok(None),
            _ => match self.parse(key, &wanted)? {
                commits @ 1..=MAX_CONCURRENT_COMMITS => Ok(Some(commits)),
                _ => Err(self.needed(key, &wanted)),
            },
        }
    }

    /// The setting of each quota is named as the quota is.
    fn quotas(&self) -> Result<Quotas, ConfigError> {
        let mut quotas = Quotas::default();
        for kind in QuotaKind::ALL {
            let key = QUOTA_KEYS[kind as usize];
            let wanted = format!("a whole number from 1 to {MAX_QUOTA}");
            let limit: u32 = self.parse(key, &wanted)?;
            if !(1..=MAX_QUOTA).contains(&limit) {
                return Err(self.needed(key, &wanted));
            }
            quotas = quotas.with(kind, limit);
        }
        Ok(quotas)
    }

    /// How many connections the control socket takes at once.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: it is not a whole number from 1 to 65536.
    pub fn control_connections(&self) -> Result<usize, ConfigError> {
        self.within("control.connections", 1..=65_536)
    }

    fn within(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let number = self.parse(key, &wanted)?;
        if range.contains(&number) { Ok(number) } else { Err(self.needed(key, &wanted)) }
    }

    fn at_least(&self, key: &'static str, least: usize) -> Result<usize, ConfigError> {
        let wanted = format!("a whole number from {least}");
        let number = self.parse(key, &wanted)?;
        if number >= least { Ok(number) } else { Err(self.needed(key, &wanted)) }
    }

    fn rate(&self, key: &'static str) -> Result<NonZeroU32, ConfigError> {
        let wanted = format!("a whole number from 1 to {MAX_RATE_PER_SECOND}");
        let number: NonZeroU32 = self.parse(key, &wanted)?;
        if number.get() <= MAX_RATE_PER_SECOND { Ok(number) } else { Err(self.needed(key, &wanted)) }
    }

    /// The timings of the control channel.
    ///
    /// # Errors
    /// [`ConfigError::Value`]: a time is not a whole number of milliseconds, is too short, or is longer than an hour. A
    /// lease is too short below two heartbeats.
    pub fn session_timings(&self) -> Result<SessionTimings, ConfigError> {
        let time = |key, least: u64| {
            let wanted = format!("a whole number of milliseconds from {least} to {MAX_INTERVAL_MS}");
            match self.parse::<u64>(key, &wanted)? {
                number if (least..=MAX_INTERVAL_MS).contains(&number) => Ok(Duration::from_millis(number)),
                _ => Err(self.needed(key, &wanted)),
            }
        };
        let heartbeat = time("control.heartbeat_ms", 10)?;
        let two_heartbeats = u64::try_from(heartbeat.as_millis() * 2).unwrap_or(u64::MAX);
        Ok(SessionTimings {
            heartbeat,
            lease: time("control.lease_ms", two_heartbeats)?,
            offer: time("control.offer_ms", 10)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn each_quota_has_its_setting_whose_default_is_the_quotas_own() {
        for (kind, key) in QuotaKind::ALL.into_iter().zip(QUOTA_KEYS) {
            assert_eq!(key, format!("limits.{kind}"));
            let quotas = |flags: &[&str]| load("", &[], flags).unwrap().limits().map(|limits| limits.quotas);
            assert_eq!(quotas(&[]).unwrap().limit(kind), Quotas::default().limit(kind), "{key}");
            assert_eq!(quotas(&[&format!("{key}=7")]).unwrap().limit(kind), 7, "{key}");
            assert!(quotas(&[&format!("{key}=0")]).unwrap_err().to_string().contains("from 1"), "{key}");
        }
    }

    #[test]
    fn clocks_that_could_not_work_are_refused() {
        let clocks = |flags: &[&str]| load("", &[], flags).unwrap().session_timings();
        assert!(clocks(&["control.heartbeat_ms=0"]).is_err());
        assert!(clocks(&["control.lease_ms=1000"]).unwrap_err().to_string().contains("from 30000"));
        assert!(clocks(&["control.heartbeat_ms=100", "control.lease_ms=300"]).is_ok());
    }

    #[test]
    fn rates_that_let_nothing_through_or_cannot_be_counted_are_refused() {
        let limits = |flag: &str| load("", &[], &[flag]).unwrap().limits();
        assert!(limits("limits.burst=0").is_err());
        assert!(limits("limits.requests_per_second=1000001").unwrap_err().to_string().contains("from 1 to 1000000"));
        assert!(limits("limits.bodies_per_key=0").is_err());
        assert!(limits("limits.body_bytes_per_key=1048575").unwrap_err().to_string().contains("from 1048576"));
        assert_eq!(limits("limits.burst=7").unwrap().rate.burst.get(), 7);
    }
}
