//! The problems of a gateway: typed, with the same list for `status`, `doctor` and the metrics.
//!
//! A cause hides the problems that follow from it, and each problem must last a while before it counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::storage::ObjectStorage;
use crate::store::Store;
use crate::store::devices::{Device, Presence};
use crate::store::disk::DiskState;
use crate::store::migrate;
use crate::store::quotas::QuotaUse;
use crate::store::status_counts::DeviceCounts;

deskgate_protocol::words! {
    /// How bad a problem is. The worst first.
    #[derive(PartialOrd, Ord)]
    pub enum Severity {
        /// Work that is due is not done.
        Fail = "fail",
        /// Work is done, and may soon not be.
        Warn = "warn",
    }
}

deskgate_protocol::words! {
    /// What can be wrong, the most important first.
    #[derive(PartialOrd, Ord)]
    pub enum HealthCode {
        /// The database does not answer.
        StoreUnavailable = "store_unavailable",
        /// A disk is full.
        DiskFull = "disk_full",
        /// Files cannot be kept.
        StorageUnavailable = "storage_unavailable",
        /// The database lacks migrations.
        SchemaBehind = "schema_behind",
        /// The queue's upkeep stands still.
        QueueStalled = "queue_stalled",
        /// A device was refused because of its version.
        DeviceIncompatible = "device_incompatible",
        /// Runs wait although their device takes work.
        QueueOld = "queue_old",
        /// Runs wait and no device is connected.
        NoDevice = "no_device",
        /// Callbacks do not arrive.
        CallbacksLate = "callbacks_late",
        /// The outcome of some runs is unknown.
        RunsUnsettled = "runs_unsettled",
        /// A disk is nearly full.
        DiskNearlyFull = "disk_nearly_full",
        /// Somebody can make no more.
        QuotaReached = "quota_reached",
        /// Somebody can soon make no more.
        QuotaNearlyReached = "quota_nearly_reached",
    }
}

impl HealthCode {
    /// The problem's severity.
    pub const fn severity(self) -> Severity {
        match self {
            Self::StoreUnavailable
            | Self::DiskFull
            | Self::StorageUnavailable
            | Self::SchemaBehind
            | Self::QueueStalled
            | Self::DeviceIncompatible => Severity::Fail,
            Self::QueueOld
            | Self::NoDevice
            | Self::CallbacksLate
            | Self::RunsUnsettled
            | Self::DiskNearlyFull
            | Self::QuotaReached
            | Self::QuotaNearlyReached => Severity::Warn,
        }
    }

    /// The problem in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::StoreUnavailable => "The database does not answer",
            Self::DiskFull => "A disk is full",
            Self::StorageUnavailable => "Files cannot be kept",
            Self::SchemaBehind => "The database lacks migrations",
            Self::QueueStalled => "Nobody looks after the queue",
            Self::DeviceIncompatible => "A device has another version",
            Self::QueueOld => "Runs wait although their device is there",
            Self::NoDevice => "Runs wait and no device is there",
            Self::CallbacksLate => "Callbacks do not arrive",
            Self::RunsUnsettled => "Runs wait for their owner's word",
            Self::DiskNearlyFull => "A disk is nearly full",
            Self::QuotaReached => "A quota is reached",
            Self::QuotaNearlyReached => "A quota is nearly reached",
        }
    }

    /// The problems that may cause this one and hide it.
    pub const fn follows(self) -> &'static [Self] {
        match self {
            Self::StoreUnavailable => &[Self::DiskFull],
            Self::QueueStalled => &[Self::StoreUnavailable, Self::DiskFull],
            Self::NoDevice => &[Self::DeviceIncompatible],
            Self::QueueOld => &[Self::QueueStalled],
            _ => &[],
        }
    }
}

/// A problem of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayProblem {
    /// The kind of problem.
    pub code: HealthCode,
    /// Its severity.
    pub severity: Severity,
    /// The problem in a few words.
    pub title: String,
    /// What was observed.
    pub text: String,
    /// The next step to take.
    pub next: String,
}

impl GatewayProblem {
    fn new(code: HealthCode, text: impl Into<String>, next: &str) -> Self {
        let (severity, title) = (code.severity(), code.title().to_owned());
        Self { code, severity, title, text: text.into(), next: next.to_owned() }
    }
}

/// The observations of one health check.
#[derive(Clone, Debug, Default)]
pub struct HealthSnapshot {
    /// Devices, if the database answered.
    pub devices: Vec<Device>,
    /// The counts of each device's runs.
    pub census: Vec<DeviceCounts>,
    /// Deliveries that wait, and seconds since the oldest was queued.
    pub callbacks: (u64, f64),
    /// Who uses most of each quota.
    pub quota_use: Vec<QuotaUse>,
    /// The newest migration of the database; `None` while it does not answer.
    pub migration: Option<i32>,
    /// The time since the queue's upkeep last succeeded.
    pub queue: Duration,
    /// The room on the disks.
    pub disk: DiskState,
    /// Why files cannot be kept.
    pub storage: Option<String>,
}

/// The loop iterates every second; this many without an iteration are no hiccup.
pub const QUEUE_LOOP_TIMEOUT: Duration = Duration::from_secs(10);
/// A run that waits so long for a connected device is a problem.
const QUEUE_AGE_LIMIT_S: f64 = 300.0;
/// And so long for a device that is away.
const NO_DEVICE_AGE_LIMIT_S: f64 = 900.0;
/// A receiver that recovers within that time loses no delivery.
const CALLBACK_AGE_LIMIT_S: f64 = 3600.0;

impl HealthSnapshot {
    /// Takes a snapshot. `queue`: the time since the queue's upkeep last succeeded.
    pub async fn now(store: &Store, storage: &ObjectStorage, queue: Duration) -> Self {
        let seen = Self { queue, disk: store.disk(), storage: storage.trouble(), ..Self::default() };
        let Ok(migration) = store.applied_migration().await else { return seen };
        Self {
            devices: store.devices().await.unwrap_or_default(),
            census: store.device_counts().await.unwrap_or_default(),
            callbacks: store.pending_deliveries().await.unwrap_or_default(),
            quota_use: store.highest_use().await.unwrap_or_default(),
            migration: Some(migration),
            ..seen
        }
    }

    /// Devices whose session is up.
    pub fn connected(&self) -> usize {
        let up = |device: &&DeviceCounts| matches!(device.presence, Presence::Connected | Presence::Paused);
        self.census.iter().filter(up).count()
    }

    /// Runs that wait for a start.
    pub fn waiting(&self) -> u64 {
        self.census.iter().map(|device| device.waiting).sum()
    }

    /// Started runs by state: running, awaiting approval, awaiting reconciliation, cancelling.
    pub fn started(&self) -> [u64; 4] {
        std::array::from_fn(|place| self.census.iter().map(|device| device.started[place]).sum())
    }

    /// The problems, the worst first, without those that follow from another.
    pub fn problems(&self) -> Vec<GatewayProblem> {
        let more = [self.disks(), self.storage()];
        let mut found: Vec<_> = self.all().into_iter().chain(more).flatten().collect();
        let codes: Vec<_> = found.iter().map(|problem| problem.code).collect();
        found.retain(|problem| !problem.code.follows().iter().any(|cause| codes.contains(cause)));
        found.sort_by_key(|problem| (problem.severity, problem.code));
        found
    }

    fn all(&self) -> [Option<GatewayProblem>; 9] {
        let known = migrate::newest();
        let stalled = self.queue > QUEUE_LOOP_TIMEOUT;
        let Some(applied) = self.migration else {
            let none =
                GatewayProblem::new(HealthCode::StoreUnavailable, "No answer.", "See the log, and PostgreSQL's own.");
            let stalled = stalled.then(|| self.stalled());
            return [Some(none), stalled, None, None, None, None, None, None, None];
        };
        let behind = format!("The database is at migration {applied}, this program needs {known}.");
        let connected = self.connected() > 0;
        let oldest = self.census.iter().filter_map(|device| device.oldest_s).fold(0.0, f64::max);
        let takes = |device: &&DeviceCounts| device.presence == Presence::Connected;
        let oldest_there = self.census.iter().filter(takes).filter_map(|device| device.oldest_s).fold(0.0, f64::max);
        let (pending, late) = self.callbacks;
        let [_, _, unsettled, _] = self.started();
        [
            (applied < known)
                .then(|| GatewayProblem::new(HealthCode::SchemaBehind, behind, "Run: deskgate-gateway migrate run")),
            stalled.then(|| self.stalled()),
            self.incompatible(),
            (oldest_there > QUEUE_AGE_LIMIT_S).then(|| {
                let text = format!("The oldest has waited {oldest_there:.0} s for a device that is connected.");
                GatewayProblem::new(
                    HealthCode::QueueOld,
                    text,
                    "Its user sees on the desktop what the device is busy with.",
                )
            }),
            (!connected && oldest > NO_DEVICE_AGE_LIMIT_S).then(|| {
                let text = format!("The oldest run has waited {oldest:.0} s.");
                GatewayProblem::new(
                    HealthCode::NoDevice,
                    text,
                    "See which device is away: deskgate-gateway admin device list",
                )
            }),
            (late > CALLBACK_AGE_LIMIT_S).then(|| {
                let text = format!("{pending} deliveries wait, the oldest for {late:.0} s.");
                GatewayProblem::new(
                    HealthCode::CallbacksLate,
                    text,
                    "See what receivers answer: deskgate-gateway admin delivery list --state pending",
                )
            }),
            (unsettled > 0).then(|| {
                let text =
                    format!("{unsettled} runs were interrupted, and only their desktop users can confirm the outcome.");
                let next = "See them: deskgate-gateway admin run list --state awaiting_reconciliation";
                GatewayProblem::new(HealthCode::RunsUnsettled, text, next)
            }),
            self.quotas(HealthCode::QuotaReached, |quota| quota.used >= quota.limit),
            self.quotas(HealthCode::QuotaNearlyReached, |quota| quota.used < quota.limit && is_near(quota)),
        ]
    }

    /// Those whose use of a quota is like this.
    fn quotas(&self, code: HealthCode, is_so: impl Fn(&QuotaUse) -> bool) -> Option<GatewayProblem> {
        let told = |quota: &QuotaUse| {
            let QuotaUse { kind, owner, used, limit } = quota;
            format!("{owner}: {used} of {limit} (limits.{kind})")
        };
        let text: Vec<_> = self.quota_use.iter().filter(|quota| is_so(quota)).map(told).collect();
        let next = "Its user can remove what is not needed any more, or raise the setting and restart the gateway.";
        (!text.is_empty()).then(|| GatewayProblem::new(code, format!("{}.", text.join("; ")), next))
    }

    fn disks(&self) -> Option<GatewayProblem> {
        let next = "Make room, or give the disk more. See what takes it: du -xh --max-depth=2";
        if let Some(why) = self.disk.hinders() {
            return Some(GatewayProblem::new(HealthCode::DiskFull, format!("Nothing can be accepted: {why}."), next));
        }
        let (folder, room) = self.disk.own.as_ref().filter(|(_, room)| room.is_low())?;
        let code = if room.is_full() { HealthCode::DiskFull } else { HealthCode::DiskNearlyFull };
        let text = format!("{} MiB are left on the disk of {}.", room.free_mib(), folder.display());
        Some(GatewayProblem::new(code, text, next))
    }

    fn storage(&self) -> Option<GatewayProblem> {
        let next = "Runs without files go on. Try the folder or the bucket by: deskgate-gateway check";
        let why = self.storage.as_ref()?;
        Some(GatewayProblem::new(HealthCode::StorageUnavailable, format!("Files are refused: {why}."), next))
    }

    fn stalled(&self) -> GatewayProblem {
        let text = format!("Nobody has for {} s.", self.queue.as_secs());
        GatewayProblem::new(HealthCode::QueueStalled, text, "See the log. If it stays so, restart the gateway.")
    }

    fn incompatible(&self) -> Option<GatewayProblem> {
        let refused: Vec<_> = self.devices.iter().filter(|device| device.presence == Presence::Incompatible).collect();
        let told = |device: &&Device| {
            let refusal = device.refusal.as_ref()?;
            let version = refusal.device_version.as_deref().unwrap_or("unknown");
            Some(format!("{} was refused: {version} against {}", device.name, refusal.gateway_version))
        };
        let text: Vec<_> = refused.iter().filter_map(told).collect();
        let next = "Install one version on both sides; major and minor number must be equal. See: deskgate-gateway admin device list";
        (!text.is_empty())
            .then(|| GatewayProblem::new(HealthCode::DeviceIncompatible, format!("{}.", text.join("; ")), next))
    }
}

/// Whether four fifths of a quota are used.
fn is_near(quota: &QuotaUse) -> bool {
    u64::from(quota.used) * 5 >= u64::from(quota.limit) * 4
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::DeviceId;

    use super::*;
    use crate::store::quotas::QuotaKind;

    fn seen() -> HealthSnapshot {
        HealthSnapshot { migration: Some(migrate::newest()), ..HealthSnapshot::default() }
    }

    fn waits(presence: Presence, oldest_s: f64) -> DeviceCounts {
        let device_id = DeviceId::new();
        let oldest_s = Some(oldest_s);
        DeviceCounts { device_id, presence, last_seen_s: None, sessions: 1, waiting: 1, oldest_s, started: [0; 4] }
    }

    fn codes(seen: &HealthSnapshot) -> Vec<HealthCode> {
        seen.problems().into_iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn a_cause_hides_what_follows_from_it_and_a_short_wait_is_no_problem() {
        assert_eq!(codes(&seen()), []);
        let stalled = HealthSnapshot { queue: Duration::from_secs(11), ..seen() };
        assert_eq!(codes(&stalled), [HealthCode::QueueStalled]);
        assert_eq!(codes(&HealthSnapshot { migration: None, ..stalled }), [HealthCode::StoreUnavailable]);
        let waiting = |presence, seconds| codes(&HealthSnapshot { census: vec![waits(presence, seconds)], ..seen() });
        assert_eq!(waiting(Presence::Connected, 299.0), []);
        assert_eq!(waiting(Presence::Connected, 301.0), [HealthCode::QueueOld]);
        assert_eq!(waiting(Presence::Offline, 301.0), []);
        assert_eq!(waiting(Presence::Offline, 901.0), [HealthCode::NoDevice]);
    }

    #[test]
    fn a_quota_is_told_of_from_four_fifths_on() {
        let uses = |used, limit| {
            let owner = "a laptop".to_owned();
            let quota_use = vec![QuotaUse { kind: QuotaKind::ApplicationsPerDevice, owner, used, limit }];
            HealthSnapshot { quota_use, ..seen() }
        };
        assert_eq!(codes(&uses(25, 32)), []);
        assert_eq!(codes(&uses(26, 32)), [HealthCode::QuotaNearlyReached]);
        assert_eq!(codes(&uses(32, 32)), [HealthCode::QuotaReached]);
        assert_eq!(codes(&uses(40, 32)), [HealthCode::QuotaReached]);
        let problem = uses(26, 32).problems().remove(0);
        assert_eq!(problem.text, "a laptop: 26 of 32 (limits.applications_per_device).");
    }

    #[test]
    fn every_code_is_written_as_it_says() {
        for pair in HealthCode::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for code in HealthCode::ALL {
            assert_eq!(serde_json::to_value(code).expect("a word"), code.as_str());
        }
    }

    #[test]
    fn a_full_disk_is_the_cause_of_a_database_that_does_not_answer_and_little_room_is_told_before() {
        use crate::store::disk::DiskRoom;
        let with = |free_mib: u64, holds_database| {
            let own = Some(("/var/lib/deskgate".into(), DiskRoom { free_bytes: free_mib * 1024 * 1024 }));
            DiskState { own, holds_database, refused: None }
        };
        assert_eq!(codes(&HealthSnapshot { disk: with(10_000, true), ..seen() }), []);
        assert_eq!(codes(&HealthSnapshot { disk: with(100, true), ..seen() }), [HealthCode::DiskNearlyFull]);
        assert_eq!(codes(&HealthSnapshot { disk: with(1, false), ..seen() }), [HealthCode::DiskFull]);
        let away = HealthSnapshot { migration: None, disk: with(1, true), ..HealthSnapshot::default() };
        assert_eq!(codes(&away), [HealthCode::DiskFull]);
        let refused = DiskState { refused: Some("No space left on device".to_owned()), ..DiskState::default() };
        let problems = HealthSnapshot { disk: refused, ..seen() }.problems();
        assert!(problems[0].text.contains("the database's disk is full: No space left"), "{problems:?}");
    }
}
