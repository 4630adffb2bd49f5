//! The page: one file that loads nothing.

use std::fmt::Write;

use super::statistics::{self, by_kind, by_name};
use super::{PassReport, timeline};
use crate::check::{CHECKS, pass_validity};

/// The most violations with a timeline.
const MAX_TIMELINES: usize = 20;
/// Microseconds that a timeline shows before and after a violation.
const TIMELINE_MARGIN_US: u64 = 6_000_000;

const PAGE_CSS: &str = "
:root { color-scheme: light dark; --text: #1c2024; --quiet: #60646c; --line: #d9d9e0; --back: #fcfcfd;
  --good: #30a46c; --bad: #e5484d; --fault: #f76b15; --dot: #0090ff }
@media (prefers-color-scheme: dark) { :root { --text: #edeef0; --quiet: #b0b4ba; --line: #363a3f; --back: #111113 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.verdict { font-weight: 600; padding: .6rem 1rem; border-left: .4rem solid var(--bad) }
.verdict.clean { border-color: var(--good) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.number, th.number { text-align: right } .broken { color: var(--bad); font-weight: 600 }
.scroll { overflow-x: auto } svg { width: 100%; min-width: 50rem; font: 11px system-ui, sans-serif }
svg text { fill: var(--text) } svg .tick { text-anchor: middle; fill: var(--quiet) }
svg .scale { text-anchor: end; fill: var(--quiet) } svg .grid { stroke: var(--line); stroke-width: .5 }
svg .fault { fill: var(--fault) } svg .missed { fill: none; stroke: var(--fault) } svg .good { fill: var(--good) }
svg .bad { fill: var(--bad) } svg .dot { fill: var(--dot) } svg .dot.bad, svg .violation { fill: var(--bad) }
";

/// Text escaped for a page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The whole page. Writing to a String cannot fail, so those results are dropped.
pub(super) fn write(report: &PassReport<'_>) -> String {
    let witnesses = report.witnesses;
    let last = witnesses.done.iter().map(|done| done.ended).max().unwrap_or(1);
    let (succeeded, all) = pass_validity::succeeded(witnesses);
    let class = if report.is_clean() { "verdict clean" } else { "verdict" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Faults, seed {seed}</title><style>{PAGE_CSS}</style>\n<h1>Faults, seed {seed}</h1>\n\
         <p class=\"{class}\">{verdict}</p>\n\
         <p>{faults} faults in {seconds:.0} s; {succeeded} of {all} operations succeeded; {runs} runs ended.</p>\n",
        seed = report.seed,
        verdict = escaped(&report.verdict()),
        faults = witnesses.strikes.len(),
        seconds = last as f64 / 1e6,
        runs = pass_validity::ended(witnesses),
    );
    for reason in &report.reasons {
        let _ = writeln!(page, "<p class=\"broken\">Does not count: {}</p>", escaped(reason));
    }
    let _ = writeln!(page, "<h2>The pass</h2><div class=\"scroll\">{}</div>", timeline::draw(report, 0, last));
    invariants(&mut page, report);
    violations(&mut page, report);
    operations(&mut page, report);
    faults(&mut page, report);
    page
}

fn invariants(page: &mut String, report: &PassReport<'_>) {
    let _ = writeln!(page, "<h2>Invariants</h2><table>");
    for (name, about, _) in CHECKS {
        let holds = match report.of(name).count() {
            0 => "<td>held".to_owned(),
            number => format!("<td class=\"broken\">{number} violations"),
        };
        let _ = writeln!(page, "<tr><th>{name}<td>{about}{holds}");
    }
    let _ = writeln!(page, "</table>");
}

fn violations(page: &mut String, report: &PassReport<'_>) {
    if report.violations.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>Violations</h2>");
    for (number, violation) in report.violations.iter().enumerate() {
        let at = violation.at.map(|at| format!(" at {:.2} s", at as f64 / 1e6)).unwrap_or_default();
        let _ = writeln!(page, "<p><b>{}</b>{at}: {}</p>", violation.invariant, escaped(&violation.text));
        if let Some(at) = violation.at.filter(|_| number < MAX_TIMELINES) {
            let picture = timeline::draw(report, at.saturating_sub(TIMELINE_MARGIN_US), at + TIMELINE_MARGIN_US);
            let _ = writeln!(page, "<div class=\"scroll\">{picture}</div>");
        }
    }
}

fn operations(page: &mut String, report: &PassReport<'_>) {
    let names = ["all", "succeeded", "p50 ms", "p99 ms", "max ms"];
    let heads: String = names.iter().map(|name| format!("<th class=\"number\">{name}")).collect();
    let _ = writeln!(page, "<h2>Operations</h2><table><tr><th>{heads}");
    for (name, figures) in by_name(report.witnesses) {
        let _ = write!(page, "<tr><th>{name}");
        for number in [figures.all as f64, figures.succeeded as f64, figures.p50, figures.p99, figures.most] {
            let _ = write!(page, "<td class=\"number\">{number:.0}");
        }
    }
    let _ = writeln!(page, "</table>");
}

fn faults(page: &mut String, report: &PassReport<'_>) {
    let _ = writeln!(page, "<h2>Faults</h2><table>");
    for (kind, (struck, all)) in by_kind(report.witnesses) {
        let _ = writeln!(page, "<tr><th>{kind}<td>{}<td>{struck} of {all} struck", kind.description());
    }
    let _ = writeln!(page, "</table><h2>One after the other</h2><div class=\"scroll\"><table>");
    for strike in &report.witnesses.strikes {
        let class = if strike.proof.is_ok() { "" } else { " class=\"broken\"" };
        let _ = writeln!(
            page,
            "<tr><td class=\"number\">{}<th>{}<td class=\"number\">{:.1} s<td class=\"number\">{:.1} s<td{class}>{}",
            strike.planned.number,
            strike.kind(),
            strike.begun as f64 / 1e6,
            (strike.healed - strike.begun) as f64 / 1e6,
            escaped(strike.proof.as_ref().unwrap_or_else(|why| why)),
        );
    }
    let _ = writeln!(page, "</table></div>");
    let witnesses = report.witnesses;
    let tables =
        [statistics::files(witnesses), statistics::levels(witnesses), statistics::points(witnesses)].join("\n");
    let _ = writeln!(page, "<h2>Files, what programs had, and where they died</h2><pre>{}</pre>", escaped(&tables));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Observations, Violation};

    #[test]
    fn the_page_loads_nothing_and_shows_a_violation_with_a_picture() {
        let witnesses = Observations::default();
        let text = "a <run> went back".to_owned();
        let violations = vec![Violation { invariant: "I2".to_owned(), at: Some(7_000_000), text }];
        let report = PassReport { seed: 5, violations, reasons: vec!["too short".to_owned()], witnesses: &witnesses };
        let page = write(&report);
        for part in ["seed 5", "1 VIOLATIONS", "a &lt;run&gt; went back", "at 7.00 s", "Does not count: too short"] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<svg").count(), 2, "the pass, and the violation");
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("<run>"));
    }
}
