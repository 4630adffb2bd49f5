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
    fn no_numbers_are_no_bars() {
        assert!(Plot::new(String::new(), &[vec![(Shape::Good, 0)]]).bars.is_empty());
    }
}
