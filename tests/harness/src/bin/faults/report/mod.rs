//! The report of a pass: a text for the terminal, and a self-contained page.

mod page;
mod statistics;
mod timeline;

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use crate::check::{CHECKS, Observations, Violation, pass_validity};
use statistics::{OperationStats, by_kind, by_name};

/// The most violations of one invariant in the text.
const MAX_SHOWN_VIOLATIONS: usize = 5;

/// The result of a pass.
pub(crate) struct PassReport<'a> {
    pub(crate) seed: u64,
    pub(crate) violations: Vec<Violation>,
    /// Why the pass does not count.
    pub(crate) reasons: Vec<String>,
    pub(crate) witnesses: &'a Observations,
}

impl PassReport<'_> {
    /// Whether it counts and has no violation.
    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.reasons.is_empty()
    }

    /// The result in one line.
    fn verdict(&self) -> String {
        match (self.violations.len(), self.reasons.is_empty()) {
            (0, true) => "CLEAN: every invariant held".to_owned(),
            (0, false) => "DOES NOT COUNT: nothing was found, and nothing is shown".to_owned(),
            (number, true) => format!("{number} VIOLATIONS"),
            (number, false) => format!("{number} VIOLATIONS, and the pass does not count"),
        }
    }

    /// The violations of one invariant.
    fn of(&self, invariant: &str) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.invariant == invariant)
    }

    /// Writes everything to the folder of the seed, page and text also to the folder of all passes, and the text to the
    /// terminal.
    pub(crate) fn write(&self, own: &Path, all: &Path) -> anyhow::Result<()> {
        let (text, page) = (self.text(), page::write(self));
        for folder in [own, all] {
            for (name, content) in [("report.txt", &text), ("report.html", &page)] {
                let path = folder.join(name);
                std::fs::write(&path, content).with_context(|| path.display().to_string())?;
            }
        }
        let witnesses = own.join("witnesses.json");
        std::fs::write(&witnesses, serde_json::to_vec(self.witnesses)?)?;
        println!("\n{text}\nWritten to {}", own.display());
        Ok(())
    }

    /// The report as text.
    fn text(&self) -> String {
        let last = self.witnesses.done.iter().map(|done| done.ended).max().unwrap_or_default();
        let mut text = format!(
            "seed {}, {} faults in {:.0} s: {}\n\n",
            self.seed,
            self.witnesses.strikes.len(),
            last as f64 / 1e6,
            self.verdict()
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<10} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "operation", "all", "succeeded", "p50 ms", "p99 ms", "max ms"
        );
        for (name, OperationStats { all, succeeded, p50, p99, most }) in by_name(self.witnesses) {
            let _ = writeln!(text, "{name:<10} {all:>7} {succeeded:>9} {p50:>9.0} {p99:>9.0} {most:>9.0}");
        }
        let (succeeded, all) = pass_validity::succeeded(self.witnesses);
        let _ = writeln!(
            text,
            "{succeeded} of {all} operations succeeded; {} runs ended",
            pass_validity::ended(self.witnesses)
        );
        let _ = writeln!(text, "\nfaults");
        for (kind, (struck, all)) in by_kind(self.witnesses) {
            let _ = writeln!(text, "{:<4} {struck:>3} of {all:>3} struck  {}", kind.to_string(), kind.description());
        }
        let _ = writeln!(text, "\n{}", statistics::files(self.witnesses));
        let _ = writeln!(text, "{}", statistics::levels(self.witnesses));
        let _ = writeln!(text, "{}", statistics::points(self.witnesses));
        let _ = writeln!(text, "invariants");
        for (name, about, _) in CHECKS {
            let found: Vec<_> = self.of(name).collect();
            let holds = if found.is_empty() { "held".to_owned() } else { format!("{} VIOLATIONS", found.len()) };
            let _ = writeln!(text, "{name:<4} {about}: {holds}");
            for violation in found.iter().take(MAX_SHOWN_VIOLATIONS) {
                let at = violation.at.map(|at| format!("{:.1} s: ", at as f64 / 1e6)).unwrap_or_default();
                let _ = writeln!(text, "       {at}{}", violation.text);
            }
        }
        for reason in &self.reasons {
            let _ = writeln!(text, "\nDoes not count: {reason}");
        }
        text
    }
}
