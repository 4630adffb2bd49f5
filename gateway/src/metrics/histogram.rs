//! A histogram of durations.

use super::text::MetricsText;

/// Observations, sorted into buckets when they are made.
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for values beyond the last.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Buckets up to and including each bound, which rise.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    pub(super) fn write(&self, text: &mut MetricsText, labels: &[(&str, &str)]) {
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            total += count;
            text.sample("_bucket", &[labels, &[("le", &bound)]].concat(), total as f64);
        }
        text.sample("_sum", labels, self.sum);
        text.sample("_count", labels, total as f64);
    }
}
