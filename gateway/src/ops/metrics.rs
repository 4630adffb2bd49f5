//! `GET /metrics`: the counters, and the current state in the tables.
//!
//! Values from the tables are the same on every replica: take the maximum over them, not the sum.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use deskgate_protocol::{PROTOCOL_RANGE, VERSION};

use super::Ops;
use crate::domain::health::{HealthCode, HealthSnapshot};
use crate::metrics::MetricsText;
use crate::store::devices::Presence;
use crate::store::migrate;
use crate::store::objects::StoredBytes;
use crate::store::quotas::{QuotaKind, QuotaUse};
use crate::store::status_counts::DeviceCounts;

/// The commit that was built, if the build named it.
const BUILD_COMMIT: &str = match option_env!("DESKGATE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

pub(super) async fn metrics(State(ops): State<Ops>) -> impl IntoResponse {
    let mut text = MetricsText::default();
    text.family("deskgate_build_info", "gauge", "The program; always 1.");
    let protocol = PROTOCOL_RANGE.max.to_string();
    text.sample("", &[("version", VERSION), ("commit", BUILD_COMMIT), ("protocol", &protocol)], 1.0);
    ops.store.metrics().write(&mut text);
    connections(&ops, &mut text);
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    text.one(
        "deskgate_tasks",
        "gauge",
        "Tasks of this program: for each connection, stream and session, and its own.",
        tasks as f64,
    );
    text.one(
        "deskgate_migration_known",
        "gauge",
        "The newest migration that this program has.",
        f64::from(migrate::newest()),
    );
    let seen = HealthSnapshot::now(&ops.store, &ops.storage, ops.queue.age()).await;
    problems(&seen, &mut text);
    if let Some((_, room)) = &seen.disk.own {
        text.one("deskgate_disk_free_bytes", "gauge", "Room on the disk of state_dir.", room.free_bytes as f64);
    }
    if let Some(until) = ops.tls.as_ref().and_then(crate::tls::ServerTls::expires_at) {
        text.one(
            "deskgate_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the public listener's certificate ends, in seconds since 1970.",
            until.as_second() as f64,
        );
    }
    // Without a database its values are unknown.
    if let Some(applied) = seen.migration {
        text.one("deskgate_migration_version", "gauge", "The newest applied migration.", f64::from(applied));
        census(&seen.census, &mut text);
        let (pending, oldest_s) = seen.callbacks;
        text.one("deskgate_callback_pending", "gauge", "Deliveries that wait; counted up to 10,000.", pending as f64);
        text.one("deskgate_callback_oldest_seconds", "gauge", "How long the oldest of them has waited.", oldest_s);
        quotas(&ops, &seen.quota_use, &mut text);
        if let Ok(bytes) = ops.store.stored_bytes().await {
            objects(&bytes, &mut text);
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.finish())
}

/// The bytes of files and artifacts.
fn objects(bytes: &StoredBytes, text: &mut MetricsText) {
    let states = [("arriving", bytes.arriving), ("stored", bytes.stored), ("released", bytes.released)];
    text.family("deskgate_objects", "gauge", "Files and artifacts: on their way, stored, and to be deleted.");
    for (state, (count, _)) in states {
        text.sample("", &[("state", state)], count as f64);
    }
    text.family("deskgate_object_bytes", "gauge", "Their bytes; of those on their way, what was announced.");
    for (state, (_, bytes)) in states {
        text.sample("", &[("state", state)], bytes as f64);
    }
}

/// Each quota, and how much of it is used where most is: no owner is named.
fn quotas(ops: &Ops, uses: &[QuotaUse], text: &mut MetricsText) {
    text.family(
        "deskgate_quota_limit",
        "gauge",
        "The most of each kind that a device, account or application may have.",
    );
    for kind in QuotaKind::ALL {
        text.sample("", &[("quota", kind.as_str())], f64::from(ops.store.quotas().limit(kind)));
    }
    text.family("deskgate_quota_highest_use", "gauge", "How many the device, account or application with most has.");
    for kind in QuotaKind::ALL {
        let used = uses.iter().filter(|quota| quota.kind == kind).map(|quota| quota.used).max();
        text.sample("", &[("quota", kind.as_str())], f64::from(used.unwrap_or(0)));
    }
}

fn connections(ops: &Ops, text: &mut MetricsText) {
    let connections = ops.store.connections();
    text.family("deskgate_db_pool_connections", "gauge", "Connections to the database, and callers that wait for one.");
    for (state, count) in [("idle", connections.idle), ("in_use", connections.busy), ("awaited", connections.waiting)] {
        text.sample("", &[("state", state)], count as f64);
    }
}

fn problems(seen: &HealthSnapshot, text: &mut MetricsText) {
    text.family("deskgate_health_problem", "gauge", "What is wrong: 1 while it is.");
    let found = seen.problems();
    for code in HealthCode::ALL {
        let there = found.iter().any(|problem| problem.code == code);
        let labels = [("code", code.as_str()), ("severity", code.severity().as_str())];
        text.sample("", &labels, f64::from(u8::from(there)));
    }
}

fn census(devices: &[DeviceCounts], text: &mut MetricsText) {
    let up = |device: &DeviceCounts| matches!(device.presence, Presence::Connected | Presence::Paused);
    let sum = |of: &dyn Fn(&DeviceCounts) -> u64| devices.iter().map(of).sum::<u64>() as f64;
    text.family("deskgate_queue_depth", "gauge", "Runs that have not ended; counted up to 100,000 for each device.");
    let takes = |device: &DeviceCounts| device.presence == Presence::Connected;
    let waiting = |taking: bool| sum(&|device| if takes(device) == taking { device.waiting } else { 0 });
    let started = |place: usize| sum(&|device| device.started[place]);
    for (state, count) in [
        ("queued", waiting(true)),
        ("waiting_for_device", waiting(false)),
        ("running", started(0)),
        ("awaiting_approval", started(1)),
        ("awaiting_reconciliation", started(2)),
        ("cancelling", started(3)),
    ] {
        text.sample("", &[("state", state)], count);
    }
    let oldest = devices.iter().filter_map(|device| device.oldest_s).fold(0.0, f64::max);
    text.one("deskgate_queue_oldest_seconds", "gauge", "How long the oldest queued run has waited.", oldest);
    text.one("deskgate_runs_awaiting_approval", "gauge", "Runs held for the desktop user.", started(1));
    let connected = devices.iter().filter(|device| up(device)).count();
    text.one("deskgate_devices_connected", "gauge", "Devices whose session is up.", connected as f64);
    let asleep = devices.iter().filter(|device| device.presence == Presence::Asleep).count();
    text.one("deskgate_devices_asleep", "gauge", "Devices that announced their sleep and are not back.", asleep as f64);
    let reconnects = sum(&|device| device.sessions.saturating_sub(1));
    text.one("deskgate_device_reconnects_total", "counter", "Sessions of devices after their first.", reconnects);
    text.family("deskgate_device_last_seen_seconds", "gauge", "Seconds since a device was last heard of.");
    for device in devices {
        if let Some(seconds) = device.last_seen_s {
            text.sample("", &[("device", &device.device_id.to_string())], seconds);
        }
    }
}
