//! Small plots, drawn by the server: bars in a row, whose numbers are in the table beside them.

use super::labels::Shape;

/// The height of a plot, in its own units.
const PLOT_HEIGHT: f64 = 60.0;
const BAR_SPACING: f64 = 14.0;
const BAR_WIDTH: f64 = 11.0;

/// Bars in a row; each consists of stacked parts.
pub(super) struct Plot {
    /// The plot's description, in a sentence.
    pub(super) sentence: String,
    pub(super) bars: Vec<Bar>,
}

/// One drawn part of a bar.
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Plot {
    /// From columns of numbers; the parts of a column from the bottom up.
    pub(super) fn new(sentence: String, columns: &[Vec<(Shape, u32)>]) -> Self {
        let sum = |column: &[(Shape, u32)]| column.iter().map(|(_, number)| f64::from(*number)).sum::<f64>();
        let most = columns.iter().map(|column| sum(column)).fold(1.0, f64::max);
        let mut bars = Vec::new();
        for (place, column) in columns.iter().enumerate() {
            let mut top = PLOT_HEIGHT;
            for (shape, number) in column.iter().filter(|(_, number)| *number > 0) {
                // Small values stay visible.
                let height = (f64::from(*number) / most * PLOT_HEIGHT).max(1.5);
                top -= height;
                bars.push(Bar {
                    class: shape.class(),
                    x: place as f64 * BAR_SPACING,
                    y: top.max(0.0),
                    width: BAR_WIDTH,
                    height,
                });
            }
        }
        Self { sentence, bars }
    }

    /// The width of a plot with this many columns.
    pub(super) fn width(columns: usize) -> f64 {
        columns as f64 * BAR_SPACING
    }
}

/// The size of a small chart, in its own units.
const SPARK_WIDTH: f64 = 240.0;
const SPARK_HEIGHT: f64 = 34.0;
/// Where its base line is.
const SPARK_BASE: f64 = 38.5;

/// A small chart of one number over time, as a line or as bars. Its numbers are in a table on the same page.
pub(super) struct Spark {
    /// The chart's description, in a sentence.
    pub(super) sentence: String,
    /// When it begins, in words.
    pub(super) from: &'static str,
    /// The class of its tone; empty: the accent.
    pub(super) class: &'static str,
    /// The points of the line; empty for bars.
    pub(super) line: String,
    pub(super) bars: Vec<Bar>,
}

impl Spark {
    /// A line through the numbers.
    pub(super) fn line(sentence: String, from: &'static str, class: &'static str, numbers: &[u32]) -> Self {
        let most = numbers.iter().copied().max().unwrap_or_default().max(1);
        let step = SPARK_WIDTH / numbers.len().saturating_sub(1).max(1) as f64;
        let point = |(place, number): (usize, &u32)| {
            let height = f64::from(*number) / f64::from(most) * SPARK_HEIGHT;
            format!("{:.0} {:.1}", place as f64 * step, SPARK_BASE - height)
        };
        let line = numbers.iter().enumerate().map(point).collect::<Vec<_>>().join(" ");
        Self { sentence, from, class, line, bars: Vec::new() }
    }

    /// A bar for each number that is not zero.
    pub(super) fn bars(sentence: String, from: &'static str, class: &'static str, numbers: &[u32]) -> Self {
        let most = f64::from(numbers.iter().copied().max().unwrap_or_default().max(1));
        let step = SPARK_WIDTH / numbers.len().max(1) as f64;
        let bar = |(place, number): (usize, &u32)| {
            let height = (f64::from(*number) / most * SPARK_HEIGHT).max(1.5);
            let x = (place as f64 * step).round();
            Bar { class, x, y: SPARK_BASE - height, width: (step * 0.6).round(), height }
        };
        let bars = numbers.iter().enumerate().filter(|(_, number)| **number > 0).map(bar).collect();
        Self { sentence, from, class, line: String::new(), bars }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_column_fills_the_plot_and_little_is_seen() {
        let columns = [vec![(Shape::Good, 1_000)], vec![(Shape::Good, 1)], vec![(Shape::Good, 0)]];
        let plot = Plot::new(String::new(), &columns);
        assert_eq!(plot.bars.len(), 2, "nothing is drawn for nothing");
        assert_eq!((plot.bars[0].y, plot.bars[0].height), (0.0, PLOT_HEIGHT));
        assert!(plot.bars[1].height >= 1.5);
    }

    #[test]
    fn a_line_begins_at_the_left_ends_at_the_right_and_has_its_peak_at_the_top() {
        let line = Spark::line(String::new(), "", "", &[0, 4, 2]).line;
        assert_eq!(line, "0 38.5 120 4.5 240 21.5");
        assert_eq!(Spark::bars(String::new(), "", "", &[0, 0, 1]).bars.len(), 1);
    }

    #[test]
    fn no_numbers_are_no_bars() {
        assert!(Plot::new(String::new(), &[vec![(Shape::Good, 0)]]).bars.is_empty());
    }
}
