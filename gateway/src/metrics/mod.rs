//! The counters of a gateway, for `/metrics`.
//!
//! Counting takes one short lock and allocates nothing once a route is known, so that it does not slow an acceptance.
//! There are no counts by caller. Values that the tables hold are not counted here: they are queried for each request
//! of `/metrics`.

mod histogram;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deskgate_program::log_buffer;
use histogram::Histogram;
pub use text::MetricsText;

/// Seconds a request may take.
const REQUEST_BUCKETS_S: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// Seconds a run may wait or last.
const RUN_BUCKETS_S: &[f64] = &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// The counts of one gateway. Clones count together.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<MetricCounts>>);

struct MetricCounts {
    routes: HashMap<String, RouteMetrics>,
    runs: BTreeMap<&'static str, u64>,
    run_wait: Histogram,
    run_duration: Histogram,
    streams: u64,
    control_connections: u64,
    control_refusals: u64,
    callbacks: BTreeMap<&'static str, u64>,
    webhooks: BTreeMap<&'static str, u64>,
}

/// The answers of one route: by method and status, and how long they took.
struct RouteMetrics {
    answers: BTreeMap<(&'static str, u16), u64>,
    duration: Histogram,
}

impl Default for MetricCounts {
    fn default() -> Self {
        let (run_wait, run_duration) = (Histogram::new(RUN_BUCKETS_S), Histogram::new(RUN_BUCKETS_S));
        Self {
            routes: HashMap::new(),
            runs: BTreeMap::new(),
            run_wait,
            run_duration,
            streams: 0,
            control_connections: 0,
            control_refusals: 0,
            callbacks: BTreeMap::new(),
            webhooks: BTreeMap::new(),
        }
    }
}

impl Metrics {
    /// Counts an answered request. `route` is the template, never the address.
    pub fn request(&self, route: &str, method: &str, status: u16, took: Duration) {
        let mut counts = self.lock();
        if !counts.routes.contains_key(route) {
            let fresh = RouteMetrics { answers: BTreeMap::new(), duration: Histogram::new(REQUEST_BUCKETS_S) };
            counts.routes.insert(route.to_owned(), fresh);
        }
        let Some(route) = counts.routes.get_mut(route) else { return };
        *route.answers.entry((known(method), status)).or_default() += 1;
        route.duration.observe(took.as_secs_f64());
    }

    /// Counts a run that was started so many seconds after it was accepted.
    pub fn run_started(&self, waited_s: f64) {
        self.lock().run_wait.observe(waited_s);
    }

    /// Counts a run that ended, so many seconds after its start if it had one.
    pub fn run_ended(&self, outcome: &'static str, lasted_s: Option<f64>) {
        let mut counts = self.lock();
        *counts.runs.entry(outcome).or_default() += 1;
        if let Some(lasted_s) = lasted_s {
            counts.run_duration.observe(lasted_s);
        }
    }

    /// Counts an attempt to deliver by its outcome: `delivered`, `retry`, `exhausted`, or `blocked` by the rules.
    pub fn callback_attempted(&self, outcome: &'static str) {
        *self.lock().callbacks.entry(outcome).or_default() += 1;
    }

    /// Counts an event that a webhook received, by its outcome.
    pub fn webhook_received(&self, outcome: &'static str) {
        *self.lock().webhooks.entry(outcome).or_default() += 1;
    }

    /// Counts an open event stream, until the value is dropped.
    pub fn stream_opened(&self) -> OpenGuard {
        OpenGuard::count(self, |counts| &mut counts.streams)
    }

    /// Counts a connection on the control socket, until the value is dropped.
    pub fn control_connection_opened(&self) -> OpenGuard {
        OpenGuard::count(self, |counts| &mut counts.control_connections)
    }

    /// Counts a connection on the control socket that was refused because there was no room for it.
    pub fn control_connection_refused(&self) {
        self.lock().control_refusals += 1;
    }

    /// Writes everything that was counted, in the text format.
    pub fn write(&self, text: &mut MetricsText) {
        let counts = self.lock();
        let mut routes: Vec<_> = counts.routes.iter().collect();
        routes.sort_by_key(|(template, _)| *template);
        text.family("deskgate_http_requests_total", "counter", "Answers to requests.");
        for (template, route) in &routes {
            for ((method, status), count) in &route.answers {
                let status = status.to_string();
                text.sample("", &[("route", template), ("method", method), ("status", &status)], *count as f64);
            }
        }
        text.family(
            "deskgate_http_request_duration_seconds",
            "histogram",
            "From the head of a request to the head of its answer.",
        );
        for (template, route) in &routes {
            route.duration.write(text, &[("route", template)]);
        }
        text.family("deskgate_runs_total", "counter", "Runs that this gateway saw end.");
        for (outcome, count) in &counts.runs {
            text.sample("", &[("outcome", outcome)], *count as f64);
        }
        text.family("deskgate_run_wait_seconds", "histogram", "From the acceptance of a run to its start.");
        counts.run_wait.write(text, &[]);
        text.family("deskgate_run_duration_seconds", "histogram", "From the start of a run to its end.");
        counts.run_duration.write(text, &[]);
        text.family("deskgate_webhooks_received_total", "counter", "Events that came to addresses of webhooks.");
        for (outcome, count) in &counts.webhooks {
            text.sample("", &[("outcome", outcome)], *count as f64);
        }
        text.family("deskgate_sse_streams", "gauge", "Streams of events that are open.");
        text.sample("", &[], counts.streams as f64);
        text.family("deskgate_control_connections", "gauge", "Connections on the control socket that are open.");
        text.sample("", &[], counts.control_connections as f64);
        let help = "Devices that were refused because control.connections were open.";
        text.family("deskgate_control_connections_refused_total", "counter", help);
        text.sample("", &[], counts.control_refusals as f64);
        text.family("deskgate_log_lines_lost_total", "counter", "Lines of the log that nobody took in time.");
        text.sample("", &[], log_buffer::lost_lines() as f64);
        text.family("deskgate_callback_attempts_total", "counter", "Attempts to deliver to callbacks.");
        for (outcome, count) in &counts.callbacks {
            text.sample("", &[("outcome", outcome)], *count as f64);
        }
    }

    fn lock(&self) -> MutexGuard<'_, MetricCounts> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that is open, and counted as that.
pub struct OpenGuard {
    metrics: Metrics,
    count: fn(&mut MetricCounts) -> &mut u64,
}

impl OpenGuard {
    fn count(metrics: &Metrics, count: fn(&mut MetricCounts) -> &mut u64) -> Self {
        *count(&mut metrics.lock()) += 1;
        Self { metrics: metrics.clone(), count }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let mut counts = self.metrics.lock();
        let count = (self.count)(&mut counts);
        *count = count.saturating_sub(1);
    }
}

/// The method as a label. Unknown ones share a label, as callers may invent any number.
fn known(method: &str) -> &'static str {
    const KNOWN_METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    KNOWN_METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(meters: &Metrics) -> String {
        let mut text = MetricsText::default();
        meters.write(&mut text);
        text.finish()
    }

    #[test]
    fn what_was_counted_is_written_under_its_labels() {
        let meters = Metrics::default();
        for status in [200, 200, 404] {
            meters.request("/api/v1/runs/{run_id}", "GET", status, Duration::from_millis(3));
        }
        meters.request("/api/v1/runs/{run_id}", "BREW", 405, Duration::from_secs(100));
        meters.run_ended("failed", Some(0.2));
        let text = written(&meters);
        for line in [
            "# TYPE deskgate_http_requests_total counter",
            "deskgate_http_requests_total{route=\"/api/v1/runs/{run_id}\",method=\"GET\",status=\"200\"} 2",
            "deskgate_http_requests_total{route=\"/api/v1/runs/{run_id}\",method=\"other\",status=\"405\"} 1",
            "deskgate_http_request_duration_seconds_bucket{route=\"/api/v1/runs/{run_id}\",le=\"0.0025\"} 0",
            "deskgate_http_request_duration_seconds_bucket{route=\"/api/v1/runs/{run_id}\",le=\"0.005\"} 3",
            "deskgate_http_request_duration_seconds_bucket{route=\"/api/v1/runs/{run_id}\",le=\"+Inf\"} 4",
            "deskgate_http_request_duration_seconds_count{route=\"/api/v1/runs/{run_id}\"} 4",
            "deskgate_runs_total{outcome=\"failed\"} 1",
            "deskgate_run_duration_seconds_bucket{le=\"0.1\"} 0",
            "deskgate_run_duration_seconds_bucket{le=\"0.5\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "no {line:?} in\n{text}");
        }
    }

    #[test]
    fn a_stream_counts_as_open_until_it_is_dropped() {
        let meters = Metrics::default();
        let (one, other) = (meters.stream_opened(), meters.stream_opened());
        drop(one);
        assert!(written(&meters).contains("deskgate_sse_streams 1\n"));
        drop(other);
        assert!(written(&meters).contains("deskgate_sse_streams 0\n"));
    }
}
