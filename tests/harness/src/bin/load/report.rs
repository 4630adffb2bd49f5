//! The measurements, and what was wrong.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use deskgate_harness::report::machine;
use deskgate_harness::statistics::percentile;
use deskgate_harness::usage::memory_mib;
use serde_json::{Value, json};

use crate::environment::LoadEnvironment;

/// The results of each level.
#[derive(Debug, Default)]
pub(crate) struct LoadReport {
    levels: Vec<ScenarioResult>,
}

#[derive(Debug, Default)]
struct ScenarioResult {
    name: String,
    figures: Vec<(String, f64)>,
    wrong: Vec<String>,
}

impl LoadReport {
    /// Begins a level.
    pub(crate) fn begin(&mut self, name: String, site: &LoadEnvironment) {
        self.levels.push(ScenarioResult { name, ..ScenarioResult::default() });
        self.memory(site, "before");
    }

    /// Ends the level.
    pub(crate) fn end(&mut self, site: &LoadEnvironment) {
        self.memory(site, "after");
    }

    /// Notes the memory of all processes, in MiB.
    pub(crate) fn memory(&mut self, site: &LoadEnvironment, when: &str) {
        for (name, pid) in site.processes() {
            if let Ok(mib) = memory_mib(pid, "VmRSS") {
                self.figure(&format!("{name}, MiB {when}"), mib);
            }
        }
    }

    /// Records a number.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        println!("load: {name}: {value:.1}");
        self.of().figures.push((name.to_owned(), value));
    }

    /// Records the median, the 99th percentile and the maximum, in milliseconds.
    pub(crate) fn times(&mut self, name: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        let sorted: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        for (words, share) in [("median", 0.5), ("p99", 0.99), ("longest", 1.0)] {
            self.figure(&format!("{name}, ms {words}"), percentile(&sorted, share));
        }
    }

    /// Records a fault.
    pub(crate) fn wrong(&mut self, text: String) {
        println!("load: WRONG: {text}");
        self.of().wrong.push(text);
    }

    /// Records a fault if the condition is false.
    pub(crate) fn must(&mut self, is_so: bool, otherwise: impl FnOnce() -> String) {
        if !is_so {
            self.wrong(otherwise());
        }
    }

    fn of(&mut self) -> &mut ScenarioResult {
        self.levels.last_mut().expect("a level has begun")
    }

    /// Whether there was no fault, and there were measurements.
    pub(crate) fn is_clean(&self) -> bool {
        !self.levels.is_empty() && self.levels.iter().all(|level| level.wrong.is_empty())
    }

    /// Writes and prints it.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        let mut text = String::new();
        for level in &self.levels {
            let _ = writeln!(text, "\n{}", level.name);
            for (name, value) in &level.figures {
                let _ = writeln!(text, "  {name:<56} {value:>12.1}");
            }
            for wrong in &level.wrong {
                let _ = writeln!(text, "  WRONG: {wrong}");
            }
        }
        let _ = writeln!(text, "\nload: {}", if self.is_clean() { "nothing was wrong" } else { "something was WRONG" });
        print!("{text}");
        std::fs::write(folder.join("report.txt"), text)?;
        let levels: Vec<Value> = self.levels.iter().map(ScenarioResult::json).collect();
        std::fs::write(folder.join("report.json"), json!({ "machine": machine(), "levels": levels }).to_string())
    }
}

impl ScenarioResult {
    fn json(&self) -> Value {
        let figures: serde_json::Map<_, _> = self.figures.iter().map(|(name, v)| (name.clone(), json!(v))).collect();
        json!({ "level": self.name, "figures": figures, "wrong": self.wrong })
    }
}
