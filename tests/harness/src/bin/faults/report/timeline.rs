//! A timeline of a span: faults, operations, latencies, violations. SVG, with the colours of its page.

use std::fmt::Write;

use super::PassReport;
use crate::plan::FaultKind;

/// Sizes in units of the picture.
const PICTURE_WIDTH: f64 = 1200.0;
const LABEL_WIDTH: f64 = 190.0;
const ROW_HEIGHT: f64 = 18.0;
const GRAPH_HEIGHT: f64 = 110.0;
/// Bars of the graph of operations.
const BAR_COUNT: usize = 150;
/// Latencies have a logarithmic scale from one to a hundred thousand milliseconds.
const DECADE_COUNT: f64 = 5.0;

/// The position of a span of time on the picture.
#[derive(Clone, Copy)]
struct TimeScale {
    from: u64,
    to: u64,
}

impl TimeScale {
    fn x(self, at: u64) -> f64 {
        let share = (at.saturating_sub(self.from)) as f64 / (self.to - self.from).max(1) as f64;
        LABEL_WIDTH + share.min(1.0) * (PICTURE_WIDTH - LABEL_WIDTH - 10.0)
    }

    fn has(self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// Draws the span from one time to another, in microseconds.
pub(super) fn draw(report: &PassReport<'_>, from: u64, to: u64) -> String {
    let span = TimeScale { from, to };
    let mut picture = String::new();
    let mut y = 24.0;
    axis(&mut picture, span);
    y = faults(&mut picture, report, span, y);
    y = operations(&mut picture, report, span, y + 16.0);
    y = latencies(&mut picture, report, span, y + 16.0);
    y = violations(&mut picture, report, span, y + 16.0);
    format!(
        "<svg viewBox=\"0 0 {PICTURE_WIDTH} {height}\" role=\"img\" aria-label=\"timeline\">{picture}</svg>",
        height = y + 8.0
    )
}

// Writing to a String cannot fail, so those results are dropped.

fn axis(picture: &mut String, span: TimeScale) {
    let seconds = (span.to - span.from) as f64 / 1e6;
    let step = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0].into_iter().find(|step| seconds / step <= 14.0);
    let step = (step.unwrap_or(300.0) * 1e6) as u64;
    let mut at = span.from.next_multiple_of(step);
    while at <= span.to {
        let x = span.x(at);
        let _ = write!(
            picture,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"16\" y2=\"100%\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"12\">{} s</text>",
            at as f64 / 1e6
        );
        at += step;
    }
}

fn label(picture: &mut String, y: f64, text: &str) {
    let _ = write!(picture, "<text x=\"0\" y=\"{y:.1}\">{text}</text>");
}

fn faults(picture: &mut String, report: &PassReport<'_>, span: TimeScale, mut y: f64) -> f64 {
    let strikes = &report.witnesses.strikes;
    for kind in FaultKind::ALL_KINDS.into_iter().filter(|kind| strikes.iter().any(|strike| strike.kind() == *kind)) {
        label(picture, y + 12.0, &format!("{kind} {}", kind.description()));
        let shown = strikes.iter().filter(|strike| strike.kind() == kind);
        for strike in shown.filter(|strike| strike.begun <= span.to && strike.healed >= span.from) {
            let (x, end) = (span.x(strike.begun), span.x(strike.healed));
            let class = if strike.proof.is_ok() { "fault" } else { "missed" };
            let said = strike.proof.as_ref().unwrap_or_else(|why| why);
            let _ = write!(
                picture,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} {kind}, {:.1} to {:.1} s: {}</title></rect>",
                (end - x).max(3.0),
                ROW_HEIGHT - 5.0,
                strike.planned.number,
                strike.begun as f64 / 1e6,
                strike.healed as f64 / 1e6,
                super::page::escaped(said)
            );
        }
        y += ROW_HEIGHT;
    }
    y
}

/// Operations by end time: successful ones above, the others below.
fn operations(picture: &mut String, report: &PassReport<'_>, span: TimeScale, y: f64) -> f64 {
    let width = (span.to - span.from).max(1) / BAR_COUNT as u64 + 1;
    let mut bars = vec![(0_u64, 0_u64); BAR_COUNT];
    for done in report.witnesses.done.iter().filter(|done| span.has(done.ended)) {
        let place = usize::try_from((done.ended - span.from) / width).unwrap_or(0).min(BAR_COUNT - 1);
        let (good, bad) = &mut bars[place];
        *(if done.succeeded { good } else { bad }) += 1;
    }
    let most = bars.iter().map(|(good, bad)| good + bad).max().unwrap_or(0).max(1);
    label(picture, y + 14.0, "operations that ended");
    let per_second = most as f64 * 1e6 / width as f64;
    label(picture, y + 30.0, &format!("at most {per_second:.0} a second"));
    for (place, (good, bad)) in bars.iter().enumerate() {
        let from = span.from + place as u64 * width;
        let (x, wide) = (span.x(from), span.x(from + width) - span.x(from));
        let (high, low) = (GRAPH_HEIGHT * *good as f64 / most as f64, GRAPH_HEIGHT * *bad as f64 / most as f64);
        let bottom = y + GRAPH_HEIGHT;
        for (class, top, height) in [("good", bottom - high, high), ("bad", bottom - high - low, low)] {
            if height > 0.0 {
                let _ = write!(
                    picture,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
                    (wide - 0.6).max(0.6)
                );
            }
        }
    }
    y + GRAPH_HEIGHT
}

/// The duration of each submission, by start time.
fn latencies(picture: &mut String, report: &PassReport<'_>, span: TimeScale, y: f64) -> f64 {
    label(picture, y + 14.0, "submissions, ms to the answer");
    for decade in 0..=5_u32 {
        let line = y + GRAPH_HEIGHT - GRAPH_HEIGHT * f64::from(decade) / DECADE_COUNT;
        let _ = write!(
            picture,
            "<line class=\"grid\" x1=\"{LABEL_WIDTH}\" x2=\"{PICTURE_WIDTH}\" y1=\"{line:.1}\" y2=\"{line:.1}\"/>\
             <text class=\"scale\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LABEL_WIDTH - 4.0,
            line + 4.0,
            10_u32.pow(decade)
        );
    }
    for done in report.witnesses.done.iter().filter(|done| done.name == "submit" && span.has(done.begun)) {
        let ms = ((done.ended - done.begun) as f64 / 1e3).max(1.0);
        let class = if done.succeeded { "dot" } else { "dot bad" };
        let height = GRAPH_HEIGHT * (ms.log10() / DECADE_COUNT).min(1.0);
        let _ = write!(
            picture,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.8\"/>",
            span.x(done.begun),
            y + GRAPH_HEIGHT - height
        );
    }
    y + GRAPH_HEIGHT
}

fn violations(picture: &mut String, report: &PassReport<'_>, span: TimeScale, y: f64) -> f64 {
    label(picture, y + 12.0, "violations");
    for violation in &report.violations {
        let Some(at) = violation.at.filter(|at| span.has(*at)) else { continue };
        let _ = write!(
            picture,
            "<path class=\"violation\" d=\"M{x:.1} {y:.1}l6 12h-12z\"><title>{name}: {text}</title></path>",
            x = span.x(at),
            name = violation.invariant,
            text = super::page::escaped(&violation.text)
        );
    }
    y + ROW_HEIGHT
}
