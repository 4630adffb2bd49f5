//! The text format in which metrics are read (Prometheus, exposition format 0.0.4).

use std::fmt::Write;

/// A page of metrics that is being written.
#[derive(Default)]
pub struct MetricsText {
    name: &'static str,
    page: String,
}

impl MetricsText {
    /// Begins a family; the samples that follow belong to it.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a String cannot fail.
        let _ = writeln!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample. `suffix` is empty except for parts of a histogram.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.page, "{}{suffix}", self.name);
        for (place, (name, label)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.page, "{before}{name}=\"{label}\"");
        }
        let _ = writeln!(self.page, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of one sample without labels.
    pub fn one(&mut self, name: &'static str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample("", &[], value);
    }

    /// The page.
    pub fn finish(self) -> String {
        self.page
    }
}
